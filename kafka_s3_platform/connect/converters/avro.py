"""Converter of Avro in Confluent's wire format. It checks the bytes and keeps them, and decodes objects when needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.avro.schema import collect_definitions, encode_null, make_self_contained, narrow_to_field
from kafka_s3_platform.connect.avro.walk import Datum, check_bodies, read_columns
from kafka_s3_platform.connect.avro.wire import (
    NO_ID,
    PREFIX_BYTES,
    encode_schema_name,
    explain_unframed,
    read_schema_ids,
)
from kafka_s3_platform.connect.converters.base import BadRecordError, ConvertedPayload, Origin
from kafka_s3_platform.connect.converters.registry import RegistrySchema, open_registry
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.model.connect import MISSING, NO_SCHEMA, Int64s, Payload, Schema, get_field
from kafka_s3_platform.core.model.notes import Notes

AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"
AVRO_NULL = "hold a null that is Avro data: once it is decoded it is no value at all, and a restore sends a tombstone"


class AvroPayload(Payload):
    """Avro data, each with the five bytes of the wire format before it."""

    raw_is_value = False
    avro_start = PREFIX_BYTES

    def columns(self) -> pa.StructArray | None:
        """Return the fields as columns in physical types, with null rows for nulls, or None if there is no fast way."""
        if len(self.schemas) != 1 or self.raw is None or "objects" in self.__dict__:
            return None
        return read_columns(self.schemas[0].avro, self.raw, PREFIX_BYTES)

    def _decode(self) -> Sequence[Any]:
        return self._decode_rows([_compile_reader(schema.text) for schema in self.schemas])

    def field(self, path: Sequence[str]) -> list[Any]:
        """Return the field at `path` of each record, or MISSING. If possible, only this field is decoded."""
        if "objects" in self.__dict__ or not path:
            return super().field(path)
        columns = self.columns() if len(path) == 1 else None
        if columns is not None:
            return self._list_column(columns, path[0])
        try:
            objects = self._decode_rows([_compile_field_reader(schema.text, tuple(path)) for schema in self.schemas])
        except LookupError:
            return super().field(path)
        return [MISSING if value is None else get_field(value, path) for value in objects]

    def _list_column(self, columns: pa.StructArray, name: str) -> list[Any]:
        """Return the values of one column, MISSING for null records. All are MISSING if no schema has the field."""
        if columns.type.get_field_index(name) < 0:
            return [MISSING] * len(self)
        values: list[Any] = columns.field(name).to_pylist()
        if columns.null_count:
            is_valid = columns.is_valid().to_pylist()
            values = [value if is_row_valid else MISSING for value, is_row_valid in zip(values, is_valid, strict=True)]
        return values

    def _decode_rows(self, readers: Sequence[AvroObjects | None]) -> list[Any]:
        """Decode each value with the reader of its schema. A null, or a value whose schema has none, becomes None."""
        rows = pa.array(self.raw).to_numpy(zero_copy_only=False)
        row_readers = [readers[code] if code != NO_SCHEMA else None for code in self.codes.tolist()]
        return [None if r is None else r.read(row, PREFIX_BYTES) for r, row in zip(row_readers, rows, strict=True)]


class AvroConverter:
    """Confluent's AvroConverter."""

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings) -> None:
        self._origin = Origin(topic, is_key, AVRO_CONVERTER)
        self._registry = registry

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        """Check the bytes of each value against the schema its id names. They are decoded only when first used."""
        ids = read_schema_ids(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        schemas: list[Schema] = []
        unframed = np.flatnonzero((ids == NO_ID) & raw.is_valid().to_numpy(zero_copy_only=False)).tolist()
        reasons = {position: explain_unframed(raw[position].as_py()) for position in unframed}
        losses: dict[int, Notes] = {}
        for schema_id in np.unique(ids[ids != NO_ID]).tolist():
            positions = np.flatnonzero(ids == schema_id)
            try:
                schema = open_registry(self._registry).compile_once(schema_id, self._origin.subject, parse_avro_schema)
            except BadRecordError as err:
                reasons |= dict.fromkeys(positions.tolist(), str(err))
                continue
            codes[positions] = len(schemas)
            schemas.append(schema)
            is_all = len(positions) == len(raw)
            valid = check_bodies(schema.avro, raw if is_all else raw.take(pa.array(positions)), PREFIX_BYTES)
            if (null := encode_null(schema.avro)) is not None:
                rows = pc.equal(raw, encode_schema_name(schema_id, null)).fill_null(fill_value=False)
                notes = Notes({AVRO_NULL: (1, f"schema {schema_id}")})
                losses |= dict.fromkeys(np.flatnonzero(rows).tolist(), notes)
            reason = f"is not data of Avro schema {schema_id}: it is truncated, too long or damaged"
            reasons |= dict.fromkeys(positions[~valid].tolist(), reason)
        return replace(self._origin.split_failures(AvroPayload(raw, codes, schemas), reasons, offsets), losses=losses)


def parse_avro_schema(registered: RegistrySchema) -> Schema:
    """Return the schema together with the types it refers to. Raise BadRecordError if it cannot be used."""
    name = f"has Avro schema {registered.schema_id}"
    if registered.type != "AVRO":
        raise BadRecordError(f"has schema {registered.schema_id}, which is not Avro but {registered.type}")
    try:
        text = _inline_references(registered.text, registered.references)
        Datum(json.loads(text))
        fastavro.parse_schema(json.loads(text))
        AvroObjects(json.loads(text))
    except _NO_SCHEMA as err:
        raise BadRecordError(f"{name}, which cannot be used: {type(err).__name__}: {err}") from err
    return Schema(text, registered.schema_id, registered.subject, registered.version)


_NO_SCHEMA = (
    *(AttributeError, LookupError, TypeError, ValueError, RecursionError, PermanentError),
    *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
)
"""The errors raised for a text that is JSON, but not an Avro schema that can be read."""


def _inline_references(text: str, references: Mapping[str, str]) -> str:
    """Return the schema with the types of the schemas it refers to."""
    if not references:
        return text
    definitions: dict[str, Any] = {}
    for referenced_text in references.values():
        definitions |= collect_definitions(json.loads(referenced_text))
    return json.dumps(make_self_contained(json.loads(text), definitions), separators=(",", ":"))


@lru_cache
def _compile_reader(text: str) -> AvroObjects:
    """Return the decoder of a schema, made once for each text."""
    return AvroObjects(json.loads(text))


@lru_cache
def _compile_field_reader(text: str, path: tuple[str, ...]) -> AvroObjects | None:
    """Return a decoder of only the field at `path`, or None if no value of the schema has it."""
    schema = json.loads(text)
    narrowed = narrow_to_field(schema, path)
    return None if narrowed is None else AvroObjects(schema, narrowed)
