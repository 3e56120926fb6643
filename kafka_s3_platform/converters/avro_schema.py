"""Avro schemas as JSON: complete in themselves, in physical form, or with one field only.

Rules of names: Apache Avro specification, "Names" and "Schema Declaration".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NAMED = frozenset({"record", "error", "enum", "fixed"})
PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def full_name(name: str, namespace: str) -> str:
    """A name with its namespace: its own if it has one, else that around it."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def name_of(schema: Mapping[str, Any], namespace: str) -> str:
    """The full name of a named type that stands in a namespace."""
    own = schema.get("namespace")
    return full_name(schema["name"], namespace if own is None else own)


def space_of(name: str) -> str:
    """The namespace of a full name."""
    return name.rpartition(".")[0]


def definitions(schema: Any, namespace: str = "") -> dict[str, Any]:
    """The named types defined in a schema, by full name. Each says its namespace, so that it can stand anywhere."""
    found: dict[str, Any] = {}

    def visit(inner: Any, around: str) -> Any:
        if isinstance(inner, Mapping) and inner.get("type") in NAMED:
            name = name_of(inner, around)
            found[name] = {**inner, "name": name.rpartition(".")[2], "namespace": space_of(name)}
            around = space_of(name)
        for part in _parts(inner):
            visit(part, around)

    visit(schema, namespace)
    return found


def self_contained(schema: Any, others: Mapping[str, Any]) -> Any:
    """The schema with each named type of `others` that it names, or that those name, defined at its first use."""
    known = {**others, **definitions(schema)}
    done: set[str] = set()

    def visit(inner: Any, around: str) -> Any:
        if isinstance(inner, str):
            return use(inner, around)
        if isinstance(inner, Mapping) and inner.get("type") in NAMED:
            name = name_of(inner, around)
            if name in done:
                return name
            done.add(name)
            own = {**inner, "name": name.rpartition(".")[2], "namespace": space_of(name)}
            return with_parts(own, lambda part: visit(part, space_of(name)))
        return with_parts(inner, lambda part: visit(part, around))

    def use(name: str, around: str) -> Any:
        full = full_name(name, around)
        full = full if full in known else name
        if name in PRIMITIVE or full not in known:
            return name
        return full if full in done else visit(known[full], "")

    return visit(schema, "")


def physical(schema: Any) -> Any:
    """The schema without its logical types, so that a reader gives what is on the wire."""
    if isinstance(schema, Mapping):
        schema = {key: value for key, value in schema.items() if key != "logicalType"}
    return with_parts(schema, physical)


def only_field(schema: Any, path: Sequence[str]) -> Any:
    """The schema with nothing but the field at `path`, None if no value of it can have that field.

    Raises:
        LookupError: there are several types on the way, so that it depends on the value.
    """
    known = definitions(schema)
    narrowed = _narrowed(schema, path, "", known)
    return None if narrowed is None else self_contained(narrowed, known)


def _narrowed(schema: Any, path: Sequence[str], around: str, known: Mapping[str, Any]) -> Any:
    schema = known.get(full_name(schema, around), schema) if isinstance(schema, str) else schema
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    # A map keeps its values whole: any key may be asked for.
    if not path or kind == "map":
        return schema
    if isinstance(schema, list):
        return _narrowed_union(schema, path, around, known)
    if kind == "record":
        return _narrowed_record(schema, path, space_of(name_of(schema, around)), known)
    return None if kind is None or isinstance(kind, str) else _narrowed(kind, path, around, known)


def _narrowed_union(schema: Sequence[Any], path: Sequence[str], around: str, known: Mapping[str, Any]) -> Any:
    if sum(branch != "null" for branch in schema) != 1:
        raise LookupError(f"several types before {path[0]}")
    parts = [part if part == "null" else _narrowed(part, path, around, known) for part in schema]
    return None if None in parts else parts


def _narrowed_record(schema: Mapping[str, Any], path: Sequence[str], around: str, known: Mapping[str, Any]) -> Any:
    for field in schema["fields"]:
        if field["name"] == path[0]:
            kind = _narrowed(field["type"], path[1:], around, known)
            return None if kind is None else {**schema, "fields": [{**field, "type": kind}]}
    return None


def with_parts(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A copy whose inner schemas are changed."""
    if isinstance(schema, list):
        return [change(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    kind = schema["type"]
    if kind in ("record", "error"):
        return {**schema, "fields": [{**field, "type": change(field["type"])} for field in schema["fields"]]}
    if kind == "array":
        return {**schema, "items": change(schema["items"])}
    if kind == "map":
        return {**schema, "values": change(schema["values"])}
    return (
        schema if isinstance(kind, str) and (kind in NAMED or kind in PRIMITIVE) else {**schema, "type": change(kind)}
    )


def _parts(schema: Any) -> list[Any]:
    parts: list[Any] = []
    with_parts(schema, parts.append)
    return parts
