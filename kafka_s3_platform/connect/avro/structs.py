"""Avro schemas as Connect's transforms see them: structs with fields, optional or required, some with a default.

In memory, named types are referred to by their full names, so fields can be moved freely. `EditableSchema.write_schema`
writes each definition at the first use of its name. Source of the mapping from Connect: Confluent's AvroData.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_s3_platform.connect.avro.connect_schema import DEFAULT_NAME, NAMESPACE
from kafka_s3_platform.connect.avro.schema import (
    NAMED,
    decode_default,
    is_record,
    qualify_name,
    read_full_name,
    read_namespace,
)
from kafka_s3_platform.core.model.connect import DataError, Schema

NAMELESS = f"{NAMESPACE}.{DEFAULT_NAME}"
"""The name that AvroData gives to a record without a name in Connect."""

DATE: Mapping[str, Any] = {"type": "int", "logicalType": "date"}
TIME: Mapping[str, Any] = {"type": "int", "logicalType": "time-millis"}
TIMESTAMP: Mapping[str, Any] = {"type": "long", "logicalType": "timestamp-millis"}

_TYPE_KEYS = ("items", "values", "type")
"""The attributes that hold inner schemas, except for the fields of a record."""

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


@dataclass(frozen=True)
class Field:
    """A field of a record. `node` is its type, `default` its decoded default (see `model.connect`) or None."""

    name: str
    node: Any
    default: Any
    optional: bool


@dataclass(frozen=True)
class EditableSchema:
    """A schema in parts: `root` is a node, `names` maps full names, as nodes use them, to definitions.

    If the schema is changed, `subject` and `version` stay, as with Connect's `SchemaUtil.copySchemaBasics`, so
    `schema.compatibility` can still order changed schemas. `origin` is the schema before any change.
    """

    root: Any
    names: Mapping[str, Mapping[str, Any]]
    subject: str | None = None
    version: int | None = None
    origin: Schema | None = None

    @staticmethod
    def of(schema: Schema) -> "EditableSchema":
        """Split a schema into its root and its named types."""
        names: dict[str, Mapping[str, Any]] = {}
        return EditableSchema(
            _replace_definitions(schema.avro, "", names), names, schema.subject, schema.version, schema
        )

    def write_schema(self) -> Schema:
        """Write the schema as text."""
        text = json.dumps(_SchemaWriter(self.names).write_node(self.root, ""), separators=(",", ":"))
        return Schema(text, None, self.subject, self.version)

    def split_optional(self, node: Any) -> tuple[Any, bool]:
        """Return a union's only type besides null, and True if null is in it. Return any other node, and False."""
        if isinstance(node, list):
            others = [branch for branch in node if branch != "null"]
            if len(others) == 1:
                return others[0], len(node) == 2
        return node, False

    def find_type(self, node: Any) -> str:
        """Return Connect's name of a node's type, as in Cast's `spec`, or struct, bytes, array, map, union or null."""
        inner, _ = self.split_optional(node)
        if isinstance(inner, list):
            return "union"
        definition = self.find_definition(inner)
        if definition.get("connect.type") in {"int8", "int16"}:
            return str(definition["connect.type"])
        return _TYPES.get(str(definition["type"]), str(definition["type"]))

    def find_logical_type(self, node: Any) -> str | None:
        """Return Date, Time, Timestamp, Decimal or None. AvroData treats other logical types as plain numbers."""
        return _LOGICAL.get(self.read_logical_type(node))

    def read_logical_type(self, node: Any) -> str:
        """Return a node's logical type by its name in Avro, or an empty text if it has none, or is one of several."""
        inner, _ = self.split_optional(node)
        return "" if isinstance(inner, list) else str(self.find_definition(inner).get("logicalType", ""))

    def find_definition(self, node: Any) -> Mapping[str, Any]:
        """Return the definition of a node: the named type for a reference, {"type": "string"} for `string`."""
        if isinstance(node, str):
            return self.names.get(node, {"type": node})
        if isinstance(node["type"], dict):
            return {**self.find_definition(node["type"]), **{k: v for k, v in node.items() if k != "type"}}
        return node  # type: ignore[no-any-return]

    def list_fields(self, node: Any, purpose: str) -> list[Field]:
        """Return the fields of a record. Raise DataError if the node is not a record."""
        if self.find_type(node) != "struct":
            raise DataError(f"Only Struct objects supported for [{purpose}], found: {self.find_type(node)}")
        return [self._read_field(field) for field in self.find_definition(self.split_optional(node)[0])["fields"]]

    def list_declarations(self, purpose: str) -> list[dict[str, Any]]:
        """Return the fields of the root as Avro declares them."""
        self.list_fields(self.root, purpose)
        return list(self.find_definition(self.split_optional(self.root)[0])["fields"])

    def replace_fields(self, fields: Iterable[Mapping[str, Any]]) -> "EditableSchema":
        """Return the schema with other root fields. Raise DataError if two share a name, or one contains the root."""
        name = self.split_optional(self.root)[0]
        return self.replace_record(name, {**self.names[name], "fields": list(fields)})

    def replace_record(self, name: str, definition: Mapping[str, Any]) -> "EditableSchema":
        """Return the schema with another definition of the root's named type, which may get another name."""
        fields = definition.get("fields", [])
        refuse_repeated([field["name"] for field in fields])
        old_name, optional = self.split_optional(self.root)
        names = {other: node for other, node in self.names.items() if other != old_name}
        if name in names:
            raise DataError(f"the schema already has a type named {name}")
        if old_name in set(_find_references(fields, names, set())):
            raise DataError(f"{old_name} holds itself: a recursive schema cannot be changed")
        root = [name if branch == old_name else branch for branch in self.root] if optional else name
        return replace(self, root=root, names={**names, name: definition})

    def make_nameless_record(self, fields: Iterable[Mapping[str, Any]]) -> "EditableSchema":
        """Return a new record with some fields of this schema, and with AvroData's name for records without a name."""
        field_list = list(fields)
        refuse_repeated([field["name"] for field in field_list])
        used_names = set(_find_references(field_list, self.names, set()))
        names = (NAMELESS if count == 1 else f"{NAMELESS}{count}" for count in range(1, len(used_names) + 2))
        name = next(free for free in names if free not in used_names)
        return EditableSchema(name, {**self.names, name: {"type": "record", "name": name, "fields": field_list}})

    def _read_field(self, field: Mapping[str, Any]) -> Field:
        """Return a field of a record, from its declaration in Avro's JSON."""
        inner, optional = self.split_optional(field["type"])
        default = field.get("default")
        return Field(field["name"], field["type"], self.decode_default_of(default, inner), optional)

    def decode_default_of(self, default: Any, node: Any) -> Any:
        """Decode a default from JSON to its physical form."""
        return decode_default(
            default, node, lambda part: part if isinstance(part, list) else self.find_definition(part)
        )


