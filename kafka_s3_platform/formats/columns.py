"""Record columns as plain numbers and bytes, whatever the batch was sliced from. Null is told apart by length -1."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
NULL = -1


@dataclass(frozen=True, slots=True)
class Strings:
    """A binary or string column: the length of each value in bytes, and all values' bytes in a row."""

    lengths: Int64s
    data: memoryview


@dataclass(frozen=True, slots=True)
class Headers:
    """A headers column: the number of headers of each record, then the keys and values of all of them in a row."""

    counts: Int64s
    keys: Strings
    values: Strings


def strings(column: pa.Array) -> Strings:
    """Take a binary or string array apart. Bytes that lie under a null are left out."""
    lengths, start, end = _lengths(column)
    held = column
    if end - start != lengths[lengths > 0].sum():
        held = column.drop_null()
        _, start, end = _lengths(held)
    data = held.buffers()[2] if len(held) else None
    return Strings(lengths, memoryview(data)[start:end] if data is not None else memoryview(b""))


def headers(column: pa.ListArray) -> Headers:
    """Take a headers array apart. Elements that lie under a null list are left out."""
    counts, _, _ = _lengths(column)
    keys, values = column.flatten().flatten()
    return Headers(counts, strings(keys), strings(values))


def record_sizes(batch: pa.RecordBatch) -> Int64s:
    """Bytes of key, value, header keys and header values of each record."""
    found = headers(batch.column("headers"))
    sizes = found.keys.lengths + np.maximum(found.values.lengths, 0)
    ends = np.cumsum(np.maximum(found.counts, 0))
    totals = np.concatenate([[0], np.cumsum(sizes)])
    own: Int64s = np.diff(totals[ends], prepend=0)
    for name in ("key", "value"):
        own += np.maximum(strings(batch.column(name)).lengths, 0)
    return own


def _lengths(column: pa.Array) -> tuple[Int64s, int, int]:
    """Lengths of the values of a variable-size array, and where the first begins and the last ends."""
    if not len(column):
        return np.empty(0, np.int64), 0, 0
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return lengths, int(offsets[0]), int(offsets[-1])
