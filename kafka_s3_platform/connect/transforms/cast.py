"""Cast and TimestampConverter: convert fields, or the whole key or value, to another type.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`. A *plan*
(see `edits`) changes objects of one schema, or objects without a schema.

TimestampConverter converts times between text, Unix time, Date, Time and Timestamp. Without a schema, a Timestamp
cannot be distinguished from Unix time. So all times are ints there: a Timestamp in ms, a Date in days, and a Time in ms
of its day.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from kafka_s3_platform.connect.avro.structs import DATE, TIME, TIMESTAMP, EditableSchema, Field, make_optional
from kafka_s3_platform.connect.avro.values import decode_decimal
from kafka_s3_platform.connect.java.numbers import (
    INTEGER_BITS,
    format_date,
    format_double,
    format_text,
    parse_java_float,
    parse_java_int,
    round_to_float32,
    truncate_float,
    wrap_int,
)
from kafka_s3_platform.connect.java.simple_date_format import SimpleDateFormat
from kafka_s3_platform.connect.transforms.edits import Edit, Plan
from kafka_s3_platform.connect.transforms.fields import require_map
from kafka_s3_platform.core.model.connect import DataError
from kafka_s3_platform.core.model.times import DAY_MS

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
_CLASSES = {bool: "boolean", int: "int64", float: "float64", str: "string", bytes: "bytes", Decimal: "decimal"}


class Cast(Edit):
    """Casts fields, or the whole key or value."""

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side, values)
        spec: Mapping[str | None, str] = values["spec"]
        self._whole = spec.get(None)
        self._casts = {name: target for name, target in spec.items() if name is not None}

    def plan_schemaless(self) -> Plan:
        """Plan the casts for objects without a schema. If an object lacks a field, the field is not added."""
        if self._whole is not None:
            return Plan(_compile_schemaless(self._whole))
        casters = {name: _compile_schemaless(target) for name, target in self._casts.items()}

        def change(value: Any) -> dict[str, Any]:
            fields = require_map(value, PURPOSE)
            return {**fields, **{name: cast(fields[name]) for name, cast in casters.items() if name in fields}}

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the casts of the whole value or of fields, and the schema in which these have their new types."""
        if self._whole is not None:
            cast = compile_cast(avro, avro.root, self._whole)
            target = NODES[self._whole]
            root = make_optional(target) if avro.split_optional(avro.root)[1] else target
            return Plan(cast, replace(avro, root=root).write_schema())
        fields = avro.list_fields(avro.root, PURPOSE)
        casters = {f.name: compile_cast(avro, f.node, self._casts[f.name]) for f in fields if f.name in self._casts}

        def change(value: dict[str, Any]) -> dict[str, Any]:
            return {**value, **{name: cast(value.get(name)) for name, cast in casters.items()}}

        declared = zip(fields, avro.list_declarations(PURPOSE), strict=True)
        return Plan(change, avro.replace_fields(self._field(f, raw, casters) for f, raw in declared).write_schema())

    def _field(self, field: Field, declaration: Mapping[str, Any], casters: Mapping[str, Caster]) -> Mapping[str, Any]:
        """Return the declaration of a field after the cast, with its new type, and its default in this type."""
        if field.name not in casters:
            return declaration
        node = NODES[self._casts[field.name]]
        default = casters[field.name](field.default)
        declared_default = {"default": default} if "default" in declaration else {}
        return {**declaration, "type": make_optional(node, default) if field.optional else node, **declared_default}


def compile_cast(avro: EditableSchema, node: Any, target: str) -> Caster:
    """Compile a cast of values of a node. Null stays null. A value that cannot be cast raises DataError."""
    source = avro.find_type(node)
    logical = avro.find_logical_type(node)
    if logical == "Decimal":
        scale = avro.find_definition(avro.split_optional(node)[0]).get("scale", 0)
        cast = _compile_plain("decimal", target)
        return _keep_null(lambda unscaled: cast(decode_decimal(unscaled, scale)))
    if logical and target == "string":
        # Avro's dates are days.
        unit = DAY_MS if logical == "Date" else 1
        return _keep_null(lambda value: format_date(value * unit, logical))
    return _keep_null(_compile_plain(source, target))


def _compile_schemaless(target: str) -> Caster:
    """Compile a cast of values without a schema, by the Python type of each value."""
    casters = {type_: _compile_plain(source, target) for type_, source in _CLASSES.items()}

    def cast(value: Any) -> Any:
        if value is None:
            return None
        caster = casters.get(type(value))
        if caster is None:
            caster = _compile_plain("array" if isinstance(value, list) else "map", target)
        return caster(value)

    return cast


