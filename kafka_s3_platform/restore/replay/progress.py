"""Logs the progress of a restore on the driver. Its tasks run elsewhere, so it reads their checkpoints."""

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.restore.replay.checkpoint import Position, read_positions
from kafka_s3_platform.spark.progress import Snapshot, log_progress, tell_watchers
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

EVERY_SECONDS = 10.0


Measure = Callable[[Sequence[Position | None]], int]
"""Measures progress from the positions in the checkpoints."""


class CheckpointWatch:
    """Logs records, rate and time left every `EVERY_SECONDS` while it is entered.

    `expected` is a number of records, or an upper bound. If the number is unknown, `expected` is whatever `passed`
    measures, such as bytes of objects.
    """

    def __init__(
        self, store: ObjectStore, what: str, keys: Sequence[str], expected: int, passed: Measure | None = None
    ) -> None:
        self._store = store
        self._what = what
        self._keys = keys
        self._expected = expected
        self._passed = passed
        self._ended = Event()
        self._thread = Thread(target=self._run, name="restore-progress", daemon=True)
        self._started = time.monotonic()
        self._first: tuple[int, int] | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        # Read at once: the first reading only finds the start of counting.
        wait = 0.0
        while not self._ended.wait(wait):
            wait = EVERY_SECONDS
            try:
                self._log(read_positions(self._store, self._keys))
            except PlatformError as err:
                logger.debug("%s: no progress to tell: %s", self._what, err)

    def _log(self, reached: Sequence[Position | None]) -> None:
        records = sum(p.record_count for p in reached if p is not None)
        done = records if self._passed is None else self._passed(reached)
        # Records of an earlier run do not count for the speed of this one, so the first reading logs nothing.
        if self._first is None:
            self._first = (records, done)
            self._started = time.monotonic()
            return
        seconds = max(time.monotonic() - self._started, 1e-3)
        rates = [(now - before) / seconds for now, before in zip((records, done), self._first, strict=True)]
        remaining = f"about {(self._expected - done) / rates[1]:,.0f} s left" if rates[1] else "time left unknown yet"
        of = f"of at most {self._expected:,} records" if self._passed is None else "records"
        if self._passed is not None and self._expected:
            remaining = f"{done / self._expected:.0%} of the objects' bytes, {remaining}"
        text = f"{records:,} {of}, {rates[0]:,.0f} records/s, {remaining}"
        tell_watchers(Snapshot(self._what, done, self._expected, text))
        log_progress(logger, f"{self._what}: {text}")
