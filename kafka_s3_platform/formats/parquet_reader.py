"""Reads Parquet objects of decoded records: columns become Avro data of the schema that the file has, or that they say.

parquet-avro, and so Confluent's and Aiven's sinks, keep the Avro schema in the file (`parquet.avro.schema`, in older
ones `avro.schema`). Without one it is made of the columns: what the sink's own ParquetFormat makes of a schema is
turned back, but names of types, fixed and enum (which come back as bytes and string), and defaults.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.avro_fields import AvroFields
from kafka_s3_platform.formats.avro_records import BATCH_OBJECTS
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.parquet_batches import RowGroupReader
from kafka_s3_platform.formats.parquet_pages import CheckedFile, Chunk, opened
from kafka_s3_platform.formats.parquet_values import MEMBER, ParquetValues
from kafka_s3_platform.formats.parts import VALUE_ERRORS, ObjectPart
from kafka_s3_platform.formats.reading import BATCH_RECORDS, ReadBatch, datum_payload
from kafka_s3_platform.model.avro_walk import FEW_VALUES
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_KEPT = (b"parquet.avro.schema", b"avro.schema")
_TEXTS = {"ENUM", "JSON"}
"""Logical types of text that pyarrow reads as bytes."""


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
        schema = Schema(self._wrapped_text(file) if wrapped else _text(file))
        values = ParquetValues(schema)
        read = 0
        for batch in self._record_batches(checked):
            for records in self._portions(batch.to_struct_array()):
                read += len(records)
                yield ReadBatch(datum_payload(values.data(records.field(0) if wrapped else records), schema))
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

    def _wrapped_text(self, file: pq.ParquetFile) -> str:
        columns = file.schema_arrow
        if columns.names != [self._part]:
            raise ValueError(f"its columns are {columns.names}, not the one column {self._part}")
        kept = _kept(file)
        if kept is None:
            return json.dumps(_Names(_texts(file)).nullable(columns.field(0)))
        return AvroFields(Schema(kept), self._limits).schemas[self._part].text


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


def _kept(file: pq.ParquetFile) -> str | None:
    """The Avro schema that the file keeps."""
    metadata = file.metadata.metadata or {}
    return next((metadata[name].decode() for name in _KEPT if name in metadata), None)


def _text(file: pq.ParquetFile) -> str:
    return _kept(file) or json.dumps(_Names(_texts(file)).avro(pa.struct(list(file.schema_arrow)), "ConnectDefault"))


def _texts(file: pq.ParquetFile) -> frozenset[int]:
    """The places, among the innermost columns, of those that hold text without saying so in Arrow."""
    return frozenset(at for at in range(len(file.schema)) if file.schema.column(at).logical_type.type in _TEXTS)


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
    """Makes Avro schemas of Arrow types; records are named by where they stand. `texts` are columns of text."""

    def __init__(self, texts: frozenset[int]) -> None:
        self._used: dict[str, int] = {}
        self._texts, self._column = texts, 0

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
            self._column += 1
            return {"type": "map", "values": self.nullable(kind.item_field)}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self.nullable(kind.value_field)}
        self._column += 1
        return "string" if self._column - 1 in self._texts else _of_scalars(kind)

    def _record(self, kind: pa.StructType, name: str) -> Any:
        if len(kind) and all(MEMBER.fullmatch(field.name) for field in kind):
            return [self.avro(field.type, f"{name}_{field.name}") for field in kind]
        safe = re.sub(r"\W", "_", name, flags=re.ASCII)
        self._used[safe] = self._used.get(safe, 0) + 1
        own = safe if self._used[safe] == 1 else f"{safe}_{self._used[safe]}"
        return {"type": "record", "name": own, "fields": [self._field(field) for field in kind]}

    def _field(self, field: pa.Field) -> Mapping[str, Any]:
        found = {"name": field.name, "type": self.nullable(field)}
        return {**found, "default": None} if field.nullable else found


def _of_scalars(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_fixed_size_binary(kind):
        return "bytes"
    return _PRIMITIVES[kind] if kind in _PRIMITIVES else _logical(kind)


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
