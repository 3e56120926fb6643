"""Takes columns of records apart into plain numbers and bytes, also those of slices. A null has the length -1."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.connect import Int64s

NULL = -1


@dataclass(frozen=True, slots=True)
class Strings:
    """A binary or string column: the length of each value in bytes, and the bytes of all values in a row."""

    lengths: Int64s
    data: memoryview


@dataclass(frozen=True, slots=True)
class Headers:
    """A column of headers: the number of headers of each record, and the keys and values of all headers in a row."""

    counts: Int64s
    keys: Strings
    values: Strings


def read_strings(column: pa.Array) -> Strings:
    """Take a binary or string array apart. Leave out the bytes of nulls."""
    lengths, start, end = _count_lengths(column)
    present = column
    if end - start != lengths[lengths > 0].sum():
        present = column.drop_null()
        _, start, end = _count_lengths(present)
    data = present.buffers()[2] if len(present) else None
    return Strings(lengths, memoryview(data)[start:end] if data is not None else memoryview(b""))


def read_headers(column: pa.ListArray) -> Headers:
    """Take an array of headers apart. Leave out the elements of null lists."""
    counts, _, _ = _count_lengths(column)
    keys, values = column.flatten().flatten()
    return Headers(counts, read_strings(keys), read_strings(values))


def _count_lengths(column: pa.Array) -> tuple[Int64s, int, int]:
    """Return the lengths of the values of a variable-size array, the start of the first and the end of the last."""
    if not len(column):
        return np.empty(0, np.int64), 0, 0
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return lengths, int(offsets[0]), int(offsets[-1])
