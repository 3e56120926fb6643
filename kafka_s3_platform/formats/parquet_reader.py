"""Reads Parquet objects of decoded records: columns become Avro data of the schema that the file has, or that they say.

parquet-avro, and so Confluent's sink, keeps the Avro schema in the file (`parquet.avro.schema`, in older ones
`avro.schema`). Without one it is made of the columns: what the sink's own ParquetFormat makes of a schema is turned
back, but names of types, fixed and enum (which come back as bytes and string), and defaults.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro import schemaless_writer
from fastavro.schema import parse_schema

from kafka_s3_platform.formats.avro_records import BATCH_OBJECTS
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.parquet_batches import RowGroupReader
from kafka_s3_platform.formats.parquet_pages import CheckedFile, Chunk, opened
from kafka_s3_platform.formats.parts import VALUE_ERRORS, ObjectPart
from kafka_s3_platform.formats.reading import BATCH_RECORDS, ReadBatch, datum_payload, physical
from kafka_s3_platform.model.avro_walk import FEW_VALUES
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_KEPT = (b"parquet.avro.schema", b"avro.schema")
_MEMBER = re.compile(r"member\d+")


class ParquetReader:
    """Reads an object. `key` names it in errors. `wrapped`: a lone column `value` is the value itself."""

    def __init__(
        self,
        source: Any,
        key: str,
        part: ObjectPart = "value",
        *,
        wrapped: bool = False,
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._limits = limits
        self._source, self._key, self._part, self._wrapped = source, key, part, wrapped

    def batches(self) -> Iterator[ReadBatch]:
        """Its records. Raises IntegrityError where it is damaged or cut off."""
        found = self._batches()
        while True:
            try:
                batch = next(found, None)
            except (pa.ArrowException, OSError, *VALUE_ERRORS) as err:
                raise damaged(self._key, f"cannot be read as Parquet: {type(err).__name__}: {err}") from err
            if batch is None:
                return
            yield batch

    def _batches(self) -> Iterator[ReadBatch]:
        checked = opened(self._source, self._key, self._limits)
        file = checked.file
        _check_types(checked)
        columns = file.schema_arrow
        wrapped = self._part != "value" or (self._wrapped and columns.names == ["value"])
        schema = Schema(self._wrapped_text(columns) if wrapped else _text(file))
        encode = datum_encoder(schema)
        read = 0
        for batch in self._record_batches(checked):
            for records in self._portions(batch.to_struct_array()):
                rows = objects_of(records)
                values = [row[self._part] for row in rows] if wrapped else rows
                read += len(values)
                yield ReadBatch(datum_payload(encode(values), schema))
        if read != file.metadata.num_rows:
            # a damaged head of a page is told by nothing else
            raise ValueError(f"{read} records where its footer says {file.metadata.num_rows}")

    def _record_batches(self, checked: CheckedFile) -> Iterator[pa.RecordBatch]:
        reader = RowGroupReader(self._source, checked, self._key, self._limits)
        for at in range(len(checked.row_groups)):
            yield from reader.batches(at, BATCH_RECORDS)

    def _portions(self, records: pa.StructArray) -> Iterator[pa.StructArray]:
        """A batch in parts that come to a bounded number of Python's objects, as many as its lists say."""
        found, most = _values(records), FEW_VALUES * self._limits.items
        if len(records) > 1 and found > BATCH_OBJECTS:
            middle = len(records) // 2
            yield from self._portions(records[:middle])
            yield from self._portions(records[middle:])
            return
        if found > most:
            raise beyond(self._key, f"has a record of {found:,} values", "items")
        yield records

    def _wrapped_text(self, columns: pa.Schema) -> str:
        if columns.names != [self._part]:
            raise ValueError(f"its columns are {columns.names}, not the one column {self._part}")
        return json.dumps(_Names().nullable(columns.field(0)))


def _values(column: pa.Array) -> int:
    """How many values there are, with all inside of them."""
    kind = column.type
    if pa.types.is_struct(kind):
        return len(column) + sum(map(_values, column.flatten()))
    if pa.types.is_map(kind):
        start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return _values(column.keys[start:end]) + _values(column.items[start:end])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return len(column) + _values(column.flatten())
    return len(column)


def _check_types(checked: CheckedFile) -> None:
    """ValueError where a column that holds values is of no type: a footer has no checksum, and they came as nulls."""
    schema = checked.file.schema
    for at in range(len(schema)):
        chunks = (group.chunks[at] for group in checked.row_groups)
        if schema.column(at).logical_type.type == "UNKNOWN" and any(map(_holds_values, chunks)):
            raise ValueError(f"its column {schema.column(at).path} holds values and is of the type null")


