"""Values of an Avro schema as JSON with a JSON Schema.

Follows Confluent's JsonSchemaData: `connect.type`, `connect.index`, `title` as the name, one of null and something as
optional, Connect's logical types by their names, decimals as numbers, bytes in base64. Beyond it: what is never null is
in `required`, a record inside itself is a `$ref`, an enum lists its symbols, and a union whose types JSON cannot tell
apart is any of them, since `oneOf` would refuse a value that is two of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from kafka_s3_platform.converters.connect_schema import DATA, DECIMAL, DEFAULT_PRECISION, PRECISION_PARAMETER
from kafka_s3_platform.formats.avro_schema import AvroSchema, decimal_of
from kafka_s3_platform.model.limits import MAX_SCHEMA_PLACES

Plain = Callable[[Any], Any]

LOGICAL = {"date": "Date", "time-millis": "Time", "timestamp-millis": "Timestamp"}
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
MAP_ENTRY = "io.confluent.connect.avro.MapEntry"

_json = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class JsonSchemaText:
    """A JSON Schema, and how a value is written by it."""

    text: str
    plain: Plain

    def body(self, value: Any) -> bytes:
        """The JSON of one value. Raises what a value raises that is not of the schema."""
        return _json.encode(self.plain(value))


def json_schema(avro: Any) -> JsonSchemaText:
    """The JSON Schema of an Avro schema, given as parsed JSON.

    Raises:
        ValueError: with its types written out wherever they are named, it is too long.
    """
    compiler = _Compiler(AvroSchema(avro))
    part = compiler.part(compiler.avro.root)
    definitions = {"definitions": compiler.definitions} if compiler.definitions else {}
    return JsonSchemaText(json.dumps({**part.document, **definitions}, separators=(",", ":")), part.plain)


@dataclass(frozen=True)
class _Part:
    document: Mapping[str, Any]
    plain: Plain


class _Compiler:
    """Compiles each node to its part of the document and to what makes plain JSON of its values."""

    def __init__(self, avro: AvroSchema) -> None:
        self.avro = avro
        self.definitions: dict[str, Any] = {}
        self._open: dict[str, list[_Part]] = {}
        self._recursive: set[str] = set()
        self._count = 0

    def part(self, node: Any) -> _Part:
        self._count += 1
        if self._count > MAX_SCHEMA_PLACES:
            raise ValueError(
                f"its JSON Schema comes to more than {MAX_SCHEMA_PLACES:,} parts, with its types written out"
            )
        found = self.avro.resolved(node)
        if isinstance(found, list):
            return self._union(found)
        match found["type"]:
            case "record" | "error":
                return self._record(found)
            case "array":
                return self._array(found)
            case "map":
                return self._map(found)
            case "enum":
                return _enum(found)
        return _scalar(found)

    def _union(self, union: Sequence[Any]) -> _Part:
        members, has_null = self.avro.members(union)
        parts = [self.part(member) for member in members]
        documents = [NULL] * has_null + [part.document for part in parts]
        plain = parts[0].plain if len(parts) == 1 else lambda value: self._one(members, parts, value)
        if len(documents) == 1:
            return _Part(documents[0], plain)
        kinds = [d.get("type", d.get("$ref")) for d in documents]
        told_apart = len(set(map(_json_kind, kinds))) == len(kinds)
        return _Part({"oneOf" if told_apart else "anyOf": documents}, _or_null(plain))

    def _one(self, members: Sequence[Any], parts: Sequence[_Part], value: Any) -> Any:
        at, value = self.avro.member_of(members, value)
        return parts[at].plain(value)

    def _array(self, node: Mapping[str, Any]) -> _Part:
        items = self.part(node["items"])
        member = self.avro.resolved(node["items"])
        is_map = isinstance(member, Mapping) and member.get("name") == MAP_ENTRY
        kept = {"type": "array", "items": items.document} | ({"connect.type": "map"} if is_map else {})
        return _Part(kept, lambda values: [items.plain(value) for value in values])

    def _map(self, node: Mapping[str, Any]) -> _Part:
        values = self.part(node["values"])
        document = {"type": "object", "connect.type": "map", "additionalProperties": values.document}
        return _Part(document, lambda found: {key: values.plain(value) for key, value in found.items()})

    def _record(self, node: Mapping[str, Any]) -> _Part:
        name = node["name"]
        if name in self._open:
            self._recursive.add(name)
            return _Part(_reference(name), _later(self._open[name]))
        made = self._open[name] = []
        made.append(self._struct(node))
        del self._open[name]
        if name not in self._recursive:
            return made[0]
        self.definitions[name] = made[0].document
        return _Part(_reference(name), made[0].plain)

    def _struct(self, node: Mapping[str, Any]) -> _Part:
        fields = [(field, self.part(field["type"])) for field in node["fields"]]
        properties = {f["name"]: self._property(at, f, part) for at, (f, part) in enumerate(fields)}
        required = [f["name"] for f, part in fields if not _may_be_null(part.document)]
        document = {"type": "object", "title": node["name"], **_described(node), "properties": properties}
        plains = [(f["name"], part.plain) for f, part in fields]
        return _Part(
            document | ({"required": required} if required else {}),
            lambda value: {name: plain(value[name]) for name, plain in plains},
        )

    def _property(self, at: int, field: Mapping[str, Any], part: _Part) -> dict[str, Any]:
        """A null would be read as the default, so what may be null has none."""
        made = {**part.document, **_described(field), "connect.index": at}
        if "default" not in field or _may_be_null(part.document):
            return made
        default = part.plain(self.avro.physical_default(field["type"], field["default"]))
        return {**made, "default": json.loads(_json.encode(default))}


def _later(made: Sequence[_Part]) -> Plain:
    """What a record does that is still being compiled."""

    def plain(value: Any) -> Any:
        return made[0].plain(value)

    return plain


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def _described(node: Mapping[str, Any]) -> dict[str, str]:
    return {"description": node["doc"]} if node.get("doc") else {}


def _may_be_null(document: Mapping[str, Any]) -> bool:
    return document == NULL or NULL in document.get("oneOf", document.get("anyOf", ()))


def _json_kind(kind: str) -> str:
    """What JSON Schema cannot tell apart by itself; what is referred to is an object."""
    return {"integer": "number"}.get(kind, "object" if kind and kind.startswith("#") else kind)


def _enum(node: Mapping[str, Any]) -> _Part:
    symbols = frozenset(node["symbols"])

    def plain(value: str) -> str:
        if value not in symbols:
            raise ValueError(f"{value!r} is no symbol of {node['name']}")
        return value

    return _Part({"type": "string", "title": node["name"], "enum": list(node["symbols"])}, plain)


def _scalar(node: Mapping[str, Any]) -> _Part:
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal":
        return _decimal(node)
    document: dict[str, Any] = dict(SIMPLE[kind])
    if logical in LOGICAL:
        document = {**document, "title": DATA + LOGICAL[logical], "connect.version": 1}
    return _Part(document, _PLAIN[kind])


def _decimal(node: Mapping[str, Any]) -> _Part:
    scale, precision = node.get("scale", 0), node.get("precision", DEFAULT_PRECISION)
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
    return _Part(document, lambda value: decimal_of(value, scale))


def _or_null(plain: Plain) -> Plain:
    return lambda value: None if value is None else plain(value)


def _of(*kinds: type) -> Plain:
    def plain(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.100} is not of {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    return plain


def _double(value: Any) -> float:
    if not isfinite(value):
        raise ValueError(f"{value} is no number that JSON has")
    return float(value)


def _float(value: Any) -> float:
    # The shortest number that is the same float: 0.1, not 0.10000000149011612.
    return float(str(np.float32(_double(value))))


_PLAIN: Mapping[str, Plain] = {
    "boolean": _of(bool),
    "int": _of(int),
    "long": _of(int),
    "float": _float,
    "double": _double,
    "bytes": _of(bytes),
    "fixed": _of(bytes),
    "string": _of(str),
    "null": _of(type(None)),
}
