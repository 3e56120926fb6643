"""The formats that hold whole records, and so can be read back as they were."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.formats.envelope import EnvelopeReader
from kafka_s3_platform.formats.envelope_avro import EnvelopeAvroReader
from kafka_s3_platform.formats.envelope_json import EnvelopeJsonReader
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


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
