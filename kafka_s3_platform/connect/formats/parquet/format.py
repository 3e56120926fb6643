"""Reads ParquetFormat. Columns become Avro data, by the schema in the file or one made from its columns.

ParquetFormat keeps the Avro schema in the file, as parquet-avro does, and so Confluent's and Aiven's sinks
(`parquet.avro.schema`, in older files `avro.schema`). If there is none, it is made from the columns. It then has no
names of types, no fixed and no enum (they come back as bytes and string), and no defaults.

The Avro schema decides the type of each value. Parquet knows less than Avro: an enum is bytes, a decimal in a fixed is
a number, a union is a struct of numbered members, and a field that is always null has no column. Source: parquet-avro,
AvroSchemaConverter and AvroWriteSupport.
"""

import io
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastavro.schema import SchemaParseException, UnknownType

from kafka_s3_platform.connect.avro.json_values import build_object
from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.avro.schema import get_branch_name
from kafka_s3_platform.connect.avro.values import AvroSchema, encode_unscaled, unscale_decimal
from kafka_s3_platform.connect.formats.avro import AvroFields
from kafka_s3_platform.connect.formats.avro_records import BATCH_OBJECTS, build_datum_payload
from kafka_s3_platform.connect.formats.parquet.value_columns import KEPT_SCHEMA, WRAPPER, ParquetWriter
from kafka_s3_platform.core.formats.format_io import FormatIO
from kafka_s3_platform.core.formats.parquet.batches import RowGroupReader
from kafka_s3_platform.core.formats.parquet.pages import CheckedFile, open_checked
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.formats.reading import BATCH_RECORDS, ReadBatch, build_damage_error, build_limit_error
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, Schema
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, FEW_VALUES, ReadLimits

MEMBER = re.compile(r"member(\d+)")
# Parquet's type UUID is a fixed of 16 bytes, Avro's is text.
_UUID_BYTES = 16


