"""Names what is known of hours: one word and one mark, for a terminal, a page and Dagster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from kafka_s3_platform.archive.hours import count_records_apart, list_segments_apart, report_hours
from kafka_s3_platform.archive.request import HourReport
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter

HourState: TypeAlias = Literal["gap", "at risk", "partial", "none", "open", "late", "complete", "empty", "ahead"]

MARKS: Mapping[HourState, tuple[str, str]] = {
    "gap": ("!", "offsets are missing for good, in it or between it and the next"),
    "at risk": ("?", "not complete, and Kafka soon deletes its records"),
    "partial": ("~", "archived in part, or not known to be complete"),
    "none": (".", "nothing archived"),
    "open": (">", "not over yet, with the allowed lateness"),
    "late": ("+", "complete, and some of its records came late"),
    "complete": ("#", "complete"),
    "empty": ("o", "complete, and no record of it is in this archive"),
    "ahead": (" ", ""),
}
"""The mark that stands for each state, and what a legend says of it. The worst comes first."""


COLOURS: Mapping[HourState, tuple[str, str]] = {
    "gap": ("#8f1029", "#fff"),
    "at risk": ("#d9540b", "#fff"),
    "partial": ("#f0b429", "#3d2a00"),
    "none": ("#d5dbe1", "#5d6b7a"),
    "open": ("#bcdcf5", "#0b4a7d"),
    "late": ("#0b63a5", "#e3f1fc"),
    "complete": ("#1f8a5b", "#a5dcc2"),
    "empty": ("#cfe9dc", "#2c6b4d"),
}
"""The colour of each state, and that of its mark on it. They differ in lightness, for those who see no green or red."""


@dataclass(frozen=True)
class StatedHour:
    """What is known of an hour, and of it in each kafka partition if that was asked for."""

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

    Hours in `at_risk`, [from, to), have records that Kafka soon deletes, unless they are complete. The index does not
    tell that.
    """
    beside = _find_hours_beside(snapshot)
    numbers = _list_kafka_partitions(snapshot) if by_kafka_partition else ()
    found = []
    for report in report_hours(snapshot, hours, lateness):
        passing = _name_passing(report.hour, lateness, now, at_risk)
        gaps = {*(gap.kafka_partition for gap in report.gaps if gap.is_lost), *beside.get(report.hour, ())}
        state = _name_state(_sum(report.segments), passing, bool(gaps), report.complete, met=report.scanned)
        states: dict[int, HourState] = {}
        if numbers:
            covered = snapshot.state.find_covered(report.hour, lateness)
            for number in numbers:
                stored = _sum(s for s in report.segments if s.kafka_partition == number)
                complete = covered.get(number, False) and not report.out_of_range_count
                states[number] = _name_state(stored, passing, number in gaps, complete, met=report.scanned)
        found.append(StatedHour(state, report, states))
    return found


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
    state, stored = snapshot.state, snapshot.count_hours(hours[0])
    apart = list_segments_apart(snapshot, hours[0])
    lost = {*_find_hours_beside(snapshot), *(hour for hour, gap in snapshot.gaps_by_hour() if gap.is_lost)}
    found = []
    for hour in hours:
        has_gap = hour in lost or any(gap.is_lost for gap in state.list_truncated_in(hour))
        complete = state.is_complete(hour, lateness) and not count_records_apart(hour, apart)
        passing = _name_passing(hour, lateness, now, at_risk)
        found.append(_name_state(stored.get(hour), passing, has_gap, complete, met=state.is_scanned(hour)))
    return found


def find_empty_hours(snapshot: IndexSnapshot, hours: Sequence[datetime], lateness: timedelta) -> list[datetime]:
    """Return those of the ascending `hours` that are complete and hold no record, and whose records none can be lost.

    Offsets that another sink archived, or that are gone, may be of any hour between those archived before and after
    them, unless a run found them in an hour.
    """
    complete = [hour for hour in hours if snapshot.state.is_complete(hour, lateness)]
    if not complete:
        return []
    bounds = (complete[0], complete[-1] + HOUR)
    stored = {c.chunk_start for c in snapshot.list_chunks(SegmentFilter("hourly", bounds), retired=True)}
    apart = list_segments_apart(snapshot, complete[0])
    gaps = snapshot.gaps_by_hour() if snapshot.state.gaps else []
    found_in = {hour for hour, _ in gaps}
    between = [_find_hours_around(snapshot, gap) for hour, gap in gaps if hour is None]
    return [
        hour
        for hour in complete
        if not (
            hour in stored
            or hour in found_in
            or any((not after or hour <= after) and (not before or before <= hour) for before, after in between)
            or count_records_apart(hour, apart)
            or snapshot.state.list_truncated_in(hour)
        )
    ]


def _find_hours_around(snapshot: IndexSnapshot, gap: Gap) -> tuple[datetime | None, datetime | None]:
    """Return the hours of what is archived right before and right after a gap. None: any hour."""
    before = _list_hours_at(snapshot, gap.kafka_partition, gap.start_offset - 1)
    after = _list_hours_at(snapshot, gap.kafka_partition, gap.end_offset)
    return min(before, default=None), max(after, default=None)


def _list_hours_at(snapshot: IndexSnapshot, kafka_partition: int, offset: int) -> list[datetime]:
    """List the hours of the segments that may hold the offset."""
    if offset < 0:
        return []
    wanted = SegmentFilter("hourly", kafka_partitions=frozenset([kafka_partition]), offsets=(offset, offset + 1))
    found = (*snapshot.select_segments(wanted), *snapshot.select_segments(wanted, retired=True))
    return [segment.chunk_start for segment in found if segment.chunk_start is not None]


def _list_kafka_partitions(snapshot: IndexSnapshot) -> list[int]:
    topic = snapshot.state.topic
    return sorted({*(topic.kafka_partitions if topic else ()), *snapshot.state.scanned_kafka_partitions})


def _find_hours_beside(snapshot: IndexSnapshot) -> dict[datetime, set[int]]:
    """Return the kafka partitions with a gap of no known hour, by the hour that begins before it.

    Such a gap is of that hour or of a later one.
    """
    found: dict[datetime, set[int]] = {}
    for hour, gap in snapshot.gaps_by_hour():
        if hour is None and gap.is_lost:
            begun = snapshot.state.last_begun(gap.kafka_partition, gap.start_offset)
            if begun is not None:
                found.setdefault(begun, set()).add(gap.kafka_partition)
    return found


def _name_passing(
    hour: datetime, lateness: timedelta, now: datetime, at_risk: tuple[datetime, datetime] | None
) -> HourState | None:
    """Name what time alone says of an hour that is not complete: None if it should be."""
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
    stored: tuple[int, int] | None, passing: HourState | None, has_gap: bool, complete: bool, *, met: bool
) -> HourState:
    """Name what is known of an hour. Complete hours may have lost what retention took: that counts first."""
    if has_gap:
        return "gap"
    if complete:
        records, late = stored or (0, 0)
        return "late" if late else "complete" if records else "empty"
    return passing or ("partial" if met or stored else "none")
