"""Draws schemas of Connect, with payloads as JsonConverter writes them, and says what each payload means.

What it means is read from the raw text, by Kafka's documents: a field that is absent has its default, a null is a null.
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from kafka_s3_platform_tests.meaning.avro_reference import Types

DATA = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = (f"{DATA}{name}" for name in ("Decimal", "Date", "Time", "Timestamp"))
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
FIELDS = ("id", "name", "at", "key", "value", "schema", "payload", "type")
STRUCTS = (None, "shop.Order", "shop.Line", "pay.Order")
_LOGICAL: Sequence[dict[str, Any]] = (
    {"type": "int32", "name": DATE, "version": 1},
    {"type": "int32", "name": TIME, "version": 1},
    {"type": "int64", "name": TIMESTAMP, "version": 1},
    {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    {"type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "a,b"}},
)


def _list_bounds(bits: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])


_SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "float": st.sampled_from([0.5, 0.1, 1, 16777216, -0.0, 3e38]),
    "double": st.sampled_from([0.1, 1, -0.0, 1e22, 5e-324, 2**53]) | st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.sampled_from(["", "null", "1", "é\u2028"]),
    **{name: _list_bounds(bits) for name, bits in BITS.items()},
}


class RefusedError(Exception):
    """A payload has no meaning by its schema: its record has to be refused."""


class ConnectDrawing:
    """A schema that is being drawn."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def struct(self, depth: int) -> dict[str, Any]:
        names = self._draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1, max_size=4))
        name = self._draw(st.sampled_from(STRUCTS))
        fields = [{**self.slot(depth), "field": each} for each in names]
        return {"type": "struct", "fields": fields, **({"name": name} if name else {})}

    def slot(self, depth: int) -> dict[str, Any]:
        """A type, optional or not, with a default or not."""
        made = {**self._type(depth), "optional": self._draw(st.booleans())}
        if made["type"] in ("struct", "array", "map") or not self._draw(st.booleans()):
            return made
        return {**made, "default": draw_payload(self._draw, {**made, "optional": False})}

    def _type(self, depth: int) -> dict[str, Any]:
        kinds = [*BITS, "float", "double", "boolean", "string", "bytes", "decimal", "logical", "logical"]
        kind = self._draw(st.sampled_from([*kinds, "struct", "array", "map"] if depth else kinds))
        match kind:
            case "struct":
                return self.struct(depth - 1)
            case "array":
                return {"type": "array", "items": self.slot(depth - 1), **self._name("shop.List")}
            case "map":
                key = self._draw(st.sampled_from(["string", "int32", "boolean"]))
                made = {"type": "map", "keys": {"type": key, "optional": False}, "values": self.slot(depth - 1)}
                return {**made, **self._name("shop.Map")}
            case "logical":
                return dict(self._draw(st.sampled_from(_LOGICAL)))
            case "decimal":
                scale = self._draw(st.sampled_from([0, 2, 7]))
                return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)}}
        return {"type": kind}

    def _name(self, name: str) -> dict[str, str]:
        return {"name": name} if self._draw(st.integers(0, 3)) == 0 else {}


def draw_payload(draw: Any, slot: Mapping[str, Any]) -> Any:
    """Draw the payload of a slot. An optional one may be null, a field that needs no value may be absent."""
    if slot.get("optional") and draw(st.integers(0, 3)) == 0:
        return None
    match slot["type"]:
        case "struct":
            drawn = {field["field"]: _draw_field(draw, field) for field in slot["fields"]}
            return {name: value for name, value in drawn.items() if value is not ABSENT}
        case "array":
            return [draw_payload(draw, slot["items"]) for _ in range(draw(st.integers(0, 2)))]
        case "map":
            keys = [draw_payload(draw, slot["keys"]) for _ in range(draw(st.integers(0, 2)))]
            pairs = [[key, draw_payload(draw, slot["values"])] for key in dict.fromkeys(keys)]
            return dict(pairs) if slot["keys"]["type"] == "string" else pairs
        case "bytes":
            return base64.b64encode(draw(st.binary(min_size=1 if slot.get("name") else 0, max_size=4))).decode()
    return draw(_SCALARS[slot["type"]])


