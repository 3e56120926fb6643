"""Reads and writes whole records in any of our envelopes, which return them unchanged.

Converts record batches to rows of plain values and back, for libraries that work row by row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.errors import IntegrityError, PermanentError
from kafka_s3_platform.core.formats.format_io import RecordObject, load_format_io
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits
from kafka_s3_platform.core.model.offsets import OffsetRange


def list_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """List the columns of each record in the order of `RECORD_SCHEMA`. Timestamps are epoch ms, headers dicts."""
    at = batch.schema.get_field_index("timestamp")
    columns = [column.cast(pa.int64()) if i == at else column for i, column in enumerate(batch.columns)]
    return zip(*(column.to_pylist() for column in columns), strict=True)


def build_batch(rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Build a batch from rows in the form of `list_rows`. Errors of pyarrow for wrong types pass through."""
    columns = list(zip(*rows, strict=True)) or [()] * len(RECORD_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def new_envelope_reader(format_name: str, source: Any, key: str, limits: ReadLimits = DEFAULT_LIMITS) -> RecordObject:
    """Return the reader of an envelope. Raises PermanentError if the format is none. `key` is for errors."""
    new_reader = load_format_io(find_format(format_name)).new_record_reader
    if new_reader is None:
        raise PermanentError(f"object {key} is of format {format_name}, which holds values only, not whole records")
    return new_reader(source, key, limits)


def check_place(batch: pa.RecordBatch, kafka_partition: int, offsets: OffsetRange, key: str) -> None:
    """Check the kafka partition and the offsets of records against the index, or the object's key.

    Raises IntegrityError if some belong to another kafka partition, or have other offsets.
    """
    if not batch.num_rows:
        return
    for name, least, most in (
        ("partition", kafka_partition, kafka_partition),
        ("offset", offsets.start_offset, offsets.end_offset - 1),
    ):
        bounds = pc.min_max(batch.column(name)).as_py()
        if bounds["min"] < least or bounds["max"] > most:
            what = "offsets" if name == "offset" else "kafka partitions"
            raise IntegrityError(
                f"object {key} holds records of {what} {bounds['min']} to {bounds['max']}, where {least} to {most} are "
                f"due: it is another object's copy, or was made up"
            )
