"""Days: when they begin, what the index holds of them, which are due."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.model.segment import Segment, StoredChunk
from kafka_s3_platform.model.times import HOUR, shift_time
from kafka_s3_platform.store.index import ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter
from kafka_s3_platform.upkeep.compact.request import DayReport, is_mergeable

FARTHEST_ZONE = timedelta(hours=15)
"""No timezone is as far from UTC: those of today lie within 14 hours."""


def find_day_start(day: date, zone: ZoneInfo) -> datetime:
    """Return when, in UTC, `day` begins; where midnight is skipped, the clock change."""
    return datetime.combine(day, time(), zone).astimezone(timezone.utc)


def find_day_end(day: date, zone: ZoneInfo) -> datetime:
    """Return when, in UTC, the next day begins: a day may have 23 or 25 hours."""
    return find_day_start(day + timedelta(days=1), zone)


def list_day_hours(day: date, zone: ZoneInfo) -> list[datetime]:
    """Return the starts of the day's 23 to 25 hours, in UTC."""
    start = find_day_start(day, zone)
    return [start + n * HOUR for n in range((find_day_end(day, zone) - start) // HOUR)]


def find_day(segment: Segment | StoredChunk) -> date | None:
    """Return the day of a segment or an hour, in the timezone that wrote it; None for out-of-range records."""
    if segment.chunk_start is None:
        return None
    return segment.chunk_start.astimezone(segment.zone).date()


def select_day_segments(segments: Sequence[Segment], day: date) -> tuple[Segment, ...]:
    """Return the segments that lie in `day`, in their order."""
    return tuple(s for s in segments if find_day(s) == day)


def read_day_segments(snapshot: IndexSnapshot, day: date, *, retired: bool = False) -> tuple[Segment, ...]:
    """Return the segments that lie in `day`, live or retired ones. Reads no others of the index.

    A segment's day is that of its own timezone, which may be up to `FARTHEST_ZONE` from UTC.
    """
    return select_day_segments(snapshot.select_segments(_build_day_filter(day), retired=retired), day)


def load_day_segments(snapshot: ConnectorSnapshot, topics: Iterable[str], day: date) -> None:
    """Read the live segments that lie in `day` of many topics in one pass, before they are asked for."""
    snapshot.load_segments(topics, "segment", _build_day_filter(day))


def _build_day_filter(day: date) -> SegmentFilter:
    start = datetime.combine(day, time(), timezone.utc)
    bounds = (shift_time(start, -FARTHEST_ZONE), shift_time(start, timedelta(days=1) + FARTHEST_ZONE))
    return SegmentFilter(chunk_starts=bounds)


def list_due_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Days to compact, ascending: those that ended `lateness` ago or more and have a live hourly segment to merge.

    Such a segment is newer than its day's compaction, which retired all that were live then. A day has to be over in
    the timezone of the segment and in `zone`, the connector's.
    """
    found = {(find_day(c), c.zone) for c in snapshot.list_chunks(SegmentFilter(chunk="hourly")) if is_mergeable(c)}
    ended = now - lateness
    return sorted(
        {d for d, own in found if d is not None and max(find_day_end(d, own), find_day_end(d, zone)) <= ended}
    )


def report_day(snapshot: IndexSnapshot, day: date) -> DayReport:
    """Return the facts on a day's page."""
    segments = read_day_segments(snapshot, day)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))