class ParquetValues:
    """Encodes columns as Avro data, by the schema `schema`."""

    def __init__(self, schema: Schema) -> None:
        self._avro = AvroSchema(schema.avro)
        self._objects = AvroObjects(schema.avro)

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Encode each value. A null stays null. Raise one of `VALUE_ERRORS` if a value does not fit the schema."""
        # All values go into one buffer, which becomes the array's, so large values are copied only once.
        body = io.BytesIO()
        values = self._convert(column, self._avro.root)
        ends = np.zeros(len(values) + 1, np.int32)
        for row, value in enumerate(values):
            if value is not None:
                self._objects.write(body, value)
            ends[row + 1] = body.tell()
        is_there = pa.array([value is not None for value in values]).buffers()[1]
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(values), [is_there, pa.py_buffer(ends), pa.py_buffer(body.getbuffer())]
        )

    def _convert(self, column: pa.Array, node: Any) -> list[Any]:
        """Convert the values of a column to plain objects of the type `node`."""
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        definition = self._avro.resolve(node)
        if isinstance(definition, list):
            return self._convert_union(column, definition)
        nulls = column.is_null().to_pylist() if column.null_count else None
        values = self._convert_by_type(column, definition["type"], definition)
        if nulls is None:
            return values
        return [None if null else value for null, value in zip(nulls, values, strict=True)]

    def _convert_by_type(self, column: pa.Array, kind: str, node: Any) -> list[Any]:
        """Return a column's values as the Python objects of an Avro type (`node`) of this kind."""
        match kind:
            case "null":
                return [None] * len(column)
            case "record" | "error":
                return self._convert_records(column, node["fields"])
            case "map":
                return self._convert_maps(column, node["values"])
            case "array":
                return _slice_rows(column, self._convert(column.values, node["items"]))
        return _convert_scalars(column, kind, node["size"] if kind == "fixed" else None)

    def _convert_union(self, column: pa.Array, union: Sequence[Any]) -> list[Any]:
        """Convert a column of a union, either of one type and null, or a struct of members, all null but one."""
        others, _ = self._avro.members(union)
        if len(others) == 1:
            return self._convert(column, others[0])
        members = {field.name: column.field(at) for at, field in enumerate(column.type)} if _is_struct(column) else {}
        if not others or len(members) != len(others) or not all(map(MEMBER.fullmatch, members)):
            raise ValueError(f"a column of type {column.type} is no union of {len(others)} types")
        names = [get_branch_name(self._avro.resolve(branch)) for branch in others]
        columns = [self._convert(members[f"member{at}"], branch) for at, branch in enumerate(others)]
        picked = [_pick_member(names, row) for row in zip(*columns, strict=True)]
        return [None if null else value for null, value in zip(column.is_null().to_pylist(), picked, strict=True)]

    def _convert_records(self, column: pa.StructArray, fields: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Convert a column of structs to dicts. Raise ValueError if its fields and the schema's fields differ."""
        if not _is_struct(column):
            raise ValueError(f"a column of type {column.type} is no record")
        children = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        if len(children) != column.type.num_fields:
            raise ValueError(f"two columns of {', '.join(children)} have one name")
        # parquet-avro writes no column for a field that is always null.
        absent = {f["name"]: None for f in fields if f["name"] not in children}
        missing = [f["name"] for f in fields if f["name"] in absent and self._avro.kind(f["type"]) != "null"]
        others = children.keys() - {f["name"] for f in fields}
        if missing or others:
            raise ValueError(f"its schema and its columns differ in {', '.join([*missing, *sorted(others)])}")
        names = [name for f in fields if (name := f["name"]) in children]
        columns = [self._convert(children[f["name"]], f["type"]) for f in fields if f["name"] in children]
        rows: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(column))
        return [absent | dict(zip(names, row, strict=True)) for row in rows]

    def _convert_maps(self, column: pa.MapArray, values: Any) -> list[Any]:
        """Convert a column of maps to dicts."""
        keys = _convert_scalars(column.keys, "string", None)
        items = self._convert(column.items, values)
        return [build_object(pairs) for pairs in _slice_rows(column, list(zip(keys, items, strict=True)))]


def _pick_member(names: Sequence[str], row: Sequence[Any]) -> tuple[str, Any] | None:
    """Return the branch and the value of a union's only member, or None if all are null."""
    members = [(at, value) for at, value in enumerate(row) if value is not None]
    if len(members) > 1:
        raise ValueError(f"a union has values in {' and '.join(f'member{at}' for at, _ in members)}")
    return (names[members[0][0]], members[0][1]) if members else None


def _is_struct(column: pa.Array) -> bool:
    """Return True if a column holds structs."""
    return bool(pa.types.is_struct(column.type))


def _slice_rows(column: pa.Array, values: list[Any]) -> list[Any]:
    """Return, for each row of lists or maps, its part of `values`, which holds the values of all rows."""
    bounds = column.offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(bounds)]


def _convert_scalars(column: pa.Array, kind: str, size: int | None) -> list[Any]:
    """Convert a column without inner columns to values of Avro's type `kind`, of `size` bytes if it is fixed."""
    arrow = column.type
    if pa.types.is_decimal(arrow):
        return [
            None if v is None else encode_unscaled(unscale_decimal(v, arrow.scale), size) for v in column.to_pylist()
        ]
    if kind in {"string", "enum"} and _is_bytes(arrow):
        is_uuid = pa.types.is_fixed_size_binary(arrow) and arrow.byte_width == _UUID_BYTES
        if is_uuid:
            return [None if v is None else str(uuid.UUID(bytes=v)) for v in column.to_pylist()]
        return [None if v is None else v.decode() for v in column.to_pylist()]
    if kind in {"bytes", "fixed"} and (pa.types.is_string(arrow) or pa.types.is_large_string(arrow)):
        return [None if v is None else v.encode() for v in column.to_pylist()]
    values: list[Any] = _convert_to_physical(column).to_pylist()
    return values


