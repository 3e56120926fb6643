"""Days and months of an archive: their bounds, segments and summaries, and the request to compact one."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from typing import TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.model.segment import Segment, SegmentTotals, StoredChunk, StoredObject
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, shift_time
from kafka_s3_platform.core.store.index import ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.core.store.index_rows import ERASED, LIVE, MERGED_KINDS
from kafka_s3_platform.core.store.row_filter import SegmentFilter

FARTHEST_ZONE = timedelta(hours=15)
"""Distance from UTC that no timezone reaches: all current ones are within 14 hours of it."""


@dataclass(frozen=True)
class Month:
    """A month, given by its first day. As text, it is written `2026-01`."""

    first_day: date

    @classmethod
    def of(cls, day: date) -> "Month":
        """Return the month of the day."""
        return cls(day.replace(day=1))

    def isoformat(self) -> str:
        return f"{self.first_day:%Y-%m}"

    __str__ = isoformat


Span: TypeAlias = date | Month
"""The span merged by one compaction: the hours of a day, or the days of a month."""


def find_first_day(span: Span) -> date:
    """Return the day itself, or the first day of the month."""
    return span.first_day if isinstance(span, Month) else span


def find_next_day(span: Span) -> date:
    """Return the day after the span."""
    if isinstance(span, Month):
        return (span.first_day + timedelta(days=31)).replace(day=1)
    return span + timedelta(days=1)


@dataclass(frozen=True)
class CompactRequest:
    """A request to merge a day's hourly segments, or a month's daily ones, each by the segment's own timezone."""

    config: ConnectorConfig
    topic: str
    span: Span
    run_id: str

    @property
    def segment_bytes(self) -> int:
        """The target size of the objects to write."""
        archive = self.config.archive
        return archive.monthly_segment_bytes if isinstance(self.span, Month) else archive.daily_segment_bytes


def is_mergeable(segment: Segment | StoredChunk) -> bool:
    """Return True if the segment can be compacted, because it holds whole records. Others stay as they are."""
    return find_format(segment.format).is_envelope


@dataclass(frozen=True)
class DayReport(SegmentTotals):
    """The live segments of one day or month in the index.

    Hourly segments among them came after the day's last compaction, so the day is due again. Segments whose format
    holds values only are never merged. `is_in_month` is True if the day's month has objects, whose records `segments`
    leaves out.
    """

    span: Span
    segments: tuple[Segment, ...]
    is_in_month: bool

    @property
    def hourly_count(self) -> int:
        """The number of segments that compaction has yet to merge."""
        return sum(s.chunk == "hourly" and is_mergeable(s) for s in self.segments)

    @property
    def unmergeable(self) -> tuple[Segment, ...]:
        """Segments whose format holds values only, which stay hourly and live."""
        return tuple(s for s in self.segments if not is_mergeable(s))


@dataclass(frozen=True)
class CompactReport:
    """Result of one run: `merged` segments were replaced by `written` ones; both are empty if there was nothing to do.

    Up to `out_of_range_count` records of the day are in none of its segments, because the start hour was later than
    theirs. `run_record_count` counts the records of all days and topics of the run, and `seconds` is the run's
    duration.
    """

    day: DayReport
    merged: tuple[Segment, ...]
    written: tuple[Segment, ...]
    version: int
    run_record_count: int
    seconds: float
    out_of_range_count: int = 0


def find_day_start(span: Span, zone: ZoneInfo) -> datetime:
    """Return the start of a day or month in this timezone, in UTC: after midnight if a clock change skips midnight."""
    return datetime.combine(find_first_day(span), time(), zone).astimezone(timezone.utc)


def find_day_end(span: Span, zone: ZoneInfo) -> datetime:
    """Return the end of a day or month in this timezone, in UTC. A day may have 23 or 25 hours."""
    return find_day_start(find_next_day(span), zone)


def cover_days(span: Span, zones: Iterable[ZoneInfo], zone: ZoneInfo) -> tuple[date, date]:
    """Return the first day of `zone` in which a day or month of some timezone lies, and the day after the last one."""
    bounds = [(find_day_start(span, place), find_day_end(span, place)) for place in (zone, *zones)]
    first = min(start for start, _ in bounds).astimezone(zone).date()
    last = max(end for _, end in bounds) - timedelta(microseconds=1)
    return first, last.astimezone(zone).date() + timedelta(days=1)


