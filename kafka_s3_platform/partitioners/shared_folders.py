"""Finds patterns of time folders that give one folder to times of different spans."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.java.joda_format import compile_path_format
from kafka_s3_platform.model.times import EPOCH, TIME_BASED

DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
DAYS = 9 * 366
"""Of nine years: in them, the last days of December belong to the first week of the next year, and the other way."""

SHORTEST_STEP = timedelta(minutes=1)
_QUOTED = re.compile(r"'[^']*'?")


def explain_shared_folder(layout: LayoutSettings) -> str | None:
    """Name two times of different spans with one folder by `path.format`, and advise a better pattern.

    None if there are none, or if folders are made by something else. The hour repeated in autumn is not checked: no
    pattern without a time zone can distinguish it.
    """
    if layout.partitioner not in TIME_BASED:
        return None
    span = timedelta(milliseconds=layout.partition_duration_ms)
    pair = _find_shared_folder(layout.path_format, layout.locale, layout.directory_delim, span)
    if pair is None:
        return None
    one, other, folder = pair
    return (
        f"path.format={layout.path_format} puts the records of {one:%Y-%m-%d %H:%M} and of {other:%Y-%m-%d %H:%M} into "
        f"one folder, {folder}. None is overwritten, but readers who take a folder for one time are misled: "
        f"{_advise(layout.path_format, one, other)}"
    )


@lru_cache
def _find_shared_folder(
    path_format: str, locale: str, directory_delim: str, span: timedelta
) -> tuple[datetime, datetime, str] | None:
    name_folder = compile_path_format(path_format, locale, directory_delim)
    starts: dict[str, datetime] = {}
    for time in _list_samples(span):
        start = EPOCH + (time - EPOCH) // span * span
        folder = name_folder(start.astimezone(ZoneInfo("UTC")))
        first = starts.setdefault(folder, start)
        if first != start:
            return first, start, folder
    return None


def _list_samples(span: timedelta) -> Iterator[datetime]:
    yield from (FIRST + n * DAY for n in range(DAYS))
    step = max(span, SHORTEST_STEP)
    yield from (FIRST + n * step for n in range(DAY // step))


def _advise(path_format: str, one: datetime, other: datetime) -> str:
    letters = set(_QUOTED.sub("", path_format))
    apart = abs(other - one)
    has_weeks = "w" in letters
    advice = (
        (
            apart < timedelta(hours=1),
            "write mm for the minute (MM is the month), or a longer partition.duration.ms: an hour is 3600000",
        ),
        (apart < DAY and letters & {"h", "K"}, "write HH for the hour of the day: hh and KK count to 12 only"),
        (apart < DAY, "write HH for the hour, or take days (DailyPartitioner, or partition.duration.ms=86400000)"),
        (has_weeks and apart < 7 * DAY, "write e for the day of the week, or dd for that of the month"),
        (
            has_weeks and "x" not in letters,
            "write xxxx beside ww: YYYY is the year of the day, whose week may be of another year",
        ),
        ("m" in letters and "M" not in letters, "write MM for the month: mm is the minute"),
        ((one.month, one.day) == (other.month, other.day), "write YYYY for the year"),
        (True, "name year, month and day (YYYY, MM, dd), or take a longer partition.duration.ms"),
    )
    return next(text for applies, text in advice if applies)
