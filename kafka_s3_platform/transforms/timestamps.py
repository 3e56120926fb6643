"""TimestampConverter: times as text, Unix time, Date, Time or Timestamp.

Source of the rules: `TimestampConverter` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`. Without a schema
nothing tells a Timestamp from Unix time: there a Timestamp is an int of ms, a Date of days, a Time of ms of its day.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_s3_platform.config.simple_date_format import DAY_MS, SimpleDateFormat
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.transforms.avro import DATE, TIME, TIMESTAMP, Avro, DataError, Field, optional_node
from kafka_s3_platform.transforms.edits import Edit, Plan, Side
from kafka_s3_platform.transforms.fields import defaults_of, filled, required_map

Convert = Callable[[Any], Any]

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
        return Plan(lambda value: self._with_field(required_map(value, PURPOSE), convert))

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        if not self._field:
            optional = avro.inner(avro.root)[1]
            root = optional_node(NODES[self._target]) if optional else NODES[self._target]
            return Plan(self._converter(avro, avro.root), replace(avro, root=root).schema())
        fields = avro.fields(avro.root, PURPOSE)
        defaults = defaults_of(fields, replace_nulls=self._replace_nulls)
        found = next((field for field in fields if field.name == self._field), None)
        if found is None:
            return Plan(lambda value: filled(value, defaults), schema)
        convert = self._converter(avro, found.node)
        updated = avro.with_fields(self._fields(avro, found)).schema()
        return Plan(lambda value: self._with_field(filled(value, defaults), convert), updated)

    def _with_field(self, value: Mapping[str, Any], convert: Convert) -> dict[str, Any]:
        return {**value, self._field: convert(value.get(self._field))}

    def _fields(self, avro: Avro, changed: Field) -> list[dict[str, Any]]:
        return [self._updated(raw, changed) if raw["name"] == changed.name else raw for raw in avro.raw_fields(PURPOSE)]

    def _updated(self, raw: Mapping[str, Any], field: Field) -> dict[str, Any]:
        """The field's new declaration: a default does not stay, as in Connect."""
        rest = {key: each for key, each in raw.items() if key != "default"}
        node = NODES[self._target]
        if not field.optional:
            return {**rest, "type": node}
        return {**rest, "type": optional_node(node), "default": None}

    def _converter(self, avro: Avro, node: Any) -> Convert:
        reader, writer = self._reader(avro.logical_of(node) or avro.type_of(node)), self._writer()
        return lambda value: None if value is None else writer(reader(value))

    def _reader(self, type_: str) -> Convert:
        """To epoch ms."""
        readers: dict[str, Convert] = {
            "Timestamp": lambda value: value,
            "Time": lambda value: value,
            "Date": lambda value: value * DAY_MS,
            "string": self._parse,
            "int64": self._from_unix,
        }
        if type_ not in readers:
            raise DataError(f"Schema of type {type_} does not correspond to a known timestamp type format")
        return readers[type_]

    def _writer(self) -> Convert:
        """From epoch ms."""
        writers: dict[str, Convert] = {
            "Timestamp": lambda ms: ms,
            "Time": lambda ms: ms % DAY_MS,
            "Date": lambda ms: ms // DAY_MS,
            "unix": self._to_unix,
        }
        return writers.get(self._target) or (self._format.format if self._format else _no_format)

    def _parse(self, text: str) -> int:
        return self._format.parse(text) if self._format else _no_format(text)

    def _from_unix(self, value: int) -> int:
        if self._precision == "seconds":
            return value * 1000
        return _towards_zero(value, UNITS_PER_MS[self._precision])

    def _to_unix(self, ms: int) -> int:
        if self._precision == "seconds":
            return _towards_zero(ms, 1000)
        return ms * UNITS_PER_MS[self._precision]


def _towards_zero(value: int, divisor: int) -> int:
    """Java's TimeUnit divides so."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _no_format(value: Any) -> Any:
    raise DataError(f"TimestampConverter needs the option format to convert the text {value!r}")
