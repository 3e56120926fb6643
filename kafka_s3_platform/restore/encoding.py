"""Keys and values as bytes again: as the converters of Connect and their registries write them.

Deterministic: the same object of the same schema gives the same bytes, since a registry gives a schema that it has the
id that it has.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.converter_options import DECIMAL_FORMAT
from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.converters.avro_schema import physical
from kafka_s3_platform.converters.plain import StringPayload
from kafka_s3_platform.converters.registry import NewSchema, Registration, registry_of
from kafka_s3_platform.converters.wire import PREFIX_BYTES
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.json_lines import DecimalFormat, plain_json
from kafka_s3_platform.formats.parts import VALUE_ERRORS
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Schema
from kafka_s3_platform.restore.json_envelope import NO_SCHEMA_PREFIX, SUFFIX, envelope
from kafka_s3_platform.restore.wire import with_ids

Body = Callable[[Any], bytes]

_UNNAMED = b"\0" * PREFIX_BYTES
_json = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Encoded:
    """One value a record, null where it has none; by position, why some could not be written. Those are null too."""

    column: pa.BinaryArray
    bad: Mapping[int, str] = field(default_factory=dict)


class Encoder(Protocol):
    """Makes bytes of keys or of values. Nulls stay nulls."""

    @property
    def registered(self) -> tuple[Registration, ...]:
        """What was registered in the target's registry, or found there."""
        ...

    def encode(self, payload: Payload) -> Encoded:
        """Raises RegistryUnavailableError, AuthorizationError and ConfigError as the registry answers."""
        ...


def new_encoder(
    settings: ConverterSettings,
    topic: str,
    is_key: bool,
    registry: RegistrySettings | None = None,
    *,
    registers: bool = True,
) -> Encoder:
    """The encoder of a target topic's keys or values. Reaches no server before it encodes.

    Args:
        settings: the converter whose bytes are wanted.
        topic: the target topic, which names the subjects (TopicNameStrategy).
        is_key: keys, or values.
        registry: the target's registry, where the settings name none.
        registers: whether schemas are registered. Else no server is reached, and every id is 0: to see what can be
            written, and for nothing else.

    Raises:
        ConfigError: the format needs a registry and none is named, or it is not written.
    """
    side = "key" if is_key else "value"
    if settings.format in _WRITERS:
        found = settings.registry or registry
        if found is None:
            raise ConfigError(f"{side}s of {settings.format} for topic {topic} need the registry of the target")
        return _SchemaEncoder(settings.format, found, f"{topic}-{side}", registers)
    return _PlainEncoder(settings)


@dataclass(frozen=True)
class _Writer:
    """How values of one Avro schema are written: the schema to register, and what follows its id."""

    schema_type: str
    text: str
    body: Body


def _avro(schema: Schema) -> _Writer:
    parsed = fastavro.parse_schema(physical(schema.avro))

    def body(value: Any) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value, strict=True)
        return buffer.getvalue()

    return _Writer("AVRO", schema.text, body)


def _json_sr(schema: Schema) -> _Writer:
    from kafka_s3_platform.restore.json_schema import json_schema

    made = json_schema(schema.avro)
    return _Writer("JSON", made.text, made.body)


def _protobuf(schema: Schema) -> _Writer:
    from kafka_s3_platform.restore.protobuf import protobuf

    made = protobuf(schema.avro)
    return _Writer("PROTOBUF", made.descriptor, made.body)


_WRITERS: Mapping[str, Callable[[Schema], _Writer]] = {"AVRO": _avro, "JSON_SR": _json_sr, "PROTOBUF": _protobuf}


@lru_cache
def _writer(kind: str, text: str) -> _Writer:
    return _WRITERS[kind](Schema(text))


