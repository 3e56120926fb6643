"""Cast: fields, or the whole key or value, as another type.

Source of the rules: `Cast` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from kafka_s3_platform.config.simple_date_format import DAY_MS
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.transforms.avro import Avro, DataError, Field, optional_node
from kafka_s3_platform.transforms.edits import Edit, Plan, Side
from kafka_s3_platform.transforms.fields import defaults_of, filled, required_map
from kafka_s3_platform.transforms.java_values import (
    INTEGER_BITS,
    date_text,
    decoded_decimal,
    double_text,
    float32,
    parsed_float,
    parsed_int,
    text_of,
    truncated,
    wrapped,
)

Caster = Callable[[Any], Any]

PURPOSE = "cast types"
SUPPORTED = "[INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"
NODES: Mapping[str, Any] = {
    "int8": {"type": "int", "connect.type": "int8"},
    "int16": {"type": "int", "connect.type": "int16"},
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
_CLASSES = {bool: "boolean", int: "int64", float: "float64", str: "string", bytes: "bytes"}


class Cast(Edit):
    """Casts fields, or the whole key or value."""

    def __init__(self, executing_class: str, side: Side, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side)
        spec: Mapping[str | None, str] = values["spec"]
        self._whole = spec.get(None)
        self._casts = {name: target for name, target in spec.items() if name is not None}
        self._replace_nulls: bool = values["replace.null.with.default"]

    def schemaless(self) -> Plan:
        if self._whole is not None:
            return Plan(_schemaless(self._whole))
        casters = {name: _schemaless(target) for name, target in self._casts.items()}

        def change(value: Any) -> dict[str, Any]:
            fields = required_map(value, PURPOSE)
            return {**fields, **{name: cast(fields.get(name)) for name, cast in casters.items()}}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        if self._whole is not None:
            cast, target = caster(avro, avro.root, self._whole), NODES[self._whole]
            root = optional_node(target) if avro.inner(avro.root)[1] else target
            return Plan(cast, replace(avro, root=root).schema())
        fields = avro.fields(avro.root, PURPOSE)
        casters = {f.name: caster(avro, f.node, self._casts[f.name]) for f in fields if f.name in self._casts}
        defaults = defaults_of(fields, replace_nulls=self._replace_nulls)

        def change(value: dict[str, Any]) -> dict[str, Any]:
            known = filled(value, defaults)
            return {**known, **{name: cast(known.get(name)) for name, cast in casters.items()}}

        declared = zip(fields, avro.raw_fields(PURPOSE), strict=True)
        return Plan(change, avro.with_fields(self._field(f, raw, casters) for f, raw in declared).schema())

    def _field(self, field: Field, raw: Mapping[str, Any], casters: Mapping[str, Caster]) -> Mapping[str, Any]:
        if field.name not in casters:
            return raw
        node, default = NODES[self._casts[field.name]], casters[field.name](field.default)
        given = {"default": default} if "default" in raw else {}
        return {**raw, "type": optional_node(node, default) if field.optional else node, **given}


def caster(avro: Avro, node: Any, target: str) -> Caster:
    """A function that casts what a node of a schema holds. Null stays null; it raises DataError for what cannot be."""
    source, logical = avro.type_of(node), avro.logical_of(node)
    if logical == "Decimal":
        scale = avro.definition(avro.inner(node)[0]).get("scale", 0)
        return _nullable(lambda unscaled: _from_decimal(decoded_decimal(unscaled, scale), target))
    if logical and target == "string":
        unit = DAY_MS if logical == "Date" else 1
        return _nullable(lambda value: date_text(value * unit))
    return _nullable(_plain(source, target))


def _schemaless(target: str) -> Caster:
    casters = {type_: _plain(source, target) for type_, source in _CLASSES.items()}

    def cast(value: Any) -> Any:
        if value is None:
            return None
        known = casters.get(type(value))
        return known(value) if known else _unsupported("ARRAY" if isinstance(value, list) else "MAP")(value)

    return cast


def _nullable(cast: Caster) -> Caster:
    return lambda value: None if value is None else cast(value)


def _plain(source: str, target: str) -> Caster:
    """Casts of what is no logical type."""
    if source in INTEGER_BITS:
        return _from_int(target)
    if source in {"float32", "float64"}:
        return _from_float(target, single=source == "float32")
    if source == "bytes":
        return _from_bytes(target)
    if source == "boolean":
        return _from_boolean(target)
    return _from_string(target) if source == "string" else _unsupported(source.upper())


def _from_int(target: str) -> Caster:
    if target in INTEGER_BITS:
        bits = INTEGER_BITS[target]
        return lambda value: wrapped(value, bits)
    casters: dict[str, Caster] = {
        "float32": lambda value: float32(float(value)),
        "float64": float,
        "boolean": bool,
        "string": str,
    }
    return casters[target]


def _from_float(target: str, *, single: bool) -> Caster:
    if target in INTEGER_BITS:
        bits = INTEGER_BITS[target]
        return lambda value: truncated(value, bits)
    if target == "string":
        return lambda value: double_text(value, single=single)
    if target == "boolean":
        return lambda value: truncated(value, 64) != 0
    return float32 if target == "float32" else float


def _from_boolean(target: str) -> Caster:
    if target in INTEGER_BITS:
        return int
    if target == "string":
        return text_of
    return bool if target == "boolean" else float


def _from_string(target: str) -> Caster:
    if target in INTEGER_BITS:
        bits = INTEGER_BITS[target]
        return lambda text: parsed_int(text, bits)
    casters: dict[str, Caster] = {
        "float32": lambda text: float32(parsed_float(text)),
        "float64": parsed_float,
        "boolean": lambda text: text.lower() == "true",
        "string": str,
    }
    return casters[target]


def _from_bytes(target: str) -> Caster:
    if target == "string":
        return lambda value: base64.b64encode(value).decode()
    return _refusal("Unexpected type in Cast transformation: bytes")


def _from_decimal(number: Decimal, target: str) -> Any:
    if target in INTEGER_BITS:
        return wrapped(int(number), INTEGER_BITS[target])
    if target == "boolean":
        return wrapped(int(number), 64) != 0
    if target == "string":
        return str(number)
    return float32(float(number)) if target == "float32" else float(number)


def _unsupported(type_: str) -> Caster:
    return _refusal(f"Cast transformation does not support casting from {type_}; supported types are {SUPPORTED}")


def _refusal(message: str) -> Caster:
    def refuse(_: Any) -> Any:
        raise DataError(message)

    return refuse
