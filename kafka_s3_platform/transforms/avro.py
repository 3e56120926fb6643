"""Avro schemas as Connect's transforms see them: structs with fields, optional or not, some with a default.

Inside, every named type is a reference by its full name, so that fields can move freely; `Avro.schema` writes each
definition where its name occurs first. Source of the mapping from Connect: Confluent's AvroData.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_s3_platform.model.connect import Schema

NAMELESS = "io.confluent.connect.avro.ConnectDefault"
"""What AvroData calls a record that has no name in Connect."""

DATE: Mapping[str, Any] = {"type": "int", "logicalType": "date"}
TIME: Mapping[str, Any] = {"type": "int", "logicalType": "time-millis"}
TIMESTAMP: Mapping[str, Any] = {"type": "long", "logicalType": "timestamp-millis"}

_LOGICAL = {"date": "Date", "time-millis": "Time", "timestamp-millis": "Timestamp", "decimal": "Decimal"}
_TYPES = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "fixed": "bytes",
    "enum": "string",
    "record": "struct",
    "error": "struct",
}
_NAMED = ("record", "error", "enum", "fixed")


class DataError(ValueError):
    """A record that a transform cannot work on: Connect's DataException."""


@dataclass(frozen=True)
class Field:
    """A field of a record. `default` is in physical form, None where there is none."""

    name: str
    node: Any
    default: Any
    optional: bool


@dataclass(frozen=True)
class Avro:
    """A schema taken apart: `root` is a node, `names` the definitions that nodes refer to.

    `subject` and `version` stay when the schema is changed, as with Connect's `SchemaUtil.copySchemaBasics`: they still
    order what `schema.compatibility` orders.
    """

    root: Any
    names: Mapping[str, Mapping[str, Any]]
    subject: str | None = None
    version: int | None = None

    @staticmethod
    def of(schema: Schema) -> "Avro":
        names: dict[str, Mapping[str, Any]] = {}
        return Avro(_referring(schema.avro, "", names), names, schema.subject, schema.version)

    def schema(self) -> Schema:
        """The schema as text. DataError: a record that holds itself was changed."""
        text = json.dumps(_Writer(self.names).node(self.root, ""), separators=(",", ":"))
        return Schema(text, None, self.subject, self.version)

    def inner(self, node: Any) -> tuple[Any, bool]:
        """What is inside a union with null, and whether there is one."""
        if isinstance(node, list):
            others = [branch for branch in node if branch != "null"]
            if len(others) == 1:
                return others[0], len(node) == 2
        return node, False

    def type_of(self, node: Any) -> str:
        """Connect's name of a node's type, as in Cast's `spec`, or struct, bytes, array, map, union, null."""
        inner, _ = self.inner(node)
        if isinstance(inner, list):
            return "union"
        definition = self.definition(inner)
        if definition.get("connect.type") in {"int8", "int16"}:
            return str(definition["connect.type"])
        return _TYPES.get(str(definition["type"]), str(definition["type"]))

    def logical_of(self, node: Any) -> str | None:
        """Date, Time, Timestamp or Decimal: what AvroData knows of logical types; the others are plain numbers."""
        inner, _ = self.inner(node)
        return None if isinstance(inner, list) else _LOGICAL.get(self.definition(inner).get("logicalType", ""))

    def definition(self, node: Any) -> Mapping[str, Any]:
        """The node as an object: of a reference, what it refers to; of `string`, {"type": "string"}."""
        if isinstance(node, str):
            return self.names.get(node, {"type": node})
        if isinstance(node["type"], dict):
            return {**self.definition(node["type"]), **{k: v for k, v in node.items() if k != "type"}}
        return node  # type: ignore[no-any-return]

    def fields(self, node: Any, purpose: str) -> list[Field]:
        """The fields of a record. DataError: it is none."""
        if self.type_of(node) != "struct":
            raise DataError(f"Only Struct objects supported for [{purpose}], found: {self.type_of(node)}")
        return [self._field(field) for field in self.definition(self.inner(node)[0])["fields"]]

    def raw_fields(self, purpose: str) -> list[dict[str, Any]]:
        """The fields of the root as Avro declares them."""
        self.fields(self.root, purpose)
        return list(self.definition(self.inner(self.root)[0])["fields"])

    def with_fields(self, fields: Iterable[Mapping[str, Any]]) -> "Avro":
        """The root record with other fields. DataError: two have the same name, or one holds the record itself."""
        name = self.inner(self.root)[0]
        return self.with_record(name, {**self.names[name], "fields": list(fields)})

    def with_record(self, name: str, definition: Mapping[str, Any]) -> "Avro":
        """The root's named type redefined, perhaps under another name."""
        fields = definition.get("fields", [])
        _check_fields(fields)
        old, optional = self.inner(self.root)
        names = {known: node for known, node in self.names.items() if known != old}
        if name in names:
            raise DataError(f"the schema already has a type named {name}")
        if old in set(_references(fields, names, set())):
            raise DataError(f"{old} holds itself: a recursive schema cannot be changed")
        root = [name if branch == old else branch for branch in self.root] if optional else name
        return replace(self, root=root, names={**names, name: definition})

    def nameless_record(self, fields: Iterable[Mapping[str, Any]]) -> "Avro":
        """A new record around some nodes of this schema, named as AvroData names what has no name."""
        listed = list(fields)
        _check_fields(listed)
        used = set(_references(listed, self.names, set()))
        names = (NAMELESS if count == 1 else f"{NAMELESS}{count}" for count in range(1, len(used) + 2))
        name = next(free for free in names if free not in used)
        return Avro(name, {**self.names, name: {"type": "record", "name": name, "fields": listed}})

    def _field(self, field: Mapping[str, Any]) -> Field:
        inner, optional = self.inner(field["type"])
        default = field.get("default")
        return Field(field["name"], field["type"], self.physical_default(default, inner), optional)

    def physical_default(self, default: Any, node: Any) -> Any:
        """A default as JSON has it, in physical form: bytes are written as text of code points 0 to 255."""
        inner, _ = self.inner(node)
        kind = None if isinstance(inner, list) else self.definition(inner)["type"]
        if kind in {"bytes", "fixed"} and isinstance(default, str):
            return default.encode("latin-1")
        if kind == "record" and default is not None:
            given = self.definition(inner)["fields"]
            return {
                f["name"]: self.physical_default(default.get(f["name"], f.get("default")), f["type"]) for f in given
            }
        return default


