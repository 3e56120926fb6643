"""Reports the progress of long work (tasks, records, rate and time left) in the log and to watchers in the process."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_s3_platform.core.text import format_size

_MARK = "kafka_s3_progress"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of a piece of work: `done` of `expected`, in any unit, and as a text."""

    what: str
    done: float
    expected: float
    text: str


Watcher = Callable[[Snapshot], None]

_watchers: list[Watcher] = []


@contextmanager
def call_with_progress(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with the progress of this process's work until the block ends. Any thread may make the call."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def call_watchers(snapshot: Snapshot) -> None:
    """Call each watcher with the progress of the work."""
    for watcher in tuple(_watchers):
        watcher(snapshot)


def log_progress(logger: logging.Logger, line: str) -> None:
    """Log a line that the next line of the same work may replace."""
    logger.info("%s", line, extra={_MARK: True})


def is_progress(record: logging.LogRecord) -> bool:
    """Return True if `log_progress` made the record."""
    return hasattr(record, _MARK)


class Progress:
    """Counts finished tasks. Logs a line at most every `every` seconds, and one at the end.

    `expected` is the sum of the tasks' sizes (offsets or records). The time left is computed from it.
    """

    def __init__(self, logger: logging.Logger, what: str, tasks: int, expected: int, every: float = 5.0) -> None:
        self._logger = logger
        self._what = what
        self._tasks = tasks
        self._expected = expected
        self._every = every
        self._started = self._logged = time.monotonic()
        self._done = self._size = self.records = self.record_bytes = 0
        self._unit_text: str | None = None
        if tasks:
            call_watchers(self._take_snapshot())

    def advance(self, size: int, records: int, record_bytes: int, unit_text: str | None = None) -> None:
        """Count one more finished task: `size` of the expected total, with `records` in it.

        `unit_text` is the progress in a unit for people, such as `3 of 9 days`. Without it, the line counts tasks.
        """
        self._done += 1
        self._unit_text = unit_text
        self._size += size
        self.records += records
        self.record_bytes += record_bytes
        call_watchers(self._take_snapshot())
        if time.monotonic() - self._logged >= self._every or self._done == self._tasks:
            self._logged = time.monotonic()
            log_progress(self._logger, self.line())

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def line(self) -> str:
        """Format the progress: `archive flights: 3/8 tasks, 120,000 records, ... records/s, about 12 s left`."""
        return f"{self._what}: {self._describe()}"

    def _take_snapshot(self) -> Snapshot:
        return Snapshot(self._what, self._size, self._expected, self._describe())

    def _describe(self) -> str:
        """Return counts, rates and the time left, estimated from the time that each unit has taken so far."""
        seconds = max(self.seconds, 1e-3)
        remaining = "time left unknown yet"
        if self._done == self._tasks:
            remaining = f"in {seconds:,.0f} s"
        elif self._size:
            remaining = f"about {seconds * (self._expected - self._size) / self._size:,.0f} s left"
        rates = f"{self.records / seconds:,.0f} records/s, {format_size(round(self.record_bytes / seconds))}/s"
        done_text = f"{self._done}/{self._tasks} tasks" if self._unit_text is None else self._unit_text
        return f"{done_text}, {self.records:,} records, {rates}, {remaining}"
