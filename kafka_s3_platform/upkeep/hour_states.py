"""Name the states of hours, one word and one mark each, and draw them as a grid of days x hours.

A terminal, a page and Dagster show the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.archive.request import HourReport
from kafka_s3_platform.model.judge import HourVerdict
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter
from kafka_s3_platform.upkeep.compact.days import find_day_start, list_day_hours

HourState: TypeAlias = Literal[
    "gap", "at risk", "partial", "none", "open", "in doubt", "late", "complete", "empty", "ahead"
]

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
    "late": ("#0b63a5", "#e3f1fc"),
    "complete": ("#1f8a5b", "#a5dcc2"),
    "empty": ("#cfe9dc", "#2c6b4d"),
}
"""The colour of each state, and its mark's on it. They differ in lightness, for people who see no green or red."""


@dataclass(frozen=True)
class StatedHour:
    """State of an hour, and its state in each kafka partition if requested."""

    state: HourState
    report: HourReport
    kafka_partitions: Mapping[int, HourState] = field(default_factory=dict)


def state_hours(
    snapshot: IndexSnapshot,
    hours: Sequence[datetime],
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None = None,
    *,
    by_kafka_partition: bool = False,
) -> list[StatedHour]:
    """Name the state of each of the ascending `hours`.

    Hours in `at_risk`, [from, to), have records soon to be deleted by Kafka, unless they are complete. The index does
    not know that.
    """
    numbers = _list_kafka_partitions(snapshot) if by_kafka_partition else ()
    stated = []
    for report in report_hours(snapshot, hours, lateness):
        passing = _name_passing(report.hour, lateness, now, at_risk)
        verdict, counts = report.verdict, _sum(report.segments)
        lacks = _name_what_lacks(snapshot.state, verdict)
        state = _name_state(counts, passing, _choose_worst(lacks.values()), report.complete, met=report.scanned)
        states: dict[int, HourState] = {}
        for number in numbers:
            mine = _sum(s for s in report.segments if s.kafka_partition == number)
            complete = verdict.is_complete_in(number)
            states[number] = _name_state(mine, passing, lacks.get(number), complete, met=report.scanned)
        stated.append(StatedHour(state, report, states))
    return stated


def sketch_hours(
    snapshot: IndexSnapshot,
    hours: Sequence[datetime],
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None,
) -> list[HourState]:
    """Name the state of each of the ascending `hours`, as `state_hours` does, from counts: no segment is read.

    The counts are read once for all topics of the index.
    """
    state, counts = snapshot.state, snapshot.count_hours(hours[0])
    stated = []
    for hour in hours:
        verdict = state.judge.find_verdict(hour, lateness)
        lacking = _choose_worst(_name_what_lacks(state, verdict).values())
        passing = _name_passing(hour, lateness, now, at_risk)
        met = state.is_scanned(hour)
        stated.append(_name_state(counts.get(hour), passing, lacking, verdict.is_complete, met=met))
    return stated


def find_empty_hours(snapshot: IndexSnapshot, hours: Sequence[datetime], lateness: timedelta) -> list[datetime]:
    """Return the complete ones of the ascending `hours` that lack and hold nothing, also of no other sink."""
    judge = snapshot.state.judge
    complete = [hour for hour in hours if judge.is_complete(hour, lateness) and not judge.may_lack(hour, lateness)]
    if not complete:
        return []
    bounds = (complete[0], complete[-1] + HOUR)
    starts = {c.chunk_start for c in snapshot.list_chunks(SegmentFilter("hourly", bounds), retired=True)}
    return [hour for hour in complete if hour not in starts]


