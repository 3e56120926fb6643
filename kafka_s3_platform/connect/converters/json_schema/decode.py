"""Converter of JSON with a JSON Schema in the Registry.

Types follow Confluent's JsonSchemaData, which reads `connect.type` and `connect.index`, names from `title`, and
optional types from `oneOf` with null. An object of several parts (`allOf`, `oneOf`, `anyOf`) has the fields of all of
them. In addition, a field is optional if it is not in `required`, an object without properties is a map, several types
become an Avro union, and a value of any type becomes its JSON text.
"""

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
from referencing import Registry as Resources
from referencing import Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from kafka_s3_platform.connect.avro.connect_schema import (
    AVRO_TYPES,
    DECIMAL,
    LOGICAL,
    OTHER_PROPERTIES,
    ConnectType,
    Slot,
    write_avro_schema,
)
from kafka_s3_platform.connect.avro.json_values import BYTE_ORDER_MARK, decode_exact_json
from kafka_s3_platform.connect.config.keys.converters import PRESERVE_OTHERS
from kafka_s3_platform.connect.converters.base import BadRecordError, check_walkable
from kafka_s3_platform.connect.converters.connect_json import ADDED, Readers
from kafka_s3_platform.connect.converters.framed import FramedConverter
from kafka_s3_platform.connect.converters.registry import Registry, RegistrySchema
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.model.connect import MISSING, Schema
from kafka_s3_platform.core.model.limits import MAX_SCHEMA_PLACES
from kafka_s3_platform.core.model.notes import Notes

MAX_REFERENCES = 100
"""The longest chain of $refs. It must have a limit, because a schema may consist of a reference to itself."""

ROOT = "urn:kafka-s3-platform:root"
_DRAFTS = {
    "json-schema.org/draft-04/schema": DRAFT4,
    "json-schema.org/draft-06/schema": DRAFT6,
    "json-schema.org/draft-07/schema": DRAFT7,
    "json-schema.org/draft/2019-09/schema": DRAFT201909,
    "json-schema.org/draft/2020-12/schema": DRAFT202012,
}
"""The supported drafts of JSON Schema, by their $schema without its scheme."""
_BESIDE_REF = frozenset(
    {"$ref", "$schema", "$id", "$anchor", "$defs", "definitions", "$comment", "title", "description", "examples"}
    | {"deprecated", "readOnly", "writeOnly", "connect.index"}
)
"""Keywords that do not affect values. Since draft 2019-09, all other keywords beside a $ref do."""
SIMPLE = {"integer": "int64", "number": "double", "boolean": "boolean", "string": "string"}


@dataclass(frozen=True)
class _JsonSchema:
    """A compiled schema: its Avro schema, and a reader of values (`read`). `readers` notes missing fields."""

    schema: Schema
    readers: Readers
    read: Callable[[Any, int], Any]


