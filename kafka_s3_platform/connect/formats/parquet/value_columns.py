"""Writes ParquetFormat: decoded values (or keys, or headers) as columns, typed by their Avro schema.

Types are as in parquet-avro, except that lists have Parquet's three levels. A union of several types is a struct of
`member0`, `member1` ..., all null but one. Enums are strings. Decimals, dates, times and timestamps have their logical
types. A value other than a record becomes the column `value`, keys become the column `key`, and headers `headers`.
Sources: Confluent S3 sink, ParquetFormat; Apache parquet-avro, AvroSchemaConverter.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from kafka_s3_platform.connect.avro.connect_schema import DEFAULT_PRECISION
from kafka_s3_platform.connect.avro.values import AvroSchema, decode_decimal
from kafka_s3_platform.core.formats.format_io import WriteRequest
from kafka_s3_platform.core.formats.parquet.write import RowGroupWriter
from kafka_s3_platform.core.formats.parts import (
    UnwritableSchemaError,
    build_unwritable_error,
    find_payload,
    require_no_null,
)
from kafka_s3_platform.core.model.batches import count_record_bytes
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, ConnectBatch
from kafka_s3_platform.core.model.limits import MAX_SCHEMA_PLACES

# The most digits of Arrow's decimals of 128 and 256 bits.
_MAX_PRECISION_128 = 38
_MAX_PRECISION_256 = 76

Convert = Callable[[Any], Any]
"""Converts a value in Avro's physical form to one that Arrow takes."""


class ColumnType(NamedTuple):
    """The Arrow type of a column for values of an Avro type. `convert` is None if Arrow takes them unchanged."""

    arrow: pa.DataType
    convert: Convert | None = None
    is_nullable: bool = False


class ArrowColumns:
    """Builds Arrow columns from values of an Avro schema. `type` is the Arrow type of the columns.

    Raises UnwritableSchemaError if there are no such columns: a type contains itself, a record has no fields, a decimal
    has more than 76 digits, or there are more than a hundred thousand columns.
    """

    def __init__(self, avro: AvroSchema, root: Any) -> None:
        self._avro = avro
        self._open: list[str] = []
        self._count = 0
        self.type, self._convert = self._map_record(root["name"], root["fields"])

    def build(self, objects: Sequence[Any]) -> pa.StructArray:
        """Build the columns. Raise one of `VALUE_ERRORS` if a value does not fit the schema."""
        if self._convert is not None:
            objects = list(map(_keep_null(self._convert), objects))
        columns = pa.array(objects, self.type)
        _refuse_nulls(columns, "the record")
        return columns

    def _map_type(self, node: Any) -> ColumnType:
        """Return the column for an Avro type (`node`). Named types are written out wherever they are used."""
        self._count += 1
        if self._count > MAX_SCHEMA_PLACES:
            raise UnwritableSchemaError(
                f"the schema comes to more than {MAX_SCHEMA_PLACES:,} columns, with its types written out"
            )
        definition = self._avro.resolve(node)
        if isinstance(definition, list):
            return self._map_union(definition)
        match definition["type"]:
            case "record":
                return ColumnType(*self._map_record(definition["name"], definition["fields"]))
            case "array":
                item = self._map_type(definition["items"])
                element = pa.field("element", item.arrow, item.is_nullable)
                return ColumnType(pa.list_(element), _convert_items(item.convert))
            case "map":
                item = self._map_type(definition["values"])
                value = pa.field("value", item.arrow, item.is_nullable)
                return ColumnType(pa.map_(pa.string(), value), _convert_map(item.convert))
        return _convert_primitive(definition)

    def _map_record(self, name: str, fields: Sequence[Mapping[str, Any]]) -> tuple[pa.StructType, Convert | None]:
        """Return the column type for a record, and the function that converts its values, or None if none is needed."""
        if name in self._open:
            raise UnwritableSchemaError(
                f"the type {name} holds itself ({' > '.join(self._open)} > {name}): Parquet has no such columns"
            )
        if not fields:
            raise UnwritableSchemaError(f"the record {name} has no fields: Parquet has no such columns")
        self._open.append(name)
        columns = {field["name"]: self._map_type(field["type"]) for field in fields}
        self._open.pop()
        converters = {key: column.convert for key, column in columns.items() if column.convert is not None}
        struct = pa.struct([pa.field(key, column.arrow, column.is_nullable) for key, column in columns.items()])
        return struct, _convert_fields(converters)

    def _map_union(self, union: Sequence[Any]) -> ColumnType:
        """Return the column for a union: the column of its one type besides null, or else a struct of members."""
        members, nullable = self._avro.members(union)
        if not members:
            return ColumnType(pa.null(), is_nullable=True)
        columns = [self._map_type(member) for member in members]
        if len(members) == 1:
            return columns[0]._replace(is_nullable=nullable)
        struct = pa.struct([pa.field(f"member{i}", column.arrow) for i, column in enumerate(columns)])
        return ColumnType(struct, self._convert_union(members, [column.convert for column in columns]), nullable)

    def _convert_union(self, members: Sequence[Any], converters: Sequence[Convert | None]) -> Convert:
        """Return a function that makes a struct of a union's value: one field `member<n>`, by the value's type."""
        choose = self._avro.compile_choice(members)

        def convert_value(value: Any) -> dict[str, Any]:
            index, value = choose(value)
            convert = converters[index]
            return {f"member{index}": value if convert is None else convert(value)}

        return convert_value


