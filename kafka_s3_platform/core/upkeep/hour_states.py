"""Name the states of hours, one word and one mark each, and draw them as a grid of days x hours.

A terminal, a page and Dagster show the same states.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.archive.hours import group_segments_by_hour, report_hours
from kafka_s3_platform.core.archive.request import HourReport
from kafka_s3_platform.core.model.judge import HourVerdict
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, HOUR_MS, to_epoch_ms
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.index_rows import EXPIRED, SEGMENT_KINDS
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.upkeep.compact.days import find_day_start, list_day_hours

HourState: TypeAlias = Literal[
    "gap", "at risk", "partial", "none", "open", "in doubt", "expired", "late", "complete", "empty", "ahead"
]

Loss: TypeAlias = Literal["gap", "in doubt"]
"""The loss of an hour's offsets: for sure ("gap"), or only if records came out of order ("in doubt")."""

MARKS: Mapping[HourState, tuple[str, str]] = {
    "gap": ("!", "offsets are missing for good, and may have been of it"),
    "at risk": ("?", "not complete, and Kafka soon deletes its records"),
    "partial": ("~", "archived in part, or not known to be complete"),
    "none": (".", "nothing archived"),
    "open": (">", "not over yet, with the allowed lateness"),
    "in doubt": (
        "*",
        "complete, unless records came out of order: older offsets were deleted or skipped",
    ),
    "expired": ("x", "complete, and its records were removed by a rule of retention"),
    "late": ("+", "complete, and some of its records came late"),
    "complete": ("#", "complete"),
    "empty": ("o", "complete, and no record of it is in this archive"),
    "ahead": (" ", ""),
}
"""The mark of each state, and its meaning in a legend. The worst comes first."""


COLOURS: Mapping[HourState, tuple[str, str]] = {
    "gap": ("#8f1029", "#fff"),
    "at risk": ("#d9540b", "#fff"),
    "partial": ("#f0b429", "#3d2a00"),
    "none": ("#d5dbe1", "#5d6b7a"),
    "open": ("#bcdcf5", "#0b4a7d"),
    "in doubt": ("#7fae4e", "#1d3306"),
    "expired": ("#8a8f98", "#f4f5f7"),
    "late": ("#0b63a5", "#e3f1fc"),
    "complete": ("#1f8a5b", "#a5dcc2"),
    "empty": ("#cfe9dc", "#2c6b4d"),
}
"""The colours of each state and of its mark. They differ in lightness, for people who cannot tell green from red."""


@dataclass(frozen=True)
class DescribedHour:
    """The state of an hour with its report, and its state in each kafka partition if requested."""

    state: HourState
    report: HourReport
    kafka_partitions: Mapping[int, HourState] = field(default_factory=dict)


def describe_hours(
    snapshot: IndexSnapshot,
    hours: Sequence[datetime],
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None = None,
    *,
    by_kafka_partition: bool = False,
) -> list[DescribedHour]:
    """Return the state and the report of each of the ascending `hours`.

    Hours in `at_risk`, [from, to), have records Kafka will soon delete, unless the hours are complete. The index does
    not know this.
    """
    topic = snapshot.state.topic
    kafka_partitions: set[int] = set()
    if by_kafka_partition:
        kafka_partitions = {*(topic.kafka_partitions if topic else ()), *snapshot.state.scanned_kafka_partitions}
    described: list[DescribedHour] = []
    expired = group_segments_by_hour(snapshot, hours, [EXPIRED])
    archived = _list_archived_hours(snapshot, hours, SEGMENT_KINDS) | _list_hours_apart(snapshot, hours)
    for report in report_hours(snapshot, hours, lateness):
        time_state = _find_time_state(report.hour, lateness, now, at_risk)
        is_elsewhere = report.hour in archived and not report.segments
        choose = partial(_choose_state, time_state, report.scanned, is_elsewhere)
        losses = _find_losses(snapshot.state, report.verdict)
        expired_in = {s.kafka_partition for s in expired.get(report.hour, ())}
        counts = _sum_counts(report.segments)
        state = choose(counts, _choose_worst(losses), report.complete, bool(expired_in))
        states: dict[int, HourState] = {}
        for kafka_partition in sorted(kafka_partitions):
            states[kafka_partition] = choose(
                _sum_counts(s for s in report.segments if s.kafka_partition == kafka_partition),
                losses.get(kafka_partition),
                report.verdict.is_complete_in(kafka_partition),
                kafka_partition in expired_in,
            )
        described.append(DescribedHour(state, report, states))
    return described


