"""Reads the hours of one topic on request, one read at a time, and keeps the answers for a while."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.status.topic import ArchivedTopic
from kafka_s3_platform.core.upkeep.hour_states import list_grid_days, make_hour_grid
from kafka_s3_platform.core.waits import Waiting
from kafka_s3_platform.operate.monitoring.hours_page import HoursOfTopic

READ_SECONDS = 20.0
"""The time that a page waits for the store."""

KEPT_PAGES = 32

MOST_PAGES = 4
"""The most pages that may wait for the store. They share the server's threads with the health check and metrics."""

AtRisk = tuple[datetime, datetime] | None


class HoursReader:
    """Reads hours. Answers younger than `seconds` are given again, so many readers cost no more than one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_PAGES)
        self._kept: dict[tuple[str, str, int], tuple[float, HoursOfTopic]] = {}
        self._reading: Waiting[HoursOfTopic] | None = None

    def read(self, config: ConnectorConfig, topic: str, day_count: int, at_risk: AtRisk) -> HoursOfTopic:
        """Return the hours of the topic's last `day_count` days. Raise PlatformError if they cannot be read."""
        archived = ArchivedTopic(config, topic)
        place = (config.name, topic, day_count)
        if not self._places.acquire(blocking=False):
            raise StoreUnavailableError(f"{archived.name}: {MOST_PAGES} other pages wait for the store; try again")
        is_locked = self._lock.acquire(timeout=READ_SECONDS)
        try:
            if not is_locked:
                raise StoreUnavailableError(f"{archived.name}: the store has not answered another page yet; try again")
            at, hours = self._kept.get(place, (0.0, None))
            if hours is None or time.monotonic() - at > self._seconds:
                hours = self._read_in_time(archived.name, lambda: _read_hours(archived, day_count, at_risk))
                self._kept.pop(place, None)
                while len(self._kept) >= KEPT_PAGES:
                    del self._kept[next(iter(self._kept))]
                self._kept[place] = time.monotonic(), hours
            return hours
        finally:
            if is_locked:
                self._lock.release()
            self._places.release()

    def _read_in_time(self, name: str, read_hours: Callable[[], HoursOfTopic]) -> HoursOfTopic:
        """Read in a thread. If an earlier read hangs, no other begins."""
        if self._reading is not None and self._reading.is_under_way:
            raise StoreUnavailableError(f"{name}: the store has not answered another page yet; try again")
        self._reading = Waiting(read_hours)
        if not self._reading.ended_within(READ_SECONDS):
            raise StoreUnavailableError(f"{name}: the store did not answer in {READ_SECONDS:g} s; try again")
        return self._reading.answer


def _read_hours(topic: ArchivedTopic, day_count: int, at_risk: AtRisk) -> HoursOfTopic:
    """Read from the index the state of each hour in the topic's last days."""
    now = datetime.now(timezone.utc)
    snapshot = topic.index.peek()
    if snapshot is None or snapshot.is_empty:
        return HoursOfTopic(topic, (), now)
    zone = topic.config.layout.zone
    days = list_grid_days(snapshot, day_count, zone, now, topic.config.archive.start_hour)
    grid = make_hour_grid(snapshot, days, zone, topic.lateness, now, at_risk, by_kafka_partition=True)
    return HoursOfTopic(topic, grid, now)
