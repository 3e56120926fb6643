"""Finds the risk of losing a topic's unarchived records to retention, and the lateness of its hours."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kafka_s3_platform.core.archive.failures import SHOWN
from kafka_s3_platform.core.config.settings import ArchiveSettings
from kafka_s3_platform.core.model.gaps import FOR_EVER, parse_retention_ms
from kafka_s3_platform.core.model.health import Level, Risk
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.status.backlog import Backlog
from kafka_s3_platform.core.text import count_noun

FIRST_MINUTES = timedelta(minutes=30)
"""Time after a topic's first observation in which its old hours are reported as late, but raise no alarm."""


def find_risk(backlog: Backlog, first_look: datetime | None = None) -> Risk:
    """Compare the time until retention, and the age of the oldest incomplete hour, with the thresholds.

    A topic that waits for somebody's decision fails at once. A topic is new in the FIRST_MINUTES after the first
    observation in its index, or after `first_look` of this process if there is none. The platform archives the old
    hours of a new topic by itself. Raises PlatformError if Kafka does not answer.
    """
    retention_left = find_retention_left(backlog)
    first_observed = min((frontier.observed_at for frontier in backlog.state.all_frontiers), default=first_look)
    new_until = None if first_observed is None else first_observed + FIRST_MINUTES
    risks = [*_find_retention_risk(backlog, retention_left), *_find_age_risk(backlog, new_until)]
    if backlog.failures:
        failures = "; ".join(f"kafka partition {p}: {failure}" for p, failure in sorted(backlog.failures.items()))
        count = count_noun(len(backlog.failures), "kafka partition")
        risks.append(Risk(Level.WARN, f"What waits in {count} is not known: {failures}"))
    risks += _find_decision_risks(backlog)
    level = max((risk.level for risk in risks), default=Level.FINE)
    hours = _find_hours(backlog, retention_left)
    lost_at = None
    if hours is not None and retention_left is not None:
        lost_at = backlog.now + timedelta(seconds=retention_left.seconds)
    return Risk(level, " ".join(risk.text for risk in risks), hours, lost_at)


def _find_decision_risks(backlog: Backlog) -> Iterator[Risk]:
    """Yield the risks of a wrong clock and of undecided kafka partitions. Both last until somebody acts.

    They are reported last, on lines of their own, since their texts end with a command.
    """
    if backlog.clock_error is not None:
        yield Risk(Level.FAIL, f"How late the archive is, is not known: {backlog.clock_error}.")
    if errors := backlog.reasons_to_decide:
        more_lines = [f"and {len(errors) - SHOWN} more"] if len(errors) > SHOWN else []
        opening = f"Until somebody decides, not archived: {count_noun(len(backlog.undecided), 'kafka partition')}."
        yield Risk(Level.FAIL, "\n".join([opening, *errors[:SHOWN], *more_lines]))


@dataclass(frozen=True)
class RetentionLeft:
    """The shortest time (`seconds`) until Kafka may delete the oldest unarchived record, kept for `kept_ms`.

    `is_age_known` is False if the record lies before the first hour. Then `seconds` is the longest possible time.
    """

    seconds: float
    kept_ms: int
    is_age_known: bool


def find_retention_left(backlog: Backlog) -> RetentionLeft | None:
    """Return the time until Kafka deletes unarchived records, or None if none can be lost by age.

    Raises PlatformError if Kafka does not answer.
    """
    if not any(backlog.lag.values()):
        return None
    retention_ms = parse_retention_ms(backlog.read_configs())
    if retention_ms == FOR_EVER:
        return None
    seconds = backlog.seconds_to_retention_loss
    if seconds is not None:
        return RetentionLeft(seconds, retention_ms, is_age_known=True)
    # Records before the first hour: how old they are is not asked. They are older than that hour.
    return RetentionLeft(
        (backlog.topic.start_hour - backlog.now).total_seconds() + retention_ms / 1000, retention_ms, is_age_known=False
    )


def _find_hours(backlog: Backlog, retention_left: RetentionLeft | None) -> tuple[datetime, datetime] | None:
    """Return the times [from, to) of the unarchived records that Kafka deletes soon, or None if there are none."""
    settings = backlog.topic.config.archive
    if retention_left is None or not retention_left.is_age_known or _find_level(settings, retention_left) is Level.FINE:
        return None
    retention = timedelta(milliseconds=retention_left.kept_ms)
    oldest = backlog.now + timedelta(seconds=retention_left.seconds) - retention
    return oldest, backlog.now - retention * (1 - settings.risk_retention_warn) + timedelta(milliseconds=1)


def _find_retention_risk(backlog: Backlog, retention_left: RetentionLeft | None) -> Iterator[Risk]:
    """Yield the risk that Kafka's retention deletes records before they are archived."""
    if retention_left is None:
        return
    level = _find_level(backlog.topic.config.archive, retention_left)
    if not retention_left.is_age_known:
        duration_text = _describe_left(retention_left.seconds, "at most")
        yield Risk(max(Level.WARN, level), f"Records before the first hour are not archived. Kafka {duration_text}.")
    elif level is not Level.FINE:
        by_size = int(backlog.read_configs().get("retention.bytes", -1))
        size_text = f", or less, by retention.bytes={by_size}" if by_size >= 0 else ""
        yield Risk(
            level,
            f"Of the records that are not archived, Kafka "
            f"{_describe_left(retention_left.seconds, 'at least')}{size_text}: "
            f"retention.ms is {describe_time(retention_left.kept_ms / 1000)}.",
        )


def _find_level(settings: ArchiveSettings, retention_left: RetentionLeft) -> Level:
    """Return the level of risk of the time left, by its share of the retention."""
    share = retention_left.seconds * 1000 / retention_left.kept_ms if retention_left.kept_ms else 0.0
    return Level((share <= settings.risk_retention_warn) + (share <= settings.risk_retention_fail))


def _find_age_risk(backlog: Backlog, new_until: datetime | None) -> Iterator[Risk]:
    """Yield the risk that the oldest incomplete hour ended too long ago, at most a warning for a new topic."""
    if not backlog.hours_left:
        return
    settings = backlog.topic.config.archive
    hour = backlog.hours_left[0]
    age = backlog.now - hour - HOUR
    age_ms = age / timedelta(milliseconds=1)
    level = Level((age_ms >= settings.risk_age_warn_ms) + (age_ms >= settings.risk_age_fail_ms))
    is_new = new_until is not None and backlog.now < new_until
    excuse = f" The topic is new here: it is an alarm if this is still so at {new_until:%H:%M} UTC." if is_new else ""
    if level is not Level.FINE:
        yield Risk(
            Level.WARN if is_new else level,
            f"Not archived, or not complete: {count_noun(len(backlog.hours_left), 'hour')}. The oldest, "
            f"{hour:%Y-%m-%d %H:%M} UTC, ended {describe_time(age.total_seconds())} ago.{excuse}",
        )


def _describe_left(seconds: float, bound: str) -> str:
    """Return how long Kafka keeps the oldest record, as the end of a sentence. `bound` is `at least` or `at most`."""
    if seconds <= 0:
        return "may delete the oldest at any moment"
    return f"keeps the oldest for {describe_time(seconds)} more {bound}"


def describe_time(seconds: float) -> str:
    """Return `6 days 23 h`, `3 h 5 min` or `12 min`."""
    minutes = max(0, int(seconds // 60))
    days = minutes // 1440
    hours = minutes // 60 % 24
    if days:
        return f"{days:,} day{'s' * (days > 1)} {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
