"""TimestampConverter: converts times between text, Unix time, Date, Time and Timestamp.

Source of the rules: `TimestampConverter` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`. Without a schema,
a Timestamp cannot be distinguished from Unix time. So all are ints there: a Timestamp in ms, a Date in days, a Time in
ms of its day.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_s3_platform.avro.structs import DATE, TIME, TIMESTAMP, Avro, Field, make_optional
from kafka_s3_platform.java.simple_date_format import SimpleDateFormat
from kafka_s3_platform.model.connect import DataError, Schema, Side
from kafka_s3_platform.model.times import DAY_MS
from kafka_s3_platform.transforms.edits import Edit, Plan
from kafka_s3_platform.transforms.fields import collect_defaults, fill_nulls, require_map

ConvertTime = Callable[[Any], Any]

PURPOSE = "converting timestamp formats"
NODES: Mapping[str, Any] = {"string": "string", "unix": "long", "Date": DATE, "Time": TIME, "Timestamp": TIMESTAMP}
UNITS_PER_MS = {"nanoseconds": 1_000_000, "microseconds": 1000, "milliseconds": 1}


class TimestampConverter(Edit):
    """Converts a field, or the whole key or value."""

    def __init__(self, executing_class: str, side: Side, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side)
        self._field: str = values["field"]
        self._target: str = values["target.type"]
        self._format: SimpleDateFormat | None = values["format"]
        self._precision: str = values["unix.precision"]
        self._replace_nulls: bool = values["replace.null.with.default"]

    def schemaless(self) -> Plan:
        readers = {str: self._reader("string"), int: self._reader("int64")}
        writer = self._writer()

        def convert(value: Any) -> Any:
            if value is None:
                return None
            if type(value) not in readers:
                raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")
            return writer(readers[type(value)](value))

        if not self._field:
            return Plan(convert)
        return Plan(lambda value: self._with_field(require_map(value, PURPOSE), convert))

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        if not self._field:
            optional = avro.inner(avro.root)[1]
            root = make_optional(NODES[self._target]) if optional else NODES[self._target]
            return Plan(self._converter(avro, avro.root), replace(avro, root=root).schema())
        fields = avro.fields(avro.root, PURPOSE)
        defaults = collect_defaults(fields, replace_nulls=self._replace_nulls)
        converted_field = next((field for field in fields if field.name == self._field), None)
        if converted_field is None:
            return Plan(lambda value: fill_nulls(value, defaults), schema)
        convert = self._converter(avro, converted_field.node)
        updated = avro.with_fields(self._fields(avro, converted_field)).schema()
        return Plan(lambda value: self._with_field(fill_nulls(value, defaults), convert), updated)

    def _with_field(self, value: Mapping[str, Any], convert: ConvertTime) -> dict[str, Any]:
        return {**value, self._field: convert(value[self._field])} if self._field in value else dict(value)

    def _fields(self, avro: Avro, changed: Field) -> list[dict[str, Any]]:
        return [self._updated(raw, changed) if raw["name"] == changed.name else raw for raw in avro.raw_fields(PURPOSE)]

    def _updated(self, raw: Mapping[str, Any], field: Field) -> dict[str, Any]:
        """Return the field's new declaration. It has no default, as in Connect."""
        rest = {key: attribute for key, attribute in raw.items() if key != "default"}
        node = NODES[self._target]
        if not field.optional:
            return {**rest, "type": node}
        return {**rest, "type": make_optional(node), "default": None}

    def _converter(self, avro: Avro, node: Any) -> ConvertTime:
        reader = self._reader(avro.logical_of(node) or avro.type_of(node))
        writer = self._writer()
        return lambda value: None if value is None else writer(reader(value))

    def _reader(self, type_: str) -> ConvertTime:
        """Compile a converter of values of a type to epoch ms."""
        readers: dict[str, ConvertTime] = {
            "Timestamp": lambda value: value,
            "Time": lambda value: value,
            "Date": lambda value: value * DAY_MS,
            "string": self._parse,
            "int64": self._from_unix,
        }
        if type_ not in readers:
            raise DataError(f"Schema of type {type_} does not correspond to a known timestamp type format")
        return readers[type_]

    def _writer(self) -> ConvertTime:
        """Compile a converter of epoch ms to the target type."""
        writers: dict[str, ConvertTime] = {
            "Timestamp": lambda ms: ms,
            "Time": lambda ms: ms % DAY_MS,
            "Date": lambda ms: ms // DAY_MS,
            "unix": self._to_unix,
        }
        return writers.get(self._target) or (self._format.format if self._format else _refuse_without_format)

    def _parse(self, text: str) -> int:
        return self._format.parse(text) if self._format else _refuse_without_format(text)

    def _from_unix(self, value: int) -> int:
        if self._precision == "seconds":
            return value * 1000
        return _divide_towards_zero(value, UNITS_PER_MS[self._precision])

    def _to_unix(self, ms: int) -> int:
        if self._precision == "seconds":
            return _divide_towards_zero(ms, 1000)
        return ms * UNITS_PER_MS[self._precision]


def _divide_towards_zero(value: int, divisor: int) -> int:
    """Divide and round towards zero, as Java's TimeUnit does."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _refuse_without_format(value: Any) -> Any:
    raise DataError(f"TimestampConverter needs the option format to convert the text {value!r}")