def _keep_null(cast: Caster) -> Caster:
    """Return a cast that leaves nulls as they are."""
    return lambda value: None if value is None else cast(value)


def _narrow_int(value: int, bits: int) -> int:
    """Keep the low bits of a whole number. Raise DataError if it has more than 64 bits, as JSON's numbers may have."""
    if not -(2**63) <= value < 2**63:
        raise DataError(f"{value!s:.100} has more than 64 bits")
    return wrap_int(value, bits)


_INTEGER_CASTS: Mapping[str, Callable[[Any, int], int]] = {
    "integer": _narrow_int,
    "float": truncate_float,
    "boolean": lambda value, _bits: int(value),
    "string": parse_java_int,
    # As in Java's BigDecimal, the fraction is lost, and then the higher bits.
    "decimal": lambda value, bits: wrap_int(int(value), bits),
}
"""The conversion of each kind of value to a whole number with a given number of bits."""

_CASTS: Mapping[str, Mapping[str, Caster]] = {
    "integer": {
        "float32": lambda value: round_to_float32(float(value)),
        "float64": float,
        "boolean": bool,
        "string": str,
    },
    "float": {
        "float32": round_to_float32,
        "float64": float,
        # Connect casts to long first, so 0.5 is false.
        "boolean": lambda value: truncate_float(value, 64) != 0,
        "string": format_double,
    },
    "boolean": {"float32": float, "float64": float, "boolean": bool, "string": format_text},
    "string": {
        "float32": lambda text: round_to_float32(parse_java_float(text)),
        "float64": parse_java_float,
        "boolean": lambda text: text.lower() == "true",
        "string": str,
    },
    "decimal": {
        "float32": lambda value: round_to_float32(float(value)),
        "float64": float,
        "boolean": lambda value: wrap_int(int(value), 64) != 0,
        "string": str,
    },
    "bytes": {"string": lambda value: base64.b64encode(value).decode()},
}
"""The conversion of each kind of value to each of the other types."""

_KINDS = {**dict.fromkeys(INTEGER_BITS, "integer"), "float32": "float", "float64": "float"}


def _compile_plain(source: str, target: str) -> Caster:
    """Return the cast from one type to another, by Connect's names of the types. A decimal's name is `decimal`."""
    kind = _KINDS.get(source, source)
    if kind not in _CASTS:
        return _refuse_cast(
            f"Cast transformation does not support casting from {source.upper()}; supported types are {SUPPORTED}"
        )
    if (source, target) == ("float32", "string"):
        return lambda value: format_double(value, single=True)
    if kind in _INTEGER_CASTS and target in INTEGER_BITS:
        cast = _INTEGER_CASTS[kind]
        bits = INTEGER_BITS[target]
        return lambda value: cast(value, bits)
    return _CASTS[kind].get(target) or _refuse_cast("Unexpected type in Cast transformation: bytes")


def _refuse_cast(message: str) -> Caster:
    """Return a cast that fails for each value with this message."""

    def refuse(_: Any) -> Any:
        raise DataError(message)

    return refuse


ConvertTime = Callable[[Any], Any]

TIMES_PURPOSE = "converting timestamp formats"
TIME_NODES: Mapping[str, Any] = {"string": "string", "unix": "long", "Date": DATE, "Time": TIME, "Timestamp": TIMESTAMP}
_UNITS = {
    **dict.fromkeys(("timestamp-micros", "local-timestamp-micros"), "microseconds"),
    **dict.fromkeys(("timestamp-nanos", "local-timestamp-nanos"), "nanoseconds"),
}
"""The units of Avro's timestamps that are plain numbers to Connect."""
UNITS_PER_MS = {"nanoseconds": 1_000_000, "microseconds": 1000, "milliseconds": 1}


