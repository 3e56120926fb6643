"""MaskField: replaces the content of fields.

Source of the rules: `MaskField` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kafka_s3_platform.avro.structs import Avro
from kafka_s3_platform.java.numbers import INTEGER_BITS, encode_decimal, parse_java_decimal, round_to_float32, wrap_int
from kafka_s3_platform.model.connect import DataError, Schema, Side
from kafka_s3_platform.transforms.edits import Edit, Plan
from kafka_s3_platform.transforms.fields import FieldValues, collect_defaults, fill_nulls, require_map


class MaskField(Edit):
    """Replaces fields by the empty value of their type, or by a replacement. Schemas do not change."""

    PURPOSE = "mask fields"
    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._fields: tuple[str, ...] = values["fields"]
        self._replacement: str | None = values["replacement"]

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            fields = require_map(value, self.PURPOSE)
            return {**fields, **{name: self._masked(fields[name]) for name in self._fields if name in fields}}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        fields = avro.fields(avro.root, self.PURPOSE)
        masks = {f.name: self._mask_of(avro, f.node) for f in fields if f.name in self._fields}
        defaults = collect_defaults(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any]) -> dict[str, Any]:
            filled = fill_nulls(value, defaults)
            return {**filled, **{name: mask(filled.get(name)) for name, mask in masks.items()}}

        return Plan(change, schema)

    def _masked(self, value: Any) -> Any:
        names = {bool: "boolean", int: "int64", str: "string", list: "array", dict: "map"}
        names |= dict.fromkeys((float, Decimal), "float64")
        if value is None:
            return None
        return self._mask(names.get(type(value), type(value).__name__))

    def _mask_of(self, avro: Avro, node: Any) -> Callable[[Any], Any]:
        """Compile a mask of a field. If its type cannot be masked, only records with the field fail."""
        try:
            mask = self._logical_mask(avro, node)
        except DataError as error:
            return _raise_later(error)
        return lambda value: None if value is None else mask

    def _logical_mask(self, avro: Avro, node: Any) -> Any:
        logical = avro.logical_of(node)
        if logical == "Decimal":
            definition = avro.definition(avro.inner(node)[0])
            return encode_decimal(
                parse_java_decimal(self._replacement or "0"), definition.get("scale", 0), definition.get("size")
            )
        if logical and self._replacement is not None:
            raise DataError("Cannot mask value of type class java.util.Date with custom replacement.")
        return self._mask(avro.type_of(node))

    def _mask(self, type_: str) -> Any:
        if self._replacement is not None:
            return _parse_replacement(type_, self._replacement)
        if type_ in INTEGER_BITS:
            return 0
        empty = {"float32": 0.0, "float64": 0.0, "boolean": False, "string": "", "array": [], "map": {}}
        if type_ not in empty:
            raise DataError(f"Cannot mask value of type: {type_}")
        return empty[type_]


def _raise_later(error: DataError) -> Callable[[Any], None]:
    def mask(value: Any) -> None:
        if value is not None:
            raise error

    return mask


def _parse_replacement(type_: str, replacement: str) -> Any:
    if type_ == "string":
        return replacement
    if type_ in INTEGER_BITS:
        # Narrowed in two steps, to a long and then to the type.
        return wrap_int(wrap_int(int(parse_java_decimal(replacement)), 64), INTEGER_BITS[type_])
    if type_ in {"float32", "float64"}:
        number = float(parse_java_decimal(replacement))
        if type_ == "float32":
            return round_to_float32(number)
        return number
    raise DataError(f"Cannot mask value of type {type_} with custom replacement.")
