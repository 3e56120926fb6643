"""Converter of JSON with its schema beside it, like Connect's JsonConverter with `schemas.enable=true`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.avro.connect_schema import AVRO_TYPES, ConnectType, Slot, write_avro_schema
from kafka_s3_platform.config.keys.converters import REPLACE_NULLS
from kafka_s3_platform.converters.base import (
    BadRecordError,
    ConvertedPayload,
    Origin,
    check_walkable,
    explain_bad_record,
)
from kafka_s3_platform.converters.connect_json import ADDED, Readers
from kafka_s3_platform.converters.json_text import JSON_CONVERTER
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Schema
from kafka_s3_platform.model.json_values import BYTE_ORDER_MARK, decode_exact_json, require_unique_keys
from kafka_s3_platform.model.notes import Notes

_KEPT_BYTES = 65_536
"""Some schemas up to this size are remembered, of larger ones the last: each record may have its own schema."""


_FRAME_BYTES = len('{"schema":,"payload":}') + len(',"schema":')
"""An envelope has more bytes beside schema and payload if it has one of them twice, or many spaces."""


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)


class JsonEnvelopeConverter:
    """Reads `{"schema": ..., "payload": ...}`. A payload without a schema stays without one."""

    def __init__(self, topic: str, is_key: bool, options: Mapping[str, str]) -> None:
        self._origin = Origin(topic, is_key, JSON_CONVERTER)
        self._replaces_nulls = REPLACE_NULLS in options

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        objects: list[Any] = [None] * len(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        schemas: dict[Schema, int] = {}
        bad: dict[int, str] = {}
        losses: dict[int, Notes] = {}
        for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
            if row is None:
                continue
            try:
                schema, objects[position], readers = _read_envelope(row, self._replaces_nulls)
            except Exception as err:  # noqa: BLE001 - `explain_bad_record` knows what is a record's own
                bad[position] = explain_bad_record(err)
                continue
            if readers.left_out is not None or readers.added is not None:
                losses[position] = _note_differences(readers)
            if schema is not None and objects[position] is not None:
                codes[position] = schemas.setdefault(schema, len(schemas))
        done = self._origin.converted(Payload(None, codes, tuple(schemas), objects), bad, offsets)
        return replace(done, losses=losses)


def _note_differences(readers: Readers) -> Notes:
    notes = Notes()
    if readers.left_out is not None:
        notes.note("lack fields that the schema beside their value does not list", readers.left_out)
    if readers.added is not None:
        notes.note(f"lack a field that the schema beside their value lists: {ADDED}", readers.added)
    return notes


def _read_envelope(row: bytes, replaces_nulls: bool) -> tuple[Schema | None, Any, Readers]:
    """Return the schema, the value, and the readers of the schema, with the value's differences."""
    try:
        text = row.removeprefix(BYTE_ORDER_MARK)
        envelope = _envelopes.decode(text)
        if len(text) - len(envelope.schema) - len(envelope.payload) > _FRAME_BYTES:
            require_unique_keys(text)
        schema, read, readers = _read_schema(bytes(envelope.schema), replaces_nulls)
        return schema, read(decode_exact_json(bytes(envelope.payload)), len(row)), readers
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise BadRecordError(f'is no JSON object of "schema" and "payload" alone: {err}') from err


_Read = Callable[[Any, int], Any]


def _read_schema(text: bytes, replaces_nulls: bool) -> tuple[Schema | None, _Read, Readers]:
    """Return the Avro schema of a Connect schema in JSON, its reader of values, and the readers behind it."""
    if len(text) <= _KEPT_BYTES:
        return _compile_kept_schema(text, replaces_nulls)
    return _compile_large_schema(text, replaces_nulls)


def _compile_schema(text: bytes, replaces_nulls: bool) -> tuple[Schema | None, _Read, Readers]:
    document = decode_exact_json(text)
    readers = Readers(replaces_nulls=replaces_nulls)
    if document is None:
        return None, lambda value, _size: value, readers
    slot = read_envelope_schema(document, "")
    return Schema(check_walkable(write_avro_schema(slot))), readers.record(slot), readers


_compile_kept_schema = lru_cache(32)(_compile_schema)
_compile_large_schema = lru_cache(1)(_compile_schema)


def read_envelope_schema(document: Any, name: str) -> Slot:
    """Read a Connect schema as JsonConverter writes it. Raise BadRecordError if it is no schema."""
    if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
        raise BadRecordError(f"has a schema without a type: {str(document)[:100]}")
    try:
        kind = _read_type(document)
    except KeyError as err:
        raise BadRecordError(f"has a schema of type {document['type']} without {err}") from err
    slot = Slot(kind, bool(document.get("optional")), name)
    if document.get("default") is None:
        return slot
    default = Readers().slot(slot, f"the default of {name}")(document["default"])
    return Slot(kind, slot.optional, name, default)


def _read_type(document: Mapping[str, Any]) -> ConnectType:
    named: dict[str, Any] = {"name": document.get("name"), "doc": document.get("doc")}
    kind = document["type"]
    if kind == "struct":
        return ConnectType(kind, **named, fields=[read_envelope_schema(f, f["field"]) for f in document["fields"]])
    if kind == "array":
        return ConnectType(kind, **named, values=read_envelope_schema(document["items"], ""))
    if kind == "map":
        key = read_envelope_schema(document["keys"], "")
        return ConnectType(kind, **named, key=key, values=read_envelope_schema(document["values"], ""))
    if kind not in AVRO_TYPES:
        raise BadRecordError(f"has a schema of the unknown type {kind!r}")
    return ConnectType(kind, **named, parameters=document.get("parameters") or {})