_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL_TYPES: Mapping[tuple[Any, Any], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{("long", f"local-timestamp-{name}"): pa.timestamp(unit) for name, unit in _UNITS.items()},
}


def _convert_primitive(node: Mapping[str, Any]) -> ColumnType:
    """Return the column for an Avro type (`node`) without inner types."""
    logical = node.get("logicalType")
    if logical == "decimal" and node["type"] in ("bytes", "fixed"):
        scale = node.get("scale", 0)
        precision = node.get("precision", DEFAULT_PRECISION)
        return ColumnType(_convert_decimal(precision, scale), lambda value: decode_decimal(value, scale))
    if node["type"] == "fixed":
        return ColumnType(pa.binary(node["size"]))
    arrow = _LOGICAL_TYPES.get((node["type"], logical), _TYPES[node["type"]])
    return ColumnType(arrow, is_nullable=node["type"] == "null")


def _convert_decimal(precision: int, scale: int) -> pa.DataType:
    """Return the type of a decimal. Raise UnwritableSchemaError if Arrow has no decimals with so many digits."""
    if not 1 <= precision <= _MAX_PRECISION_256:
        raise UnwritableSchemaError(f"a decimal of {precision} digits: columns have 1 to {_MAX_PRECISION_256}")
    if precision <= _MAX_PRECISION_128:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale)


def _refuse_nulls(column: pa.Array, name: str, *, nullable: bool = False) -> None:
    """Raise ValueError for a null the schema does not allow, because Arrow takes every missing value for a null."""
    if not nullable and column.null_count:
        raise ValueError(f"{name} is null or missing, and its schema allows neither")
    if pa.types.is_struct(column.type):
        # `flatten` makes a member null if its struct is null, in which case the member is not at fault.
        present = column.drop_null() if column.null_count else column
        for field, child in zip(column.type, present.flatten(), strict=True):
            _refuse_nulls(child, field.name, nullable=field.nullable)
    elif pa.types.is_list(column.type):
        _refuse_nulls(column.flatten(), name, nullable=column.type.value_field.nullable)
    elif pa.types.is_map(column.type):
        _refuse_nulls(column.items, name, nullable=column.type.item_field.nullable)


def convert_type(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array of Avro's physical types to the logical types of `target`."""
    if column.type.equals(target):
        return column
    if pa.types.is_struct(target):
        children = [_fill_required(convert_type(column.field(f.name), f.type), f, column) for f in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=column.is_null())
    if pa.types.is_decimal(target):
        return pa.array([v if v is None else decode_decimal(v, target.scale) for v in column.to_pylist()], target)
    return column.cast(target)


def _fill_required(child: pa.Array, field: pa.Field, around: pa.StructArray) -> pa.Array:
    """Drop the nulls that a required field has in null records, because Parquet refuses them."""
    if field.nullable or child.null_count != around.null_count or not child.null_count:
        return child
    if pa.types.is_struct(child.type):
        return pa.StructArray.from_arrays([child.field(at) for at in range(len(child.type))], fields=list(child.type))
    return pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], offset=child.offset)


