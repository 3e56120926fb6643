"""JSON with its schema beside it: Connect's JsonConverter with `schemas.enable=true`."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.converters.base import BadRecordError, Converted, Origin, refusal, walkable
from kafka_s3_platform.converters.connect_json import Readers
from kafka_s3_platform.converters.connect_schema import AVRO_TYPES, ConnectType, Slot, avro_text
from kafka_s3_platform.converters.json_text import JSON_CONVERTER
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Schema

_KEPT_BYTES = 65_536
"""Of a schema that is kept for the next record: each record may bring one of its own."""


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)
_payloads = msgspec.json.Decoder(float_hook=Decimal)
_schemas = msgspec.json.Decoder()


class JsonEnvelopeConverter:
    """Reads `{"schema": ..., "payload": ...}`. A payload without a schema stays without one."""

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, JSON_CONVERTER)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        objects: list[Any] = [None] * len(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        known: dict[Schema, int] = {}
        bad: dict[int, str] = {}
        for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
            if row is None:
                continue
            try:
                schema, objects[position] = _read(row)
            except Exception as err:  # noqa: BLE001 - `refusal` tells what is a record's own
                bad[position] = refusal(err)
                continue
            if schema is not None and objects[position] is not None:
                codes[position] = known.setdefault(schema, len(known))
        return self._origin.converted(Payload(None, codes, tuple(known), objects), bad, offsets)


def _read(row: bytes) -> tuple[Schema | None, Any]:
    try:
        envelope = _envelopes.decode(row)
        schema, read = _schema(bytes(envelope.schema))
        return schema, read(_payloads.decode(envelope.payload), len(row))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise BadRecordError(f'is no JSON object of "schema" and "payload" alone: {err}') from err


_Read = Callable[[Any, int], Any]


def _schema(text: bytes) -> tuple[Schema | None, _Read]:
    """The Avro schema and the reader of a Connect schema written as JSON."""
    return _known_schema(text) if len(text) <= _KEPT_BYTES else _new_schema(text)


def _new_schema(text: bytes) -> tuple[Schema | None, _Read]:
    given = _schemas.decode(text)
    if given is None:
        return None, lambda value, _size: _plain(value)
    slot = connect_slot(given, "")
    return Schema(walkable(avro_text(slot))), Readers().record(slot)


_known_schema = lru_cache(32)(_new_schema)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def connect_slot(given: Any, name: str) -> Slot:
    """A Connect schema as JsonConverter writes it. Raises BadRecordError if it is none."""
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
        raise BadRecordError(f"has a schema without a type: {str(given)[:100]}")
    try:
        kind = _type(given)
    except KeyError as err:
        raise BadRecordError(f"has a schema of type {given['type']} without {err}") from err
    slot = Slot(kind, bool(given.get("optional")), name)
    if given.get("default") is None:
        return slot
    default = Readers().slot(slot, f"the default of {name}")(given["default"])
    return Slot(kind, slot.optional, name, default)


def _type(given: Mapping[str, Any]) -> ConnectType:
    named: dict[str, Any] = {"name": given.get("name"), "doc": given.get("doc")}
    kind = given["type"]
    if kind == "struct":
        return ConnectType(kind, **named, fields=[connect_slot(f, f["field"]) for f in given["fields"]])
    if kind == "array":
        return ConnectType(kind, **named, values=connect_slot(given["items"], ""))
    if kind == "map":
        return ConnectType(kind, **named, key=connect_slot(given["keys"], ""), values=connect_slot(given["values"], ""))
    if kind not in AVRO_TYPES:
        raise BadRecordError(f"has a schema of the unknown type {kind!r}")
    return ConnectType(kind, **named, parameters=given.get("parameters") or {})
