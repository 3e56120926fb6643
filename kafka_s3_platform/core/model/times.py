"""Constants of time, and conversion to epoch milliseconds."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

FIRST_TIME = datetime.min.replace(tzinfo=timezone.utc)
LAST_TIME = datetime.max.replace(tzinfo=timezone.utc)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
ONE_MS = timedelta(milliseconds=1)
HOUR_MS = 3_600_000
DAY_MS = 86_400_000

TIME_BASED = ("Hourly", "Daily", "TimeBased")
"""The partitioners that choose folders by the times of records alone."""


def shift_time(moment: datetime, by: timedelta) -> datetime:
    """Return the moment shifted by `by`, or the calendar's first or last moment if the result lies outside of it."""
    try:
        return moment + by
    except OverflowError:
        return LAST_TIME if by > timedelta() else FIRST_TIME


def to_epoch_ms(moment: datetime) -> int:
    """Convert a moment to the nearest epoch millisecond."""
    return round(moment.timestamp() * 1000)


def move_to_zone(time: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment in `zone`. Without a UTC offset, it is the moment when the clocks of `zone` show `time`.

    Raises ValueError if the clocks never show it, or show it twice, or if the calendar has no such moment in `zone` or
    in UTC.
    """
    try:
        moment = time.astimezone(zone) if time.tzinfo else _resolve_local_time(time, zone)
        # Moments are compared and stored in UTC.
        moment.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"'{time.isoformat()}' is outside of the years 1 to 9999, in {zone.key} or in UTC") from None
    return moment


def _resolve_local_time(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment when the clocks of `zone` show this time. Raises ValueError if they never do, or twice."""
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    # A time that a clock change skips becomes another one on the way to UTC and back.
    if first.astimezone(timezone.utc).astimezone(zone).replace(tzinfo=None) != local:
        raise ValueError(f"'{local.isoformat()}' does not exist in {zone.key}: the clocks go forward then")
    raise ValueError(
        f"'{local.isoformat()}' is twice in {zone.key}, where the clocks go back: write which one is meant, "
        f"{first.isoformat()} or {second.isoformat()}"
    )