def optional_node(node: Any, default: Any = None) -> list[Any]:
    """A union with null. Avro wants the branch of the default first."""
    return ["null", node] if default is None else [node, "null"]


def new_field(name: str, node: Any, *, optional: bool) -> dict[str, Any]:
    """A field as Avro declares it: an optional one is null where it is not given."""
    return {"name": name, "type": optional_node(node), "default": None} if optional else {"name": name, "type": node}


def _check_fields(fields: Iterable[Mapping[str, Any]]) -> None:
    names: set[str] = set()
    for field in fields:
        if field["name"] in names:
            raise DataError(f"Cannot create field because of field name duplication {field['name']}")
        names.add(field["name"])


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _referring(node: Any, namespace: str, names: dict[str, Mapping[str, Any]]) -> Any:
    """The node with each named type defined in `names`, and referred to by its full name."""
    if isinstance(node, list):
        return [_referring(branch, namespace, names) for branch in node]
    if isinstance(node, str):
        full = _full_name(node, namespace)
        return full if full in names else node
    if node.get("type") in _NAMED:
        return _define(node, namespace, names)
    held = ("items", "values", "type")
    return {key: _referring(value, namespace, names) if key in held else value for key, value in node.items()}


def _define(node: Mapping[str, Any], namespace: str, names: dict[str, Mapping[str, Any]]) -> str:
    full = _full_name(node["name"], node.get("namespace", namespace))
    own = full.rpartition(".")[0]
    definition = {key: full if key == "name" else value for key, value in node.items() if key != "namespace"}
    names[full] = definition
    if "fields" in node:
        fields = [{**field, "type": _referring(field["type"], own, names)} for field in node["fields"]]
        names[full] = {**definition, "fields": fields}
    return full


def _references(node: Any, names: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """The names that a node, or a list of fields, leads to."""
    if isinstance(node, list):
        for each in node:
            yield from _references(each, names, seen)
    elif isinstance(node, dict):
        for key in ("type", "items", "values", "fields"):
            if key in node:
                yield from _references(node[key], names, seen)
    elif node not in seen:
        seen.add(node)
        yield node
        if node in names:
            yield from _references(names[node].get("fields", []), names, seen)


class _Writer:
    """Writes each definition where its name occurs first."""

    def __init__(self, names: Mapping[str, Mapping[str, Any]]) -> None:
        self._names = names
        self._written: set[str] = set()

    def node(self, node: Any, namespace: str) -> Any:
        if isinstance(node, list):
            return [self.node(branch, namespace) for branch in node]
        if isinstance(node, dict):
            held = ("items", "values", "type")
            return {key: self.node(value, namespace) if key in held else value for key, value in node.items()}
        if node not in self._names or node in self._written:
            return node
        self._written.add(node)
        return self._definition(self._names[node], namespace)

    def _definition(self, definition: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        own, _, name = definition["name"].rpartition(".")
        spelt = {"namespace": own} if own != namespace else {}
        written = {"type": definition["type"], "name": name, **spelt}
        written |= {key: value for key, value in definition.items() if key not in written}
        if "fields" in definition:
            written["fields"] = [{**f, "type": self.node(f["type"], own)} for f in definition["fields"]]
        return written