def _keep_null(convert: Convert) -> Convert:
    """Return a function that converts values, and leaves nulls as they are."""
    return lambda value: None if value is None else convert(value)


def _convert_items(convert: Convert | None) -> Convert | None:
    """Return a function that converts the items of a list by `convert`, or None if `convert` is None."""
    if convert is None:
        return None
    item = _keep_null(convert)
    return lambda values: [item(value) for value in values]


def _convert_map(convert: Convert | None) -> Convert | None:
    """Return a function that makes pairs of a map, its values converted by `convert`, or None if `convert` is None."""
    if convert is None:
        return None
    item = _keep_null(convert)
    return lambda values: [(key, item(value)) for key, value in values.items()]


def _convert_fields(converters: Mapping[str, Convert]) -> Convert | None:
    """Return a function that converts these fields of a record, or None if there are no fields to convert."""
    if not converters:
        return None
    changed = {name: _keep_null(convert) for name, convert in converters.items()}
    return lambda record: {**record, **{name: change(record[name]) for name, change in changed.items()}}


KEPT_SCHEMA = "parquet.avro.schema"
"""The metadata in which parquet-avro, and so Confluent's sink, keeps the Avro schema."""
WRAPPER = "KafkaS3PlatformWrapper"
"""The record around a value that is no record. It has no namespace, because types inside would inherit it."""


class ParquetWriter(RowGroupWriter):
    """Writes decoded records of one schema.

    Raises UnwritableSchemaError if Parquet cannot hold the schema: a type contains itself, a record has no fields, a
    decimal has more than 76 digits, or there are more than a hundred thousand columns.
    """

    def __init__(self, request: WriteRequest) -> None:
        schema = request.required_schema
        part = self._part = request.part
        avro = AvroSchema(schema.avro)
        self._is_wrapped = part != "value" or avro.kind(avro.root) != "record"
        root = {"type": "record", "name": WRAPPER, "fields": [{"name": part, "type": avro.root}]}
        text = schema.text
        if self._is_wrapped:
            text = json.dumps({**root, "fields": [{"name": part, "type": schema.avro}]}, separators=(",", ":"))
        try:
            self._columns = ArrowColumns(avro, root if self._is_wrapped else avro.root)
        except UnwritableSchemaError as err:
            raise UnwritableSchemaError(f"{err}; write these topics as AvroFormat or JsonFormat") from err
        arrow_schema = pa.schema(list(self._columns.type))
        super().__init__(request.sink, arrow_schema, request.codec, request.level, {KEPT_SCHEMA: text})

    def write(self, batch: ConnectBatch) -> None:
        """Append records, none of them null. Raise UnwritableRecordsError if some values do not fit the schema."""
        rows = pa.RecordBatch.from_struct_array(self._build_columns(batch))
        self.write_rows(rows, count_record_bytes(batch.records))

    def _build_columns(self, batch: ConnectBatch) -> pa.StructArray:
        """Return the batch's values as columns. Raise UnwritableRecordsError, which names the unfit values."""
        payload = require_no_null(batch, find_payload(batch, self._part))
        columns = getattr(payload, "columns", None)
        decoded = columns() if columns is not None and not self._is_wrapped else None
        if decoded is not None:
            # if a value does not fit, the slower way below finds its record
            with suppress(*VALUE_ERRORS):
                return convert_type(decoded, self._columns.type)
        objects = [{self._part: o} for o in payload.objects] if self._is_wrapped else payload.objects
        try:
            return self._columns.build(objects)
        except VALUE_ERRORS as err:
            raise build_unwritable_error(batch, objects, "parquet", lambda o: self._columns.build([o])) from err