def find_hour_states(
    snapshot: IndexSnapshot,
    hours: Sequence[datetime],
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None,
) -> list[HourState]:
    """Return the state of each of the ascending `hours`, as `describe_hours` does.

    It is derived from counts, without reading a segment. The counts are read once for all topics of the index.
    """
    state = snapshot.state
    counts = snapshot.count_hours(hours[0] - HOUR)
    expired = _list_archived_hours(snapshot, hours, [EXPIRED])
    archived = _select_overlapped(hours, map(_make_span, counts)) | _list_hours_apart(snapshot, hours)
    states: list[HourState] = []
    for hour in hours:
        verdict = state.judge.find_verdict(hour, lateness)
        loss = _choose_worst(_find_losses(state, verdict))
        time_state = _find_time_state(hour, lateness, now, at_risk)
        is_elsewhere = hour in archived and hour not in counts
        choose = partial(_choose_state, time_state, state.is_scanned(hour), is_elsewhere)
        states.append(choose(counts.get(hour), loss, verdict.is_complete, hour in expired))
    return states


def _list_archived_hours(snapshot: IndexSnapshot, hours: Sequence[datetime], kinds: Collection[str]) -> set[datetime]:
    """Return those of the ascending `hours` with which an hour that has segments of these kinds overlaps."""
    if not hours:
        return set()
    chunks = snapshot.list_chunks(SegmentFilter("hourly", (hours[0] - HOUR, hours[-1] + HOUR)), kinds)
    starts = (chunk.chunk_start for chunk in chunks if chunk.chunk_start is not None)
    return _select_overlapped(hours, map(_make_span, starts))


def _make_span(hour: datetime) -> tuple[int, int]:
    """Return the first and last epoch ms of an hour."""
    start = to_epoch_ms(hour)
    return start, start + HOUR_MS - 1


def _select_overlapped(hours: Iterable[datetime], spans: Iterable[tuple[int, int]]) -> set[datetime]:
    """Return those of `hours` that overlap with one of the spans, from its first to its last epoch ms.

    Hours of a former timezone may begin at another minute, and so overlap with two.
    """
    ordered = sorted(spans)
    firsts = [first for first, _ in ordered]
    latest = [*accumulate((last for _, last in ordered), max)]
    overlapped: set[datetime] = set()
    for hour in hours:
        start, last = _make_span(hour)
        count = bisect_right(firsts, last)
        if count and latest[count - 1] >= start:
            overlapped.add(hour)
    return overlapped


def find_empty_hours(snapshot: IndexSnapshot, hours: Sequence[datetime], lateness: timedelta) -> list[datetime]:
    """Return those complete hours of which no record was archived, lost, or left to another sink.

    `hours` are ascending.
    """
    judge = snapshot.state.judge
    complete = [hour for hour in hours if judge.is_complete(hour, lateness) and not judge.may_lack(hour, lateness)]
    archived = _list_archived_hours(snapshot, complete, SEGMENT_KINDS) | _list_hours_apart(snapshot, complete)
    return [hour for hour in complete if hour not in archived]


def _list_hours_apart(snapshot: IndexSnapshot, hours: Sequence[datetime]) -> set[datetime]:
    """Return those of the ascending `hours` of which records may be archived as out of range.

    They were a day ahead, or more, when they were archived.
    """
    if not hours:
        return set()
    return _select_overlapped(hours, snapshot.list_spans_out_of_range(hours[0], hours[-1] + HOUR))


def _find_losses(state: IndexState, verdict: HourVerdict) -> dict[int, Loss]:
    """Return the hour's losses by kafka partition: for sure ("gap"), or only if records came out of order ("in doubt").

    Deleted or skipped records may belong to any hour since they were last observed. But if records are in order,
    records at offsets below the hour's planned start are older than the hour.
    """
    losses: dict[int, Loss] = {}
    for gap in verdict.lacking:
        start = state.hour_start(gap.kafka_partition, verdict.hour)
        is_older = start is None or gap.end_offset < start
        is_doubt = gap.reason in {"before archiving began", "retention", "skipped"}
        if not (is_doubt and is_older):
            losses[gap.kafka_partition] = "gap"
        losses.setdefault(gap.kafka_partition, "in doubt")
    return losses


