"""Connect's own schemas (org.apache.kafka.connect.data), between what a converter reads and the Avro schema it gives.

The Avro schemas are those of Confluent's AvroData, without its `connect.*` properties.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_s3_platform.model.connect import MISSING

DATA = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = DATA + "Decimal", DATA + "Date", DATA + "Time", DATA + "Timestamp"
LOGICAL = {DATE: ("int", "date"), TIME: ("int", "time-millis"), TIMESTAMP: ("long", "timestamp-millis")}
PRECISION_PARAMETER = "connect.decimal.precision"
DEFAULT_PRECISION = 64
DEFAULT_NAME = "ConnectDefault"
ENTRY_NAME = "MapEntry"
NAMESPACE = "io.confluent.connect.avro"

AVRO_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "json": "string",
}
"""`json`: anything, kept as its JSON."""


@dataclass(eq=False)
class ConnectType:
    """A type: one of AVRO_TYPES, `struct`, `array`, `map`, or `union` (one of several, as JSON Schema's oneOf).

    A struct may hold itself, so its fields are filled in after it is made. Types are told apart by identity.
    """

    kind: str
    name: str | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: list["Slot"] = field(default_factory=list)
    key: "Slot | None" = None
    values: "Slot | None" = None
    """Of an array or a map."""
    branches: Sequence["Slot"] = ()

    @property
    def scale(self) -> int:
        """Digits after the point of a Decimal."""
        return int(self.parameters.get("scale", 0))


@dataclass(frozen=True)
class Slot:
    """A place where a type stands: a field, an item, a key, a value, or the whole."""

    type: ConnectType
    optional: bool = False
    name: str = ""
    default: Any = MISSING
    """In physical form."""
    doc: str | None = None


def has_text_keys(kind: ConnectType) -> bool:
    """Whether a map is one of Avro; else it becomes an array of entries."""
    return kind.key is not None and kind.key.type.kind == "string"


class AvroSchemas:
    """Makes the Avro schema of one Connect schema."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()

    def slot(self, slot: Slot) -> Any:
        """The Avro schema of what stands in a slot, with null where it is optional."""
        inner = self._type(slot.type)
        branches = inner if isinstance(inner, list) else [inner]
        if not slot.optional or "null" in branches:
            return inner
        return ["null", *branches] if slot.default in (MISSING, None) else [*branches, "null"]

    def _type(self, kind: ConnectType) -> Any:
        if kind.kind == "struct":
            return self._struct(kind)
        if kind.kind == "array" and kind.values:
            return {"type": "array", "items": self.slot(kind.values)}
        if kind.kind == "map" and kind.values and kind.key:
            return self._map(kind, kind.key, kind.values)
        if kind.kind == "union":
            return self._union(kind)
        return _scalar(kind)

    def _struct(self, kind: ConnectType) -> Any:
        if id(kind) in self._names:
            return self._names[id(kind)]
        name = self._names[id(kind)] = self._unused(_valid(kind.name) if kind.name else f"{NAMESPACE}.{DEFAULT_NAME}")
        named = _named(name) | ({"doc": kind.doc} if kind.doc else {})
        return {**named, "fields": [self._field(slot) for slot in kind.fields]}

    def _field(self, slot: Slot) -> dict[str, Any]:
        made: dict[str, Any] = {"name": slot.name, "type": self.slot(slot)}
        if slot.doc:
            made["doc"] = slot.doc
        if slot.default is not MISSING:
            return {**made, "default": avro_default(slot.default)}
        return {**made, "default": None} if isinstance(made["type"], list) and made["type"][0] == "null" else made

    def _map(self, kind: ConnectType, key: Slot, values: Slot) -> Any:
        if has_text_keys(kind):
            return {"type": "map", "values": self.slot(values)}
        name = self._unused(_valid(kind.name) if kind.name else f"{NAMESPACE}.{ENTRY_NAME}")
        fields = [{"name": "key", "type": self.slot(key)}, {"name": "value", "type": self.slot(values)}]
        return {"type": "array", "items": {**_named(name), "fields": fields}}

    def _union(self, kind: ConnectType) -> list[Any]:
        """Without repeats: Avro knows one branch of each type."""
        made: dict[str, Any] = {}
        for slot in kind.branches:
            branch = self.slot(slot)
            for each in branch if isinstance(branch, list) else [branch]:
                made.setdefault(_union_key(each), each)
        return list(made.values())

    def _unused(self, name: str) -> str:
        number, unused = 1, name
        while unused in self._taken:
            number += 1
            unused = f"{name}{number}"
        self._taken.add(unused)
        return unused


def avro_text(slot: Slot) -> str:
    """The Avro schema, as JSON, of values that stand in `slot`; that they may be null is not said."""
    schema = AvroSchemas().slot(Slot(slot.type))
    return json.dumps(schema, separators=(",", ":"))


def avro_default(value: Any) -> Any:
    """A default as Avro's JSON has it: bytes are characters."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return {key: avro_default(each) for key, each in value.items()}
    return [avro_default(each) for each in value] if isinstance(value, list) else value


def _scalar(kind: ConnectType) -> Any:
    if kind.name == DECIMAL:
        precision = int(kind.parameters.get(PRECISION_PARAMETER, DEFAULT_PRECISION))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": kind.scale}
    if kind.name in LOGICAL:
        physical, logical = LOGICAL[kind.name]
        return {"type": physical, "logicalType": logical}
    return AVRO_TYPES[kind.kind]


def _named(name: str) -> dict[str, Any]:
    space, _, simple = name.rpartition(".")
    return {"type": "record", "name": simple, **({"namespace": space} if space else {})}


def _valid(name: str) -> str:
    """A name as Avro allows it, dots kept."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in name.split(".") if part]
    return ".".join(f"_{part}" if part[0].isdigit() else part for part in parts) or DEFAULT_NAME


def _union_key(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    kind: str = branch["type"]
    return f"{branch.get('namespace', '')}.{branch['name']}" if kind == "record" else kind
