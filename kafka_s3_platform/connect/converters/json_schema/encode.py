"""Encodes values of an Avro schema as JSON with a JSON Schema.

Follows Confluent's JsonSchemaData: it writes `connect.type` and `connect.index`, names as `title`, optional types as
`oneOf` with null, Connect's logical types by their names, decimals as numbers and bytes in base64. In addition, fields
without null are in `required`, a recursive record is a `$ref`, and an enum lists its symbols. A union is an `anyOf` if
JSON cannot distinguish its types, since `oneOf` would refuse a value that fits two of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from kafka_s3_platform.connect.avro.connect_schema import (
    DECIMAL,
    DEFAULT_PRECISION,
    JSON_TEXT,
    LOGICAL_NAMES,
    OTHER_PROPERTIES,
    PRECISION_PARAMETER,
)
from kafka_s3_platform.connect.avro.plain_json import is_map_entry
from kafka_s3_platform.connect.avro.values import AvroSchema, decode_decimal, shorten_float
from kafka_s3_platform.connect.converters.base import Serializer
from kafka_s3_platform.core.model.limits import MAX_SCHEMA_PLACES

EncodeValue = Callable[[Any], Any]

SIMPLE: Mapping[str, Mapping[str, str]] = {
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "connect.type": "int32"},
    "long": {"type": "integer", "connect.type": "int64"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number", "connect.type": "float64"},
    "bytes": {"type": "string", "connect.type": "bytes"},
    "fixed": {"type": "string", "connect.type": "bytes"},
    "string": {"type": "string"},
    "null": {"type": "null"},
}
NULL = SIMPLE["null"]
ANY: Mapping[str, str] = {}
"""The schema of any value."""

_json = msgspec.json.Encoder(decimal_format="number")
_exactly = msgspec.json.Decoder(float_hook=Decimal)


def compile_json_schema(avro: Any) -> Serializer:
    """Return the serializer of values of an Avro schema (parsed JSON) as JSON, with a JSON Schema made from it.

    Raises ValueError if the JSON Schema is too long once names are replaced with their types.
    """
    compiler = _Compiler(AvroSchema(avro))
    part = compiler.compile_part(compiler.avro.root)
    definitions = {"definitions": compiler.definitions} if compiler.definitions else {}
    text = json.dumps({**part.document, **definitions}, separators=(",", ":"))
    return Serializer("JSON", text, lambda value: _json.encode(part.plain(value)))


@dataclass(frozen=True)
class _Part:
    document: Mapping[str, Any]
    plain: EncodeValue


class _Compiler:
    """Compiles each node of an Avro schema to its part of the JSON Schema, and to a converter of values to plain JSON.

    Recursive records become `definitions`, and references point to them.
    """

    def __init__(self, avro: AvroSchema) -> None:
        self.avro = avro
        self.definitions: dict[str, Any] = {}
        self._open: dict[str, list[_Part]] = {}
        self._recursive: set[str] = set()
        self._count = 0

    def compile_part(self, node: Any) -> _Part:
        """Compile a node. Raises ValueError if the schema comes to too many parts with its types written out."""
        self._count += 1
        if self._count > MAX_SCHEMA_PLACES:
            raise ValueError(
                f"its JSON Schema comes to more than {MAX_SCHEMA_PLACES:,} parts, with its types written out"
            )
        resolved = self.avro.resolve(node)
        if isinstance(resolved, list):
            return self._compile_union(resolved)
        match resolved["type"]:
            case "record" | "error":
                return self._compile_record(resolved)
            case "array":
                return self._compile_array(resolved)
            case "map":
                return self._compile_map(resolved)
            case "enum":
                return _compile_enum(resolved)
        return _compile_scalar(resolved)

    def _compile_union(self, union: Sequence[Any]) -> _Part:
        """Compile a union, either of one type and null, or of several types, whose values name their branch."""
        members, has_null = self.avro.members(union)
        parts = [self.compile_part(member) for member in members]
        documents = [NULL] * has_null + [part.document for part in parts]
        plain = parts[0].plain if len(parts) == 1 else self._compile_choice(members, parts)
        if len(documents) == 1:
            return _Part(documents[0], plain)
        kinds = [d.get("type", d.get("$ref")) for d in documents]
        is_distinct = len(set(map(_find_json_kind, kinds))) == len(kinds) and ANY not in documents
        document = {"oneOf" if is_distinct else "anyOf": documents}
        return _Part(document, lambda value: None if value is None else plain(value))

    def _compile_choice(self, members: Sequence[Any], parts: Sequence[_Part]) -> EncodeValue:
        """Return a converter of the values of a union of several types. Each value names its branch."""
        choose = self.avro.compile_choice(members)

        def plain(value: Any) -> Any:
            at, value = choose(value)
            return parts[at].plain(value)

        return plain

    def _compile_array(self, node: Mapping[str, Any]) -> _Part:
        """Compile an array, or a map held in Avro as an array of entries."""
        items = self.compile_part(node["items"])
        member = self.avro.resolve(node["items"])
        document = {"type": "array", "items": items.document}
        if is_map_entry(member):
            document["connect.type"] = "map"
        return _Part(document, lambda values: [items.plain(value) for value in values])

    def _compile_map(self, node: Mapping[str, Any]) -> _Part:
        values = self.compile_part(node["values"])
        document = {"type": "object", "connect.type": "map", "additionalProperties": values.document}
        return _Part(document, lambda entries: {key: values.plain(value) for key, value in entries.items()})

    def _compile_record(self, node: Mapping[str, Any]) -> _Part:
        """Compile a record. Inside itself it becomes a reference, and its converter is looked up later."""
        name = node["name"]
        if name in self._open:
            self._recursive.add(name)
            open_parts = self._open[name]

            def convert_later(value: Any) -> Any:
                return open_parts[0].plain(value)

            return _Part(_make_reference(name), convert_later)
        parts = self._open[name] = []
        parts.append(self._compile_struct(node))
        del self._open[name]
        if name not in self._recursive:
            return parts[0]
        self.definitions[name] = parts[0].document
        return _Part(_make_reference(name), parts[0].plain)

    def _compile_struct(self, node: Mapping[str, Any]) -> _Part:
        """Compile a record's properties.

        Properties that cannot be null are required. Unlisted properties come from a field of their own.
        """
        unlisted_field = self._find_unlisted_field(node)
        fields = [(field, self.compile_part(field["type"])) for field in node["fields"] if field is not unlisted_field]
        properties = {f["name"]: self._describe_property(index, f, part) for index, (f, part) in enumerate(fields)}
        required = [f["name"] for f, part in fields if not _may_be_null(part.document)]
        document = {"type": "object", "title": node["name"], **_describe_node(node), "properties": properties}
        plains = [(f["name"], part.plain) for f, part in fields]

        def plain(value: Any) -> dict[str, Any]:
            members = {name: convert(value[name]) for name, convert in plains}
            if unlisted_field is None or not value[OTHER_PROPERTIES]:
                return members
            return members | {name: _read_json(text) for name, text in value[OTHER_PROPERTIES].items()}

        return _Part(document | ({"required": required} if required else {}), plain)

    def _find_unlisted_field(self, node: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Find the field that holds unlisted properties."""
        for field in node["fields"]:
            resolved = self.avro.resolve(field["type"])
            members = self.avro.members(resolved)[0] if isinstance(resolved, list) else [resolved]
            if field["name"] == OTHER_PROPERTIES and [self.avro.resolve(m)["type"] for m in members] == ["map"]:
                return field  # type: ignore[no-any-return]
        return None

    def _describe_property(self, index: int, field: Mapping[str, Any], part: _Part) -> dict[str, Any]:
        """Describe a field. An optional field gets no default, because a null would be read as the default."""
        document = {**part.document, **_describe_node(field), "connect.index": index}
        if "default" not in field or _may_be_null(part.document):
            return document
        default = part.plain(self.avro.decode_default_of(field["type"], field["default"]))
        return {**document, "default": json.loads(_json.encode(default))}