class JsonSchemaConverter(FramedConverter):
    """Confluent's JsonSchemaConverter."""

    executing_class = "io.confluent.connect.json.JsonSchemaConverter"

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings, options: Mapping[str, str]) -> None:
        super().__init__(topic, is_key, registry)
        keeps_others = options.get(PRESERVE_OTHERS, "false") == "true"
        self._compile = _compile_with_others if keeps_others else _compile_json_schema

    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any, Notes | None]:
        """Decode the JSON after the id with its schema. Note properties that only the JSON or only the schema has."""
        compiled = registry.compile_once(schema_id, self._origin.subject, self._compile)
        try:
            text = body.removeprefix(BYTE_ORDER_MARK)
            value = compiled.read(decode_exact_json(text), len(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
            raise BadRecordError(f"is no JSON behind its schema's id: {err}") from err
        if compiled.readers.left_out is None and compiled.readers.added is None:
            return compiled.schema, value, None
        side = "key" if self._origin.is_key else "value"
        notes = Notes()
        if compiled.readers.left_out is not None:
            notes.note(
                f"lack properties in their {side} that schema {schema_id} does not list;"
                f" {side}.converter.{PRESERVE_OTHERS}=true keeps them",
                compiled.readers.left_out,
            )
        if compiled.readers.added is not None:
            sentence = f"lack a property in their {side} that schema {schema_id} lists: {ADDED}"
            notes.note(sentence, compiled.readers.added)
        return compiled.schema, value, notes


def _compile_json_schema(registered: RegistrySchema, *, keeps_others: bool = False) -> _JsonSchema:
    """Compile a registered schema to Avro and to a reader. Raise BadRecordError if it cannot be used."""
    name = f"has schema {registered.schema_id}"
    if registered.type != "JSON":
        raise BadRecordError(f"{name}, which is not JSON Schema but {registered.type}")
    try:
        slot = read_json_schema(registered.text, registered.references, keeps_others=keeps_others)
        text = check_walkable(write_avro_schema(slot))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, Unresolvable) as err:
        raise BadRecordError(f"{name}, which cannot be used: {type(err).__name__}: {err}") from err
    except BadRecordError as err:
        raise BadRecordError(f"{name}, which cannot be used: {err}") from err
    readers = Readers()
    schema = Schema(text, registered.schema_id, registered.subject, registered.version)
    return _JsonSchema(schema, readers, readers.compile_record(slot))


_compile_with_others = partial(_compile_json_schema, keeps_others=True)
"""A single object for all converters, because `Registry.compile_once` caches its results by it."""


def read_json_schema(text: str, references: Mapping[str, str], *, keeps_others: bool = False) -> Slot:
    """Return the Connect schema of a JSON Schema. `references` maps the names in it to other schemas.

    If `keeps_others`, objects get a field for allowed but unlisted properties.
    """
    root = json.loads(text, parse_float=Decimal)
    resource = _make_resource(root)
    base = resource.id() or ROOT
    resources = [(ROOT, resource)]
    for name, referenced_text in references.items():
        referenced = _make_resource(json.loads(referenced_text, parse_float=Decimal))
        # As in Confluent's clients, a name may also be relative to the schema's $id.
        resources += [(name, referenced), (urljoin(base, name), referenced)]
    registry: Any = Resources(retrieve=_refuse_address).with_resources(  # type: ignore[call-arg] # attrs: unseen by mypy
        resources
    )
    # Every $id is found once here. Otherwise each $ref to an $id would read all schemas again. If a part is not a
    # schema, this fails, and then only a $ref to an $id does not work.
    with suppress(AttributeError, LookupError, TypeError, ValueError):
        registry = registry.crawl()
    return _Types(keeps_others, _find_draft(root, DRAFT7)).read_slot(root, registry.resolver(ROOT))


def _make_resource(contents: Any) -> Resource[Any]:
    """Make the resource of a schema in its draft, or in draft 7 if it names none, as Confluent's clients do."""
    resource: Resource[Any] = _find_draft(contents, DRAFT7).create_resource(contents)
    return resource


def _find_draft(contents: Any, default: Any) -> Any:
    """Return the draft of JSON Schema named in `$schema`, or `default` if there is no `$schema`."""
    uri = contents.get("$schema") if isinstance(contents, Mapping) else None
    if uri is None:
        return default
    parts = urlsplit(str(uri))
    if (draft := _DRAFTS.get(parts.netloc + parts.path)) is None:
        raise BadRecordError(f"its $schema {str(uri)[:100]!r} is none of the drafts 4, 6, 7, 2019-09 and 2020-12")
    return draft


def _refuse_address(uri: str) -> Resource[Any]:
    """Refuse to read a schema from an address, because schemas come only from the Registry."""
    raise NoSuchResource(uri)


@dataclass(frozen=True, eq=False)
class _Itself:
    """A JSON object as a dict key, equal only to itself. The key keeps the object, so no other gets its id."""

    schema: Mapping[str, Any]

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.schema is self.schema


@dataclass(frozen=True)
class _Part:
    """One part of a combined object schema. `is_sure` is True if every object fits it, False for an alternative."""

    schema: Mapping[str, Any]
    resolver: Any
    is_sure: bool = True


class _Types:
    """Makes Connect types from JSON Schemas. All references to the same object schema give the same type.

    A `resolver` finds the schema a `$ref` means, which depends on the place of the `$ref`.
    """

    def __init__(self, keeps_others: bool, default: Any) -> None:
        self._keeps_others = keeps_others
        self._default = default
        self._structs: dict[_Itself, ConnectType] = {}
        self._may_be_null: dict[_Itself, bool] = {}
        self._targets: dict[_Itself, tuple[Any, Any]] = {}
        self._made = 0

    def read_slot(self, schema: Any, resolver: Any, name: str = "", is_optional: bool = False) -> Slot:
        """Return the slot for the values of this schema."""
        self._count_places(1)
        schema, resolver = self._resolve(schema, resolver)
        # JSON Schema allows `true` and `false` as schemas. Both are read as a value of any type.
        if not isinstance(schema, Mapping):
            return Slot(_make_any_type(), optional=True, name=name)
        kind, has_null = self._read_type(schema, resolver)
        slot = Slot(kind, is_optional or has_null, name, doc=schema.get("description"))
        if schema.get("default") is None:
            return slot
        return replace(slot, default=Readers().compile_slot(slot, f"the default of {name}")(schema["default"]))

    def _resolve(self, schema: Any, resolver: Any, depth: int = 0) -> tuple[Any, Any]:
        """Follow references to the last schema. Return it and its resolver. Raise BadRecordError if they never end."""
        if not isinstance(schema, Mapping):
            return schema, resolver
        if "$ref" not in schema:
            inner = self._enter_schema(schema, resolver, is_found=depth > 0)
            dynamic = {DRAFT201909: "$recursiveRef", DRAFT202012: "$dynamicRef"}.get(self._find_draft_of(inner))
            if dynamic in schema:
                raise BadRecordError(f"it has a {dynamic}, which is not read: say $ref, or leave the value out")
            return schema, inner
        if depth == MAX_REFERENCES:
            raise BadRecordError(
                f"its $ref {schema['$ref']!r} leads back to itself, or over more than {MAX_REFERENCES} others"
            )
        itself = _Itself(schema)
        if itself not in self._targets:
            self._targets[itself] = self._follow(schema, resolver, depth)
        return self._targets[itself]

    def _follow(self, schema: Mapping[str, Any], resolver: Any, depth: int) -> tuple[Any, Any]:
        """Follow one `$ref`. In drafts 2019-09 and 2020-12, the keywords beside it count too."""
        inner = self._enter_schema(schema, resolver, is_found=depth > 0)
        if not schema.keys() <= _BESIDE_REF and self._find_draft_of(inner) in (DRAFT201909, DRAFT202012):
            siblings = {name: keyword for name, keyword in schema.items() if name != "$ref"}
            return {**siblings, "allOf": [{"$ref": schema["$ref"]}, *schema.get("allOf", ())]}, inner
        target = inner.lookup(schema["$ref"])
        return self._resolve(target.contents, target.resolver, depth + 1)

    def _find_draft_of(self, resolver: Any) -> Any:
        """Find the draft of the resolver's schema."""
        try:
            return _find_draft(resolver.lookup("#").contents, self._default)
        except Unresolvable:
            return self._default

    def _enter_schema(self, schema: Mapping[str, Any], resolver: Any, *, is_found: bool) -> Any:
        """Return the resolver of a schema's references. They are relative to its $id.

        If `is_found`, a reference led to the schema, so the resolver already knows its address.
        """
        resource = self._find_draft_of(resolver).create_resource(schema)
        schema_id = resource.id()
        # If a reference led to the schema, its relative $id is already part of the address.
        if schema_id is None or (is_found and not urlsplit(schema_id).scheme):
            return resolver
        return resolver.in_subresource(resource)

    def _count_places(self, count: int) -> None:
        """Count further places where types stand. Raise BadRecordError if the schema has too many of them."""
        self._made += count
        if self._made > MAX_SCHEMA_PLACES:
            raise BadRecordError(f"it comes to more than {MAX_SCHEMA_PLACES:,} places where types stand")

    def _read_type(self, schema: Mapping[str, Any], resolver: Any) -> tuple[ConnectType, bool]:
        """Return the Connect type of the values of a JSON Schema, and True if null is one of them."""
        branches = schema.get("oneOf") or schema.get("anyOf")
        if "allOf" in schema or (branches and schema.get("properties")):
            combined = self._combine_parts(schema, resolver)
            if combined is not None:
                return combined
        if branches:
            return self._read_one_of(branches, resolver)
        types = schema.get("type")
        if isinstance(types, Sequence) and not isinstance(types, str):
            return self._read_several_types(schema, types, resolver)
        simple = self._read_simple_type(schema, types, resolver)
        return simple, simple.kind == "json"

    def _read_several_types(
        self, schema: Mapping[str, Any], types: Sequence[Any], resolver: Any
    ) -> tuple[ConnectType, bool]:
        """Return the type of a schema that names several types, and True if null is one of its values."""
        self._count_places(len(types))
        kinds = [self._read_simple_type(schema, name, resolver) for name in types if name != "null"]
        has_null = len(kinds) < len(types) or any(kind.kind == "json" for kind in kinds)
        return _join_types([Slot(kind) for kind in kinds]), has_null

    def _read_one_of(self, branches: Sequence[Any], resolver: Any) -> tuple[ConnectType, bool]:
        """Return a type for the values of all branches, and True if one of the branches allows null."""
        slots = [self.read_slot(branch, resolver) for branch in branches if not _is_null_schema(branch)]
        has_null = len(slots) < len(branches) or any(slot.optional for slot in slots)
        return _join_types(slots), has_null

    def _combine_parts(self, schema: Mapping[str, Any], resolver: Any) -> tuple[ConnectType, bool] | None:
        """Return the type of a schema made of several parts, and True if it may be null.

        The type is a struct with the fields of all parts, if a sure part (one that every value fits) has fields.
        Otherwise it is the type of the first other sure part with a type. Returns None if no part has one.
        """
        itself = _Itself(schema)
        if itself in self._structs:
            return self._structs[itself], self._may_be_null[itself]
        parts = [*self._list_parts(schema, resolver, {})]
        sure_parts = [part for part in parts if part.is_sure]
        if any(part.schema.get("properties") for part in sure_parts):
            self._may_be_null[itself] = _may_be_null(parts)
            return self._read_struct(schema, parts), self._may_be_null[itself]
        for part in sure_parts[1:]:
            if part.schema.keys() & {"type", "oneOf", "anyOf", "allOf", "enum", "const"}:
                return self._read_type(part.schema, part.resolver)
        return None

    def _list_parts(
        self, schema: Any, resolver: Any, visited: dict[_Itself, None], is_sure: bool = True
    ) -> Iterator[_Part]:
        """Yield the schema and the parts it combines, each once. An alternative may contain the schema again."""
        self._count_places(1)
        if not isinstance(schema, Mapping):
            return
        itself = _Itself(schema)
        if itself in visited:
            if is_sure and itself == next(iter(visited)):
                raise BadRecordError("its allOf leads back to itself")
            return
        visited[itself] = None
        yield _Part(schema, resolver, is_sure)
        for name in ("allOf", "oneOf", "anyOf"):
            for inner in schema.get(name) or ():
                yield from self._list_parts(*self._resolve(inner, resolver), visited, is_sure and name == "allOf")

    def _read_simple_type(self, schema: Mapping[str, Any], kind: Any, resolver: Any) -> ConnectType:
        """Return the Connect type of a JSON Schema's values of the type `kind` (None if the schema names no type)."""
        connect_type = schema.get("connect.type")
        if kind == "array":
            return self._read_array(schema, resolver)
        if kind == "object" or (kind is None and "properties" in schema):
            return self._read_object(schema, resolver)
        if kind is None and ("enum" in schema or "const" in schema):
            is_text = all(isinstance(value, str) for value in schema.get("enum", [schema.get("const")]))
            return ConnectType("string") if is_text else _make_any_type()
        if kind not in SIMPLE:
            return _make_any_type()
        name = schema.get("title")
        parameters = schema.get("connect.parameters") or {}
        return ConnectType(
            _check_connect_type(connect_type or SIMPLE[kind]), name, schema.get("description"), parameters
        )

    def _read_array(self, schema: Mapping[str, Any], resolver: Any) -> ConnectType:
        """Return the Connect type of a JSON array: a map if its items are entries according to `connect.type`."""
        # With `prefixItems`, the first items have types of their own, so items are read as any type.
        items: Any = True if "prefixItems" in schema else schema.get("items", True)
        if schema.get("connect.type") == "map":
            pair = items["properties"]
            return ConnectType(
                "map", key=self.read_slot(pair["key"], resolver), values=self.read_slot(pair["value"], resolver)
            )
        return ConnectType("array", values=self.read_slot(items, resolver))

    def _read_object(self, schema: Mapping[str, Any], resolver: Any) -> ConnectType:
        """Return the Connect type of a JSON object: a struct if its schema lists properties, else a map."""
        if schema.get("connect.type") == "map" or not schema.get("properties"):
            key = Slot(ConnectType("string"))
            values = self.read_slot(schema.get("additionalProperties", True), resolver)
            return ConnectType("map", key=key, values=values, is_closed=_is_closed(schema))
        return self._read_struct(schema, [_Part(schema, resolver)])

    def _read_struct(self, schema: Mapping[str, Any], parts: Sequence[_Part]) -> ConnectType:
        """Return the struct for an object of these parts, with the fields of all of them."""
        itself = _Itself(schema)
        if itself in self._structs:
            return self._structs[itself]
        struct = self._structs[itself] = ConnectType("struct", schema.get("title"), schema.get("description"))
        fields: dict[str, Slot] = {}
        others: dict[str, list[Slot]] = {}
        for part, slot in self._list_fields(parts):
            if not part.is_sure:
                # A default would be added to objects that fit other alternatives.
                others.setdefault(slot.name, []).append(replace(slot, optional=True, default=MISSING))
            elif (earlier_slot := fields.get(slot.name)) is None:
                fields[slot.name] = slot
            else:
                stricter = earlier_slot if slot.type.kind == "json" else slot
                fields[slot.name] = replace(stricter, optional=earlier_slot.optional and slot.optional)
        for name, slots in others.items():
            fields.setdefault(name, replace(slots[0], type=_join_types(slots)))
        struct.fields.extend(fields.values())
        struct.is_closed = any(part.is_sure and _is_closed(part.schema) for part in parts)
        if self._keeps_others and not struct.is_closed:
            struct.fields.append(_make_others_slot(fields))
        return struct

    def _list_fields(self, parts: Sequence[_Part]) -> Iterator[tuple[_Part, Slot]]:
        """Yield the properties of each part as slots, in the order of `connect.index`."""
        for part in parts:
            properties = part.schema.get("properties") or {}
            required = part.schema.get("required") or ()
            for name, inner in sorted(properties.items(), key=_order_by_index(properties)):
                yield part, self.read_slot(inner, part.resolver, name, name not in required)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema allows only properties it lists. Patterns are not read, so they allow any property."""
    is_open = schema.get("additionalProperties") is not False and schema.get("unevaluatedProperties") is not False
    return not is_open and not schema.get("patternProperties")


def _make_others_slot(property_names: Container[str]) -> Slot:
    """Return the field of an object for properties its schema does not list. It is a map of JSON texts."""
    if OTHER_PROPERTIES in property_names:
        raise BadRecordError(f"it lists {OTHER_PROPERTIES}, which {PRESERVE_OTHERS}=true has another use for")
    values = ConnectType("map", key=Slot(ConnectType("string")), values=Slot(_make_any_type()))
    return Slot(values, optional=True, name=OTHER_PROPERTIES, default=None)


def _order_by_index(properties: Mapping[str, Any]) -> Callable[[tuple[str, Any]], int]:
    """Return a sort key for fields: their `connect.index`, or else their order in the schema."""
    order = {name: number for number, name in enumerate(properties)}

    def place(item: tuple[str, Any]) -> int:
        schema = item[1]
        index = schema.get("connect.index") if isinstance(schema, Mapping) else None
        return order[item[0]] if index is None else int(index)

    return place


def _may_be_null(parts: Sequence[_Part]) -> bool:
    """Return True if null fits an object schema of these parts."""
    types = [part.schema["type"] for part in parts if part.is_sure and "type" in part.schema]
    if not types:
        return any(_is_null_schema(part.schema) for part in parts)
    return all(not isinstance(names, str) and "null" in names for names in types)


def _is_null_schema(schema: Any) -> bool:
    """Return True if null is the only value of a schema."""
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _join_types(slots: Sequence[Slot]) -> ConnectType:
    """Return one type for the values of all slots: a union, unless their types are the same.

    Returns any type (JSON text) if two of the types would be the same branch in an Avro union.
    """
    distinct: dict[object, Slot] = {}
    for slot in slots:
        is_union = slot.type.kind == "union"
        for branch in slot.type.branches if is_union else [slot]:
            shape = _describe_shape(branch.type)
            first_slot = distinct.setdefault(shape, branch)
            if first_slot.type.name != branch.type.name and branch.type.kind in SIMPLE.values():
                distinct[shape] = replace(first_slot, type=ConnectType(branch.type.kind))
    types = [branch.type for branch in distinct.values()]
    if len(types) == 1:
        return types[0]
    names = [kind.branch_name or kind for kind in types]
    return ConnectType("union", branches=[*distinct.values()]) if len(set(names)) == len(names) else _make_any_type()


def _describe_shape(kind: ConnectType) -> object:
    """Return a key for comparing types. It is equal for types whose values are read in the same way."""
    if kind.kind == "struct":
        return kind
    parts = [(_describe_shape(slot.type), slot.optional) for slot in (kind.key, kind.values, *kind.branches) if slot]
    return kind.kind, kind.name in (DECIMAL, *LOGICAL) and (kind.name, kind.scale), kind.is_closed, *parts


def _make_any_type() -> ConnectType:
    return ConnectType("json")


def _check_connect_type(kind: str) -> str:
    """Return this platform's name for a `connect.type`. Raise BadRecordError if the type is unknown."""
    names = {"float32": "float", "float64": "double"}
    if names.get(kind, kind) not in AVRO_TYPES:
        raise BadRecordError(f"its connect.type {kind!r} is unknown")
    return names.get(kind, kind)
