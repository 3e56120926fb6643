"""Logs the progress of long work: tasks, records, rate and time left."""

import logging
import time


class Progress:
    """Counts finished tasks and logs a line at most every `every` seconds, and one at the end.

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

    def advance(self, size: int, records: int, record_bytes: int) -> None:
        """Count one more finished task: `size` of the expected total, in which `records` were found."""
        self._done += 1
        self._size += size
        self.records += records
        self.record_bytes += record_bytes
        if time.monotonic() - self._logged >= self._every or self._done == self._tasks:
            self._logged = time.monotonic()
            self._logger.info(self.line())

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def line(self) -> str:
        """Format the progress so far as a line.

        Such as `archive flights: 3/8 tasks, 120,000 records, 40,000 records/s, 9.1 MB/s, about 12 s left`.
        """
        seconds = max(self.seconds, 1e-3)
        left = seconds * (self._expected - self._size) / self._size if self._size else 0.0
        rates = f"{self.records / seconds:,.0f} records/s, {self.record_bytes / seconds / 1e6:,.1f} MB/s"
        done = f"{self._done}/{self._tasks} tasks, {self.records:,} records"
        return f"{self._what}: {done}, {rates}, about {left:,.0f} s left"
