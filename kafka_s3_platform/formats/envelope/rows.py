"""Turns record batches into rows of plain values and back, for libraries that read and write row by row."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafka_s3_platform.model.batches import RECORD_SCHEMA


def list_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """List the columns of each record in the order of `RECORD_SCHEMA`. Timestamps are epoch ms, headers dicts."""
    at = batch.schema.get_field_index("timestamp")
    columns = [column.cast(pa.int64()) if i == at else column for i, column in enumerate(batch.columns)]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def build_batch(rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Build a batch of such rows. Errors of pyarrow for a value of a wrong type pass through."""
    columns = list(zip(*rows, strict=True)) or [()] * len(RECORD_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
