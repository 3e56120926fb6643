"""Processes that tests kill or stop. Each starts at once: it is forked from one that has imported everything."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from kafka_s3_platform_tests.forked import FORKED
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.support import is_spark_worker


class Child:
    """A process that calls a function with these arguments, in this process's environment."""

    def __init__(self, log: Path, function: Callable[..., object], *arguments: Any) -> None:
        self._log = log
        # It may be killed before it writes anything.
        log.touch()
        given = (log, dict(os.environ), function, arguments)
        self._process: BaseProcess = FORKED.Process(target=_call, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()

    @property
    def said(self) -> str:
        """What it has written to its standard error."""
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_until_stopped(self) -> None:
        until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    def wait(self) -> int:
        """Wait until it has ended; its exit status, or the number of the signal that ended it, negative."""
        self._process.join(180)
        assert self._process.exitcode is not None, "it did not end in time"
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self.wait()


def _call(
    log: Path, environment: Mapping[str, str], function: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    function(*arguments)


def signal_on_call(owner: type, method: str, nth: int, sent: signal.Signals, after: bool = False) -> None:
    """Have this process send itself a signal when `method` is called for the nth time, before or after its work."""
    calls, original = count(1), getattr(owner, method)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)  # threads call it at once
        if call == nth and not after:
            os.kill(os.getpid(), sent)
        result = original(*args, **kwargs)
        if call == nth and after:
            os.kill(os.getpid(), sent)
        return result

    setattr(owner, method, wrapped)


@contextmanager
def spark_worker_killed(begun: Callable[[], bool]) -> Iterator[None]:
    """Have a Python worker of this process's Spark be killed, once something has begun."""
    killed: list[int] = []

    def kill_one() -> None:
        for _ in range(600):
            workers = [p for p in psutil.Process().children(recursive=True) if is_spark_worker(p)]
            if workers and begun():
                with suppress(psutil.NoSuchProcess):
                    workers[0].kill()
                    killed.append(workers[0].pid)
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill_one)
    thread.start()
    yield
    thread.join(60)
    assert killed
