"""Days: when they begin, what the index holds of them, which are due."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.request import DayReport, is_mergeable


def find_day_start(day: date, zone: ZoneInfo) -> datetime:
    """Return when, in UTC, `day` begins; where midnight is skipped, the clock change."""
    return datetime.combine(day, time(), zone).astimezone(timezone.utc)


def find_day_end(day: date, zone: ZoneInfo) -> datetime:
    """Return when, in UTC, the next day begins: a day may have 23 or 25 hours."""
    return find_day_start(day + timedelta(days=1), zone)


def find_day(segment: Segment) -> date | None:
    """Return the day of a segment, in the timezone that wrote it; None for out-of-range records."""
    if segment.chunk_start is None:
        return None
    return segment.chunk_start.astimezone(segment.zone).date()


def select_day_segments(segments: Sequence[Segment], day: date) -> tuple[Segment, ...]:
    """Return the segments that lie in `day`, in their order."""
    return tuple(s for s in segments if find_day(s) == day)


def list_due_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Days to compact, ascending: those that ended `lateness` ago or more and have a live hourly segment to merge.

    Such a segment is newer than its day's compaction, which retired all that were live then. A day has to be over in
    the timezone of the segment and in `zone`, the connector's.
    """
    hourly = (s for s in snapshot.segments if s.chunk == "hourly" and is_mergeable(s))
    found = {(find_day(s), s.zone) for s in hourly}
    ended = now - lateness
    return sorted(
        {d for d, own in found if d is not None and max(find_day_end(d, own), find_day_end(d, zone)) <= ended}
    )


def report_day(snapshot: IndexSnapshot, day: date) -> DayReport:
    """Return the facts on a day's page."""
    segments = select_day_segments(snapshot.segments, day)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))
