"""Days: their bounds, their segments in the index, and those due for compaction."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.model.segment import Segment, StoredChunk
from kafka_s3_platform.model.times import HOUR, shift_time
from kafka_s3_platform.store.index import ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter
from kafka_s3_platform.upkeep.compact.request import DayReport, is_mergeable

FARTHEST_ZONE = timedelta(hours=15)
"""No timezone is as far from UTC: all of today lie within 14 hours."""


def find_day_start(day: date, zone: ZoneInfo) -> datetime:
    """Return the begin of `day` in UTC; the clock change, if it skips midnight."""
    return datetime.combine(day, time(), zone).astimezone(timezone.utc)


def find_day_end(day: date, zone: ZoneInfo) -> datetime:
    """Return the begin of the next day in UTC: a day may have 23 or 25 hours."""
    return find_day_start(day + timedelta(days=1), zone)


def list_day_hours(day: date, zone: ZoneInfo) -> list[datetime]:
    """Return the starts of the day's 23 to 25 hours, in UTC."""
    start = find_day_start(day, zone)
    return [start + n * HOUR for n in range((find_day_end(day, zone) - start) // HOUR)]


def find_day(segment: Segment | StoredChunk) -> date | None:
    """Return the day of a segment or an hour, in its own timezone; None for out-of-range records."""
    if segment.chunk_start is None:
        return None
    return segment.chunk_start.astimezone(segment.zone).date()


def select_day_segments(segments: Sequence[Segment], day: date) -> tuple[Segment, ...]:
    """Return the segments of `day`, in their order."""
    return tuple(s for s in segments if find_day(s) == day)


def read_day_segments(snapshot: IndexSnapshot, day: date, *, retired: bool = False) -> tuple[Segment, ...]:
    """Return the live or retired segments of `day`. Reads no others of the index.

    A segment's day is one of its own timezone, up to `FARTHEST_ZONE` from UTC.
    """
    return select_day_segments(snapshot.select_segments(_build_day_filter(day), retired=retired), day)


def load_day_segments(snapshot: ConnectorSnapshot, topics: Iterable[str], day: date) -> None:
    """Read the live segments of `day` of many topics in one pass, before they are used."""
    snapshot.load_segments(topics, "segment", _build_day_filter(day))


def _build_day_filter(day: date) -> SegmentFilter:
    start = datetime.combine(day, time(), timezone.utc)
    bounds = (shift_time(start, -FARTHEST_ZONE), shift_time(start, timedelta(days=1) + FARTHEST_ZONE))
    return SegmentFilter(chunk_starts=bounds)


def list_due_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Days to compact, ascending: ended `lateness` ago or more, with a live hourly segment to merge.

    Such a segment is newer than its day's compaction, which retired all then live ones. A day has to be over in the
    segment's timezone and in `zone`, the connector's.
    """
    days = {(find_day(c), c.zone) for c in snapshot.list_chunks(SegmentFilter(chunk="hourly")) if is_mergeable(c)}
    ended = now - lateness
    return sorted(
        {
            d
            for d, segment_zone in days
            if d is not None and max(find_day_end(d, segment_zone), find_day_end(d, zone)) <= ended
        }
    )


def report_day(snapshot: IndexSnapshot, day: date) -> DayReport:
    """Return the facts on a day's page."""
    segments = read_day_segments(snapshot, day)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))
