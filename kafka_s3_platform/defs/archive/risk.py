"""Finds how near a topic is to losing records that are not archived, and how late its hours are."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from kafka_s3_platform.config.settings import ArchiveSettings
from kafka_s3_platform.defs.archive.backlog import Backlog
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.model.unresolved import FOR_EVER, parse_retention_ms


class Level(IntEnum):
    """How bad it is."""

    FINE = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Risk:
    """What was found of one topic at one moment. `says` is empty if nothing is at risk."""

    level: Level
    says: str


def find_risk(backlog: Backlog) -> Risk:
    """Compare the time until retention, and the age of the oldest hour that is not complete, with the thresholds.

    Raises PlatformError where Kafka does not answer.
    """
    found = [*_find_retention_risk(backlog), *_find_age_risk(backlog)]
    if backlog.failures:
        told = "; ".join(f"kafka partition {p}: {failure}" for p, failure in sorted(backlog.failures.items()))
        found.append(Risk(Level.WARN, f"What waits in {len(backlog.failures)} kafka partition(s) is not known: {told}"))
    return Risk(max((risk.level for risk in found), default=Level.FINE), " ".join(risk.says for risk in found))


def _find_retention_risk(backlog: Backlog) -> Iterator[Risk]:
    if not any(backlog.lag.values()):
        return
    configs = backlog.read_configs()
    kept = parse_retention_ms(configs)
    if kept == FOR_EVER:
        return
    left = backlog.seconds_to_retention_loss
    if left is None:
        # Records before the first hour: how old they are is not asked. They are older than that hour.
        left = (backlog.topic.hours.first - backlog.now).total_seconds() + kept / 1000
        says = f"Records before the first hour are not archived. Kafka {_describe_left(left, 'at most')}."
        yield Risk(max(Level.WARN, _find_level(backlog.topic.config.archive, left, kept)), says)
        return
    level = _find_level(backlog.topic.config.archive, left, kept)
    if level is not Level.FINE:
        by_size = int(configs.get("retention.bytes", -1))
        less = f", or less, by retention.bytes={by_size}" if by_size >= 0 else ""
        yield Risk(
            level,
            f"Of the records that are not archived, Kafka {_describe_left(left, 'at least')}{less}: retention.ms is "
            f"{describe_time(kept / 1000)}.",
        )


def _find_level(settings: ArchiveSettings, left: float, kept_ms: int) -> Level:
    share = left * 1000 / kept_ms if kept_ms else 0.0
    return Level((share <= settings.risk_retention_warn) + (share <= settings.risk_retention_fail))


def _find_age_risk(backlog: Backlog) -> Iterator[Risk]:
    if not backlog.hours_left:
        return
    settings, hour = backlog.topic.config.archive, backlog.hours_left[0]
    age = backlog.now - hour - HOUR
    age_ms = age / timedelta(milliseconds=1)
    level = Level((age_ms >= settings.risk_age_warn_ms) + (age_ms >= settings.risk_age_fail_ms))
    if level is not Level.FINE:
        yield Risk(
            level,
            f"{len(backlog.hours_left):,} hour(s) are not archived or not complete. The oldest, "
            f"{backlog.topic.hours.key(hour)}, ended {describe_time(age.total_seconds())} ago.",
        )


def _describe_left(seconds: float, bound: str) -> str:
    if seconds <= 0:
        return "may delete the oldest at any moment"
    return f"keeps the oldest for {describe_time(seconds)} more {bound}"


def describe_time(seconds: float) -> str:
    """Return `6 days 23 h`, `3 h 5 min` or `12 min`: as much as a person acts upon."""
    minutes = max(0, int(seconds // 60))
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days:,} day{'s' * (days > 1)} {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
