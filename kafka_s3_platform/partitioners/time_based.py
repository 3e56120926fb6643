"""Kafka Connect's TimeBasedPartitioner: times to hours and encoded partitions, vectorised."""

from zoneinfo import ZoneInfo

import numpy as np

from kafka_s3_platform.config.path_format import compile_path_format
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.model.connect import Int32s, Int64s
from kafka_s3_platform.model.segment import OUT_OF_RANGE
from kafka_s3_platform.partitioners.zones import (
    EPOCH,
    HOUR_MS,
    MAX_MS,
    MIN_MS,
    ONE_MS,
    factorize,
    from_local,
    utc_offsets,
)

NO_HOUR = -(2**63)
"""Stands for the hour of a time that no calendar year 1 to 9999 holds."""


def hour_starts(times_ms: Int64s, timezone: str) -> Int64s:
    """The starts of hours (epoch ms) on the timezone's clock, or NO_HOUR; the hour repeated in autumn is two."""
    known, times = _known(times_ms)
    starts: Int64s = times - (times + utc_offsets(times, ZoneInfo(timezone))) % HOUR_MS
    return starts if known is None else np.where(known, starts, NO_HOUR)


class TimePaths:
    """Encodes times as Connect's `TimeBasedPartitioner` does; its Hourly and Daily forms fix the duration."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._format = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
        self._duration_ms = layout.partition_duration_ms
        self._zone = ZoneInfo(layout.timezone)
        self._names: dict[int, str] = {}

    def encode(self, times_ms: Int64s) -> tuple[list[str], Int32s]:
        """The encoded partitions that occur, and for each time (epoch ms, any order) its index among them.

        Times that no calendar year 1 to 9999 holds are OUT_OF_RANGE.
        """
        known, times = _known(times_ms)
        local = times + utc_offsets(times, self._zone)
        # fmod has the sign of its dividend: Connect divides Java longs, so before 1970 it rounds up.
        starts, codes = factorize(local - np.fmod(local, self._duration_ms))
        names = [self._name(start) for start in starts]
        if known is None:
            return names, codes
        return [*names, OUT_OF_RANGE], np.where(known, codes, np.int32(len(names)))

    def _name(self, local_ms: int) -> str:
        """The encoded partition that begins at a local time; one that a clock change skips begins after the gap."""
        if local_ms not in self._names:
            # Times spread over ages must not fill the memory.
            if len(self._names) > 100_000:
                self._names.clear()
            begin = int(from_local(np.array([local_ms], np.int64), self._zone)[0])
            self._names[local_ms] = self._format((EPOCH + begin * ONE_MS).astimezone(self._zone))
        return self._names[local_ms]


def _known(times_ms: Int64s) -> tuple[np.ndarray | None, Int64s]:
    """Which times the calendar holds, None where all; and the times, those that it does not hold replaced."""
    known = (times_ms >= MIN_MS) & (times_ms < MAX_MS)
    return (None, times_ms) if known.all() else (known, np.where(known, times_ms, 0))
