"""Changes Avro schemas in JSON: makes them self-contained, physical, or narrow to one field.

A *physical* schema has no logical types, so its values are Avro's own. `namespace` (or `around`) is the namespace of
the type around a name. Rules of names: Apache Avro specification, "Names" and "Schema Declaration".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NAMED = frozenset({"record", "error", "enum", "fixed"})
PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_WITHOUT_PARTS = (*PRIMITIVE, "enum", "fixed")
"""The types that have no schemas inside. It is a tuple, because a type may also be a schema, which has no hash."""

_NAME = re.compile(r"[^\W\d]\w*")
"""A name, with letters of all languages, which Avro's own library accepts although the specification does not."""

_JSON_TYPES: Mapping[str, Any] = {
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "bytes": str,
    "string": str,
    "fixed": str,
    "enum": str,
    "array": list,
    "map": Mapping,
    "record": Mapping,
    "error": Mapping,
}
"""The Python types of a default in JSON, by Avro type. A boolean is left out, because to Python it is an int."""


def qualify_name(name: str, namespace: str) -> str:
    """Return the full name: `name` itself if it has a namespace, else `name` in the given one."""
    if "." in name or not namespace:
        return name
    return f"{namespace}.{name}"


def read_full_name(schema: Mapping[str, Any], namespace: str) -> str:
    """Return the full name of a named type inside a namespace."""
    declared = schema.get("namespace")
    return qualify_name(schema["name"], namespace if declared is None else declared)


def read_namespace(name: str) -> str:
    """Return the namespace of a full name."""
    return name.rpartition(".")[0]


def is_record(schema: Any) -> bool:
    """Return True if a schema defines a record. Only in a record does the attribute `fields` have a meaning."""
    return isinstance(schema, Mapping) and schema.get("type") in ("record", "error")


def collect_definitions(schema: Any, namespace: str = "") -> dict[str, Any]:
    """Return the named types of a schema by full name. Each names its namespace, so it can be moved."""
    definitions: dict[str, Any] = {}

    def visit(inner: Any, outer_namespace: str) -> None:
        if isinstance(inner, Mapping) and inner.get("type") in NAMED:
            name = read_full_name(inner, outer_namespace)
            definitions[name] = {**inner, "name": name.rpartition(".")[2], "namespace": read_namespace(name)}
            outer_namespace = read_namespace(name)
        replace_parts(inner, lambda part: visit(part, outer_namespace))

    visit(schema, namespace)
    return definitions


def find_invalid_name(schema: Any) -> str | None:
    """Return an invalid name of a type, field or symbol, or None if there is none."""
    for full_name, definition in collect_definitions(schema).items():
        fields = [field["name"] for field in definition["fields"]] if is_record(definition) else []
        names = (*full_name.split("."), *fields, *definition.get("symbols", ()))
        for name in names:
            if not _NAME.fullmatch(name):
                return str(name)
    return None


def make_self_contained(schema: Any, others: Mapping[str, Any]) -> Any:
    """Return the schema with all types it needs from `others`. Each is defined at its first use."""
    definitions = {**others, **collect_definitions(schema)}
    defined: set[str] = set()

    def visit(inner: Any, around: str) -> Any:
        if isinstance(inner, str):
            return define_at_first_use(inner, around)
        if isinstance(inner, Mapping) and inner.get("type") in NAMED:
            name = read_full_name(inner, around)
            if name in defined:
                return name
            defined.add(name)
            movable = {**inner, "name": name.rpartition(".")[2], "namespace": read_namespace(name)}
            return replace_parts(movable, lambda part: visit(part, read_namespace(name)))
        return replace_parts(inner, lambda part: visit(part, around))

    def define_at_first_use(name: str, around: str) -> Any:
        full = qualify_name(name, around)
        full = full if full in definitions else name
        if name in PRIMITIVE or full not in definitions:
            return name
        return full if full in defined else visit(definitions[full], "")

    return visit(schema, "")


def strip_logical_types(schema: Any) -> Any:
    """Return the schema without logical types and defaults, so fastavro reads and writes Avro's own types."""
    if isinstance(schema, Mapping):
        schema = {key: value for key, value in schema.items() if key != "logicalType"}
    stripped = replace_parts(schema, strip_logical_types)
    for field in stripped["fields"] if is_record(stripped) else ():
        field.pop("default", None)
    return stripped


def encode_null(schema: Any) -> bytes | None:
    """Return the data of a null, or None if a value cannot be null."""
    if schema == "null":
        return b""
    if not isinstance(schema, list) or "null" not in schema:
        return None
    place = 2 * schema.index("null")
    return bytes([place]) if place < 128 else bytes([place & 127 | 128, place >> 7])