class _SchemaEncoder:
    """The wire format: each value behind the id of its schema."""

    def __init__(self, kind: str, registry: RegistrySettings, subject: str, registers: bool) -> None:
        self._kind, self._registry, self._subject, self._registers = kind, registry, subject, registers
        self._known: dict[str, Registration] = {}

    @property
    def registered(self) -> tuple[Registration, ...]:
        return tuple(self._known.values())

    def encode(self, payload: Payload) -> Encoded:
        codes = np.unique(payload.codes[~payload.is_null]).tolist()
        if self._kind == "AVRO" and NO_SCHEMA not in codes and _is_moved_as_it_is(payload, codes):
            framed = payload.raw if payload.avro_start else pc.binary_join_element_wise(_UNNAMED, payload.raw, b"")
            return Encoded(with_ids(framed, self._ids(payload, codes)))
        return _encoded(payload, {code: self._body(payload, code) for code in codes}, self._kind)

    def _body(self, payload: Payload, code: int) -> Body:
        """How values with this schema are written. A schema that cannot be had is the fault of each of them."""
        try:
            if code == NO_SCHEMA:
                raise ValueError(f"it has no schema, and {self._kind} needs one")
            writer = _writer(self._kind, payload.schemas[code].text)
        except VALUE_ERRORS as err:
            return _refusing(err)
        prefix = b"\0" + self._id(writer).to_bytes(PREFIX_BYTES - 1, "big")
        return lambda value: prefix + writer.body(value)

    def _ids(self, payload: Payload, codes: Sequence[int]) -> Int64s:
        """The id that each value gets; of nulls it means nothing."""
        table = np.zeros(len(payload.schemas) + 1, np.int64)
        for code in codes:
            table[code] = self._id(_writer(self._kind, payload.schemas[code].text))
        each: Int64s = table[payload.codes]
        return each

    def _id(self, writer: _Writer) -> int:
        if not self._registers:
            return 0
        if writer.text not in self._known:
            new = NewSchema(writer.schema_type, writer.text)
            self._known[writer.text] = registry_of(self._registry).register(self._subject, new)
        return self._known[writer.text].schema_id


def _is_moved_as_it_is(payload: Payload, codes: Sequence[int]) -> bool:
    """Whether the bytes are Avro data, alone or framed. Alone, the null of a union is a datum too, and no null."""
    if payload.raw is None or payload.avro_start not in {0, PREFIX_BYTES}:
        return False
    return payload.avro_start > 0 or not any(isinstance(payload.schemas[code].avro, list) for code in codes)


def _encoded(payload: Payload, bodies: Mapping[int, Body], kind: str) -> Encoded:
    """Each value by the body of its schema's code."""
    rows: list[bytes | None] = [None] * len(payload)
    bad: dict[int, str] = {}
    for position, (code, value) in enumerate(zip(payload.codes.tolist(), payload.objects, strict=True)):
        try:
            rows[position] = None if value is None else bodies[code](value)
        except VALUE_ERRORS as err:
            bad[position] = f"cannot be written as {kind}: {type(err).__name__}: {err}"
    return Encoded(pa.array(rows, pa.binary()), bad)


def _refusing(err: Exception) -> Body:
    def body(_: Any) -> bytes:
        raise ValueError(str(err))

    return body


class _PlainEncoder:
    """Bytes, strings and JSON, with its schema or without, which need no registry."""

    registered: tuple[Registration, ...] = ()

    def __init__(self, settings: ConverterSettings) -> None:
        self._kind, self._has_schemas = settings.format, settings.schemas_enable
        self._decimals: DecimalFormat = "NUMERIC" if settings.options.get(DECIMAL_FORMAT) == "NUMERIC" else "BASE64"

    def encode(self, payload: Payload) -> Encoded:
        if payload.raw is not None and self._is_raw(payload):
            return Encoded(self._framed(payload.raw) if self._has_schemas else payload.raw)
        schemas: dict[int, Schema | None] = {NO_SCHEMA: None, **dict(enumerate(payload.schemas))}
        return _encoded(payload, {code: self._safe_body(schema) for code, schema in schemas.items()}, self._kind)

    def _is_raw(self, payload: Payload) -> bool:
        """Whether the bytes as they came are what is wanted."""
        if self._kind == "BYTES":
            return payload.avro_start != 0  # an Avro datum alone is nobody's value
        return payload.raw_is_json if self._kind == "JSON" else isinstance(payload, StringPayload)

    def _framed(self, raw: pa.BinaryArray) -> pa.BinaryArray:
        return pc.binary_join_element_wise(NO_SCHEMA_PREFIX, raw, SUFFIX, b"")

    def _safe_body(self, schema: Schema | None) -> Body:
        """A schema that cannot be had is the fault of each of its values."""
        try:
            return self._body(schema)
        except VALUE_ERRORS as err:
            return _refusing(err)

    def _body(self, schema: Schema | None) -> Body:
        if self._kind != "JSON":
            return _bytes if self._kind == "BYTES" else _text
        if self._has_schemas:
            return envelope(schema, self._decimals)
        plain = plain_json(schema, self._decimals)
        return _json.encode if plain is None else lambda value: _json.encode(plain(value))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a value of type {type(value).__name__} is not of bytes")
    return value


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | int):
        return str(value).lower().encode()
    raise TypeError(f"a value of type {type(value).__name__} is no string")
