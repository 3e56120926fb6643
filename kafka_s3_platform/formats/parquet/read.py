"""Reads Parquet objects of decoded records. Columns become Avro data, by the schema of the file or of its columns.

ParquetFormat keeps the Avro schema in the file, as parquet-avro and so Confluent's and Aiven's sinks do
(`parquet.avro.schema`, in older ones `avro.schema`). Without one, the schema is made from the columns: it has no names
of types, no fixed and no enum (they come back as bytes and string), and no defaults.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro.schema import SchemaParseException, UnknownType

from kafka_s3_platform.avro.nodes import FEW_VALUES
from kafka_s3_platform.avro.schema import get_branch_name
from kafka_s3_platform.avro.values import VALUE_ERRORS
from kafka_s3_platform.formats.avro.fields import AvroFields
from kafka_s3_platform.formats.avro.records import BATCH_OBJECTS
from kafka_s3_platform.formats.damage import build_damage_error, build_limit_error
from kafka_s3_platform.formats.parquet.batches import RowGroupReader
from kafka_s3_platform.formats.parquet.pages import CheckedFile, ColumnChunk, open_checked
from kafka_s3_platform.formats.parquet.values import MEMBER, ParquetValues
from kafka_s3_platform.formats.parquet.write import KEPT_SCHEMA, WRAPPER
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.formats.reading import BATCH_RECORDS, ReadBatch, build_datum_payload
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_KEPT = (KEPT_SCHEMA.encode(), b"avro.schema")
_TEXTS = {"ENUM", "JSON"}
"""The logical types that hold text, but that pyarrow reads as bytes."""


class ParquetReader:
    """Reads an object. `key` names it in errors. `wrapped`: a column `value` without others holds the value itself."""

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
        self._source = source
        self._key = key
        self._part = part
        self._wrapped = wrapped

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches. Raise IntegrityError if the object is damaged or cut off."""
        batches = self._batches()
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError, SchemaParseException, UnknownType, *VALUE_ERRORS) as err:
                raise build_damage_error(self._key, f"cannot be read as Parquet: {type(err).__name__}: {err}") from err
            if batch is None:
                return
            yield batch

    def _batches(self) -> Iterator[ReadBatch]:
        checked = open_checked(self._source, self._key, self._limits)
        file = checked.file
        _check_types(checked)
        columns = file.schema_arrow
        is_value_alone = columns.names == ["value"] and (self._wrapped or _is_wrapper(_find_kept_schema(file)))
        wrapped = self._part != "value" or is_value_alone
        schema = Schema(self._wrapped_text(file) if wrapped else _build_schema_text(file))
        values = ParquetValues(schema)
        read = 0
        for batch in self._record_batches(checked):
            for records in self._portions(batch.to_struct_array()):
                read += len(records)
                yield ReadBatch(build_datum_payload(values.data(records.field(0) if wrapped else records), schema))
        if read != file.metadata.num_rows:
            # Nothing else shows that the header of a page is damaged: checksums cover the data of pages alone.
            raise ValueError(f"{read} records where its footer says {file.metadata.num_rows}")

    def _record_batches(self, checked: CheckedFile) -> Iterator[pa.RecordBatch]:
        reader = RowGroupReader(self._source, checked, self._key, self._limits)
        for at in range(len(checked.row_groups)):
            yield from reader.batches(at, BATCH_RECORDS)

    def _portions(self, records: pa.StructArray) -> Iterator[pa.StructArray]:
        """Cut a batch, by the sizes of its lists, into parts of a bounded number of Python objects."""
        count = _count_values(records)
        most = FEW_VALUES * self._limits.items
        if len(records) > 1 and count > BATCH_OBJECTS:
            middle = len(records) // 2
            yield from self._portions(records[:middle])
            yield from self._portions(records[middle:])
            return
        if count > most:
            raise build_limit_error(self._key, f"has a record of {count:,} values", "items")
        yield records

    def _wrapped_text(self, file: pq.ParquetFile) -> str:
        columns = file.schema_arrow
        if columns.names != [self._part]:
            raise ValueError(f"its columns are {columns.names}, not the one column {self._part}")
        schema_text = _find_kept_schema(file)
        if schema_text is None:
            return json.dumps(_Names(_list_texts(file)).nullable(columns.field(0)))
        return AvroFields(Schema(schema_text), self._limits).schemas[self._part].text


def _is_wrapper(schema_text: str | None) -> bool:
    root = None if schema_text is None else json.loads(schema_text)
    return isinstance(root, dict) and root.get("name") == WRAPPER


