"""Collect the records a scan cannot archive, as ranges of offsets, and report them after all else is committed."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.archive.request import ArchiveRequest, HourReport
from kafka_s3_platform.core.errors import (
    ConfigError,
    LogTruncatedError,
    PlatformError,
    TransientError,
    UnresolvedOffsetsError,
)
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.model.connect import LETTER_ADVICE, RecordFailure
from kafka_s3_platform.core.model.gaps import FOR_EVER, UNREADABLE, Unreadable, Unresolved
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet

if TYPE_CHECKING:
    from kafka_s3_platform.core.archive.task import FailedScan

MAX_RANGES = 1_000
"""Number of failed ranges at which a task gives up, so that a wrong converter does not write a million rows."""

MESSAGE_CHARACTERS = 500
TOO_MANY_FAILURES = "too many failures"

SHOWN = 5


@dataclass
class BadRecords:
    """The *unresolved* offsets of one task (not archived because of an error), in order, as rows for the index.

    `note` collects the failures while a batch is converted, and `join` adds them afterwards. `add` and `insert` add
    ranges. Adjacent offsets that failed for the same reason become one row.
    """

    kafka_partition: int
    found_at: datetime
    rows: list[Unresolved] = field(default_factory=list)
    _failed: list[RecordFailure] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= MAX_RANGES

    def note(self, failures: Iterable[RecordFailure]) -> None:
        """Note failures of the current batch, in any order. Several failures of one record count once."""
        self._failed += failures

    def join(self, records: pa.RecordBatch) -> None:
        """Add the failures noted for a batch to the unresolved ranges. `records` is the batch as it was read."""
        first_failures = {failure.offset: failure for failure in reversed(self._failed)}
        self._failed.clear()
        if not first_failures:
            return
        failures = [first_failures[offset] for offset in sorted(first_failures)]
        rows = np.searchsorted(read_offset_column(records), [f.offset for f in failures])
        times = records.column("timestamp").cast(pa.int64()).take(pa.array(rows)).to_pylist()
        for failure, time in zip(failures, times, strict=True):
            message = f"{failure.executing_class}: {failure.exception}: {failure.message}"
            self.add(OffsetRange(failure.offset, failure.offset + 1), failure.stage, message, time)

    def add(self, offsets: OffsetRange, reason: str, message: str, min_timestamp: int | None = None) -> None:
        """Add a range. It has to start at or after the end of all earlier ones."""
        last_row = self.rows[-1] if self.rows else None
        if last_row is None or (last_row.end_offset, last_row.reason) != (offsets.start_offset, reason):
            message = message[:MESSAGE_CHARACTERS]
            found_at = self.found_at
            end = offsets.end_offset
            row = Unresolved(self.kafka_partition, offsets.start_offset, end, reason, message, found_at, min_timestamp)
            self.rows.append(row)
            return
        times = [t for t in (last_row.min_timestamp, min_timestamp) if t is not None]
        self.rows[-1] = replace(last_row, end_offset=offsets.end_offset, min_timestamp=min(times, default=None))

    def insert(self, unreadable: Iterable[Unreadable]) -> None:
        """Add the unreadable offsets of the range that was read last."""
        for item in unreadable:
            message = item.message[:MESSAGE_CHARACTERS]
            place = (self.kafka_partition, item.start_offset, item.end_offset)
            self.rows.append(Unresolved(*place, item.reason, message, self.found_at))
        self.rows.sort(key=lambda row: row.start_offset)

    def give_up(self, rest: OffsetRange) -> None:
        """Leave out all of `rest`, because too much failed before it."""
        first = self.rows[0]
        reason = f"not archived, because {len(self.rows)} ranges before it failed, the first at {first.start_offset}: "
        self.add(rest, TOO_MANY_FAILURES, reason + first.message)

    def select_offsets(self, offsets: OffsetRange) -> RangeSet:
        """Return the unresolved offsets in `offsets`."""
        return RangeSet(RangeSet(u.offsets for u in self.rows).within(offsets))


def list_good_ranges(offsets: OffsetRange, unresolved: RangeSet) -> Sequence[OffsetRange]:
    """List the archived parts of a range, in order."""
    return (RangeSet([offsets]) - unresolved).ranges


def count_offsets(rows: Iterable[Unresolved]) -> int:
    """Return the number of offsets in the rows. The rows stand for at most as many records."""
    return sum(len(u.offsets) for u in rows)


def find_deletion_time(item: Unresolved) -> datetime | None:
    """Return the earliest time when retention may delete a record. Return None if it is unknown, or never."""
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
    """Return the time left until retention may delete records: `for ever`, `unknown`, `none`, or `2 days, 3:04:05`."""
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
    """Return the command to end a killed run's reservations, even if their offsets are no longer needed."""
    return f"kafka-s3 vacuum {shlex.quote(connector)} --topic {shlex.quote(topic)} --older-than 0m"


