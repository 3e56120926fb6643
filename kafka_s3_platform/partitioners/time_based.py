"""Kafka Connect's TimeBasedPartitioner: record timestamps to hours and encoded partitions, vectorised."""

from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.config.path_format import compile_path_format
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.model.segment import OUT_OF_RANGE

HOUR_MS = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
# Python's datetime ends at year 9999; a day less on each side leaves room for any UTC offset.
_MIN_MS = (datetime(1, 1, 3, tzinfo=timezone.utc) - _EPOCH) // _MS
_MAX_MS = (datetime(9999, 12, 29, tzinfo=timezone.utc) - _EPOCH) // _MS

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


class TimeBasedPartitioner:
    """Encodes timestamps as Connect's `TimeBasedPartitioner` does; its Hourly and Daily forms fix the duration."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._format = compile_path_format(layout.path_format)
        self._duration_ms = layout.partition_duration_ms
        self._zone = ZoneInfo(layout.timezone)
        self._names: dict[int, str] = {}

    def encode(self, timestamps_ms: Int64s) -> tuple[list[tuple[int | None, str]], Int32s]:
        """Encode timestamps (epoch ms, any order).

        Returns:
            The (hour start in UTC ms, encoded partition) pairs that occur, and for each timestamp its index among
            them. The hour is that of the connector's timezone; the hour repeated in autumn is two. Timestamps that no
            calendar year 1 to 9999 holds become (None, OUT_OF_RANGE).
        """
        known = (timestamps_ms >= _MIN_MS) & (timestamps_ms < _MAX_MS)
        times = timestamps_ms if known.all() else np.where(known, timestamps_ms, 0)
        local = times + self._utc_offsets(times)
        hours, hour_codes = _factorize(times - local % HOUR_MS)
        # fmod has the sign of its dividend: Connect divides Java longs, so before 1970 it rounds up.
        starts, start_codes = _factorize(local - np.fmod(local, self._duration_ms))
        pairs, codes = _factorize(np.where(known, hour_codes.astype(np.int64) * len(starts) + start_codes, -1))
        names = [self._name(start) for start in starts]
        found = [divmod(pair, len(starts)) for pair in pairs]
        return [(None, OUT_OF_RANGE) if h < 0 else (hours[h], names[s]) for h, s in found], codes

    def _utc_offsets(self, times: Int64s) -> Int64s:
        cells, codes = _factorize(times // HOUR_MS)
        before, change, after = np.array([_utc_offset(self._zone, cell) for cell in cells], np.int64).reshape(-1, 3).T
        offsets: Int64s = np.where(times < change[codes], before[codes], after[codes])
        return offsets

    def _name(self, local_ms: int) -> str:
        """The encoded partition that begins at a local time; one that a clock change skips begins after the gap."""
        if local_ms not in self._names:
            # Times spread over ages must not fill the memory.
            if len(self._names) > 100_000:
                self._names.clear()
            skipped = (_EPOCH + local_ms * _MS).replace(tzinfo=self._zone)
            self._names[local_ms] = self._format(skipped.astimezone(timezone.utc).astimezone(self._zone))
        return self._names[local_ms]


@lru_cache(maxsize=100_000)
def _utc_offset(zone: tzinfo, cell: int) -> tuple[int, int, int]:
    """Within one UTC hour: the UTC offset in ms, the instant at which it changes, the offset from then on."""
    start, end = cell * HOUR_MS, (cell + 1) * HOUR_MS
    before, after = _offset_at(zone, start), _offset_at(zone, end - 1)
    if before == after:
        return before, end, after
    while start + 1 < end:
        middle = (start + end) // 2
        start, end = (middle, end) if _offset_at(zone, middle) == before else (start, middle)
    return before, end, after


def _offset_at(zone: tzinfo, utc_ms: int) -> int:
    offset = (_EPOCH + utc_ms * _MS).astimezone(zone).utcoffset()
    return (offset or timedelta()) // _MS


def _factorize(values: Int64s) -> tuple[list[int], Int32s]:
    """The distinct values in order of appearance, and for each value its index among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
