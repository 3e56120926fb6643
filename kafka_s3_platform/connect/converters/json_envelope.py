"""Decodes and encodes JSON with its schema beside it, like Connect's JsonConverter with `schemas.enable=true`.

Values are encoded as `{"schema": ..., "payload": ...}`. An Avro schema becomes the Connect schema Confluent's AvroData
makes with `connect.meta.data`: Connect's own properties come back from `connect.*`, and Avro's docs, enums and defaults
are kept as parameters. A null stays null, as with `replace.null.with.default=false`. Sources: Kafka's JsonConverter,
Confluent's AvroData.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import pyarrow as pa

from kafka_s3_platform.connect.avro.connect_schema import (
    AVRO_TYPES,
    DECIMAL,
    DEFAULT_PRECISION,
    LOGICAL_NAMES,
    NAMESPACE,
    PRECISION_PARAMETER,
    ConnectType,
    Slot,
    is_made_up_name,
    write_avro_schema,
)
from kafka_s3_platform.connect.avro.json_values import BYTE_ORDER_MARK, decode_exact_json, require_unique_keys
from kafka_s3_platform.connect.avro.plain_json import DecimalFormat, PlainJson, compile_plain_json, is_map_entry
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.connect.config.keys.converters import REPLACE_NULLS
from kafka_s3_platform.connect.converters.base import BadRecordError, ConvertedPayload, Origin, check_walkable
from kafka_s3_platform.connect.converters.connect_json import ADDED, Readers
from kafka_s3_platform.connect.converters.json_text import JSON_CONVERTER
from kafka_s3_platform.core.model.connect import MISSING, Int64s, Schema
from kafka_s3_platform.core.model.limits import MAX_SCHEMA_PLACES
from kafka_s3_platform.core.model.notes import Notes

_KEPT_BYTES = 65_536
"""Up to this size, many schemas are cached; of larger ones only one, since each record may have its own."""


_FRAME_BYTES = len('{"schema":,"payload":}') + len(',"schema":')
"""The most bytes that an envelope should have beside schema and payload. With more, it may have one of them twice."""


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
        """Decode each value with the schema beside it. A field that only the schema or only the value has is noted."""
        decode = partial(_read_envelope, replaces_nulls=self._replaces_nulls)
        return self._origin.decode_rows(raw, offsets, decode, keeps_raw=False)


def _read_envelope(row: bytes, replaces_nulls: bool) -> tuple[Schema | None, Any, Notes | None]:
    """Decode `{"schema": ..., "payload": ...}` to the Avro schema, the value, and notes of missing fields, if any."""
    try:
        text = row.removeprefix(BYTE_ORDER_MARK)
        envelope = _envelopes.decode(text)
        if len(text) - len(envelope.schema) - len(envelope.payload) > _FRAME_BYTES:
            require_unique_keys(text)
        compile_schema = _compile_kept_schema if len(envelope.schema) <= _KEPT_BYTES else _compile_large_schema
        schema, read, readers = compile_schema(bytes(envelope.schema), replaces_nulls)
        value = read(decode_exact_json(bytes(envelope.payload)), len(row))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise BadRecordError(f'is no JSON object of "schema" and "payload" alone: {err}') from err
    if readers.left_out is None and readers.added is None:
        return schema, value, None
    notes = Notes()
    if readers.left_out is not None:
        notes.note("lack fields that the schema beside their value does not list", readers.left_out)
    if readers.added is not None:
        notes.note(f"lack a field that the schema beside their value lists: {ADDED}", readers.added)
    return schema, value, notes


_Read = Callable[[Any, int], Any]


def _compile_schema(text: bytes, replaces_nulls: bool) -> tuple[Schema | None, _Read, Readers]:
    """Compile a Connect schema in JSON to an Avro schema, a reader of values, and the Readers it was made with."""
    document = decode_exact_json(text)
    readers = Readers(replaces_nulls=replaces_nulls)
    if document is None:
        return None, lambda value, _size: value, readers
    slot = read_envelope_schema(document, "")
    return Schema(check_walkable(write_avro_schema(slot))), readers.compile_record(slot), readers


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
    default = Readers().compile_slot(slot, f"the default of {name}")(document["default"])
    return Slot(kind, slot.optional, name, default)


def _read_type(document: Mapping[str, Any]) -> ConnectType:
    """Return the Connect type of a schema in JSON, with a slot for each of its fields."""
    names: dict[str, Any] = {"name": document.get("name"), "doc": document.get("doc")}
    kind = document["type"]
    if kind == "struct":
        return ConnectType(kind, **names, fields=[read_envelope_schema(f, f["field"]) for f in document["fields"]])
    if kind == "array":
        return ConnectType(kind, **names, values=read_envelope_schema(document["items"], ""))
    if kind == "map":
        key = read_envelope_schema(document["keys"], "")
        return ConnectType(kind, **names, key=key, values=read_envelope_schema(document["values"], ""))
    if kind not in AVRO_TYPES:
        raise BadRecordError(f"has a schema of the unknown type {kind!r}")
    return ConnectType(kind, **names, parameters=document.get("parameters") or {})


NO_SCHEMA_PREFIX = b'{"schema":null,"payload":'
SUFFIX = b"}"

_TYPES: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_BYTES = b'{"schema":{"type":"bytes","optional":true},"payload":'
_json = msgspec.json.Encoder(decimal_format="number")


def compile_envelope(schema: Schema | None, decimal_format: DecimalFormat) -> Callable[[Any], bytes]:
    """Compile a writer of values together with their schema. If `schema` is None, the envelope has none either.

    Bytes without a schema get the schema of bytes. Raises ValueError if Connect has no such schema, or if the schema is
    too long once names are replaced with their types.
    """
    plain = compile_plain_json(schema, decimal_format)
    if schema is None:
        return lambda value: b"".join(
            (
                _BYTES if isinstance(value, bytes) else NO_SCHEMA_PREFIX,
                _json.encode(value if plain is None else plain(value)),
                SUFFIX,
            )
        )
    avro = AvroSchema(schema.avro)
    connect_schema = _ConnectSchemas(avro, PlainJson(avro, decimal_format)).make_schema(avro.root)
    prefix = b'{"schema":' + _json.encode(connect_schema) + b',"payload":'
    return lambda value: prefix + _json.encode(value if plain is None else plain(value)) + SUFFIX


class _ConnectSchemas:
    """Makes the Connect schema of each node of an Avro schema, as JsonConverter writes it."""

    def __init__(self, avro: AvroSchema, plain: PlainJson) -> None:
        self._avro = avro
        self._plain = plain
        self._open: set[str] = set()
        self._count = 0

    def make_schema(self, node: Any, *, optional: bool = False, default: Any = MISSING) -> dict[str, Any]:
        """Make the schema of a node. If `optional`, its value may be null. `default` is the Avro field's default."""
        self._count += 1
        if self._count > MAX_SCHEMA_PLACES:
            raise ValueError(f"its Connect schema comes to more than {MAX_SCHEMA_PLACES:,} parts")
        resolved = self._avro.resolve(node)
        if isinstance(resolved, list):
            return self._make_union(resolved, optional, default)
        connect_schema = {**self._make_type(resolved), "optional": optional}
        logical = LOGICAL_NAMES.get((resolved["type"], resolved.get("logicalType", "")))
        is_decimal = resolved.get("logicalType") == "decimal"
        name = logical or (DECIMAL if is_decimal else self._name(resolved))
        version = 1 if logical or is_decimal else resolved.get("connect.version")
        parameters = dict(self._list_parameters(resolved))
        connect_default = resolved.get("connect.default", MISSING) if default is MISSING else default
        if default is not MISSING and "connect.default" not in resolved:
            parameters[f"{NAMESPACE}.field.default"] = "true"
        doc = resolved.get("connect.doc")
        details = {"name": name, "version": version, "doc": doc, "parameters": parameters or None}
        connect_schema |= {key: value for key, value in details.items() if value is not None}
        if connect_default is MISSING or connect_default is None:
            return connect_schema
        return {**connect_schema, "default": self._encode_default(node, connect_default)}

    def _make_union(self, union: Sequence[Any], optional: bool, default: Any) -> dict[str, Any]:
        """Make the schema of a union: an optional type for null and one type, else a struct with a field for each type.

        The optional type does not get the field's default.
        """
        members, has_null = self._avro.members(union)
        if len(members) == 1 and has_null:
            return self.make_schema(members[0], optional=True)
        names = self._plain.list_member_names(members)
        fields = [{**self.make_schema(m, optional=True), "field": name} for m, name in zip(members, names, strict=True)]
        struct: dict[str, Any] = {"type": "struct", "fields": fields, "optional": has_null or optional}
        struct |= {"name": f"{NAMESPACE}.Union"}
        if default is MISSING:
            return struct
        struct["parameters"] = {f"{NAMESPACE}.field.default": "true"}
        if default is None:
            return struct
        return {**struct, "default": self._encode_default(union, default)}

    def _make_type(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of the schema that depends on the node's type, without name, parameters and default."""
        match node["type"]:
            case "array":
                return self._make_array(node["items"])
            case "map":
                values = self.make_schema(node["values"])
                return {"type": "map", "keys": {"type": "string", "optional": False}, "values": values}
            case "record" | "error":
                return {"type": "struct", "fields": self._list_fields(node)}
            case "null":
                raise ValueError("Connect has no schema of null alone")
        return {"type": node.get("connect.type", _TYPES[node["type"]])}

    def _make_array(self, items: Any) -> dict[str, Any]:
        """Make the schema of an array, or of a map if the items are its entries."""
        item = self._avro.resolve(items)
        if not is_map_entry(item):
            return {"type": "array", "items": self.make_schema(items)}
        types = {field["name"]: field["type"] for field in item["fields"]}
        return {"type": "map", "keys": self.make_schema(types["key"]), "values": self.make_schema(types["value"])}

    def _list_fields(self, node: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the Connect schemas of a record's fields. Raise ValueError if the record contains itself."""
        name = node["name"]
        if name in self._open:
            raise ValueError(f"{name} holds itself, and JsonConverter's schema of it would have no end")
        self._open.add(name)
        fields = [
            {**self.make_schema(f["type"], default=f.get("default", MISSING)), "field": f["name"]}
            for f in node["fields"]
        ]
        self._open.remove(name)
        return fields

    def _name(self, node: Mapping[str, Any]) -> str | None:
        """Return the name of a type in Connect, or None if it has none or a converter made it up."""
        avro_name = node["name"] if node["type"] in {"record", "error", "enum"} else None
        name: str | None = node.get("connect.name", avro_name)
        return None if name is None or is_made_up_name(name) else name

    def _list_parameters(self, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the parameters, for facts that have no other place in Connect's schema."""
        kind = node["type"]
        doc = node.get("doc")
        if node.get("logicalType") == "decimal":
            yield "scale", str(node.get("scale", 0))
            if node.get("precision", DEFAULT_PRECISION) != DEFAULT_PRECISION:
                yield PRECISION_PARAMETER, str(node["precision"])
        if kind == "enum":
            short = node["name"].rpartition(".")[2]
            yield from [(f"{NAMESPACE}.enum.doc.{short}", doc)] if doc else []
            yield from [(f"{NAMESPACE}.enum.default.{short}", node["default"])] if "default" in node else []
            yield f"{NAMESPACE}.Enum", node["name"]
            yield from ((f"{NAMESPACE}.Enum.{symbol}", symbol) for symbol in node["symbols"])
        if kind == "record":
            yield from [(f"{NAMESPACE}.record.doc", doc)] if doc else []
            docs = ((f["name"], f["doc"]) for f in node["fields"] if f.get("doc"))
            yield from ((f"{NAMESPACE}.field.doc.{name}", field_doc) for name, field_doc in docs)
        yield from node.get("connect.parameters", {}).items()
        yield from ((name, str(value)) for name, value in node.items() if name.startswith("avro"))

    def _encode_default(self, node: Any, default: Any) -> Any:
        """Return the default of a node, given as Avro's JSON, as the JSON JsonConverter writes for the value."""
        value = self._avro.decode_default_of(node, default)
        plain = self._plain.compile(node)
        return value if plain is None else plain(value)
