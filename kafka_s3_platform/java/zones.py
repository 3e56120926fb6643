"""Converts between local time and UTC. Vectorised, exact for every zone, one look-up for each distinct hour."""

from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.connect import Int32s, Int64s
from kafka_s3_platform.model.times import EPOCH, HOUR_MS, ONE_MS

# Python's datetime ends at year 9999; a day less on each side leaves room for any UTC offset.
MIN_MS = (datetime(1, 1, 3, tzinfo=timezone.utc) - EPOCH) // ONE_MS
MAX_MS = (datetime(9999, 12, 29, tzinfo=timezone.utc) - EPOCH) // ONE_MS

_Cell = tuple[int, int, int]
# So few hours are looked up one by one first: if all have one UTC offset, no record needs a look of its own.
_FEW_CELLS = 64


def find_utc_offsets(times: Int64s, zone: ZoneInfo) -> Int64s | int:
    """Return the zone's UTC offsets in ms at instants (epoch ms in [MIN_MS, MAX_MS)). One number if all are equal."""
    if not len(times):
        return 0
    cells = times // HOUR_MS
    first = int(cells.min())
    last = int(cells.max())
    if last - first < _FEW_CELLS:
        hour_offsets = {_find_hour_offsets(zone, cell) for cell in range(first, last + 1)}
        offsets_before = {before for before, _, _ in hour_offsets}
        offsets_after = {after for _, _, after in hour_offsets}
        if len(offsets_before | offsets_after) == 1:
            return hour_offsets.pop()[0]
    hours, codes = factorize_values(cells)
    before, change, after = np.array([_find_hour_offsets(zone, cell) for cell in hours], np.int64).T
    offsets: Int64s = np.where(times < change[codes], before[codes], after[codes])
    return offsets


def convert_local_times(local: Int64s, zone: ZoneInfo) -> Int64s:
    """Return the instants (epoch ms) of the zone's local times (ms since 1970-01-01T00:00 there).

    A repeated time means the first instant. A skipped time lies behind the change, by as much as it lies behind the
    start of the skipped span. Times outside [MIN_MS, MAX_MS) get the offset of the nearest bound.
    """
    hours, codes = factorize_values(np.clip(local, MIN_MS, MAX_MS - 1) // HOUR_MS)
    firsts = np.array([_find_local_offset(zone, hour * HOUR_MS) for hour in hours], np.int64)
    lasts = np.array([_find_local_offset(zone, (hour + 1) * HOUR_MS - 1) for hour in hours], np.int64)
    offsets = firsts[codes]
    for i in np.flatnonzero((firsts != lasts)[codes]).tolist():
        offsets[i] = _find_local_offset(zone, int(local[i]))
    instants: Int64s = local - offsets
    return instants


def factorize_values(values: Int64s) -> tuple[list[int], Int32s]:
    """Return the distinct values in order of appearance, and for each value its index in them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


@lru_cache(maxsize=100_000)
def _find_hour_offsets(zone: ZoneInfo, cell: int) -> _Cell:
    """Return the UTC offset (ms) at the start of a UTC hour, the instant when it changes, and the offset after it."""
    start = cell * HOUR_MS
    end = (cell + 1) * HOUR_MS
    before = _find_offset(zone, start)
    after = _find_offset(zone, end - 1)
    if before == after:
        return before, end, after
    # Search for the instant of the change by halves.
    while start + 1 < end:
        middle = (start + end) // 2
        start, end = (middle, end) if _find_offset(zone, middle) == before else (start, middle)
    return before, end, after


def _find_offset(zone: ZoneInfo, utc_ms: int) -> int:
    offset = (EPOCH + utc_ms * ONE_MS).astimezone(zone).utcoffset()
    return (offset or timedelta()) // ONE_MS


def _find_local_offset(zone: ZoneInfo, local_ms: int) -> int:
    offset = (EPOCH + local_ms * ONE_MS).replace(tzinfo=zone).utcoffset()
    return (offset or timedelta()) // ONE_MS
