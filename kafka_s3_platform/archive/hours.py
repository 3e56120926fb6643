"""Reports on hours from the index: the facts on an hour's page, and whether the hour is complete."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

from kafka_s3_platform.archive.request import HourReport
from kafka_s3_platform.model.judge import HourVerdict
from kafka_s3_platform.model.segment import Scan, Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter


def report_hours(snapshot: IndexSnapshot, hours: Iterable[datetime], lateness: timedelta) -> Iterator[HourReport]:
    """Report each of `hours`. Compacted segments count too: an hour keeps its numbers when its day is merged."""
    hours = sorted(hours)
    apart = list_segments_apart(snapshot, hours[0]) if hours else ()
    segments = group_segments_by_hour(snapshot, hours)
    state = snapshot.state
    scans: dict[datetime | None, list[Scan]] = defaultdict(list)
    folded = state.read_folded(hours)
    for scan in chain(state.scans, *(month.scans for month in folded)):
        if scan.filtered_count or scan.dead_letter_count:
            scans[state.hour_of(scan.kafka_partition, scan.start_offset)].append(scan)
    for hour in hours:
        yield HourReport(
            hour,
            tuple(segments.get(hour, ())),
            judge_hour(state, hour, lateness, apart),
            state.is_scanned(hour),
            sum(s.filtered_count for s in scans[hour]),
            sum(s.dead_letter_count for s in scans[hour]),
        )


def list_segments_apart(snapshot: IndexSnapshot, first: datetime) -> tuple[Segment, ...]:
    """List the out-of-range segments that may hold records of hours from `first` on: the archive began after them."""
    return snapshot.select_segments(SegmentFilter(started_since=first))


def judge_hour(state: IndexState, hour: datetime, lateness: timedelta, apart: Iterable[Segment]) -> HourVerdict:
    """Judge an hour, with the records of segments `apart` that may be of it."""
    count = sum(s.record_count for s in apart if s.may_hold_apart(hour))
    return replace(state.judge.find_verdict(hour, lateness), out_of_range_count=count)


def list_complete_hours(
    state: IndexState, hours: Iterable[datetime], lateness: timedelta, apart: Sequence[Segment]
) -> list[datetime]:
    """Return those of `hours` that judge_hour finds complete. No folded row is read."""
    complete = (hour for hour in hours if state.judge.is_complete(hour, lateness))
    return [hour for hour in complete if not any(s.may_hold_apart(hour) for s in apart)]


def group_segments_by_hour(snapshot: IndexSnapshot, hours: Sequence[datetime]) -> dict[datetime, list[Segment]]:
    """Group the hourly segments of the ascending `hours`, live or compacted since, by the start of their hour."""
    found: dict[datetime, list[Segment]] = defaultdict(list)
    if not hours:
        return found
    wanted = SegmentFilter(chunk="hourly", chunk_starts=(hours[0], hours[-1] + HOUR))
    for segment in (*snapshot.select_segments(wanted), *snapshot.select_segments(wanted, retired=True)):
        if segment.chunk_start is not None:
            found[segment.chunk_start].append(segment)
    return found
