"""Constants of time, and conversion to epoch milliseconds."""

from datetime import datetime, timedelta, timezone

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
    """Return the moment that much later; the calendar's first or last one if it ends before."""
    try:
        return moment + by
    except OverflowError:
        return LAST_TIME if by > timedelta() else FIRST_TIME


def to_epoch_ms(moment: datetime) -> int:
    """Convert a moment to the nearest epoch millisecond."""
    return round(moment.timestamp() * 1000)
