"""Wall clock, CPU and memory of this process and all its descendants."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass
class Usage:
    """What ran between two moments. CPU of descendants too, the servers of the stack are not among them."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_python_mib: float = 0.0


class Sampler:
    """Watches the process tree: CPU by process, and the largest resident set of any one Python process."""

    def __init__(self, every: float = 0.1, others: Iterable[int] = ()) -> None:
        self._every = every
        self._roots = [psutil.Process(), *map(psutil.Process, others)]
        self._cpu: dict[tuple[int, float], float] = {}
        self._stop = threading.Event()
        self.peak_python = 0

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
        for process in [found for root in self._roots for found in (root, *root.children(recursive=True))]:
            try:
                times, name = process.cpu_times(), process.name()
                self._cpu[(process.pid, process.create_time())] = times.user + times.system
                if process != self._roots[0] and name.startswith("python"):
                    self.peak_python = max(self.peak_python, process.memory_info().rss)
            except psutil.Error:
                continue


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
