"""Compiled functions that walk through the records of a batch.

`buf` holds the batch's decompressed records, `pos` and `end` are positions in it. `sizes` has five sums over all
records: the bytes of keys, the bytes of values, the number of headers, and the bytes of their names and of their
values. A column of strings is three arrays: the bytes of all values (`data`), the `ends` of the values in them, and
`valid` (False for null).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from kafka_s3_platform.core.compiled import compile_cached
from kafka_s3_platform.core.model.connect import Int64s

Bytes = npt.NDArray[np.uint8]
# The place of header names in `sizes`. Only a header's name must not be null.
_NAMES = 3
# What `measure_records` returns if it finds a fault.
NO_RECORDS = 1
BAD_OFFSETS = 2
# Bytes are looked up by unsigned numbers, because numba checks each signed one for counting from the end. A value is
# copied in a loop over such numbers. With signed ones and slices, `fill_rows` takes up to twice as long.
# Types of the compiled functions. Since they are given, numba compiles each function once, or loads it, at import.
# Bytes are read-only.
_I8 = types.int64
_BUF = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.int64[::1]
_STRINGS = (types.int32[::1], types.boolean[::1], types.uint8[::1])
_VARINT = types.UniTuple(_I8, 2)(_BUF, _I8, _I8)  # type: ignore[no-untyped-call, unused-ignore]
_SKIP = _I8(_BUF, _I8, _I8, _INTS, _I8)
_RECORD = _I8(_BUF, _I8, _I8, _INTS)
_MEASURE = _I8(_BUF, _I8, _I8, _INTS)
_COPY = _I8(_BUF, _I8, _I8, *_STRINGS)
_FILL = types.void(
    _BUF, _I8, _I8, _I8, _INTS, _INTS, *_STRINGS, *_STRINGS, types.int32[::1], *_STRINGS, *_STRINGS, _INTS
)


@compile_cached(_VARINT)  # type: ignore[untyped-decorator, unused-ignore]
def read_varint(buf: Bytes, pos: int, end: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """Read a zigzag varint of at most 64 bits, and its end (-1 if it does not end before `end`)."""
    value = np.uint64(0)
    shift = np.uint64(0)
    if pos < 0:
        return 0, -1
    while pos < end and shift < 70:
        byte = buf[np.uint64(pos)]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos  # type: ignore[return-value]
        shift += np.uint64(7)
    return 0, -1


@compile_cached(_SKIP)  # type: ignore[untyped-decorator, unused-ignore]
def _skip_value(buf: Bytes, pos: int, end: int, sizes: Int64s, part: int) -> int:  # pragma: no cover - compiled
    """Return the end of a length-prefixed value, and add its bytes to `sizes[part]`. Return -1 if it does not fit."""
    if pos < 0:
        return -1
    length, pos = read_varint(buf, pos, end)
    if pos < 0 or length > end - pos or (length < 0 and part == _NAMES):
        return -1
    if length > 0:
        sizes[part] += length
        pos += length
    return pos


@compile_cached(_RECORD)  # type: ignore[untyped-decorator, unused-ignore]
def _measure_record(buf: Bytes, pos: int, end: int, sizes: Int64s) -> int:  # pragma: no cover - compiled
    """Return the end of a record whose key is at `pos`, or -1 if its fields do not fit before `end`."""
    pos = _skip_value(buf, pos, end, sizes, 0)
    pos = _skip_value(buf, pos, end, sizes, 1)
    headers = -1
    if pos >= 0:
        headers, pos = read_varint(buf, pos, end)
    if pos < 0 or headers < 0 or headers > end - pos:
        return -1
    sizes[2] += headers
    for _ in range(headers):
        pos = _skip_value(buf, pos, end, sizes, _NAMES)
        pos = _skip_value(buf, pos, end, sizes, 4)
    return pos


@compile_cached(_MEASURE)  # type: ignore[untyped-decorator, unused-ignore]
def measure_records(buf: Bytes, count: int, last_delta: int, sizes: Int64s) -> int:  # pragma: no cover - compiled
    """Add up the sizes of all records. Return 0, NO_RECORDS (they do not fit) or BAD_OFFSETS (these do not ascend)."""
    pos = 0
    size = len(buf)
    previous = -1
    for _ in range(count):
        length, pos = read_varint(buf, pos, size)
        if pos < 0 or length < 1 or length > size - pos:
            return NO_RECORDS
        end = pos + length
        _, pos = read_varint(buf, pos + 1, end)
        if pos < 0:
            return NO_RECORDS
        delta, pos = read_varint(buf, pos, end)
        if _measure_record(buf, pos, end, sizes) != end:
            return NO_RECORDS
        if delta <= previous or delta > last_delta:
            return BAD_OFFSETS
        previous = delta
        pos = end
    return 0 if pos == size else NO_RECORDS


@compile_cached(_COPY)  # type: ignore[untyped-decorator, unused-ignore]
def _copy_value(buf: Bytes, pos: int, row: int, ends: Any, valid: Any, data: Any) -> int:  # pragma: no cover - compiled
    """Copy one length-prefixed value into row `row` of a column; return its end in `buf`."""
    length, pos = read_varint(buf, pos, len(buf))
    start = ends[row]
    valid[row] = length >= 0
    if length > 0:
        to = np.uint64(start)
        source = np.uint64(pos)
        for at in range(np.uint64(length)):
            data[to + at] = buf[source + at]
        pos += length
        start += length
    ends[row + 1] = start
    return pos


@compile_cached(_FILL)  # type: ignore[untyped-decorator, unused-ignore]
def fill_rows(
    buf: Bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    offsets: Int64s,
    times: Int64s,
    key_ends: Any,
    key_valid: Any,
    keys: Any,
    value_ends: Any,
    value_valid: Any,
    values: Any,
    header_ends: Any,
    name_ends: Any,
    name_valid: Any,
    names: Any,
    header_value_ends: Any,
    header_value_valid: Any,
    header_values: Any,
    at: Int64s,
) -> None:  # pragma: no cover - compiled
    """Append the records of a batch checked by `measure_records`. `at` holds the next row and the next header."""
    pos = 0
    row = at[0]
    header = at[1]
    for _ in range(count):
        _, pos = read_varint(buf, pos, len(buf))
        pos += 1
        delta, pos = read_varint(buf, pos, len(buf))
        times[row] = base_timestamp + delta
        delta, pos = read_varint(buf, pos, len(buf))
        offsets[row] = base_offset + delta
        pos = _copy_value(buf, pos, row, key_ends, key_valid, keys)
        pos = _copy_value(buf, pos, row, value_ends, value_valid, values)
        headers, pos = read_varint(buf, pos, len(buf))
        for _ in range(headers):
            pos = _copy_value(buf, pos, header, name_ends, name_valid, names)
            pos = _copy_value(buf, pos, header, header_value_ends, header_value_valid, header_values)
            header += 1
        row += 1
        header_ends[row] = header
    at[0] = row
    at[1] = header