def list_day_hours(span: Span, zone: ZoneInfo) -> list[datetime]:
    """Return the starts of the hours of a day (23 to 25) or month, in UTC."""
    start = find_day_start(span, zone)
    return [start + n * HOUR for n in range((find_day_end(span, zone) - start) // HOUR)]


def find_day(segment: Segment | StoredChunk) -> date | None:
    """Return the day in which an hour, day or month begins, in its own timezone, or None if out of range."""
    if segment.chunk_start is None:
        return None
    return segment.chunk_start.astimezone(segment.zone).date()


def find_span(segment: Segment) -> Span | None:
    """Return the segment's day, or month if it is monthly, in its own timezone, or None if out of range."""
    day = find_day(segment)
    return Month.of(day) if day is not None and segment.chunk == "monthly" else day


def select_day_segments(segments: Sequence[Segment], span: Span) -> tuple[Segment, ...]:
    """Return the segments of a day, without its month's, or the segments of a month, with its days' and hours'."""
    if not isinstance(span, Month):
        return tuple(s for s in segments if find_span(s) == span)
    return tuple(s for s in segments if (day := find_day(s)) is not None and Month.of(day) == span)


def read_day_segments(snapshot: IndexSnapshot, span: Span, kinds: Collection[str] = (LIVE,)) -> tuple[Segment, ...]:
    """Return the segments of a day or month with one of these kinds. Few other rows of the index are read.

    A day is counted in the segment's own timezone, which is less than `FARTHEST_ZONE` from UTC.
    """
    return select_day_segments(snapshot.select_segments(_build_span_filter(span), kinds), span)


def count_day_records(snapshot: IndexSnapshot, span: Span) -> tuple[Counter[int], Counter[int]]:
    """Count the records of a day or month by kafka partition: in its merged objects, and in the hours in them.

    Records erased from the merged objects still count for these, because the hours were merged with them.
    """
    merged = Counter[int]()
    hours = Counter[int]()
    for segment in read_day_segments(snapshot, span, (LIVE, ERASED)):
        merged[segment.kafka_partition] += segment.record_count if segment.chunk != "hourly" else 0
    for segment in read_day_segments(snapshot, span, MERGED_KINDS):
        hours[segment.kafka_partition] += segment.record_count if segment.chunk == "hourly" else 0
    return merged, hours


def explain_lost_records(snapshot: IndexSnapshot, span: Span) -> str:
    """Explain a difference in records between a day's (or month's) objects and its merged hours.

    The text is empty if there is none.
    """
    merged, hours = count_day_records(snapshot, span)
    if merged == hours:
        return ""
    return (
        f"its objects hold {merged.total():,} records, and the hours that were merged into it {hours.total():,}. Find "
        f"out by `kafka-s3 verify --deep` what is wrong"
    )


def load_day_segments(snapshot: ConnectorSnapshot, topics: Iterable[str], span: Span) -> None:
    """Read the live segments of a day or month of many topics in one pass, so later calls find them."""
    snapshot.load_segments(topics, _build_span_filter(span))


def read_month_segments(snapshot: IndexSnapshot, day: date, kinds: Collection[str] = (LIVE,)) -> tuple[Segment, ...]:
    """Return the monthly segments of these kinds that may hold records of the day."""
    month = Month.of(day)
    month_filter = replace(_build_span_filter(month), chunk="monthly")
    return select_day_segments(snapshot.select_segments(month_filter, kinds), month)


def find_holder(snapshot: IndexSnapshot, day: date) -> Span:
    """Return the day's month if its days were merged into objects of the month, also erased ones, or else the day."""
    return Month.of(day) if read_month_segments(snapshot, day, (LIVE, ERASED)) else day


def group_by_holder(segments: Iterable[Segment], months: Collection[Span | None]) -> dict[Span | None, list[Segment]]:
    """Group segments by month if it is one of `months`, else by day. The key None has records of no day."""
    by_span: dict[Span | None, list[Segment]] = {}
    for segment in segments:
        by_span.setdefault(choose_holder(find_day(segment), months), []).append(segment)
    return by_span


def choose_holder(day: date | None, months: Collection[Span | None]) -> Span | None:
    """Return the day's month if it is one of `months`, or else the day."""
    return day if day is None or Month.of(day) not in months else Month.of(day)


def list_merged_months(snapshot: IndexSnapshot) -> frozenset[Span | None]:
    """Return the months that have monthly segments, merged from daily ones, or had some that were erased."""
    segments = (*snapshot.segments, *snapshot.erased)
    return frozenset(find_span(segment) for segment in segments if segment.chunk == "monthly")


def _build_span_filter(span: Span) -> SegmentFilter:
    """Return a filter for all segments that begin in the day or month in any timezone."""
    start = datetime.combine(find_first_day(span), time(), timezone.utc)
    end = datetime.combine(find_next_day(span), time(), timezone.utc)
    return SegmentFilter(chunk_starts=(shift_time(start, -FARTHEST_ZONE), shift_time(end, FARTHEST_ZONE)))


def list_due_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime) -> list[date]:
    """Return the days to compact, ascending. They ended `lateness` ago or more, and have an hourly segment to merge.

    Such a segment is newer than its day's last compaction, which retired all segments live at the time. A day has to be
    over in the segment's timezone and in `zone`, the connector's.
    """
    days = {(find_day(c), c.zone) for c in snapshot.list_chunks(SegmentFilter(chunk="hourly")) if is_mergeable(c)}
    latest_end = now - lateness
    return sorted(
        {
            d
            for d, segment_zone in days
            if d is not None and max(find_day_end(d, segment_zone), find_day_end(d, zone)) <= latest_end
        }
    )


def report_day(snapshot: IndexSnapshot, span: Span) -> DayReport:
    """Return the live segments of a day or month, for its page."""
    segments = read_day_segments(snapshot, span)
    is_in_month = not isinstance(span, Month) and bool(read_month_segments(snapshot, span))
    return DayReport(span, segments, is_in_month)


@dataclass(frozen=True)
class DaySummary(SegmentTotals):
    """The facts on a day, or on a month with merged segments. `span` is None for records too old or new for any day.

    Segments count in the day of their own timezone, hours in the day of the connector's timezone.

    `complete_count` of the day's `hour_count` hours are complete. `expired_count` of its records were removed by a rule
    of retention, and `erased_count` were erased by request.
    """

    span: Span | None
    segments: tuple[Segment, ...]
    hour_count: int
    complete_count: int
    expired_count: int = 0
    erased_count: int = 0

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return tuple(o for s in self.segments for o in s.objects)

    @property
    def object_bytes(self) -> int:
        return sum(o.size for o in self.objects)

    @property
    def is_merged(self) -> bool:
        """True if the day holds records, and compaction has merged all mergeable ones."""
        mergeable = [s for s in self.segments if is_mergeable(s)]
        return bool(mergeable) and all(s.chunk != "hourly" for s in mergeable)

    @property
    def unmergeable_count(self) -> int:
        """The number of segments whose format holds values only, which no compaction merges."""
        return sum(not is_mergeable(s) for s in self.segments)


def summarize_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta) -> list[DaySummary]:
    """Summarize the days with an object or a requested hour, in ascending order, after the records of no day."""
    months = list_merged_months(snapshot)
    by_span = group_by_holder(snapshot.segments, months)
    for hour in snapshot.state.asked_hours:
        by_span.setdefault(choose_holder(hour.astimezone(zone).date(), months), [])
    expired = group_by_holder(snapshot.expired, months)
    erased = group_by_holder(snapshot.erased, months)
    spans = sorted({*by_span, *expired, *erased}, key=lambda span: find_first_day(span) if span else date.min)
    summaries: list[DaySummary] = []
    for span in spans:
        summary = _summarize_span(snapshot.state, span, tuple(by_span.get(span, ())), zone, lateness)
        expired_count = sum(segment.record_count for segment in expired.get(span, ()))
        erased_count = sum(segment.record_count for segment in erased.get(span, ()))
        summaries.append(replace(summary, expired_count=expired_count, erased_count=erased_count))
    return summaries


def _summarize_span(
    state: IndexState, span: Span | None, segments: tuple[Segment, ...], zone: ZoneInfo, lateness: timedelta
) -> DaySummary:
    """Summarize a day or month from its segments, and count its complete hours. None means records of no day."""
    if span is None:
        return DaySummary(None, segments, 0, 0)
    hours = list_day_hours(span, zone)
    return DaySummary(span, segments, len(hours), len(state.judge.list_complete(hours, lateness)))