def format_skip_command(connector: str, topic: str, item: Unresolved) -> str:
    """Return the command to give up these offsets."""
    skip = f"--offsets {item.start_offset}:{item.end_offset} --skip"
    return format_resolve_command(connector, topic, item.kafka_partition, skip)


def build_failure(
    connector: str,
    topic: str,
    unresolved: Sequence[Unresolved],
    errors: Sequence[PlatformError],
) -> PlatformError | None:
    """Return one error for all failures. Return None if nothing failed.

    The error is transient if any of them is, because another run would then archive more. Its text includes the
    permanent errors too.
    """
    if not unresolved and not errors:
        return None
    first = next((e for e in errors if isinstance(e, TransientError)), None) or next(iter(errors), None)
    other_errors = [str(e) for e in errors if e is not first]
    lines = [
        *_describe_unresolved(connector, topic, unresolved),
        *other_errors[:SHOWN],
        *_format_remainder(len(other_errors) - SHOWN),
    ]
    if first is None:
        return UnresolvedOffsetsError("\n".join(lines))
    # on a line of its own: the text before it may end with a command that users copy
    first.args = ("\n".join([f"{first}", "Everything else that this run read is committed", *lines]),)
    return first


def _describe_unresolved(connector: str, topic: str, unresolved: Sequence[Unresolved]) -> Iterator[str]:
    """Yield the lines of an error about unresolved offsets: their ranges, the reasons, and how to resolve them."""
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
    yield from _format_remainder(len(unresolved) - SHOWN)
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


def _format_remainder(count: int) -> Iterable[str]:
    return [f"and {count} more"] if count > 0 else []


def build_start_errors(request: ArchiveRequest, hours: Iterable[HourReport]) -> Iterator[PlatformError]:
    """Yield an error if records of `hours` were archived as out of range because `archive.start.hour` was later."""
    start = request.config.archive.start_hour
    late_hours = [hour for hour in hours if hour.verdict.out_of_range_count and hour.hour >= start]
    if late_hours:
        first_hour, last_hour = (
            hour.hour.astimezone(start.tzinfo).isoformat() for hour in (late_hours[0], late_hours[-1])
        )
        highest_count = max(hour.verdict.out_of_range_count for hour in late_hours)
        yield ConfigError(
            f"topic {request.topic}: archive.start.hour is {start.isoformat()}, and was a later hour when records of "
            f"hours from {first_hour} to {last_hour} were archived: up to {highest_count:,} of them "
            f"are archived as out of range, where restores find them by their times, and stay so. To have them by the "
            f"hour, archive the topic under another connector name, topics.dir and archive.index.dir. To be content "
            f"with that, move archive.start.hour back to the later hour"
        )


def build_errors(failed_scans: "Iterable[FailedScan]", connector: str, topic: str) -> Iterator[PlatformError]:
    """Yield the error of each failed task, with the kafka partition, the ranges, and any advice in its text."""
    for failed_scan in failed_scans:
        ranges = ", ".join(map(str, failed_scan.ranges[:SHOWN]))
        message = f"{topic}-{failed_scan.kafka_partition} {ranges} is not archived: {failed_scan.error}"
        if isinstance(failed_scan.error, LogTruncatedError):
            accept = format_resolve_command(connector, topic, failed_scan.kafka_partition, "--accept-truncation")
            message += f". To keep what is archived and go on after it: {accept}"
        failed_scan.error.args = (message,)
        yield failed_scan.error
