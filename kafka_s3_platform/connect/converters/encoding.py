"""Encodes keys and values to bytes, as Connect's converters write them.

Encoding is deterministic. The same object of the same schema gives the same bytes, because a registry always returns
the same id for a schema it knows.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.avro.plain_json import DecimalFormat, compile_plain_json
from kafka_s3_platform.connect.avro.wire import PREFIX_BYTES, write_schema_ids
from kafka_s3_platform.connect.config.keys.converters import DECIMAL_FORMAT
from kafka_s3_platform.connect.converters.base import Serializer, StringPayload, lost
from kafka_s3_platform.connect.converters.json_envelope import NO_SCHEMA_PREFIX, SUFFIX, compile_envelope
from kafka_s3_platform.connect.converters.registry import NewSchema, Registration, open_registry
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, VALUE_ERRORS, Int64s, Payload, Schema, strip_branch
from kafka_s3_platform.core.model.notes import Notes

Body = Callable[[Any], bytes]

_UNNAMED = b"\0" * PREFIX_BYTES
_json = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Encoded:
    """Encoded values, null for a null or a failure. `bad` has reasons, `losses` notes of changes, both by position."""

    column: pa.BinaryArray
    bad: Mapping[int, str] = field(default_factory=dict)
    losses: Mapping[int, Notes] = field(default_factory=dict)


class ValueEncoder(Protocol):
    """Encodes keys or values to bytes. Nulls stay nulls."""

    @property
    def registered(self) -> tuple[Registration, ...]:
        """The schemas registered in the target's registry, or found there."""
        ...

    def encode(self, payload: Payload) -> Encoded:
        """Encode values. Raise RegistryUnavailableError, AuthorizationError or ConfigError if the registry fails."""
        ...


def new_encoder(
    settings: ConverterSettings,
    topic: str,
    is_key: bool,
    registry: RegistrySettings | None = None,
    *,
    registers: bool = True,
) -> ValueEncoder:
    """Return the encoder of a target topic's keys or values. It contacts no server before it encodes the first value.

    Args:
        settings: the converter whose format the bytes get.
        topic: the target topic, after which the subjects are named (TopicNameStrategy).
        is_key: True for keys, False for values.
        registry: the target's registry, used if the settings name none.
        registers: True to register schemas. Otherwise, to only try values, no server is asked and every id is 0.

    Raises:
        ConfigError: the format needs a registry and none is named.
    """
    side = "key" if is_key else "value"
    if settings.is_plugin:
        from kafka_s3_platform.connect.converters.own_class import OwnClassConverter

        encoder = OwnClassConverter(settings, topic, is_key)
        encoder.check_encoding()
        return encoder
    if settings.format in _SERIALIZERS:
        target_registry = settings.registry or registry
        if target_registry is None:
            raise ConfigError(f"{side}s of {settings.format} for topic {topic} need the registry of the target")
        return _SchemaEncoder(settings.format, target_registry, f"{topic}-{side}", registers)
    return _PlainEncoder(settings)


def _compile_avro(schema: Schema) -> Serializer:
    """Return the serializer of Avro. It writes values of the schema as Avro's binary data."""
    objects = AvroObjects(schema.avro)

    def body(value: Any) -> bytes:
        buffer = io.BytesIO()
        objects.write(buffer, value)
        return buffer.getvalue()

    return Serializer("AVRO", schema.text, body)


def _compile_json_schema(schema: Schema) -> Serializer:
    """Return the serializer of JSON with a JSON Schema made from the Avro schema."""
    from kafka_s3_platform.connect.converters.json_schema.encode import compile_json_schema

    return compile_json_schema(schema.avro)


def _compile_protobuf(schema: Schema) -> Serializer:
    """Return the serializer of Protobuf messages of a type made from the Avro schema."""
    from kafka_s3_platform.connect.converters.protobuf.encode import compile_protobuf

    return compile_protobuf(schema.avro)


_SERIALIZERS: Mapping[str, Callable[[Schema], Serializer]] = {
    "AVRO": _compile_avro,
    "JSON_SR": _compile_json_schema,
    "PROTOBUF": _compile_protobuf,
}


@lru_cache
def _compile_serializer(kind: str, text: str) -> Serializer:
    """Return the serializer of values of an Avro schema (its text) in the format `kind`. Each is made only once."""
    return _SERIALIZERS[kind](Schema(text))