def _count_values(column: pa.Array) -> int:
    """Count the values of a column, including those inside of structs, lists and maps."""
    kind = column.type
    if pa.types.is_struct(kind):
        return len(column) + sum(map(_count_values, column.flatten()))
    if pa.types.is_map(kind):
        start = column.offsets[0].as_py()
        end = column.offsets[-1].as_py()
        return _count_values(column.keys[start:end]) + _count_values(column.items[start:end])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return len(column) + _count_values(column.flatten())
    return len(column)


def _check_types(checked: CheckedFile) -> None:
    """Raise ValueError if a column of the type null holds values.

    A footer has no checksum: if damage changes a type to null, Arrow reads the values as nulls.
    """
    schema = checked.file.schema
    for at in range(len(schema)):
        chunks = (group.chunks[at] for group in checked.row_groups)
        if schema.column(at).logical_type.type == "UNKNOWN" and any(map(_holds_values, chunks)):
            raise ValueError(f"its column {schema.column(at).path} holds values and is of the type null")


def _holds_values(chunk: ColumnChunk) -> bool:
    return chunk.nulls is not None and chunk.values > chunk.nulls


def _find_kept_schema(file: pq.ParquetFile) -> str | None:
    """Find the Avro schema in the metadata of the file."""
    metadata = file.metadata.metadata or {}
    return next((metadata[name].decode() for name in _KEPT if name in metadata), None)


def _build_schema_text(file: pq.ParquetFile) -> str:
    return _find_kept_schema(file) or json.dumps(
        _Names(_list_texts(file)).avro(pa.struct(list(file.schema_arrow)), "ConnectDefault")
    )


def _list_texts(file: pq.ParquetFile) -> frozenset[int]:
    """List the positions of leaf columns with text, of the types that Arrow reads as bytes."""
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
# Avro has no timestamps in seconds.
_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


class _Names:
    """Makes Avro schemas from Arrow types. A record has the name of its field.

    `texts` are the positions of leaf columns with text.
    """

    def __init__(self, texts: frozenset[int]) -> None:
        self._used: dict[str, int] = {}
        self._texts = texts
        self._column = 0

    def nullable(self, field: pa.Field, type_name: str | None = None) -> Any:
        """Return the schema of a field: a union with null if the field may be null."""
        schema = self.avro(field.type, type_name or field.name)
        if not field.nullable or schema == "null":
            return schema
        return ["null", *(schema if isinstance(schema, list) else [schema])]

    def avro(self, kind: pa.DataType, name: str) -> Any:
        """Return the schema of an Arrow type."""
        if pa.types.is_struct(kind):
            return self._record(kind, name)
        if pa.types.is_map(kind):
            self._column += 1
            return {"type": "map", "values": self.nullable(kind.item_field)}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self.nullable(kind.value_field)}
        self._column += 1
        if self._column - 1 in self._texts:
            return "string"
        return _find_scalar_type(kind)

    def _record(self, kind: pa.StructType, name: str) -> Any:
        fields = [self._field(field, f"{name}_{field.name}" if _is_member(field) else field.name) for field in kind]
        if len(kind) and all(map(_is_member, kind)):
            branches = [field["type"][-1] for field in fields]
            # Types that Avro cannot tell apart, such as two enums, which are text here, are no union, but members.
            is_union = all(len(field["type"]) == 2 for field in fields)
            if is_union and len(set(map(get_branch_name, branches))) == len(branches):
                return branches
        safe = re.sub(r"\W", "_", name, flags=re.ASCII)
        self._used[safe] = self._used.get(safe, 0) + 1
        unique_name = safe if self._used[safe] == 1 else f"{safe}_{self._used[safe]}"
        return {"type": "record", "name": unique_name, "fields": fields}

    def _field(self, field: pa.Field, type_name: str) -> Mapping[str, Any]:
        definition = {"name": field.name, "type": self.nullable(field, type_name)}
        return {**definition, "default": None} if field.nullable else definition


def _is_member(field: pa.Field) -> bool:
    return field.nullable and MEMBER.fullmatch(field.name) is not None


def _find_scalar_type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_fixed_size_binary(kind):
        return "bytes"
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    return _find_logical_type(kind)


def _find_logical_type(kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(kind):
        micros = pa.types.is_time64(kind)
        return {"type": "long" if micros else "int", "logicalType": f"time-{_UNITS[kind.unit]}"}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    raise ValueError(f"a column of type {kind} has no counterpart in Avro")
