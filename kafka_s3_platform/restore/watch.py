"""Progress of a restore while its tasks run elsewhere: what their checkpoints say, in the driver's log."""

import logging
import time
from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.restore.checkpoint import positions
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

EVERY_SECONDS = 10.0


class CheckpointWatch:
    """Logs records, rate and time left every `EVERY_SECONDS` while it is entered. `expected` is exact or at most."""

    def __init__(self, store: ObjectStore, what: str, keys: Sequence[str], expected: int) -> None:
        self._store, self._what, self._keys, self._expected = store, what, keys, expected
        self._ended = Event()
        self._thread = Thread(target=self._run, name="restore-progress", daemon=True)
        self._started = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        wait = 0.0  # the first look sets where counting starts
        while not self._ended.wait(wait):
            wait = EVERY_SECONDS
            try:
                self._log(sum(p.record_count for p in positions(self._store, self._keys) if p is not None))
            except PlatformError as err:
                logger.debug("%s: no progress to tell: %s", self._what, err)

    def _log(self, records: int) -> None:
        # What an earlier run had sent is no speed of this one: the first look only sets the start.
        if self._first is None:
            self._first, self._started = records, time.monotonic()
            return
        rate = (records - self._first) / max(time.monotonic() - self._started, 1e-3)
        left = f"about {(self._expected - records) / rate:,.0f} s left" if rate else "time left unknown yet"
        logger.info(
            "%s: %s of at most %s records, %s records/s, %s",
            self._what,
            f"{records:,}",
            f"{self._expected:,}",
            f"{rate:,.0f}",
            left,
        )