class _SchemaEncoder:
    """Encodes values in the wire format: the id of the schema before each value. Registers the schema to get its id."""

    def __init__(self, kind: str, registry: RegistrySettings, subject: str, registers: bool) -> None:
        self._kind = kind
        self._registry = registry
        self._subject = subject
        self._registers = registers
        self._known: dict[str, Registration] = {}

    @property
    def registered(self) -> tuple[Registration, ...]:
        return tuple(self._known.values())

    def encode(self, payload: Payload) -> Encoded:
        codes = np.unique(payload.codes[~payload.is_null]).tolist()
        # Bytes that are already Avro data only get other ids.
        if self._kind == "AVRO" and NO_SCHEMA not in codes and _is_avro_data(payload, codes):
            framed = payload.raw if payload.avro_start else pc.binary_join_element_wise(_UNNAMED, payload.raw, b"")
            return Encoded(write_schema_ids(framed, self._list_ids(payload, codes)))
        return encode_values(payload, {code: self._compile_body(payload, code) for code in codes}, self._kind)

    def _compile_body(self, payload: Payload, code: int) -> Body:
        """Compile a writer of values of this schema. It fails for each value if the schema cannot be used."""
        try:
            if code == NO_SCHEMA:
                raise ValueError(f"it has no schema, and {self._kind} needs one")
            serializer = _compile_serializer(self._kind, payload.schemas[code].text)
        except VALUE_ERRORS as err:
            return _refuse_all(err)
        prefix = b"\0" + self._register_schema(serializer).to_bytes(PREFIX_BYTES - 1, "big")
        return lambda value: prefix + serializer.body(value)

    def _list_ids(self, payload: Payload, codes: Sequence[int]) -> Int64s:
        """Return the id of each value's schema. The id of a null means nothing."""
        table = np.zeros(len(payload.schemas) + 1, np.int64)
        for code in codes:
            table[code] = self._register_schema(_compile_serializer(self._kind, payload.schemas[code].text))
        ids: Int64s = table[payload.codes]
        return ids

    def _register_schema(self, serializer: Serializer) -> int:
        """Return the id of the serializer's schema, registered at its first use, or 0 if nothing is registered."""
        if not self._registers:
            return 0
        if serializer.text not in self._known:
            new = NewSchema(serializer.schema_type, serializer.text)
            self._known[serializer.text] = open_registry(self._registry).register(self._subject, new)
        return self._known[serializer.text].schema_id


def _is_avro_data(payload: Payload, codes: Sequence[int]) -> bool:
    """Return True if the bytes are Avro data, bare or framed. Bare data of a union is excluded: its null has bytes."""
    if payload.raw is None or payload.avro_start not in {0, PREFIX_BYTES}:
        return False
    return payload.avro_start > 0 or not any(isinstance(payload.schemas[code].avro, list) for code in codes)


def encode_values(payload: Payload, bodies: Mapping[int, Body], kind: str) -> Encoded:
    """Encode each value with the function in `bodies` for the code of its schema. `kind` names the format in messages.

    A value that cannot be encoded is null in the column, and the reason is in `bad`.
    """
    rows: list[bytes | None] = [None] * len(payload)
    reasons: dict[int, str] = {}
    losses: dict[int, Notes] = {}
    for position, (code, value) in enumerate(zip(payload.codes.tolist(), payload.objects, strict=True)):
        lost.places = {}
        try:
            rows[position] = None if value is None else bodies[code](value)
        except VALUE_ERRORS as err:
            reasons[position] = f"cannot be written as {kind}: {type(err).__name__}: {err}"
        if lost.places:
            losses[position] = Notes({loss: (1, place) for loss, place in lost.places.items()})
    return Encoded(pa.array(rows, pa.binary()), reasons, losses)


def _refuse_all(err: Exception) -> Body:
    """Return a function that fails for each value with this error's text: no value of the schema can be written."""

    def body(_: Any) -> bytes:
        raise ValueError(str(err))

    return body


class _PlainEncoder:
    """Encodes bytes, strings, and JSON with or without its schema, without a registry."""

    registered: tuple[Registration, ...] = ()

    def __init__(self, settings: ConverterSettings) -> None:
        self._kind = settings.format
        self._has_schemas = settings.schemas_enable
        self._decimals: DecimalFormat = "NUMERIC" if settings.options.get(DECIMAL_FORMAT) == "NUMERIC" else "BASE64"

    def encode(self, payload: Payload) -> Encoded:
        """Encode values. If bytes can be written as they were read, they are copied."""
        if payload.bytes_read is not None and self._is_raw(payload):
            if not self._has_schemas:
                return Encoded(payload.bytes_read)
            return Encoded(pc.binary_join_element_wise(NO_SCHEMA_PREFIX, payload.bytes_read, SUFFIX, b""))
        schemas: dict[int, Schema | None] = {NO_SCHEMA: None, **dict(enumerate(payload.schemas))}
        return encode_values(
            payload, {code: self._compile_or_refuse(schema) for code, schema in schemas.items()}, self._kind
        )

    def _is_raw(self, payload: Payload) -> bool:
        """Return True if the bytes can be written as they were read."""
        if self._kind == "BYTES":
            return payload.avro_start != 0  # bare Avro data was never the value of a record
        if self._kind == "JSON":
            return payload.raw_is_json
        return isinstance(payload, StringPayload)

    def _compile_or_refuse(self, schema: Schema | None) -> Body:
        """Compile a writer of values of this schema. It fails for each value if the schema cannot be used."""
        try:
            return self._compile_body(schema)
        except VALUE_ERRORS as err:
            return _refuse_all(err)

    def _compile_body(self, schema: Schema | None) -> Body:
        """Compile a writer of values of this schema in the encoder's format."""
        if self._kind != "JSON":
            if self._kind == "BYTES":
                return _encode_bytes
            return _encode_text
        if self._has_schemas:
            return compile_envelope(schema, self._decimals)
        plain = compile_plain_json(schema, self._decimals)
        if plain is None:
            return _json.encode
        return lambda value: _json.encode(plain(value))


def _encode_bytes(value: Any) -> bytes:
    """Return the value if it is bytes, as ByteArrayConverter does. Raise TypeError if not."""
    value = strip_branch(value)
    if not isinstance(value, bytes):
        raise TypeError(f"a value of type {type(value).__name__} is not of bytes")
    return value


def _encode_text(value: Any) -> bytes:
    """Return a text, an integer or a boolean in UTF-8, as StringConverter does. Raise TypeError for other values."""
    value = strip_branch(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | int):
        return str(value).lower().encode()
    raise TypeError(f"a value of type {type(value).__name__} is no string")
