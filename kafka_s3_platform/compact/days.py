"""Days of the connector's timezone: when they begin, what the index holds of them, which are due."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.compact.request import DayReport
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot


def day_start(day: date, zone: ZoneInfo) -> datetime:
    """The instant, in UTC, at which `day` begins; where midnight is skipped, the clock change."""
    return datetime.combine(day, time(), zone).astimezone(timezone.utc)


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """The instant, in UTC, at which the next day begins."""
    return day_start(day + timedelta(days=1), zone)


def day_of(segment: Segment, zone: ZoneInfo) -> date | None:
    """The day that a segment's hour or day lies in, None for out-of-range records."""
    return None if segment.chunk_start is None else segment.chunk_start.astimezone(zone).date()


def segments_of_day(segments: Sequence[Segment], day: date, zone: ZoneInfo) -> tuple[Segment, ...]:
    """Those of `segments` that lie in `day`, in their order."""
    return tuple(s for s in segments if day_of(s, zone) == day)


def days_due(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Days to compact, ascending: those that ended `lateness` ago or more and have a live hourly segment.

    Such a segment is newer than its day's compaction, which retired all that were live then.
    """
    days = {day_of(s, zone) for s in snapshot.segments if s.chunk == "hourly"} - {None}
    return sorted(d for d in days if d is not None and day_end(d, zone) + lateness <= now)


def day_report(snapshot: IndexSnapshot, day: date, zone: ZoneInfo) -> DayReport:
    """The facts on a day's page."""
    segments = segments_of_day(snapshot.segments, day, zone)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))