def decode_default(default: Any, node: Any, resolve: Callable[[Any], Any]) -> Any:
    """Decode a default from JSON. `resolve` returns a node's branches if it is a union, else its definition."""
    resolved = resolve(node)
    if isinstance(resolved, list) and default is not None:
        # A default belongs to the first branch it fits. Up to Avro 1.11, it had to fit the very first branch.
        return _decode_union_default(default, [b for b in map(resolve, resolved) if b["type"] != "null"], resolve)
    # A default that does not fit its type stays as it is, because registries may hold such schemas.
    match None if default is None else resolved["type"]:
        case "array" if isinstance(default, list):
            return [decode_default(item, resolved["items"], resolve) for item in default]
        case "map" if isinstance(default, Mapping):
            return {key: decode_default(item, resolved["values"], resolve) for key, item in default.items()}
        case "record" | "error" if isinstance(default, Mapping):
            return _decode_record_default(default, resolved["fields"], resolve)
        case "bytes" | "fixed" if isinstance(default, str):
            # Bytes are written as characters with the code points 0 to 255.
            return default.encode("latin-1")
    return default


def _decode_union_default(default: Any, members: Sequence[Any], resolve: Callable[[Any], Any]) -> Any:
    """Decode the default by the first member whose type it fits. It names its branch if there are several members."""
    matching_kind = next((kind for kind in members if fits_default(default, kind)), None)
    if matching_kind is None:
        return default
    value = decode_default(default, matching_kind, resolve)
    return value if len(members) == 1 else (get_branch_name(matching_kind), value)


def get_branch_name(branch: str | Mapping[str, Any]) -> str:
    """Return the name of a branch of a union: a named type's full name, or the type itself."""
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def fits_default(default: Any, kind: Mapping[str, Any]) -> bool:
    """Return True if a schema's default in JSON may be of a type. The contents of lists and maps are not checked."""
    name = kind["type"]
    if isinstance(default, bool):
        return bool(name == "boolean")
    if not isinstance(default, _JSON_TYPES.get(name, ())):
        return False
    if name == "enum":
        return default in kind["symbols"]
    if name in ("record", "error"):
        return all(field["name"] in default or "default" in field for field in kind["fields"])
    return True


def _decode_record_default(
    default: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], resolve: Callable[[Any], Any]
) -> dict[str, Any]:
    """Decode the default of each field, from the record's default or else the field's own."""
    decoded: dict[str, Any] = {}
    for field in fields:
        field_default = default.get(field["name"], field.get("default"))
        decoded[field["name"]] = decode_default(field_default, field["type"], resolve)
    return decoded


def narrow_to_field(schema: Any, path: Sequence[str]) -> Any:
    """Return the schema with only the field at `path`, or None if no value can have this field.

    Raises LookupError if a union on the path has several types, so the field depends on the value.
    """
    definitions = collect_definitions(schema)
    narrowed = _narrow_schema(schema, path, "", definitions)
    if narrowed is None:
        return None
    return make_self_contained(narrowed, definitions)


def _narrow_schema(schema: Any, path: Sequence[str], namespace: str, definitions: Mapping[str, Any]) -> Any:
    """Narrow a type to the field at `path`. Return None if none of its values can have the field."""
    schema = definitions.get(qualify_name(schema, namespace), schema) if isinstance(schema, str) else schema
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    # A map keeps its whole values, because `path` may name any key.
    if not path or kind == "map":
        return schema
    if isinstance(schema, list):
        return _narrow_union(schema, path, namespace, definitions)
    if kind == "record":
        return _narrow_record(schema, path, read_namespace(read_full_name(schema, namespace)), definitions)
    if kind is None or isinstance(kind, str):
        return None
    return _narrow_schema(kind, path, namespace, definitions)


def _narrow_union(schema: Sequence[Any], path: Sequence[str], namespace: str, definitions: Mapping[str, Any]) -> Any:
    """Narrow the only type of a union besides null. Raises LookupError if there are several."""
    if sum(branch != "null" for branch in schema) != 1:
        raise LookupError(f"several types before {path[0]}")
    parts = [part if part == "null" else _narrow_schema(part, path, namespace, definitions) for part in schema]
    return None if None in parts else parts


def _narrow_record(
    schema: Mapping[str, Any], path: Sequence[str], namespace: str, definitions: Mapping[str, Any]
) -> Any:
    """Return the record with only the first field of the path, narrowed to the rest, or None if it lacks this field."""
    for field in schema["fields"]:
        if field["name"] == path[0]:
            kind = _narrow_schema(field["type"], path[1:], namespace, definitions)
            if kind is None:
                return None
            return {**schema, "fields": [{**field, "type": kind}]}
    return None


def replace_parts(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a schema in which `change` was applied to its inner schemas."""
    if isinstance(schema, list):
        return [change(branch) for branch in schema]
    if not isinstance(schema, Mapping) or schema["type"] in _WITHOUT_PARTS:
        return schema
    kind = schema["type"]
    if is_record(schema):
        return {**schema, "fields": [{**field, "type": change(field["type"])} for field in schema["fields"]]}
    if kind == "array":
        return {**schema, "items": change(schema["items"])}
    if kind == "map":
        return {**schema, "values": change(schema["values"])}
    return {**schema, "type": change(kind)}
