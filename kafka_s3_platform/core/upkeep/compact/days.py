"""Days of an archive: their bounds, segments and summaries, and the request to compact one, with its report."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
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
"""No timezone is as far from UTC: all of today lie within 14 hours."""


@dataclass(frozen=True)
class CompactRequest:
    """Merge the hourly segments of `day`, each by its own timezone, into daily ones."""

    config: ConnectorConfig
    topic: str
    day: date
    run_id: str


def is_mergeable(segment: Segment | StoredChunk) -> bool:
    """Return True if it can be compacted: it holds whole records. Others stay as they are."""
    return find_format(segment.format).is_envelope


@dataclass(frozen=True)
class DayReport(SegmentTotals):
    """One day in the index: its live segments, and their places.

    Hourly segments among them came after the day's last compaction: the day is due again. Segments of a format for
    values only are never merged.
    """

    day: date
    segments: tuple[Segment, ...]
    uris: tuple[str, ...]

    @property
    def hourly_count(self) -> int:
        """Segments that no compaction has merged yet."""
        return sum(s.chunk == "hourly" and is_mergeable(s) for s in self.segments)

    @property
    def unmergeable(self) -> tuple[Segment, ...]:
        """Segments of formats for values only: they stay hourly, and live."""
        return tuple(s for s in self.segments if not is_mergeable(s))


@dataclass(frozen=True)
class CompactReport:
    """Result of one run: `merged` segments were replaced by `written` ones; both are empty if there was nothing to do.

    Up to `out_of_range_count` records of the day are in none of its segments: the start hour was later than theirs.
    `run_record_count` is of all days and topics of the run, which took `seconds`.
    """

    day: DayReport
    merged: tuple[Segment, ...]
    written: tuple[Segment, ...]
    version: int
    run_record_count: int
    seconds: float
    out_of_range_count: int = 0


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


def read_day_segments(snapshot: IndexSnapshot, day: date, kinds: Collection[str] = (LIVE,)) -> tuple[Segment, ...]:
    """Return the segments of `day` of these kinds. Reads no others of the index.

    A segment's day is one of its own timezone, up to `FARTHEST_ZONE` from UTC.
    """
    return select_day_segments(snapshot.select_segments(_build_day_filter(day), kinds), day)


def count_day_records(snapshot: IndexSnapshot, day: date) -> tuple[Counter[int], Counter[int]]:
    """Count the records of a day by kafka partition: those of its merged objects, and those of the hours in them.

    Records that were erased from the day's objects count for these: the hours were merged with them.
    """
    days = Counter[int]()
    hours = Counter[int]()
    for segment in read_day_segments(snapshot, day, (LIVE, ERASED)):
        days[segment.kafka_partition] += segment.record_count if segment.chunk == "daily" else 0
    for segment in read_day_segments(snapshot, day, MERGED_KINDS):
        hours[segment.kafka_partition] += segment.record_count if segment.chunk == "hourly" else 0
    return days, hours


def load_day_segments(snapshot: ConnectorSnapshot, topics: Iterable[str], day: date) -> None:
    """Read the live segments of `day` of many topics in one pass, before they are used."""
    snapshot.load_segments(topics, _build_day_filter(day))


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
    latest_end = now - lateness
    return sorted(
        {
            d
            for d, segment_zone in days
            if d is not None and max(find_day_end(d, segment_zone), find_day_end(d, zone)) <= latest_end
        }
    )


def report_day(snapshot: IndexSnapshot, day: date) -> DayReport:
    """Return the facts on a day's page."""
    segments = read_day_segments(snapshot, day)
    bucket = snapshot.index.store.bucket
    return DayReport(day, segments, tuple(f"s3://{bucket}/{s.key}" for s in segments))


@dataclass(frozen=True)
class DaySummary(SegmentTotals):
    """A day; None: records too old or too new for any.

    Segments are of the day in their own timezone, hours of the day in the connector's.

    `complete_count` of the day's `hour_count` hours are complete. `expired_count` of its records went by a rule of
    retention, `erased_count` by request.
    """

    day: date | None
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
        return bool(mergeable) and all(s.chunk == "daily" for s in mergeable)

    @property
    def unmergeable_count(self) -> int:
        """Segments of formats for values only: no compaction takes them."""
        return sum(not is_mergeable(s) for s in self.segments)


def summarize_days(snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta) -> list[DaySummary]:
    """Summarize the days with an object or a requested hour, ascending; first, records of no day."""
    by_day: dict[date | None, list[Segment]] = {hour.astimezone(zone).date(): [] for hour in snapshot.state.asked_hours}
    for segment in snapshot.segments:
        by_day.setdefault(find_day(segment), []).append(segment)
    expired = _count_by_day(snapshot.expired)
    erased = _count_by_day(snapshot.erased)
    days = sorted({*by_day, *expired, *erased}, key=lambda day: day or date.min)
    summaries = (_summarize_day(snapshot.state, day, tuple(by_day.get(day, ())), zone, lateness) for day in days)
    return [replace(s, expired_count=expired[s.day], erased_count=erased[s.day]) for s in summaries]


def _count_by_day(segments: Iterable[Segment]) -> Counter[date | None]:
    counts = Counter[date | None]()
    for segment in segments:
        counts[find_day(segment)] += segment.record_count
    return counts


def _summarize_day(
    state: IndexState, day: date | None, segments: tuple[Segment, ...], zone: ZoneInfo, lateness: timedelta
) -> DaySummary:
    if day is None:
        return DaySummary(None, segments, 0, 0)
    hours = list_day_hours(day, zone)
    return DaySummary(day, segments, len(hours), len(state.judge.list_complete(hours, lateness)))
