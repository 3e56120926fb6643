"""The formats that hold whole records, and so can be read back as they were."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IntegrityError, PermanentError
from kafka_s3_platform.formats.envelope import EnvelopeReader
from kafka_s3_platform.formats.envelope_avro import EnvelopeAvroReader
from kafka_s3_platform.formats.envelope_json import EnvelopeJsonReader
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits
from kafka_s3_platform.model.offsets import OffsetRange


class RecordObject(Protocol):
    """An object that holds whole records."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its records, in batches of RECORD_SCHEMA. Raises IntegrityError where it is damaged."""


_READERS: Mapping[str, Callable[[Any, str, ReadLimits], RecordObject]] = {
    "envelope.parquet": EnvelopeReader,
    "envelope.avro": EnvelopeAvroReader,
    "envelope.json": EnvelopeJsonReader,
}


def is_envelope(format_name: str) -> bool:
    """Whether objects of the format hold whole records."""
    return format_name in _READERS


def envelope_reader(format_name: str, source: Any, key: str, limits: ReadLimits = NO_KEYS) -> RecordObject:
    """Reads an object of a format that `is_envelope`; `key` names it in errors.

    Raises:
        PermanentError: the format holds values only.
    """
    if not is_envelope(format_name):
        raise PermanentError(f"object {key} is of format {format_name}, which holds values only, not whole records")
    return _READERS[format_name](source, key, limits)


def check_place(batch: pa.RecordBatch, kafka_partition: int, offsets: OffsetRange, key: str) -> None:
    """That records are where the index, or the object's key, says that they are.

    Raises:
        IntegrityError: some are of another kafka partition, or have other offsets.
    """
    if not batch.num_rows:
        return
    for name, least, most in (
        ("partition", kafka_partition, kafka_partition),
        ("offset", offsets.start_offset, offsets.end_offset - 1),
    ):
        found = pc.min_max(batch.column(name)).as_py()
        if found["min"] < least or found["max"] > most:
            what = "offsets" if name == "offset" else "kafka partitions"
            raise IntegrityError(
                f"object {key} holds records of {what} {found['min']} to {found['max']}, where {least} to {most} are "
                f"due: it is another object's copy, or was made up"
            )
