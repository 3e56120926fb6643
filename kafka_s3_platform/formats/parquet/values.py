"""Encodes the values of Parquet's columns as Avro data. The Avro schema decides the type of each value.

Parquet knows less than Avro: an enum is bytes, a decimal in a fixed is a number, a union is a struct of numbered
members, and a field of nulls alone has no column. Source: parquet-avro, AvroSchemaConverter and
AvroWriteSupport.
"""

import io
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.avro.objects import AvroObjects
from kafka_s3_platform.avro.schema import get_branch_name
from kafka_s3_platform.avro.values import AvroSchema, encode_unscaled
from kafka_s3_platform.model.connect import Schema

MEMBER = re.compile(r"member(\d+)")
# Parquet's type UUID is a fixed of 16 bytes, Avro's is text.
_UUID_BYTES = 16


class ParquetValues:
    """Encodes columns as Avro data of `schema`."""

    def __init__(self, schema: Schema) -> None:
        self._avro = AvroSchema(schema.avro)
        self._objects = AvroObjects(schema.avro)

    def data(self, column: pa.Array) -> pa.BinaryArray:
        """Encode each value; a null stays null. Raise one of `VALUE_ERRORS` if a value does not fit the schema."""
        # All into one buffer, which becomes the array's: large values are copied once.
        body = io.BytesIO()
        values = self._values(column, self._avro.root)
        ends = np.zeros(len(values) + 1, np.int32)
        for row, value in enumerate(values):
            if value is not None:
                self._objects.write(body, value)
            ends[row + 1] = body.tell()
        is_there = pa.array([value is not None for value in values]).buffers()[1]
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(values), [is_there, pa.py_buffer(ends), pa.py_buffer(body.getbuffer())]
        )

    def _values(self, column: pa.Array, node: Any) -> list[Any]:
        """Convert the values of a column to plain objects of the type `node`."""
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        definition = self._avro.resolved(node)
        if isinstance(definition, list):
            return self._of_union(column, definition)
        nulls = column.is_null().to_pylist() if column.null_count else None
        values = self._of_kind(column, definition["type"], definition)
        if nulls is None:
            return values
        return [None if null else value for null, value in zip(nulls, values, strict=True)]

    def _of_kind(self, column: pa.Array, kind: str, node: Any) -> list[Any]:
        match kind:
            case "null":
                return [None] * len(column)
            case "record" | "error":
                return self._records(column, node["fields"])
            case "map":
                return self._maps(column, node["values"])
            case "array":
                return _slice_rows(column, self._values(column.values, node["items"]))
        return _convert_scalars(column, kind, node["size"] if kind == "fixed" else None)

    def _of_union(self, column: pa.Array, union: Sequence[Any]) -> list[Any]:
        others, _ = self._avro.members(union)
        if len(others) == 1:
            return self._values(column, others[0])
        members = {field.name: column.field(at) for at, field in enumerate(column.type)} if _is_struct(column) else {}
        if not others or len(members) != len(others) or not all(map(MEMBER.fullmatch, members)):
            raise ValueError(f"a column of type {column.type} is no union of {len(others)} types")
        names = [get_branch_name(self._avro.resolved(branch)) for branch in others]
        columns = [self._values(members[f"member{at}"], branch) for at, branch in enumerate(others)]
        rows = zip(*columns, strict=True)
        picked = [next(((name, v) for name, v in zip(names, row, strict=True) if v is not None), None) for row in rows]
        return [None if null else value for null, value in zip(column.is_null().to_pylist(), picked, strict=True)]

    def _records(self, column: pa.StructArray, fields: Sequence[Mapping[str, Any]]) -> list[Any]:
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
        columns = [self._values(children[f["name"]], f["type"]) for f in fields if f["name"] in children]
        rows: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(column))
        return [absent | dict(zip(names, row, strict=True)) for row in rows]

    def _maps(self, column: pa.MapArray, values: Any) -> list[Any]:
        keys = _convert_scalars(column.keys, "string", None)
        items = self._values(column.items, values)
        return [dict(pairs) for pairs in _slice_rows(column, list(zip(keys, items, strict=True)))]


def _is_struct(column: pa.Array) -> bool:
    return bool(pa.types.is_struct(column.type))


def _slice_rows(column: pa.Array, values: list[Any]) -> list[Any]:
    bounds = column.offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(bounds)]


def _convert_scalars(column: pa.Array, kind: str, size: int | None) -> list[Any]:
    arrow = column.type
    if pa.types.is_decimal(arrow):
        return [None if v is None else _encode_unscaled(v, arrow.scale, size) for v in column.to_pylist()]
    if kind in {"string", "enum"} and _is_bytes(arrow):
        is_uuid = pa.types.is_fixed_size_binary(arrow) and arrow.byte_width == _UUID_BYTES
        of: Callable[[bytes], str] = _format_uuid if is_uuid else bytes.decode
        return [None if v is None else of(v) for v in column.to_pylist()]
    if kind in {"bytes", "fixed"} and (pa.types.is_string(arrow) or pa.types.is_large_string(arrow)):
        return [None if v is None else v.encode() for v in column.to_pylist()]
    values: list[Any] = _convert_to_physical(column).to_pylist()
    return values


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow))


def _format_uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def _convert_to_physical(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_date64(kind):
        return column.cast(pa.int64())
    return column


def _encode_unscaled(value: Any, scale: int, size: int | None) -> bytes:
    """Encode the number of a decimal in as many bytes as it needs, or as its fixed type has."""
    return encode_unscaled(int(value.scaleb(scale)), size)
