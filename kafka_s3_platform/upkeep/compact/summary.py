"""Summaries of the index, day by day."""

from dataclasses import dataclass
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from kafka_s3_platform.model.segment import Segment, SegmentTotals, StoredObject
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import find_day, list_day_hours
from kafka_s3_platform.upkeep.compact.request import is_mergeable


@dataclass(frozen=True)
class DaySummary(SegmentTotals):
    """A day; None: records too old or too new for any.

    Segments are of the day in their own timezone, hours of the day in the connector's.

    `complete_count` of the day's `hour_count` hours are complete.
    """

    day: date | None
    segments: tuple[Segment, ...]
    hour_count: int
    complete_count: int

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
    days = sorted(by_day, key=lambda day: day or date.min)
    return [_summarize_day(snapshot.state, day, tuple(by_day[day]), zone, lateness) for day in days]


def _summarize_day(
    state: IndexState, day: date | None, segments: tuple[Segment, ...], zone: ZoneInfo, lateness: timedelta
) -> DaySummary:
    if day is None:
        return DaySummary(None, segments, 0, 0)
    hours = list_day_hours(day, zone)
    return DaySummary(day, segments, len(hours), len(state.judge.list_complete(hours, lateness)))
