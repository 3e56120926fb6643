"""The schema of record batches. These are cut by offsets and content alone, not by the ends of reads.

Their columns have the names of Spark's Kafka source. Null, empty and absent are three different things, and every stage
keeps them apart. Source of the names: Spark's Structured Streaming + Kafka integration guide.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.connect import Int64s

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False))),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)
"""`headers` is null for a record without headers. `timestamp` is the one in Kafka, -1 ms if there is none.
`timestampType` is Spark's: 0 CreateTime, 1 LogAppendTime, -1 none."""

NO_TIMESTAMP = -1
"""Kafka's RecordBatch.NO_TIMESTAMP."""


BATCH_OFFSETS = 16_384
"""No batch crosses a multiple of this offset."""

BATCH_BYTES = 16 * 1024 * 1024
"""No batch of two or more records holds more bytes of keys, values and headers."""


def cut_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut the records into batches whose bounds depend only on the first offset, the offsets and the content.

    A batch ends before a multiple of BATCH_OFFSETS and before a record too large for the rest of BATCH_BYTES.
    """
    current = _OpenBatch()
    for batch in batches:
        cells = read_offset_column(batch) // BATCH_OFFSETS
        sizes = count_record_bytes(batch)
        start = 0
        while start < len(cells):
            stop = current.take(batch, cells, sizes, start)
            if stop == start:
                yield current.close()
            start = stop
    if current.parts:
        yield current.close()


def read_offset_column(batch: pa.RecordBatch) -> Int64s:
    """Return the offsets of a batch without copying them."""
    column: Int64s = batch.column("offset").to_numpy()
    return column


def replace_column(records: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return the records with one column of RECORD_SCHEMA replaced."""
    index = records.schema.get_field_index(name)
    return records.set_column(index, records.schema.field(index), column)


def count_record_bytes(batch: pa.RecordBatch) -> Int64s:
    """Return the bytes of key, value, header names and header values of each record."""
    sizes: Int64s = _count_bytes(batch.column("key")) + _count_bytes(batch.column("value"))
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        sizes += _count_header_bytes(headers)
    return sizes


class _OpenBatch:
    """The records taken so far for the next batch, all of one cell: offsets between two multiples of BATCH_OFFSETS."""

    def __init__(self) -> None:
        self.parts: list[pa.RecordBatch] = []
        self._cell = -1
        self._used = 0

    def take(self, batch: pa.RecordBatch, cells: Int64s, sizes: Int64s, start: int) -> int:
        """Take the rows of this batch from `start` on. Return the row after the last one taken, `start` if none is."""
        if not self.parts:
            self._cell = int(cells[start])
            self._used = 0
        elif cells[start] != self._cell:
            return start
        end_of_cell = int(np.searchsorted(cells, self._cell, side="right"))
        fitting = int(np.searchsorted(np.cumsum(sizes[start:end_of_cell]), BATCH_BYTES - self._used, side="right"))
        stop = start + (fitting if self.parts else max(fitting, 1))
        if stop > start:
            self._used += int(sizes[start:stop].sum())
            self.parts.append(batch.slice(start, stop - start))
        return stop

    def close(self) -> pa.RecordBatch:
        """Return the records taken so far, and start again."""
        parts = self.parts
        self.parts = []
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _count_bytes(column: pa.Array) -> Int64s:
    lengths: Int64s = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _count_header_bytes(headers: pa.ListArray) -> Int64s:
    """Return the bytes of all header names and values of each record."""
    flat = headers.flatten()
    ends = np.concatenate([[0], np.cumsum(_count_bytes(flat.field("key")) + _count_bytes(flat.field("value")))])
    counts = pc.list_value_length(headers).fill_null(0).to_numpy()
    bounds = np.concatenate([[0], np.cumsum(counts)])
    per_record: Int64s = np.diff(ends[bounds])
    return per_record
