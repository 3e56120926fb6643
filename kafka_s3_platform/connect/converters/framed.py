"""Converts records that carry the id of their schema before their bytes or in a header.

In JSON Schema and Protobuf, the id in front of a value is its *frame*, and values are decoded one by one. An id from a
header is put before the bytes too, because the converters expect it there.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.wire import (
    PREFIX_BYTES,
    SCHEMA_HEADERS,
    encode_schema_name,
    explain_unframed,
    parse_schema_name,
    read_schema_names,
)
from kafka_s3_platform.connect.config.keys.values import CONVERTER_NAMES
from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.converters.base import BadRecordError, ConvertedPayload, Origin
from kafka_s3_platform.connect.converters.registry import Registry, open_registry
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.model.connect import Int64s, Schema, Side
from kafka_s3_platform.core.model.notes import Notes


class FramedConverter(ABC):
    """Decodes each value at once, so a value that does not fit its schema fails here. Each format is a subclass."""

    executing_class: ClassVar[str]

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings) -> None:
        self._origin = Origin(topic, is_key, self.executing_class)
        self._settings = registry

    @abstractmethod
    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any, Notes | None]:
        """Decode the bytes after the schema's id. Raise BadRecordError if they do not fit the schema.

        Returns the schema, the value, and notes of the value's losses, or None if it has none.
        """

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        """Decode each value with the schema its id names. Bad values are failures. Notes are kept by position."""
        registry = open_registry(self._settings)

        def decode(row: bytes) -> tuple[Schema, Any, Notes | None]:
            if len(row) < PREFIX_BYTES or row[0] != 0:
                raise BadRecordError(explain_unframed(row))
            return self.read(registry, int.from_bytes(row[1:PREFIX_BYTES], "big"), row[PREFIX_BYTES:])

        return self._origin.decode_rows(raw, offsets, decode)


class RecordConverter:
    """Converts keys or values of records. If a header names the schema, the payload's `bytes_read` lack the id.

    Raises the same errors as `new_converter` and `Converter.convert`.
    """

    def __init__(self, settings: ConverterSettings, topic: str, side: Side) -> None:
        self._settings = settings
        self._converter = new_converter(settings, topic, side == "key")
        self._side: Side = side
        self._origin = Origin(topic, side == "key", CONVERTER_NAMES.get(settings.format, settings.format))

    def convert(self, records: pa.RecordBatch) -> ConvertedPayload:
        """Convert the keys or values of records, and report those that cannot be converted.

        If a header names a record's schema, the schema's id is put before the bytes, where the converter expects it.
        """
        raw = records.column(self._side)
        offsets = read_offset_column(records)
        names = read_schema_names(records.column("headers"), self._side) if self._settings.registry else None
        if names is None:
            return self._converter.convert(raw, offsets)
        encoded_names = names.dictionary_encode()
        results = [self._make_prefix(name) for name in encoded_names.dictionary.to_pylist()]
        prefixes = pa.array([b"", *(prefix if isinstance(prefix, bytes) else None for prefix in results)], pa.binary())
        codes = pc.fill_null(encoded_names.indices, -1).to_numpy() + 1
        framed = pc.binary_join_element_wise(prefixes.take(pa.array(codes)), raw, b"")
        converted = self._converter.convert(framed, offsets)
        bad_rows = np.flatnonzero(pc.and_(framed.is_null(), raw.is_valid()).to_numpy(zero_copy_only=False))
        good_rows = np.flatnonzero(~np.isin(converted.positions, bad_rows))
        payload = converted.payload.take(good_rows)
        payload.bare = raw.take(pa.array(converted.positions[good_rows]))
        header = f"has the header {SCHEMA_HEADERS[self._side]}, by which no schema is found: it"
        failures = (
            self._origin.failure(int(offsets[row]), f"{header} {results[codes[row] - 1]!s}") for row in bad_rows
        )
        return replace(
            converted,
            payload=payload,
            positions=converted.positions[good_rows],
            failures=(*converted.failures, *failures),
        )

    def _make_prefix(self, text: bytes) -> bytes | str:
        """Return the schema id in a header as a prefix of the wire format, or the reason (a str) why there is none."""
        registry = self._settings.registry
        try:
            name, remainder = parse_schema_name(text)
            if len(remainder) != (end := self._find_end(remainder)):
                raise ValueError(f"has {len(remainder) - end} bytes more than a schema's name")
            if isinstance(name, str) and registry is not None:
                name = open_registry(registry).find_id(name)
        except (ValueError, BadRecordError) as err:
            return str(err)
        return encode_schema_name(name, remainder)

    def _find_end(self, remainder: bytes) -> int:
        """Return the end of a schema's name in a header. For Protobuf, it comes after the message indexes."""
        if self._settings.format != "PROTOBUF":
            return 0
        from kafka_s3_platform.connect.converters.protobuf.decode import read_message_indexes

        return read_message_indexes(remainder)[1]