class TimestampConverter(Edit):
    """Converts the time in a field, or in the whole key or value."""

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side, values)
        self._field: str = values["field"]
        self._target: str = values["target.type"]
        self._format: SimpleDateFormat | None = values["format"]
        self._precision: str = values["unix.precision"]

    def plan_schemaless(self) -> Plan:
        """Plan the conversion of a time without a schema: a text, or an int of Unix time."""
        readers = {str: self._compile_reader("string"), int: self._compile_reader("int64")}
        writer = self._compile_writer()

        def convert(value: Any) -> Any:
            if value is None:
                return None
            if type(value) not in readers:
                raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")
            return writer(readers[type(value)](value))

        if not self._field:
            return Plan(convert)
        return Plan(lambda value: self._convert_field(require_map(value, TIMES_PURPOSE), convert))

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the conversion of the whole value or one field. A schema without the field stays as it is."""
        if not self._field:
            optional = avro.split_optional(avro.root)[1]
            root = make_optional(TIME_NODES[self._target]) if optional else TIME_NODES[self._target]
            return Plan(self._compile_converter(avro, avro.root), replace(avro, root=root).write_schema())
        fields = avro.list_fields(avro.root, TIMES_PURPOSE)
        converted_field = next((field for field in fields if field.name == self._field), None)
        if converted_field is None:
            return Plan(lambda value: value, avro.origin)
        convert = self._compile_converter(avro, converted_field.node)
        declarations = [
            self._update_declaration(declaration, converted_field)
            if declaration["name"] == converted_field.name
            else declaration
            for declaration in avro.list_declarations(TIMES_PURPOSE)
        ]
        updated = avro.replace_fields(declarations).write_schema()
        return Plan(lambda value: self._convert_field(value, convert), updated)

    def _convert_field(self, value: Mapping[str, Any], convert: ConvertTime) -> dict[str, Any]:
        """Return the record with its time field converted. A record without the field stays as it is."""
        return {**value, self._field: convert(value[self._field])} if self._field in value else dict(value)

    def _update_declaration(self, declaration: Mapping[str, Any], field: Field) -> dict[str, Any]:
        """Return the field's new declaration. It has no default, as in Connect."""
        attributes = {key: attribute for key, attribute in declaration.items() if key != "default"}
        node = TIME_NODES[self._target]
        if not field.optional:
            return {**attributes, "type": node}
        return {**attributes, "type": make_optional(node), "default": None}

    def _compile_converter(self, avro: EditableSchema, node: Any) -> ConvertTime:
        """Compile a converter from times of a node's type to the target type. Null stays null."""
        unit = _UNITS.get(avro.read_logical_type(node), self._precision)
        if unit != self._precision:
            raise DataError(f"the field holds {unit}; set unix.precision={unit}")
        reader = self._compile_reader(avro.find_logical_type(node) or avro.find_type(node))
        writer = self._compile_writer()
        return lambda value: None if value is None else writer(reader(value))

    def _compile_reader(self, type_: str) -> ConvertTime:
        """Compile a converter from values of a type to epoch ms."""
        readers: dict[str, ConvertTime] = {
            "Timestamp": lambda value: value,
            "Time": lambda value: value,
            "Date": lambda value: value * DAY_MS,
            "string": self._parse,
            "int64": self._convert_from_unix,
        }
        if type_ not in readers:
            raise DataError(f"Schema of type {type_} does not correspond to a known timestamp type format")
        return readers[type_]

    def _compile_writer(self) -> ConvertTime:
        """Compile a converter from epoch ms to the target type."""
        writers: dict[str, ConvertTime] = {
            "Timestamp": lambda ms: ms,
            "Time": lambda ms: ms % DAY_MS,
            "Date": lambda ms: ms // DAY_MS,
            "unix": self._convert_to_unix,
        }
        return writers.get(self._target) or (self._format.format if self._format else _refuse_without_format)

    def _parse(self, text: str) -> int:
        """Parse a text in the format of the option `format` to epoch ms."""
        return self._format.parse(text) if self._format else _refuse_without_format(text)

    def _convert_from_unix(self, value: int) -> int:
        """Convert Unix time, in units of `unix.precision`, to epoch ms."""
        if self._precision == "seconds":
            return value * 1000
        return _divide_towards_zero(value, UNITS_PER_MS[self._precision])

    def _convert_to_unix(self, ms: int) -> int:
        """Convert epoch ms to Unix time, in units of `unix.precision`."""
        if self._precision == "seconds":
            return _divide_towards_zero(ms, 1000)
        return ms * UNITS_PER_MS[self._precision]


def _divide_towards_zero(value: int, divisor: int) -> int:
    """Divide and round towards zero, as Java's TimeUnit does."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _refuse_without_format(value: Any) -> Any:
    """Raise DataError, because a text cannot be converted without the option `format`."""
    raise DataError(f"TimestampConverter needs the option format to convert the text {value!r}")
