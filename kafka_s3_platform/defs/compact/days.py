"""Reads the days of a topic that may be due, for the sensor and the schedule."""

from collections.abc import Sequence
from datetime import date

from kafka_s3_platform.defs.fingerprint import fingerprint_inputs
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import select_day_segments


def read_days(topic: ArchivedTopic, tick: Tick) -> IndexSnapshot | None:
    """Read the topic's index, with the segments of its days. Raises StoreUnavailableError if that takes too long."""

    def read() -> IndexSnapshot | None:
        snapshot = topic.index.peek()
        if snapshot is not None:
            _ = snapshot.segments
        return snapshot

    return tick.read(f"the index of topic {topic.topic}", read)


def fingerprint_days(topic: ArchivedTopic, snapshot: IndexSnapshot, days: Sequence[date]) -> str:
    """Return a digest of the configuration and of what to merge: with the same one, compaction ends as before."""
    keys = [s.key for day in days for s in select_day_segments(snapshot.segments, day)]
    return fingerprint_inputs([topic.config_digest, keys])