def make_optional(node: Any, default: Any = None) -> list[Any]:
    """Return a union with null. The branch of the default comes first, as Avro requires."""
    return ["null", node] if default is None else [node, "null"]


def declare_field(name: str, node: Any, *, optional: bool) -> dict[str, Any]:
    """Return the declaration of a field. The default of an optional field is null."""
    if optional:
        return {"name": name, "type": make_optional(node), "default": None}
    return {"name": name, "type": node}


def refuse_repeated(field_names: Sequence[str]) -> None:
    """Raise DataError if two fields of a record have the same name."""
    if len(set(field_names)) < len(field_names):
        twice = next(name for name, count in Counter(field_names).items() if count > 1)
        raise DataError(f"Cannot create field because of field name duplication {twice}")


def _replace_definitions(node: Any, namespace: str, names: dict[str, Mapping[str, Any]]) -> Any:
    """Move each named type of the node to `names`, and put its full name in its place."""
    if isinstance(node, list):
        return [_replace_definitions(branch, namespace, names) for branch in node]
    if isinstance(node, str):
        full = qualify_name(node, namespace)
        return full if full in names else node
    if node.get("type") in NAMED:
        return _define_type(node, namespace, names)
    return {k: _replace_definitions(v, namespace, names) if k in _TYPE_KEYS else v for k, v in node.items()}


def _define_type(node: Mapping[str, Any], namespace: str, names: dict[str, Mapping[str, Any]]) -> str:
    """Move a named type and the types inside it to `names`. Return its full name."""
    full = read_full_name(node, namespace)
    inner_namespace = read_namespace(full)
    definition = {key: full if key == "name" else value for key, value in node.items() if key != "namespace"}
    # Stored before its fields, because they may name the type itself.
    names[full] = definition
    if is_record(node):
        fields = [{**f, "type": _replace_definitions(f["type"], inner_namespace, names)} for f in node["fields"]]
        names[full] = {**definition, "fields": fields}
    return full


def _find_references(node: Any, names: Mapping[str, Any], visited: set[str]) -> Iterator[str]:
    """Yield the names that a node or a list of fields refers to, directly or through other types."""
    if isinstance(node, list):
        for item in node:
            yield from _find_references(item, names, visited)
    elif isinstance(node, dict):
        for key in ("type", "items", "values", "fields"):
            if key in node:
                yield from _find_references(node[key], names, visited)
    elif node not in visited:
        visited.add(node)
        yield node
        if node in names:
            yield from _find_references(names[node].get("fields", []), names, visited)


class _SchemaWriter:
    """Writes nodes as a schema, with each definition at the first use of its name."""

    def __init__(self, names: Mapping[str, Mapping[str, Any]]) -> None:
        self._names = names
        self._written: set[str] = set()

    def write_node(self, node: Any, namespace: str) -> Any:
        """Return a type as Avro's JSON. A named type is written in full at its first use, and later by its name."""
        if isinstance(node, list):
            return [self.write_node(branch, namespace) for branch in node]
        if isinstance(node, dict):
            return {k: self.write_node(v, namespace) if k in _TYPE_KEYS else v for k, v in node.items()}
        if node not in self._names or node in self._written:
            return node
        self._written.add(node)
        return self._definition(self._names[node], namespace)

    def _definition(self, definition: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Write a definition with separate name and namespace. The namespace is left out if it does not change."""
        declared, _, name = definition["name"].rpartition(".")
        namespace_entry = {"namespace": declared} if declared != namespace else {}
        definition_json = {"type": definition["type"], "name": name, **namespace_entry}
        definition_json |= {key: value for key, value in definition.items() if key not in definition_json}
        if is_record(definition):
            definition_json["fields"] = [
                {**f, "type": self.write_node(f["type"], declared)} for f in definition["fields"]
            ]
        return definition_json
