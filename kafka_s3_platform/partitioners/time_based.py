"""Kafka Connect's TimeBasedPartitioner: converts times to hours and encoded partitions, vectorised."""

from zoneinfo import ZoneInfo

import numpy as np

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.java.joda_format import compile_path_format
from kafka_s3_platform.java.zones import MAX_MS, MIN_MS, convert_local_times, factorize_values, find_utc_offsets
from kafka_s3_platform.model.connect import Int32s, Int64s
from kafka_s3_platform.model.times import EPOCH, HOUR_MS, ONE_MS

NO_HOUR = -(2**63)
"""The hour of a time outside of the years 1 to 9999, the range of Python's calendar."""


def find_hour_starts(times_ms: Int64s, timezone: str) -> Int64s:
    """Return the start (epoch ms) of each time's local hour, or NO_HOUR. The hour repeated in autumn counts as two."""
    in_calendar, times = _replace_unknown(times_ms)
    starts: Int64s = times - (times + find_utc_offsets(times, ZoneInfo(timezone))) % HOUR_MS
    return starts if in_calendar is None else np.where(in_calendar, starts, NO_HOUR)


class TimePaths:
    """Encodes times as Connect's `TimeBasedPartitioner` does. Its Hourly and Daily forms have a fixed duration."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._format = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
        self._duration_ms = layout.partition_duration_ms
        self._zone = ZoneInfo(layout.timezone)
        self._out_of_range = layout.out_of_range_folder
        self._names: dict[int, str] = {}

    def encode(self, times_ms: Int64s) -> tuple[list[str], Int32s]:
        """Return the distinct encoded partitions, and for each time (epoch ms, in any order) its index in them.

        Times outside of the years 1 to 9999 get the folder of records out of range.
        """
        in_calendar, times = _replace_unknown(times_ms)
        local = times + find_utc_offsets(times, self._zone)
        # fmod keeps the sign of its dividend, as `%` of Java's longs does: before 1970 Connect rounds up.
        starts, codes = factorize_values(local - np.fmod(local, self._duration_ms))
        names = [self._name(start) for start in starts]
        if in_calendar is None:
            return names, codes
        return [*names, self._out_of_range], np.where(in_calendar, codes, np.int32(len(names)))

    def _name(self, local_ms: int) -> str:
        """Name the encoded partition from a local time on. If clocks skip this time, it begins after it."""
        if local_ms not in self._names:
            # Times of many centuries must not fill the memory.
            if len(self._names) > 100_000:
                self._names.clear()
            begin = int(convert_local_times(np.array([local_ms], np.int64), self._zone)[0])
            self._names[local_ms] = self._format((EPOCH + begin * ONE_MS).astimezone(self._zone))
        return self._names[local_ms]


def _replace_unknown(times_ms: Int64s) -> tuple[np.ndarray | None, Int64s]:
    """Return a mask of the times in the calendar (None: all are), and the times with 0 in place of the others."""
    in_calendar = (times_ms >= MIN_MS) & (times_ms < MAX_MS)
    if in_calendar.all():
        return (None, times_ms)
    return (in_calendar, np.where(in_calendar, times_ms, 0))