def _make_reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def _describe_node(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the `description` of a type or a field, or an empty dict if it has no doc."""
    return {"description": node["doc"]} if node.get("doc") else {}


def _may_be_null(document: Mapping[str, Any]) -> bool:
    """Return True if null fits a JSON Schema made by this module."""
    return document == NULL or NULL in document.get("oneOf", document.get("anyOf", ()))


def _find_json_kind(kind: str) -> str:
    """Return a type's kind in JSON Schema. A reference always means an object."""
    return {"integer": "number"}.get(kind, "object" if kind and kind.startswith("#") else kind)


def _compile_enum(node: Mapping[str, Any]) -> _Part:
    """Compile an enum. Its converter refuses texts that are not symbols."""
    symbols = frozenset(node["symbols"])

    def plain(value: str) -> str:
        if value not in symbols:
            raise ValueError(f"{value!r} is no symbol of {node['name']}")
        return value

    return _Part({"type": "string", "title": node["name"], "enum": list(node["symbols"])}, plain)


def _compile_scalar(node: Mapping[str, Any]) -> _Part:
    """Compile a primitive or logical type to its JSON Schema, and to a converter of its values to plain JSON."""
    kind = node["type"]
    logical = node.get("logicalType", "")
    if logical == "decimal":
        return _compile_decimal(node)
    if kind == "string" and node.get("connect.name") == JSON_TEXT:
        return _Part(ANY, _read_json)
    document: dict[str, Any] = {**SIMPLE[kind], **{n: node[n] for n in ("connect.type",) if n in node}}
    if name := LOGICAL_NAMES.get((kind, logical)):
        document |= {"title": name, "connect.version": 1}
    return _Part(document, _PLAIN[kind])


def _compile_decimal(node: Mapping[str, Any]) -> _Part:
    """Compile a decimal to a number with the name and parameters of Connect's Decimal."""
    scale = node.get("scale", 0)
    precision = node.get("precision", DEFAULT_PRECISION)
    parameters = {"scale": str(scale)} | (
        {PRECISION_PARAMETER: str(precision)} if precision != DEFAULT_PRECISION else {}
    )
    document = {
        "type": "number",
        "title": DECIMAL,
        "connect.version": 1,
        "connect.type": "bytes",
        "connect.parameters": parameters,
    }
    return _Part(document, lambda value: decode_decimal(value, scale))


def _read_json(text: str) -> Any:
    """Read the JSON of any value, and keep all digits of its numbers."""
    return _exactly.decode(text)


def _require_type(*kinds: type) -> EncodeValue:
    """Return a converter that passes values of these Python types through, and raises TypeError for others."""

    def plain(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.100} is not of {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    return plain


def _check_double(value: Any) -> float:
    """Return the number as a float. Raise ValueError for NaN and infinities, which JSON does not have."""
    if not isfinite(value):
        raise ValueError(f"{value} is no number that JSON has")
    return float(value)


_PLAIN: Mapping[str, EncodeValue] = {
    "boolean": _require_type(bool),
    "int": _require_type(int),
    "long": _require_type(int),
    "float": lambda value: shorten_float(_check_double(value)),
    "double": _check_double,
    "bytes": _require_type(bytes),
    "fixed": _require_type(bytes),
    "string": _require_type(str),
    "null": _require_type(type(None)),
}
