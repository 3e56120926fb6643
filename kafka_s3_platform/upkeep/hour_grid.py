"""Builds the grid of days x hours of a topic, each with its state, for `show`, the status page and Dagster."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter
from kafka_s3_platform.upkeep.compact.days import find_day_start, list_day_hours
from kafka_s3_platform.upkeep.hour_states import StatedHour, state_hours


@dataclass(frozen=True)
class GridDay:
    """A day and the states of its 23 to 25 hours."""

    day: date
    hours: tuple[StatedHour, ...]


def make_hour_grid(
    snapshot: IndexSnapshot,
    days: Sequence[date],
    zone: ZoneInfo,
    lateness: timedelta,
    now: datetime,
    at_risk: tuple[datetime, datetime] | None = None,
    *,
    by_kafka_partition: bool = False,
) -> list[GridDay]:
    """Return each hour's state for `days` (ascending). See `state_hours`."""
    by_day = {day: list_day_hours(day, zone) for day in days}
    hours = [hour for day_hours in by_day.values() for hour in day_hours]
    stated = iter(state_hours(snapshot, hours, lateness, now, at_risk, by_kafka_partition=by_kafka_partition))
    return [GridDay(day, tuple(next(stated) for _ in day_hours)) for day, day_hours in by_day.items()]


def list_grid_days(
    snapshot: IndexSnapshot, count: int, zone: ZoneInfo, now: datetime, first_hour: datetime
) -> list[date]:
    """List the last `count` days up to today, or up to the newest archived one if nothing is of these.

    None is before `first_hour`, the first one to archive.
    """
    last = now.astimezone(zone).date()
    start = find_day_start(last - timedelta(days=count - 1), zone)
    newest = max(snapshot.state.asked_hours, default=None)
    if newest is None or newest < start:
        chunks = snapshot.list_chunks(SegmentFilter("hourly", chunk_starts=(start, now)), retired=True)
        if not chunks and newest is None:
            # runs up to now request no hour: search all hours, if none is recent
            chunks = snapshot.list_chunks(SegmentFilter("hourly"), retired=True)
        newest = max((chunk.chunk_start for chunk in chunks if chunk.chunk_start), default=newest)
    if newest is not None and newest < start:
        last = newest.astimezone(zone).date()
    first = min(first_hour.astimezone(zone).date(), last)
    return [day for n in reversed(range(count)) if (day := last - timedelta(days=n)) >= first]
