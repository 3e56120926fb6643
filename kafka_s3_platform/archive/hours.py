"""What the index says of hours: the facts on an hour's page, and whether it is complete."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from kafka_s3_platform.archive.request import HourReport
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot


def hour_reports(snapshot: IndexSnapshot, hours: Iterable[datetime], lateness: timedelta) -> Iterator[HourReport]:
    """A report for each of `hours`. Compacted segments count too: an hour keeps its numbers when its day is merged."""
    segments = segments_by_hour(snapshot)
    gaps: dict[datetime | None, list[Gap]] = defaultdict(list)
    for hour, gap in snapshot.gaps_by_hour():
        gaps[hour].append(gap)
    for hour in hours:
        yield HourReport(
            hour,
            tuple(segments.get(hour, ())),
            tuple(gaps[hour]),
            snapshot.state.is_scanned(hour),
            snapshot.state.is_complete(hour, lateness),
        )


def segments_by_hour(snapshot: IndexSnapshot) -> dict[datetime, list[Segment]]:
    """Hour start -> its hourly segments, live or compacted since."""
    found: dict[datetime, list[Segment]] = defaultdict(list)
    for segment in (*snapshot.segments, *snapshot.retired):
        if segment.chunk == "hourly" and segment.chunk_start is not None:
            found[segment.chunk_start].append(segment)
    return found
