"""Reports on hours, made from the index: the facts for an hour's page, including its completeness."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain

from kafka_s3_platform.core.archive.request import HourReport
from kafka_s3_platform.core.model.segment import Scan, Segment
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.index_rows import ERASED, EXPIRED, REMOVED, SEGMENT_KINDS
from kafka_s3_platform.core.store.row_filter import SegmentFilter


def report_hours(snapshot: IndexSnapshot, hours: Iterable[datetime], lateness: timedelta) -> Iterator[HourReport]:
    """Yield a report of each of `hours`. Segments merged into a day count too, so their hour keeps its numbers."""
    hours = sorted(hours)
    segments = group_segments_by_hour(snapshot, hours)
    removed = group_segments_by_hour(snapshot, hours, [REMOVED, EXPIRED, ERASED])
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
            state.judge.find_verdict(hour, lateness),
            state.is_scanned(hour),
            sum(s.filtered_count for s in scans[hour]),
            sum(s.dead_letter_count for s in scans[hour]),
            frozenset(s.key for s in removed.get(hour, ())),
        )


def group_segments_by_hour(
    snapshot: IndexSnapshot, hours: Sequence[datetime], kinds: Collection[str] = SEGMENT_KINDS
) -> dict[datetime, list[Segment]]:
    """Group the hourly segments of the ascending `hours` by the start of their hour, even if no longer live."""
    by_hour: dict[datetime, list[Segment]] = defaultdict(list)
    if not hours:
        return by_hour
    selection = SegmentFilter(chunk="hourly", chunk_starts=(hours[0], hours[-1] + HOUR))
    for segment in snapshot.select_segments(selection, kinds):
        if segment.chunk_start is not None:
            by_hour[segment.chunk_start].append(segment)
    return by_hour
