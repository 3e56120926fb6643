"""Takes columns of records apart into plain numbers and bytes, and makes a digest of their content.

Columns may be slices. A null has the length -1. Two archives of the same records in the same order have the same
digest, which a restore and `verify` compare.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from kafka_s3_platform.core.model.connect import Int64s

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
    """Return the values' lengths (-1 for a null), and where the first value begins and the last ends in the array."""
    if not len(column):
        return np.empty(0, np.int64), 0, 0
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return lengths, int(offsets[0]), int(offsets[-1])


class RecordDigest:
    """A running digest of key, value, headers and timestamp of records in their order.

    It does not depend on the bounds of batches, nor on offset, topic and kafka partition, so a restored topic has the
    digest of its archive. Null, empty and absent differ. It uses XXH3 with 128 bits, with a hash for each component.
    This is eight times faster than SHA-256, but no protection against forgery.
    """

    def __init__(self) -> None:
        self._count = 0
        self.record_bytes = 0
        """The bytes of keys, values and headers so far."""
        self._hashes = {name: xxhash.xxh3_128() for name in _COMPONENTS}

    def update(self, batch: pa.RecordBatch) -> None:
        """Append a batch of `RECORD_SCHEMA`."""
        if not batch.num_rows:
            return
        self._count += batch.num_rows
        headers = read_headers(batch.column("headers"))
        self._add("header_counts", _pack_numbers(headers.counts))
        self._add_strings("header_key", headers.keys)
        self._add_strings("header_value", headers.values)
        self._add_strings("key", read_strings(batch.column("key")))
        self._add_strings("value", read_strings(batch.column("value")))
        self._add("timestamp", _pack_numbers(batch.column("timestamp").cast(pa.int64()).to_numpy()))

    def hexdigest(self) -> str:
        """Return the digest of all records so far, as 32 hex digits."""
        parts = [self._count.to_bytes(8, "little"), *(h.digest() for h in self._hashes.values())]
        return xxhash.xxh3_128(b"".join(parts)).hexdigest()

    def _add_strings(self, name: str, strings: Strings) -> None:
        """Add the lengths and the bytes of a column to their hashes."""
        self.record_bytes += len(strings.data)
        self._add(f"{name}_lengths", _pack_numbers(strings.lengths))
        self._add(f"{name}_data", strings.data)

    def _add(self, component: str, data: bytes | memoryview) -> None:
        self._hashes[component].update(data)


_STRINGS = ("key", "value", "header_key", "header_value")
# The order is part of the digest. Digests are stored, so never change it.
_COMPONENTS = (*(f"{name}_{part}" for name in _STRINGS for part in ("lengths", "data")), "header_counts", "timestamp")


def _pack_numbers(numbers: Int64s) -> bytes:
    """Return the numbers as 64 bits each, the low byte first."""
    return numbers.astype("<i8", copy=False).tobytes()