def _is_bytes(arrow: pa.DataType) -> bool:
    """Return True for any type of bytes."""
    return bool(pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow))


def _convert_to_physical(column: pa.Array) -> pa.Array:
    """Return dates and times as the numbers that Avro has for them. Other columns stay as they are."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_date64(kind):
        return column.cast(pa.int64())
    return column


_KEPT = (KEPT_SCHEMA.encode(), b"avro.schema")
_TEXTS = {"ENUM", "JSON"}
"""The logical types that hold text although pyarrow reads them as bytes."""


@dataclass(frozen=True)
class ParquetReader:
    """Reads an object. `key` names the object in errors.

    If `wrapped`, a file whose only column is `value` holds the values themselves.
    """

    source: Any
    key: str
    part: ObjectPart = "value"
    wrapped: bool = False
    limits: ReadLimits = DEFAULT_LIMITS

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches. Raise IntegrityError if the object is damaged or cut off."""
        try:
            yield from self._read_batches()
        except (pa.ArrowException, OSError, SchemaParseException, UnknownType, *VALUE_ERRORS) as err:
            raise build_damage_error(self.key, f"cannot be read as Parquet: {type(err).__name__}: {err}") from err

    def _read_batches(self) -> Iterator[ReadBatch]:
        """Yield the records as Avro data, by the schema in the file or one made from its columns."""
        checked = open_checked(self.source, self.key, self.limits)
        file = checked.file
        _check_types(checked)
        columns = file.schema_arrow
        is_value_alone = columns.names == ["value"] and (self.wrapped or _is_wrapper(_find_kept_schema(file)))
        wrapped = self.part != "value" or is_value_alone
        schema = Schema(self._find_wrapped_schema(file) if wrapped else _build_schema_text(file))
        values = ParquetValues(schema)
        read = 0
        for batch in self._record_batches(checked):
            for records in self._cut_batch(batch.to_struct_array()):
                read += len(records)
                yield ReadBatch(build_datum_payload(values.encode(records.field(0) if wrapped else records), schema))
        if read != file.metadata.num_rows:
            # Nothing else shows that the header of a page is damaged: checksums cover the data of pages alone.
            raise ValueError(f"{read} records where its footer says {file.metadata.num_rows}")

    def _record_batches(self, checked: CheckedFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all row groups."""
        reader = RowGroupReader(self.source, checked, self.key, self.limits)
        for at in range(len(checked.row_groups)):
            yield from reader.batches(at, BATCH_RECORDS)

    def _cut_batch(self, records: pa.StructArray) -> Iterator[pa.StructArray]:
        """Cut a batch, by the sizes of its lists, into parts of a bounded number of Python objects."""
        count = _count_values(records)
        most = FEW_VALUES * self.limits.items
        if len(records) > 1 and count > BATCH_OBJECTS:
            middle = len(records) // 2
            yield from self._cut_batch(records[:middle])
            yield from self._cut_batch(records[middle:])
            return
        if count > most:
            raise build_limit_error(self.key, f"has a record of {count:,} values", "items")
        yield records

    def _find_wrapped_schema(self, file: pq.ParquetFile) -> str:
        """Return the schema of the only column, which holds the values, keys or headers themselves."""
        columns = file.schema_arrow
        if columns.names != [self.part]:
            raise ValueError(f"its columns are {columns.names}, not the one column {self.part}")
        schema_text = _find_kept_schema(file)
        if schema_text is None:
            return json.dumps(_SchemaMaker(_list_texts(file)).make_field_type(columns.field(0)))
        return AvroFields(Schema(schema_text), self.limits).schemas[self.part].text


def _is_wrapper(schema_text: str | None) -> bool:
    """Return True if a schema is of a record that only wraps a value."""
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

    A footer has no checksum. If damage changes a type to null, Arrow reads the values as nulls.
    """
    schema = checked.file.schema
    for at in range(len(schema)):
        is_null_type = schema.column(at).logical_type.type == "UNKNOWN"
        chunks = [group.chunks[at] for group in checked.row_groups] if is_null_type else []
        if any(chunk.nulls is not None and chunk.values > chunk.nulls for chunk in chunks):
            raise ValueError(f"its column {schema.column(at).path} holds values and is of the type null")


def _find_kept_schema(file: pq.ParquetFile) -> str | None:
    """Find the Avro schema in the metadata of the file."""
    metadata = file.metadata.metadata or {}
    return next((metadata[name].decode() for name in _KEPT if name in metadata), None)


def _build_schema_text(file: pq.ParquetFile) -> str:
    """Return the Avro schema in the file, or one made from its columns."""
    return _find_kept_schema(file) or json.dumps(
        _SchemaMaker(_list_texts(file)).make_type(pa.struct(list(file.schema_arrow)), "ConnectDefault")
    )


def _list_texts(file: pq.ParquetFile) -> frozenset[int]:
    """List the positions of leaf columns that hold text although Arrow reads them as bytes."""
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


class _SchemaMaker:
    """Makes Avro schemas of Arrow types. A record gets its field's name. `texts` are the positions of text columns."""

    def __init__(self, texts: frozenset[int]) -> None:
        self._used: dict[str, int] = {}
        self._texts = texts
        self._column = 0

    def make_field_type(self, field: pa.Field, type_name: str | None = None) -> Any:
        """Return the schema of a field, which is a union with null if the field may be null."""
        schema = self.make_type(field.type, type_name or field.name)
        if not field.nullable or schema == "null":
            return schema
        return ["null", *(schema if isinstance(schema, list) else [schema])]

    def make_type(self, kind: pa.DataType, name: str) -> Any:
        """Return the schema of an Arrow type."""
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            return self._make_record(kind, name)
        if pa.types.is_map(kind):
            self._column += 1
            return {"type": "map", "values": self.make_field_type(kind.item_field)}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self.make_field_type(kind.value_field)}
        self._column += 1
        if self._column - 1 in self._texts:
            return "string"
        return _find_scalar_type(kind)

    def _make_record(self, kind: pa.StructType, name: str) -> Any:
        """Return a record, or a union if the struct's fields are all members of one union."""
        fields = [
            self._make_field(field, f"{name}_{field.name}" if _is_member(field) else field.name) for field in kind
        ]
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

    def _make_field(self, field: pa.Field, type_name: str) -> Mapping[str, Any]:
        """Return the field of a record. If it may be null, its default is null."""
        definition = {"name": field.name, "type": self.make_field_type(field, type_name)}
        return {**definition, "default": None} if field.nullable else definition


def _is_member(field: pa.Field) -> bool:
    """Return True if a field is a branch of a union, as parquet-avro names these."""
    return field.nullable and MEMBER.fullmatch(field.name) is not None


def _find_scalar_type(kind: pa.DataType) -> Any:
    """Return the Avro type of a column without inner columns. Raise ValueError if Avro has no such type."""
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_fixed_size_binary(kind):
        return "bytes"
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    return _find_logical_type(kind)


def _find_logical_type(kind: pa.DataType) -> Any:
    """Return the Avro type of a column of dates, times or timestamps. Raise ValueError for any other column."""
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time(kind):
        micros = pa.types.is_time64(kind)
        return {"type": "long" if micros else "int", "logicalType": f"time-{_UNITS[kind.unit]}"}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    raise ValueError(f"a column of type {kind} has no counterpart in Avro")


FORMAT_IO = FormatIO(
    new_writer=ParquetWriter,
    new_reader=lambda request: ParquetReader(
        request.source, request.key, request.part, wrapped=request.is_wrapped, limits=request.limits
    ),
)
