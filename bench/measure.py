"""Wall clock, CPU and memory of this process and all its descendants."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone

import psutil


@dataclass
class Usage:
    """What ran between two moments. CPU of descendants too, the servers of the stack are not among them."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_python_mib: float = 0.0
    peak_mib: float = 0.0
    """Of all but this process at one moment, summed: a page that two of them share is counted twice."""


class Sampler:
    """Watches the process tree: CPU by process, and the resident sets: the largest Python process, and all together."""

    def __init__(self, every: float = 0.1, others: Iterable[int] = ()) -> None:
        self._every = every
        self._roots = [psutil.Process(), *map(psutil.Process, others)]
        self._cpu: dict[tuple[int, float], float] = {}
        self._stop = threading.Event()
        self.peak_python = self.peak = 0

    def cpu(self) -> float:
        """CPU seconds of every process seen so far, those that ended among them."""
        self._sample()
        return sum(self._cpu.values())

    def watch(self) -> None:
        while not self._stop.wait(self._every):
            self._sample()

    def stop(self) -> None:
        self._stop.set()

    def _sample(self) -> None:
        resident: dict[int, int] = {}
        for process in [found for root in self._roots for found in (root, *root.children(recursive=True))]:
            try:
                times, name = process.cpu_times(), process.name()
                self._cpu[(process.pid, process.create_time())] = times.user + times.system
                if process == self._roots[0]:
                    continue
                resident[process.pid] = process.memory_info().rss
                if name.startswith("python"):
                    self.peak_python = max(self.peak_python, resident[process.pid])
            except psutil.Error:
                continue
        self.peak = max(self.peak, sum(resident.values()))


@contextmanager
def measured(usage: Usage | None = None, every: float = 0.1, others: Iterable[int] = ()) -> Iterator[Usage]:
    """Fill the `Usage` when the block ends. Of `others`, process ids, too, and of their descendants."""
    sampler, usage = Sampler(every, others), usage or Usage()
    before, started = sampler.cpu(), time.monotonic()
    thread = threading.Thread(target=sampler.watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        usage.seconds = time.monotonic() - started
        usage.cpu_seconds = sampler.cpu() - before
        sampler.stop()
        thread.join()
        usage.peak_python_mib = sampler.peak_python / 2**20
        usage.peak_mib = sampler.peak / 2**20


def describe_machine() -> dict[str, object]:
    """Return what figures depend on."""
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "load": os.getloadavg()[0],
        "python": sys.version.split()[0],
    }
