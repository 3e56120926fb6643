"""Local time and UTC, vectorised: exact for every zone, with one look-up for each hour that occurs."""

from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.connect import Int32s, Int64s

HOUR_MS = 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ONE_MS = timedelta(milliseconds=1)

# Python's datetime ends at year 9999; a day less on each side leaves room for any UTC offset.
MIN_MS = (datetime(1, 1, 3, tzinfo=timezone.utc) - EPOCH) // ONE_MS
MAX_MS = (datetime(9999, 12, 29, tzinfo=timezone.utc) - EPOCH) // ONE_MS

_Cell = tuple[int, int, int]
_FEW_CELLS = 64


def utc_offsets(times: Int64s, zone: ZoneInfo) -> Int64s | int:
    """The zone's UTC offsets in ms at instants (epoch ms) in [MIN_MS, MAX_MS): one number where all have the same."""
    if not len(times):
        return 0
    cells = times // HOUR_MS
    first, last = int(cells.min()), int(cells.max())
    if last - first < _FEW_CELLS:
        found = {_offsets_of_hour(zone, cell) for cell in range(first, last + 1)}
        if len({offset for before, _, after in found for offset in (before, after)}) == 1:
            return found.pop()[0]
    hours, codes = factorize(cells)
    before, change, after = np.array([_offsets_of_hour(zone, cell) for cell in hours], np.int64).T
    offsets: Int64s = np.where(times < change[codes], before[codes], after[codes])
    return offsets


def from_local(local: Int64s, zone: ZoneInfo) -> Int64s:
    """The instants (epoch ms) at which the zone's clock shows local times (ms since 1970-01-01T00:00 on that clock).

    Of a time that occurs twice, the first; a time that the clocks skip is as much after the change as it says. Times
    outside [MIN_MS, MAX_MS) get the offset of the nearest that is inside.
    """
    hours, codes = factorize(np.clip(local, MIN_MS, MAX_MS - 1) // HOUR_MS)
    firsts = np.array([_local_offset(zone, hour * HOUR_MS) for hour in hours], np.int64)
    lasts = np.array([_local_offset(zone, (hour + 1) * HOUR_MS - 1) for hour in hours], np.int64)
    offsets = firsts[codes]
    for i in np.flatnonzero((firsts != lasts)[codes]).tolist():
        offsets[i] = _local_offset(zone, int(local[i]))
    instants: Int64s = local - offsets
    return instants


def factorize(values: Int64s) -> tuple[list[int], Int32s]:
    """The distinct values in order of appearance, and for each value its index among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


@lru_cache(maxsize=100_000)
def _offsets_of_hour(zone: ZoneInfo, cell: int) -> _Cell:
    """Within one UTC hour: the UTC offset in ms, the instant at which it changes, the offset from then on."""
    start, end = cell * HOUR_MS, (cell + 1) * HOUR_MS
    before, after = _offset_at(zone, start), _offset_at(zone, end - 1)
    if before == after:
        return before, end, after
    while start + 1 < end:
        middle = (start + end) // 2
        start, end = (middle, end) if _offset_at(zone, middle) == before else (start, middle)
    return before, end, after


def _offset_at(zone: ZoneInfo, utc_ms: int) -> int:
    offset = (EPOCH + utc_ms * ONE_MS).astimezone(zone).utcoffset()
    return (offset or timedelta()) // ONE_MS


def _local_offset(zone: ZoneInfo, local_ms: int) -> int:
    offset = (EPOCH + local_ms * ONE_MS).replace(tzinfo=zone).utcoffset()
    return (offset or timedelta()) // ONE_MS