def _choose_worst(losses: Mapping[int, Loss]) -> Loss | None:
    """Return the worst loss of any kafka partition, or None if there is none."""
    return "gap" if "gap" in losses.values() else "in doubt" if losses else None


def _find_time_state(
    hour: datetime, lateness: timedelta, now: datetime, at_risk: tuple[datetime, datetime] | None
) -> HourState | None:
    """Return the state of an incomplete hour by time alone, or None if it should be complete by now."""
    if hour > now:
        return "ahead"
    if at_risk is not None and at_risk[0] <= hour < at_risk[1]:
        return "at risk"
    return "open" if now < hour + HOUR + lateness else None


def _sum_counts(segments: Iterable[Segment]) -> tuple[int, int] | None:
    """Return the numbers of records, and of late ones, in segments, or None if there are no segments."""
    counts = [(segment.record_count, segment.late_count) for segment in segments]
    return (sum(records for records, _ in counts), sum(late for _, late in counts)) if counts else None


def _choose_state(
    time_state: HourState | None,
    is_scanned: bool,
    is_elsewhere: bool,
    counts: tuple[int, int] | None,
    loss: Loss | None,
    is_complete: bool,
    is_expired: bool,
) -> HourState:
    """Choose the state of an hour. A gap comes first, even if the hour is complete.

    `counts` are its numbers of records and of late records. `is_elsewhere` is True if it has none, but some may lie in
    an hour of a former timezone, or as out of range. `is_expired` is True if a rule of retention removed records of the
    hour. `time_state` is its state by time alone, see `_find_time_state`.
    """
    if loss == "gap":
        return "gap"
    if not is_complete:
        return time_state or ("partial" if is_scanned or counts else "none")
    if is_expired:
        return "expired"
    if loss:
        return loss
    records, late = counts or (0, 0)
    return "late" if late else "complete" if records or is_elsewhere else "empty"


@dataclass(frozen=True)
class GridDay:
    """A day and the states of its 23 to 25 hours."""

    day: date
    hours: tuple[DescribedHour, ...]


def make_hour_grid(
    snapshot: IndexSnapshot,
    days: Sequence[date],
    zone: ZoneInfo,
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None = None,
    *,
    by_kafka_partition: bool = False,
) -> list[GridDay]:
    """Return each hour's state for `days` (ascending), with its state in each kafka partition if requested."""
    by_day = {day: list_day_hours(day, zone) for day in days}
    hours = [hour for day_hours in by_day.values() for hour in day_hours]
    stated = iter(describe_hours(snapshot, hours, lateness, now, at_risk, by_kafka_partition=by_kafka_partition))
    return [GridDay(day, tuple(next(stated) for _ in day_hours)) for day, day_hours in by_day.items()]


def list_grid_days(
    snapshot: IndexSnapshot, count: int, zone: ZoneInfo, now: datetime, first_hour: datetime
) -> list[date]:
    """List the last `count` days up to today. If none of them is archived, list those up to the newest archived day.

    No day lies before `first_hour`, the first hour to archive.
    """
    last_day = now.astimezone(zone).date()
    start = find_day_start(last_day - timedelta(days=count - 1), zone)
    newest_hour = max(snapshot.state.asked_hours, default=None)
    if newest_hour is None or newest_hour < start:
        chunks = snapshot.list_chunks(SegmentFilter("hourly", chunk_starts=(start, now)), SEGMENT_KINDS)
        if not chunks and newest_hour is None:
            # runs up to now request no hour, so search all hours if none is recent
            chunks = snapshot.list_chunks(SegmentFilter("hourly"), SEGMENT_KINDS)
        newest_hour = max((chunk.chunk_start for chunk in chunks if chunk.chunk_start), default=newest_hour)
    if newest_hour is not None and newest_hour < start:
        last_day = newest_hour.astimezone(zone).date()
    first = min(first_hour.astimezone(zone).date(), last_day)
    return [day for n in reversed(range(count)) if (day := last_day - timedelta(days=n)) >= first]
