"""Errors for unarchived records, reported after everything else is committed."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from kafka_s3_platform.archive.bad_records import count_offsets
from kafka_s3_platform.archive.request import ArchiveRequest, HourReport
from kafka_s3_platform.errors import (
    ConfigError,
    LogTruncatedError,
    PlatformError,
    TransientError,
    UnresolvedOffsetsError,
)
from kafka_s3_platform.model.connect import LETTER_ADVICE
from kafka_s3_platform.model.unresolved import FOR_EVER, UNREADABLE, Unresolved

if TYPE_CHECKING:
    from kafka_s3_platform.archive.task import FailedScan

SHOWN = 5


def find_deletion_time(item: Unresolved) -> datetime | None:
    """Return the earliest time at which retention may delete a record. Return None if it is unknown, or never."""
    retention_ms = item.retention_ms
    earliest = item.min_timestamp
    if retention_ms is None or retention_ms == FOR_EVER or earliest is None or earliest < 0:
        return None
    try:
        return datetime.fromtimestamp(earliest / 1000, timezone.utc) + timedelta(milliseconds=retention_ms)
    except (OverflowError, ValueError):
        # producers set timestamps, and may set one that no calendar has
        return None


def describe_time_left(item: Unresolved, now: datetime) -> str:
    """Describe the least time that retention leaves: `for ever`, `unknown`, `none`, or `2 days, 3:04:05`."""
    if item.retention_ms == FOR_EVER:
        return "for ever"
    until = find_deletion_time(item)
    if until is None:
        return "unknown"
    if until > now:
        return str(timedelta(seconds=int((until - now).total_seconds())))
    return "none"


def format_resolve_command(connector: str, topic: str, kafka_partition: int, decision: str) -> str:
    """Return the command to record a decision."""
    place = f"{shlex.quote(connector)} --topic {shlex.quote(topic)} --kafka-partition {kafka_partition}"
    return f"kafka-s3 resolve {place} {decision}"


def format_end_command(connector: str, topic: str) -> str:
    """Return the command to end a killed run's reservations, also of offsets no longer needed."""
    return f"kafka-s3 vacuum {shlex.quote(connector)} --topic {shlex.quote(topic)} --older-than 0m"


def format_skip_command(connector: str, topic: str, item: Unresolved) -> str:
    """Return the command to give up these offsets."""
    skip = f"--offsets {item.start_offset}:{item.end_offset} --skip"
    return format_resolve_command(connector, topic, item.kafka_partition, skip)


def build_failure(
    connector: str,
    topic: str,
    unresolved: Sequence[Unresolved],
    failed: Sequence[PlatformError],
) -> PlatformError | None:
    """Return one error for all failures. Return None if nothing failed.

    The error is transient if one of them is, because another run then archives more. Its text has the permanent errors
    too.
    """
    if not unresolved and not failed:
        return None
    first = next((e for e in failed if isinstance(e, TransientError)), None) or next(iter(failed), None)
    others = [str(e) for e in failed if e is not first]
    lines = [*_unresolved_lines(connector, topic, unresolved), *others[:SHOWN], *_more(len(others) - SHOWN)]
    if first is None:
        return UnresolvedOffsetsError("\n".join(lines))
    # on a line of its own: the text before it may end with a command that users copy
    first.args = ("\n".join([f"{first}", "Everything else that this run read is committed", *lines]),)
    return first


def _unresolved_lines(connector: str, topic: str, unresolved: Sequence[Unresolved]) -> Iterator[str]:
    if not unresolved:
        return
    now = datetime.now(timezone.utc)
    yield (
        f"topic {topic}: {count_offsets(unresolved):,} offsets in {len(unresolved):,} ranges could not be archived. "
        f"Everything else that this run read is committed:"
    )
    for item in unresolved[:SHOWN]:
        yield (
            f"{topic}-{item.kafka_partition} {item.offsets}: {item.reason}: {item.message} (time until retention may "
            f"delete them: {describe_time_left(item, now)})"
        )
    yield from _more(len(unresolved) - SHOWN)
    reasons = {u.reason for u in unresolved}
    yield from (advice for reason, advice in LETTER_ADVICE.items() if reason in reasons)
    if reasons - {UNREADABLE, *LETTER_ADVICE}:
        yield (
            "Correct the connector file, if it asks for what the records do not hold, and run again. Or set "
            "errors.tolerance=all, name a dead letter topic in errors.deadletterqueue.topic.name, and run again"
        )
    yield "To do without them:"
    yield from (format_skip_command(connector, topic, item) for item in unresolved[:SHOWN])
    if len(unresolved) > SHOWN:
        yield f"and what this lists: kafka-s3 resolve {shlex.quote(connector)} --topic {shlex.quote(topic)}"


def _more(count: int) -> Iterable[str]:
    return [f"and {count} more"] if count > 0 else []


def build_start_errors(request: ArchiveRequest, hours: Iterable[HourReport]) -> Iterator[PlatformError]:
    """Return an error for hours with records out of range: `archive.start.hour` was a later one before."""
    start = request.config.archive.start_hour
    moved = [hour for hour in hours if hour.verdict.out_of_range_count and hour.hour >= start]
    if moved:
        first, last = (hour.hour.astimezone(start.tzinfo).isoformat() for hour in (moved[0], moved[-1]))
        most = max(hour.verdict.out_of_range_count for hour in moved)
        yield ConfigError(
            f"topic {request.topic}: archive.start.hour is {start.isoformat()}, and was a later hour when records of "
            f"hours from {first} to {last} were archived: up to {most:,} of them "
            f"are archived as out of range, where restores find them by their times, and stay so. To have them by the "
            f"hour, archive the topic under another connector name, topics.dir and archive.index.dir. To be content "
            f"with that, move archive.start.hour back to the later hour"
        )


def build_errors(failed: "Iterable[FailedScan]", connector: str, topic: str) -> Iterator[PlatformError]:
    """Return the errors of failed tasks, each with its place."""
    for item in failed:
        ranges = ", ".join(map(str, item.ranges[:SHOWN]))
        message = f"{topic}-{item.kafka_partition} {ranges} is not archived: {item.error}"
        if isinstance(item.error, LogTruncatedError):
            accept = format_resolve_command(connector, topic, item.kafka_partition, "--accept-truncation")
            message += f". To keep what is archived and go on after it: {accept}"
        item.error.args = (message,)
        yield item.error
