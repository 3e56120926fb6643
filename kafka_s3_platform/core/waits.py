"""Waits for calls that may never return, and lists this process's waits for people."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from threading import enumerate as list_threads
from typing import Generic, TypeVar, final

R = TypeVar("R")

_waits: dict[object, tuple[float, str]] = {}


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Have `list_waits` name `what`, such as `Kafka at localhost:9092`, until the block ends, for people who wait."""
    mark = object()
    _waits[mark] = time.monotonic(), what
    try:
        yield
    finally:
        del _waits[mark]


def list_waits(seconds: float) -> list[str]:
    """Return what any thread has been waiting for, for at least `seconds`. The longest wait comes first."""
    now = time.monotonic()
    return [what for since, what in sorted(_waits.copy().values()) if now - since >= seconds]


_NAME = "kafka-waiting"


@final
class Waiting(Generic[R]):
    """Makes a call in a daemon thread, which does not keep the process alive. When it has ended, `answer` is set."""

    answer: R

    def __init__(self, ask: Callable[[], R]) -> None:
        self._ask = ask
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name=_NAME, daemon=True)
        self._thread.start()

    @property
    def is_under_way(self) -> bool:
        """True until the call has ended."""
        return self._thread.is_alive()

    def ended_within(self, seconds: float) -> bool:
        """Wait at most `seconds` for the call to end.

        Return True if it has ended, and raise its error if it raised one.
        """
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self.is_under_way

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except BaseException as err:  # noqa: BLE001 - raised where it is waited for
            self._error = err


def is_any_waiting() -> bool:
    """Return True if a call has not returned yet, even if nobody waits for it any more."""
    return any(thread.name == _NAME for thread in list_threads())
