"""JSON with a JSON Schema in the Registry.

Types follow Confluent's JsonSchemaData: `connect.type`, `connect.index`, `title` as the name, one of something and null
as optional. Beyond it: what is not in `required` is optional, an object that names no properties is a map, one of
several types is a union of Avro, and what may be anything is a string of JSON.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec
from referencing import Registry as Resources
from referencing import Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7

from kafka_s3_platform.converters.base import BadRecordError, walkable
from kafka_s3_platform.converters.connect_json import Readers
from kafka_s3_platform.converters.connect_schema import AVRO_TYPES, ConnectType, Slot, avro_text
from kafka_s3_platform.converters.framed import FramedConverter
from kafka_s3_platform.converters.registry import Registry, RegistrySchema
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import MAX_SCHEMA_PLACES

MAX_REFERENCES = 100
"""Of $refs in a row: one may refer to nothing but itself."""

ROOT = "urn:kafka-s3-platform:root"
SIMPLE = {"integer": "int64", "number": "double", "boolean": "boolean", "string": "string"}
_exactly = msgspec.json.Decoder(float_hook=Decimal)


@dataclass(frozen=True)
class _JsonSchema:
    schema: Schema
    read: Callable[[Any, int], Any]


class JsonSchemaConverter(FramedConverter):
    """Confluent's JsonSchemaConverter."""

    executing_class = "io.confluent.connect.json.JsonSchemaConverter"

    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any]:
        made = registry.made(schema_id, self._origin.subject, _json_schema)
        try:
            return made.schema, made.read(_exactly.decode(body), len(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
            raise BadRecordError(f"is no JSON behind its schema's id: {err}") from err


def _json_schema(registered: RegistrySchema) -> _JsonSchema:
    name = f"has schema {registered.schema_id}"
    if registered.type != "JSON":
        raise BadRecordError(f"{name}, which is not JSON Schema but {registered.type}")
    try:
        slot = connect_slot(registered.text, registered.references)
        text = walkable(avro_text(slot))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, Unresolvable) as err:
        raise BadRecordError(f"{name}, which cannot be used: {type(err).__name__}: {err}") from err
    except BadRecordError as err:
        raise BadRecordError(f"{name}, which cannot be used: {err}") from err
    return _JsonSchema(
        Schema(text, registered.schema_id, registered.subject, registered.version), Readers().record(slot)
    )


def connect_slot(text: str, references: Mapping[str, str]) -> Slot:
    """The Connect schema of a JSON Schema; `references` are others by the name that it has for them."""
    root = json.loads(text)
    resource = Resource.from_contents(root, DRAFT7)
    resources = [(name, Resource.from_contents(json.loads(other), DRAFT7)) for name, other in references.items()]
    known: Any = Resources(retrieve=_refuse).with_resources(  # type: ignore[call-arg] # attrs: unseen by mypy
        [*resources, (ROOT, resource)]
    )
    return _Types().slot(root, known.resolver(resource.id() or ROOT))


def _refuse(uri: str) -> Resource[Any]:
    """Schemas come from the Registry alone, never from an address that a schema names."""
    raise NoSuchResource(uri)


class _Types:
    """Makes Connect types of JSON Schemas. What a schema refers to again is the same type again."""

    def __init__(self) -> None:
        self._structs: dict[int, ConnectType] = {}
        self._made = 0

    def slot(self, schema: Any, resolver: Any, name: str = "", is_optional: bool = False) -> Slot:
        """What stands in a place that has this schema."""
        self._made += 1
        if self._made > MAX_SCHEMA_PLACES:
            raise BadRecordError(f"it comes to more than {MAX_SCHEMA_PLACES:,} places where types stand")
        if isinstance(schema, Mapping) and "$ref" in schema:
            return self.slot(*_resolved(schema, resolver), name, is_optional)
        if not isinstance(schema, Mapping):
            return Slot(_anything(), optional=True, name=name)
        resolver = resolver.in_subresource(Resource.from_contents(schema, DRAFT7)) if "$id" in schema else resolver
        kind, has_null = self._type(schema, resolver)
        slot = Slot(kind, is_optional or has_null, name, doc=schema.get("description"))
        if schema.get("default") is None:
            return slot
        return replace(slot, default=Readers().slot(slot, f"the default of {name}")(schema["default"]))

    def _type(self, schema: Mapping[str, Any], resolver: Any) -> tuple[ConnectType, bool]:
        """The type, and whether null is one of its values."""
        if "allOf" in schema and "properties" not in schema:
            return self._all_of(schema, resolver)
        if branches := schema.get("oneOf") or schema.get("anyOf"):
            return self._one_of(branches, resolver)
        types = schema.get("type")
        if isinstance(types, Sequence) and not isinstance(types, str):
            return self._one_of([{**schema, "type": each} for each in types], resolver)
        simple = self._simple(schema, resolver)
        return simple, simple.kind == "json"

    def _one_of(self, branches: Sequence[Any], resolver: Any) -> tuple[ConnectType, bool]:
        slots = [self.slot(branch, resolver) for branch in branches if not _is_null(branch)]
        has_null = len(slots) < len(branches) or any(slot.optional for slot in slots)
        if len(slots) == 1:
            return slots[0].type, has_null
        return ConnectType("union", branches=slots), has_null

    def _all_of(self, schema: Mapping[str, Any], resolver: Any) -> tuple[ConnectType, bool]:
        """Objects put together; else the part that says the type."""
        parts = [(schema, resolver), *(_resolved(part, resolver) for part in schema["allOf"])]
        merged = [(part, r) for part, r in parts if isinstance(part, Mapping)]
        if any("properties" in part for part, _ in merged):
            return self._struct(schema, [(part, r) for part, r in merged if "properties" in part]), False
        for part, around in merged[1:]:
            if part.keys() & {"type", "oneOf", "anyOf", "allOf", "enum", "const"}:
                return self._type(part, around)
        return _anything(), True

    def _simple(self, schema: Mapping[str, Any], resolver: Any) -> ConnectType:
        kind, connect_type = schema.get("type"), schema.get("connect.type")
        if kind == "array":
            return self._array(schema, resolver)
        if kind == "object" or "properties" in schema:
            return self._object(schema, resolver)
        if kind is None and ("enum" in schema or "const" in schema):
            return _of_values(schema.get("enum", [schema.get("const")]))
        if kind not in SIMPLE:
            return _anything()
        name, parameters = schema.get("title"), schema.get("connect.parameters") or {}
        return ConnectType(_known(connect_type or SIMPLE[kind]), name, schema.get("description"), parameters)

    def _array(self, schema: Mapping[str, Any], resolver: Any) -> ConnectType:
        items = schema.get("items", True)
        if schema.get("connect.type") == "map":
            pair = items["properties"]
            return ConnectType("map", key=self.slot(pair["key"], resolver), values=self.slot(pair["value"], resolver))
        return ConnectType("array", values=self.slot(items, resolver))

    def _object(self, schema: Mapping[str, Any], resolver: Any) -> ConnectType:
        if schema.get("connect.type") == "map" or not schema.get("properties"):
            key = Slot(ConnectType("string"))
            return ConnectType("map", key=key, values=self.slot(schema.get("additionalProperties", True), resolver))
        return self._struct(schema, [(schema, resolver)])

    def _struct(self, schema: Mapping[str, Any], parts: Sequence[tuple[Mapping[str, Any], Any]]) -> ConnectType:
        if id(schema) in self._structs:
            return self._structs[id(schema)]
        struct = self._structs[id(schema)] = ConnectType("struct", schema.get("title"), schema.get("description"))
        fields: dict[str, Slot] = {}
        for part, resolver in parts:
            required = part.get("required") or ()
            for name, inner in sorted(part["properties"].items(), key=_place(part["properties"])):
                fields[name] = self.slot(inner, resolver, name, name not in required)
        struct.fields.extend(fields.values())
        return struct


def _resolved(schema: Any, resolver: Any) -> tuple[Any, Any]:
    """What a schema refers to in the end. BadRecordError where it never ends."""
    for _ in range(MAX_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema, resolver
        found = resolver.lookup(schema["$ref"])
        schema, resolver = found.contents, found.resolver
    raise BadRecordError(f"its $ref {schema['$ref']!r} leads back to itself, or over more than {MAX_REFERENCES} others")


def _place(properties: Mapping[str, Any]) -> Callable[[tuple[str, Any]], int]:
    """The order of fields: `connect.index`, else as they are written."""
    written = {name: at for at, name in enumerate(properties)}

    def place(item: tuple[str, Any]) -> int:
        schema = item[1]
        index = schema.get("connect.index") if isinstance(schema, Mapping) else None
        return written[item[0]] if index is None else int(index)

    return place


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _anything() -> ConnectType:
    return ConnectType("json")


def _of_values(values: Sequence[Any]) -> ConnectType:
    return ConnectType("string") if all(isinstance(value, str) for value in values) else _anything()


def _known(kind: str) -> str:
    names = {"float32": "float", "float64": "double"}
    if names.get(kind, kind) not in AVRO_TYPES:
        raise BadRecordError(f"its connect.type {kind!r} is unknown")
    return names.get(kind, kind)
