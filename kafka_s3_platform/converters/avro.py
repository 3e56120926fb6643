"""Avro in the Confluent wire format. Bytes are checked in step and kept; objects are decoded when asked for."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import RegistrySettings
from kafka_s3_platform.converters.avro_schema import definitions, only_field, physical, self_contained
from kafka_s3_platform.converters.base import BadRecordError, Converted, Origin
from kafka_s3_platform.converters.registry import RegistrySchema, registry_of
from kafka_s3_platform.converters.wire import NO_ID, PREFIX_BYTES, schema_ids, unframed
from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.model.avro_walk import Datum, read_columns, valid_bodies
from kafka_s3_platform.model.connect import MISSING, NO_SCHEMA, Int64s, Payload, Schema, field_of

AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"


class AvroPayload(Payload):
    """Data of Avro schemas, each behind the wire format's five bytes."""

    raw_is_value = False
    avro_start = PREFIX_BYTES

    def columns(self) -> pa.StructArray | None:
        """The fields as columns in physical types, null rows for nulls. None where there is no quick way to them."""
        if len(self.schemas) != 1 or self.raw is None or "objects" in self.__dict__:
            return None
        return read_columns(self.schemas[0].avro, self.raw, PREFIX_BYTES)

    def _decode(self) -> Sequence[Any]:
        return self._read([_reader(schema.text) for schema in self.schemas])

    def field(self, path: Sequence[str]) -> list[Any]:
        """As the base class, passing over what is beside `path`."""
        if "objects" in self.__dict__ or not path:
            return super().field(path)
        columns = self.columns() if len(path) == 1 else None
        if columns is not None:
            return self._column(columns, path[0])
        try:
            read = self._read([_field_reader(schema.text, tuple(path)) for schema in self.schemas])
        except LookupError:
            return super().field(path)
        return [MISSING if value is None else field_of(value, path) for value in read]

    def _column(self, columns: pa.StructArray, name: str) -> list[Any]:
        if columns.type.get_field_index(name) < 0:
            return [MISSING] * len(self)
        values: list[Any] = columns.field(name).to_pylist()
        if columns.null_count:
            known = columns.is_valid().to_pylist()
            values = [value if there else MISSING for value, there in zip(values, known, strict=True)]
        return values

    def _read(self, readers: Sequence["_Reader | None"]) -> list[Any]:
        rows = pa.array(self.raw).to_numpy(zero_copy_only=False)
        chosen = [readers[code] if code != NO_SCHEMA else None for code in self.codes.tolist()]
        return [None if r is None else r.read(row) for r, row in zip(chosen, rows, strict=True)]


@dataclass(frozen=True)
class _Reader:
    """How one schema's data is read with fastavro: `wanted` is None where all of it is."""

    written: Any
    wanted: Any = None

    def read(self, row: bytes) -> Any:
        body = io.BytesIO(row)
        body.seek(PREFIX_BYTES)
        return fastavro.schemaless_reader(body, self.written, self.wanted)


class AvroConverter:
    """Confluent's AvroConverter."""

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings) -> None:
        self._origin = Origin(topic, is_key, AVRO_CONVERTER)
        self._registry = registry

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        ids = schema_ids(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        schemas: list[Schema] = []
        bad = self._unframed(raw, ids)
        for schema_id in np.unique(ids[ids != NO_ID]).tolist():
            positions = np.flatnonzero(ids == schema_id)
            try:
                schema = registry_of(self._registry).made(schema_id, self._origin.subject, avro_schema)
            except BadRecordError as err:
                bad |= dict.fromkeys(positions.tolist(), str(err))
                continue
            codes[positions] = len(schemas)
            schemas.append(schema)
            whole = len(positions) == len(raw)
            valid = valid_bodies(schema.avro, raw if whole else raw.take(pa.array(positions)), PREFIX_BYTES)
            reason = f"is not data of Avro schema {schema_id}: it is truncated, too long or damaged"
            bad |= dict.fromkeys(positions[~valid].tolist(), reason)
        return self._origin.converted(AvroPayload(raw, codes, schemas), bad, offsets)

    @staticmethod
    def _unframed(raw: pa.BinaryArray, ids: Int64s) -> dict[int, str]:
        positions = np.flatnonzero((ids == NO_ID) & raw.is_valid().to_numpy(zero_copy_only=False))
        return {int(p): unframed(raw[int(p)].as_py()) for p in positions}


def avro_schema(registered: RegistrySchema) -> Schema:
    """The schema with the types that it refers to. Raises BadRecordError if it is none."""
    name = f"has Avro schema {registered.schema_id}"
    if registered.type != "AVRO":
        raise BadRecordError(f"has schema {registered.schema_id}, which is not Avro but {registered.type}")
    try:
        text = _complete(registered.text, registered.references)
        Datum(json.loads(text))
        fastavro.parse_schema(json.loads(text))
    except _NO_SCHEMA as err:
        raise BadRecordError(f"{name}, which cannot be used: {type(err).__name__}: {err}") from err
    return Schema(text, registered.schema_id, registered.subject, registered.version)


_NO_SCHEMA = (
    *(AttributeError, LookupError, TypeError, ValueError, RecursionError, PermanentError),
    *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
)
"""What is raised for texts that are JSON, but no schema of Avro that is read."""


def _complete(text: str, references: Mapping[str, str]) -> str:
    if not references:
        return text
    others: dict[str, Any] = {}
    for other in references.values():
        others |= definitions(json.loads(other))
    return json.dumps(self_contained(json.loads(text), others), separators=(",", ":"))


@lru_cache
def _reader(text: str) -> _Reader:
    return _Reader(fastavro.parse_schema(physical(json.loads(text))))


@lru_cache
def _field_reader(text: str, path: tuple[str, ...]) -> _Reader | None:
    schema = physical(json.loads(text))
    wanted = only_field(schema, path)
    return None if wanted is None else _Reader(fastavro.parse_schema(schema), fastavro.parse_schema(wanted))
