"""Converts record batches to arguments of confluent-kafka's producer."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ProducedHeaders = list[tuple[str, str | bytes | None]] | None
ProducedRow = tuple[bytes | None, bytes | None, int, ProducedHeaders]


def count_timestamp_zero(batch: pa.RecordBatch) -> int:
    """Count the records with timestamp 0. librdkafka reads it as "now"."""
    return int(pc.sum(pc.equal(read_milliseconds(batch), 0)).as_py() or 0)


def build_rows(batch: pa.RecordBatch) -> list[ProducedRow]:
    """Return key, value, timestamp and headers of each record."""
    keys, values = (batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in ("key", "value"))
    timestamps = read_milliseconds(batch).to_numpy().tolist()
    return list(zip(keys, values, timestamps, _list_headers(batch.column("headers")), strict=True))


def _list_headers(column: pa.ListArray) -> list[ProducedHeaders]:
    if column.null_count == len(column):
        return [None] * len(column)
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy()).tolist()
    return [pairs[start:end] for start, end in pairwise([0, *ends])]


def read_milliseconds(batch: pa.RecordBatch) -> pa.Array:
    """Return the timestamps as epoch milliseconds."""
    return batch.column("timestamp").cast(pa.int64())
