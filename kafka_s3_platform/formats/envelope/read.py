"""Reads the formats of whole records: these come back unchanged."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.errors import IntegrityError, PermanentError
from kafka_s3_platform.formats.format_io import RecordObject, load_format_io
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits
from kafka_s3_platform.model.offsets import OffsetRange


def new_envelope_reader(format_name: str, source: Any, key: str, limits: ReadLimits = NO_KEYS) -> RecordObject:
    """Return the reader of one of our envelopes. `key` names the object in errors.

    Raises:
        PermanentError: the format holds values only.
    """
    new_reader = load_format_io(find_format(format_name)).new_record_reader
    if new_reader is None:
        raise PermanentError(f"object {key} is of format {format_name}, which holds values only, not whole records")
    return new_reader(source, key, limits)


def check_place(batch: pa.RecordBatch, kafka_partition: int, offsets: OffsetRange, key: str) -> None:
    """Check the kafka partition and the offsets of records against the index, or the object's key.

    Raises:
        IntegrityError: some belong to another kafka partition, or have other offsets.
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
