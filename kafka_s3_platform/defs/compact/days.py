"""Fingerprints of days that may be due, for the sensor and the schedule."""

from collections.abc import Sequence
from datetime import date

from kafka_s3_platform.defs.fingerprint import fingerprint_inputs
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import read_day_segments


def fingerprint_days(topic: ArchivedTopic, days: Sequence[date], snapshot: IndexSnapshot) -> str:
    """Return a digest of configuration and segments. Under the same digest, compaction ends as before."""
    keys = [s.key for day in days for s in read_day_segments(snapshot, day)]
    return fingerprint_inputs([topic.config_digest, keys])
