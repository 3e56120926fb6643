"""Connect's own schemas (org.apache.kafka.connect.data): converters read them, and get Avro schemas from them.

A *slot* is a position that has a type: a field, an item, a key, a value, or the root. The Avro schemas are Confluent's
AvroData's, but with only the `connect.*` properties that give values a meaning: names and parameters for which Avro has
no logical type, a name that is invalid for a record, and integers of 8 or 16 bits.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_s3_platform.connect.avro.schema import PRIMITIVE, fits_default, qualify_name, read_namespace
from kafka_s3_platform.core.model.connect import MISSING

DATA = "org.apache.kafka.connect.data."
DECIMAL = DATA + "Decimal"
DATE = DATA + "Date"
TIME = DATA + "Time"
TIMESTAMP = DATA + "Timestamp"
LOGICAL = {DATE: ("int", "date"), TIME: ("int", "time-millis"), TIMESTAMP: ("long", "timestamp-millis")}
LOGICAL_NAMES = {types: name for name, types in LOGICAL.items()}
"""Connect's name of a logical type, by Avro's type and logical type."""

# AvroData's names and defaults.
PRECISION_PARAMETER = "connect.decimal.precision"
DEFAULT_PRECISION = 64
DEFAULT_NAME = "ConnectDefault"
ENTRY_NAME = "MapEntry"
NAMESPACE = "io.confluent.connect.avro"

JSON_TEXT = "io.confluent.connect.json.Json"
"""The name of a string that holds the JSON of a value of any type."""
OTHER_PROPERTIES = "__connect_additional_properties__"
"""The field for an object's properties that its schema does not list. The name is JsonSchemaConverter's."""

_MADE_UP = re.compile(rf"{re.escape(NAMESPACE)}\.({DEFAULT_NAME}|{ENTRY_NAME})\d*")

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
"""Maps Connect's type to Avro's. `json` is a value of any type, kept as its JSON text."""


@dataclass(eq=False)
class ConnectType:
    """A type: one of AVRO_TYPES, `struct`, `array`, `map`, or `union` (one of several types, as JSON Schema's oneOf).

    A struct may contain itself, so its fields are added after it is made. Two types are equal only if they are the same
    Python object.
    """

    kind: str
    name: str | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: list["Slot"] = field(default_factory=list)
    key: "Slot | None" = None
    values: "Slot | None" = None
    """The items of an array, or the values of a map."""
    branches: Sequence["Slot"] = ()
    """The types of a union. Their branches in Avro have different names (`branch_name`)."""
    avro_name: str | None = None
    """The full name of a struct's record in Avro, or None until its schema is made."""
    is_closed: bool = False
    """True if JSON Schema allows only the properties it lists."""

    @property
    def branch_name(self) -> str | None:
        """The branch name of this type's values in Avro unions, or None while its record has no name yet."""
        if self.kind == "struct":
            return self.avro_name
        if self.kind == "map":
            return "map" if has_text_keys(self) else "array"
        return AVRO_TYPES.get(self.kind, self.kind)

    @property
    def scale(self) -> int:
        """The number of digits after the decimal point of a Decimal."""
        return int(self.parameters.get("scale", 0))


@dataclass(frozen=True)
class Slot:
    """A position that has a type, and may be optional: a field, an item, a key, a value, or the root."""

    type: ConnectType
    optional: bool = False
    name: str = ""
    default: Any = MISSING
    """In physical form."""
    doc: str | None = None


def has_text_keys(kind: ConnectType) -> bool:
    """Return True if the keys of a map are strings, as in Avro. Any other map becomes an array of entries in Avro."""
    return kind.key is not None and kind.key.type.kind == "string"


def is_made_up_name(name: str) -> bool:
    """Return True if this full name is one of AvroData's numbered names for records that have none in Connect."""
    return _MADE_UP.fullmatch(name) is not None


class AvroSchemaBuilder:
    """Builds the Avro schema of one Connect schema. Each named type is defined at its first use."""

    def __init__(self) -> None:
        self._names: dict[ConnectType, str] = {}
        self._namespace = ""
        # A second use of a record named `string` would mean text, and of one named `null` nothing at all.
        self._taken: set[str] = set()

    def build_schema(self, slot: Slot) -> Any:
        """Return the Avro schema of a slot. If the slot is optional, it is a union with null."""
        inner = self._build_type(slot.type)
        # In Avro, a default belongs to the first branch of a union.
        if slot.default not in (MISSING, None) and isinstance(inner, list):
            inner = sorted(inner, key=lambda branch: not _is_simple_default(slot.default, branch))
        branches = inner if isinstance(inner, list) else [inner]
        if not slot.optional or "null" in branches:
            return inner
        if slot.default in (MISSING, None):
            return ["null", *branches]
        return [*branches, "null"]

    def _build_type(self, kind: ConnectType) -> Any:
        """Return the Avro schema of a type, without the null of an optional slot."""
        if kind.kind == "struct":
            return self._build_record(kind)
        if kind.kind == "array" and kind.values:
            return {"type": "array", "items": self.build_schema(kind.values), **_list_properties(kind)}
        if kind.kind == "map" and kind.values and kind.key:
            return self._build_map(kind, kind.key, kind.values)
        if kind.kind == "union":
            return self._build_union(kind)
        return _make_scalar_schema(kind)

    def _build_record(self, kind: ConnectType) -> Any:
        """Return the record of a struct at its first use, and its name at each later one."""
        if kind in self._names:
            return self._names[kind]
        name = self._new_name(kind, DEFAULT_NAME)
        self._names[kind] = kind.avro_name = name
        if repeated := [name for name, count in Counter(slot.name for slot in kind.fields).items() if count > 1]:
            # A value would hold only the last of them.
            raise ValueError(f"{name} has two fields named {repeated[0]!r}")
        record = _start_record(name, self._namespace) | ({"doc": kind.doc} if kind.doc else {})
        # Its namespace and its number depend on the records before it.
        record |= {"connect.name": kind.name} if kind.name and name != kind.name else {}
        with self._enter_namespace(name):
            return {**record, "fields": [self._build_field(slot) for slot in kind.fields]}

    def _new_name(self, kind: ConnectType, otherwise: str) -> str:
        """Return an unused full name for a record. A name without a namespace gets the surrounding one."""
        name = _make_valid_name(kind.name) if kind.name else f"{NAMESPACE}.{otherwise}"
        return self._find_unused_name(qualify_name(name, self._namespace))

    @contextmanager
    def _enter_namespace(self, name: str) -> Iterator[None]:
        """Give names without a namespace this record's namespace."""
        outer = self._namespace
        self._namespace = read_namespace(name)
        try:
            yield
        finally:
            self._namespace = outer

    def _build_field(self, slot: Slot) -> dict[str, Any]:
        """Return the declaration of a field, with its default as Avro's JSON."""
        field: dict[str, Any] = {"name": slot.name, "type": self.build_schema(slot)}
        if slot.doc:
            field["doc"] = slot.doc
        if slot.default is not MISSING:
            return {**field, "default": encode_default(slot.default)}
        if isinstance(field["type"], list) and field["type"][0] == "null":
            return {**field, "default": None}
        return field

    def _build_map(self, kind: ConnectType, key: Slot, values: Slot) -> Any:
        """Return a map, or an array of entries if the keys are not strings, as AvroData does."""
        if has_text_keys(kind):
            return {"type": "map", "values": self.build_schema(values), **_list_properties(kind)}
        name = self._new_name(kind, ENTRY_NAME)
        with self._enter_namespace(name):
            fields = [
                {"name": "key", "type": self.build_schema(key)},
                {"name": "value", "type": self.build_schema(values)},
            ]
        # If the record has another name, AvroData's property tells that it is an entry.
        marker = {"connect.internal.type": ENTRY_NAME} if name != f"{NAMESPACE}.{ENTRY_NAME}" else {}
        items = {**_start_record(name, self._namespace), **marker, "fields": fields}
        return {"type": "array", "items": items, **_list_properties(kind)}

    def _build_union(self, kind: ConnectType) -> list[Any]:
        """Return the Avro schemas of a union's types, with null if one of them is optional."""
        branches = [self._build_type(slot.type) for slot in kind.branches]
        return ["null", *branches] if any(slot.optional for slot in kind.branches) else branches

    def _find_unused_name(self, name: str) -> str:
        """Return the name, with a number at its end if another type has it or it is a primitive type's."""
        number = 1
        free_name = name
        while free_name in self._taken or free_name.rpartition(".")[2] in PRIMITIVE:
            number += 1
            free_name = f"{name}{number}"
        self._taken.add(free_name)
        return free_name


def write_avro_schema(slot: Slot) -> str:
    """Return the Avro schema of the values in `slot`, as JSON. Even for an optional slot, it has no null."""
    schema = AvroSchemaBuilder().build_schema(Slot(slot.type))
    return json.dumps(schema, separators=(",", ":"))


def encode_default(value: Any) -> Any:
    """Encode a default as Avro's JSON does: each byte becomes a character, and a union does not name its branch."""
    if isinstance(value, tuple):
        return encode_default(value[1])
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return {key: encode_default(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encode_default(item) for item in value]
    return value


def _is_simple_default(default: Any, branch: Any) -> bool:
    """Return True if a default belongs to this branch of a union, and the branch is a primitive type.

    Only such a branch may move to the front, because a named type has to be defined before the branches that name it.
    """
    kind = branch if isinstance(branch, Mapping) else {"type": branch}
    return kind["type"] in PRIMITIVE and fits_default(encode_default(default), kind)


def _make_scalar_schema(kind: ConnectType) -> Any:
    """Return the Avro schema of a type without inner types."""
    if kind.name == DECIMAL:
        precision = int(kind.parameters.get(PRECISION_PARAMETER, DEFAULT_PRECISION))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": kind.scale}
    if kind.name in LOGICAL:
        physical, logical = LOGICAL[kind.name]
        return {"type": physical, "logicalType": logical}
    properties = _list_properties(kind)
    return {"type": AVRO_TYPES[kind.kind], **properties} if properties else AVRO_TYPES[kind.kind]


def _list_properties(kind: ConnectType) -> dict[str, Any]:
    """Return AvroData's `connect.*` properties of a type: name, parameters and size, unless Avro's type tells them."""
    name = JSON_TEXT if kind.kind == "json" else kind.name
    properties = {"connect.name": name, "connect.parameters": dict(kind.parameters)}
    # Avro has no smaller integers, so AvroData's property tells their size.
    properties |= {"connect.type": kind.kind} if kind.kind in ("int8", "int16") else {}
    return {key: value for key, value in properties.items() if value}


def _start_record(name: str, outer_namespace: str) -> dict[str, Any]:
    """Return the declaration of a record without its fields. The surrounding namespace is not repeated."""
    space, _, simple = name.rpartition(".")
    return {"type": "record", "name": simple, **({"namespace": space} if space != outer_namespace else {})}


def _make_valid_name(name: str) -> str:
    """Return the name with `_` in place of the characters Avro does not allow in names. Dots stay."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in name.split(".") if part]
    return ".".join(f"_{part}" if part[0].isdigit() else part for part in parts) or DEFAULT_NAME