def _name_what_lacks(state: IndexState, verdict: HourVerdict) -> dict[int, Literal["gap", "in doubt"]]:
    """Name, by kafka partition, how likely the hour lacks something: a gap, or only if records came out of order.

    Deleted or skipped records may be of every hour since they were last observed. If records are in order, they
    are older than an hour with a plan that found records of earlier hours behind them.
    """
    lacks: dict[int, Literal["gap", "in doubt"]] = {}
    for gap in verdict.lacking:
        start = state.hour_start(gap.kafka_partition, verdict.hour)
        is_older = start is None or gap.end_offset < start
        is_doubt = gap.reason in {"before archiving began", "retention", "skipped"}
        if not (is_doubt and is_older):
            lacks[gap.kafka_partition] = "gap"
        lacks.setdefault(gap.kafka_partition, "in doubt")
    return lacks


def _choose_worst(lacks: Collection[Literal["gap", "in doubt"]]) -> Literal["gap", "in doubt"] | None:
    return "gap" if "gap" in lacks else "in doubt" if lacks else None


def _list_kafka_partitions(snapshot: IndexSnapshot) -> list[int]:
    topic = snapshot.state.topic
    return sorted({*(topic.kafka_partitions if topic else ()), *snapshot.state.scanned_kafka_partitions})


def _name_passing(
    hour: datetime, lateness: timedelta, now: datetime, at_risk: tuple[datetime, datetime] | None
) -> HourState | None:
    """Name the state of an incomplete hour by time alone: None if it should be complete."""
    if hour > now:
        return "ahead"
    if at_risk is not None and at_risk[0] <= hour < at_risk[1]:
        return "at risk"
    return "open" if now < hour + HOUR + lateness else None


def _sum(segments: Iterable[Segment]) -> tuple[int, int] | None:
    """Return the records, and late ones, of segments. None if there are no segments."""
    counts = [(segment.record_count, segment.late_count) for segment in segments]
    return (sum(records for records, _ in counts), sum(late for _, late in counts)) if counts else None


def _name_state(
    counts: tuple[int, int] | None,
    passing: HourState | None,
    lacking: Literal["gap", "in doubt"] | None,
    complete: bool,
    *,
    met: bool,
) -> HourState:
    """Name the state of an hour. Complete hours may have lost records to retention: that counts first."""
    if lacking == "gap":
        return "gap"
    if complete and lacking:
        return lacking
    if complete:
        records, late = counts or (0, 0)
        return "late" if late else "complete" if records else "empty"
    return passing or ("partial" if met or counts else "none")


@dataclass(frozen=True)
class GridDay:
    """A day and the states of its 23 to 25 hours."""

    day: date
    hours: tuple[StatedHour, ...]


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
    """Return each hour's state for `days` (ascending). See `state_hours`."""
    by_day = {day: list_day_hours(day, zone) for day in days}
    hours = [hour for day_hours in by_day.values() for hour in day_hours]
    stated = iter(state_hours(snapshot, hours, lateness, now, at_risk, by_kafka_partition=by_kafka_partition))
    return [GridDay(day, tuple(next(stated) for _ in day_hours)) for day, day_hours in by_day.items()]


def list_grid_days(
    snapshot: IndexSnapshot, count: int, zone: ZoneInfo, now: datetime, first_hour: datetime
) -> list[date]:
    """List the last `count` days up to today, or up to the newest archived one if nothing is of these.

    None is before `first_hour`, the first one to archive.
    """
    last = now.astimezone(zone).date()
    start = find_day_start(last - timedelta(days=count - 1), zone)
    newest = max(snapshot.state.asked_hours, default=None)
    if newest is None or newest < start:
        chunks = snapshot.list_chunks(SegmentFilter("hourly", chunk_starts=(start, now)), retired=True)
        if not chunks and newest is None:
            # runs up to now request no hour: search all hours, if none is recent
            chunks = snapshot.list_chunks(SegmentFilter("hourly"), retired=True)
        newest = max((chunk.chunk_start for chunk in chunks if chunk.chunk_start), default=newest)
    if newest is not None and newest < start:
        last = newest.astimezone(zone).date()
    first = min(first_hour.astimezone(zone).date(), last)
    return [day for n in reversed(range(count)) if (day := last - timedelta(days=n)) >= first]