def _holds_values(chunk: Chunk) -> bool:
    return chunk.nulls is not None and chunk.values > chunk.nulls


def _text(file: pq.ParquetFile) -> str:
    metadata = file.metadata.metadata or {}
    kept = next((metadata[name].decode() for name in _KEPT if name in metadata), None)
    return kept or json.dumps(_Names().avro(pa.struct(list(file.schema_arrow)), "ConnectDefault"))


def datum_encoder(schema: Schema) -> Any:
    """What makes Avro data of objects in physical form; a None of a record stays null."""
    parsed = parse_schema(physical(schema.avro), _ignore_default_error=True)

    def encode(objects: Sequence[Any]) -> pa.BinaryArray:
        return pa.array([_datum(parsed, o) for o in objects], pa.binary())

    return encode


def _datum(parsed: Any, value: Any) -> bytes | None:
    if value is None:
        return None
    body = io.BytesIO()
    schemaless_writer(body, parsed, value)
    return body.getvalue()


def objects_of(column: pa.Array) -> list[Any]:
    """The values of a column in Avro's physical form; of a union's members the one that is there."""
    kind = column.type
    nulls = column.is_null().to_pylist() if column.null_count else None
    if pa.types.is_struct(kind):
        found = _structs(column)
    elif pa.types.is_map(kind):
        found = [dict(pairs) for pairs in _slices(column, list(zip(*map(objects_of, _items(column)), strict=True)))]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _slices(column, objects_of(column.values))
    elif pa.types.is_decimal(kind):
        found = [None if v is None else _unscaled(v, kind.scale) for v in column.to_pylist()]
    else:
        found = _physical_column(column).to_pylist()
    return found if nulls is None else [None if null else value for null, value in zip(nulls, found, strict=True)]


def _structs(column: pa.StructArray) -> list[Any]:
    names = [field.name for field in column.type]
    rows = list(zip(*(objects_of(child) for child in column.flatten()), strict=True)) if names else [()] * len(column)
    if names and all(map(_MEMBER.fullmatch, names)):
        return [next((value for value in row if value is not None), None) for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _items(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    return column.keys, column.items


def _slices(column: pa.Array, values: list[Any]) -> list[Any]:
    bounds = column.offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(bounds)]


def _physical_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_date64(kind):
        return column.cast(pa.int64())
    return column


def _unscaled(value: Any, scale: int) -> bytes:
    number = int(value.scaleb(scale))
    return number.to_bytes((8 + (number + (number < 0)).bit_length()) // 8, "big", signed=True)


_PRIMITIVES: Mapping[pa.DataType, str] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32(), pa.uint64()), "long"),
    **dict.fromkeys((pa.float16(), pa.float32()), "float"),
    pa.float64(): "double",
    **dict.fromkeys((pa.string(), pa.large_string()), "string"),
    **dict.fromkeys((pa.binary(), pa.large_binary()), "bytes"),
}
_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


class _Names:
    """Makes Avro schemas of Arrow types; records are named by where they stand."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def nullable(self, field: pa.Field) -> Any:
        """The type of a field, a union with null where it may be null."""
        found = self.avro(field.type, field.name)
        if not field.nullable or found == "null":
            return found
        return ["null", *(found if isinstance(found, list) else [found])]

    def avro(self, kind: pa.DataType, name: str) -> Any:
        """The schema of an Arrow type."""
        if pa.types.is_struct(kind):
            return self._record(kind, name)
        if pa.types.is_map(kind):
            return {"type": "map", "values": self.nullable(kind.item_field)}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self.nullable(kind.value_field)}
        if pa.types.is_decimal(kind):
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        if pa.types.is_fixed_size_binary(kind):
            return "bytes"
        return _PRIMITIVES[kind] if kind in _PRIMITIVES else _logical(kind)

    def _record(self, kind: pa.StructType, name: str) -> Any:
        if len(kind) and all(_MEMBER.fullmatch(field.name) for field in kind):
            return [self.avro(field.type, f"{name}_{field.name}") for field in kind]
        safe = re.sub(r"\W", "_", name, flags=re.ASCII)
        self._used[safe] = self._used.get(safe, 0) + 1
        own = safe if self._used[safe] == 1 else f"{safe}_{self._used[safe]}"
        return {"type": "record", "name": own, "fields": [self._field(field) for field in kind]}

    def _field(self, field: pa.Field) -> Mapping[str, Any]:
        found = {"name": field.name, "type": self.nullable(field)}
        return {**found, "default": None} if field.nullable else found


def _logical(kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(kind):
        micros = pa.types.is_time64(kind)
        return {"type": "long" if micros else "int", "logicalType": f"time-{_UNITS[kind.unit]}"}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    raise ValueError(f"a column of type {kind} has no counterpart in Avro")
