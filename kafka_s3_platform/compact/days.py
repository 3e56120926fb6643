"""Days: when they begin, what the index holds of them, which are due."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.compact.request import DayReport
from kafka_s3_platform.formats.envelopes import is_envelope
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot


def day_start(day: date, zone: ZoneInfo) -> datetime:
    """The instant, in UTC, at which `day` begins; where midnight is skipped, the clock change."""
    return datetime.combine(day, time(), zone).astimezone(timezone.utc)


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """The instant, in UTC, at which the next day begins."""
    return day_start(day + timedelta(days=1), zone)


def day_of(segment: Segment) -> date | None:
    """The day that a segment's hour or day lies in, in the timezone that wrote it; None for out-of-range records."""
    return None if segment.chunk_start is None else segment.chunk_start.astimezone(segment.zone).date()


def segments_of_day(segments: Sequence[Segment], day: date) -> tuple[Segment, ...]:
    """Those of `segments` that lie in `day`, in their order."""
    return tuple(s for s in segments if day_of(s) == day)


def is_mergeable(segment: Segment) -> bool:
    """Whether compaction can take it: it holds whole records. Of other formats objects stay as they were written."""
    return is_envelope(segment.format)


def days_due(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Days to compact, ascending: those that ended `lateness` ago or more and have a live hourly segment to merge.

    Such a segment is newer than its day's compaction, which retired all that were live then. A day has to be over in
    the timezone of the segment and in `zone`, the connector's.
    """
    hourly = (s for s in snapshot.segments if s.chunk == "hourly" and is_mergeable(s))
    found = {(day_of(s), s.zone) for s in hourly}
    ended = now - lateness
    return sorted({d for d, own in found if d is not None and max(day_end(d, own), day_end(d, zone)) <= ended})


def day_report(snapshot: IndexSnapshot, day: date) -> DayReport:
    """The facts on a day's page."""
    segments = segments_of_day(snapshot.segments, day)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))