def _draw_field(draw: Any, field: Mapping[str, Any]) -> Any:
    if ("default" in field or field["optional"]) and draw(st.booleans()):
        return ABSENT
    return draw_payload(draw, field)


@st.composite
def envelopes(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """A schema and payloads of it."""
    schema = {**ConnectDrawing(draw).struct(2), "optional": False}
    return schema, [draw_payload(draw, schema) for _ in range(draw(st.integers(1, 3)))]


def read_payload(slot: Mapping[str, Any], payload: Any) -> Any:
    """What a payload means. Raise RefusedError if it means nothing."""
    if payload is ABSENT and "default" in slot:
        payload = slot["default"]
    if payload is None or payload is ABSENT:
        if not slot.get("optional"):
            raise RefusedError("a value is required")
        return None
    match slot["type"]:
        case "struct":
            return {f["field"]: read_payload(f, payload.get(f["field"], ABSENT)) for f in slot["fields"]}
        case "array":
            return [read_payload(slot["items"], each) for each in payload]
        case "map":
            pairs = payload.items() if isinstance(payload, dict) else payload
            return [(read_payload(slot["keys"], k), read_payload(slot["values"], v)) for k, v in pairs]
    return _read_scalar(slot, base64.b64decode(payload, validate=True) if slot["type"] == "bytes" else payload)


def read_tree(slot: Mapping[str, Any], types: Types, node: Any, value: Any) -> Any:
    """What Avro's data of a schema mean to Connect."""
    node = types.at(node)
    if isinstance(node, list):
        return read_tree(slot, types, node[value.index], value.value)
    if value is None:
        return None
    match slot["type"]:
        case "struct":
            slots = {f["field"]: f for f in slot["fields"]}
            return {f["name"]: read_tree(slots[f["name"]], types, f["type"], value[f["name"]]) for f in node["fields"]}
        case "array":
            return [read_tree(slot["items"], types, node["items"], each) for each in value]
        case "map":
            return _read_map(slot, types, node, value)
    assert (node["type"] == "long") == (slot["type"] == "int64")
    assert (node.get("logicalType") == "decimal") == (slot.get("name") == DECIMAL)
    return _read_scalar(slot, value)


def _read_map(slot: Mapping[str, Any], types: Types, node: Any, value: Any) -> Any:
    """A map, which is a list of entries where its keys are no strings."""
    if node["type"] == "map":
        return [(key, read_tree(slot["values"], types, node["values"], each)) for key, each in value.items()]
    kinds = {field["name"]: field["type"] for field in types.at(node["items"])["fields"]}
    parts = (("key", slot["keys"]), ("value", slot["values"]))
    return [tuple(read_tree(part, types, kinds[name], entry[name]) for name, part in parts) for entry in value]


def _read_scalar(slot: Mapping[str, Any], value: Any) -> Any:
    if slot["type"] in ("float", "double"):
        # As its type holds it, with its sign: 0.0 and -0.0 are two numbers.
        held = struct.unpack("f", struct.pack("f", value))[0] if slot["type"] == "float" else float(value)
        return held, math.copysign(1, held)
    if slot.get("name") == DECIMAL:
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-int(slot["parameters"]["scale"]))
    return value


def read_outline(slot: Mapping[str, Any]) -> Any:
    """What a schema says of its values, without docs, versions, parameters and defaults."""
    inner = {part: read_outline(slot[part]) for part in ("items", "keys", "values") if part in slot}
    if "fields" in slot:
        inner["fields"] = {field["field"]: read_outline(field) for field in slot["fields"]}
    return {"type": slot["type"], "name": slot.get("name"), "optional": bool(slot.get("optional")), **inner}
