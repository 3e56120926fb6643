"""The fields of Avro records, each as it stands in the data: none is made anew, and the branches of unions stay."""

import io
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from kafka_s3_platform.formats.avro_schema import AvroSchema
from kafka_s3_platform.formats.reading import physical
from kafka_s3_platform.model.avro_walk import Datum
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import ReadLimits


class AvroFields:
    """`schemas` are those of the fields of a record, by name, each complete in itself; none where it is no record."""

    def __init__(self, schema: Schema, limits: ReadLimits) -> None:
        avro = AvroSchema(schema.avro)
        root = avro.resolved(avro.root)
        is_record = not isinstance(root, list) and root["type"] == "record"
        self.name: str = root["name"].rpartition(".")[2] if is_record else ""
        fields = root["fields"] if is_record else ()
        self.schemas: Mapping[str, Schema] = {f["name"]: Schema(json.dumps(avro.complete(f["type"]))) for f in fields}
        self._limits = limits

    @cached_property
    def _data(self) -> Mapping[str, Datum]:
        return {n: Datum(s.avro, self._limits.depth, self._limits.items) for n, s in self.schemas.items()}

    def columns(self, records: pa.BinaryArray) -> Mapping[str, pa.BinaryArray]:
        """The data of each field, null where it is null. Raises ValueError where records are not of the schema."""
        found: dict[str, list[bytes | None]] = {name: [] for name in self._data}
        nulls = {name: _null_of(schema) for name, schema in self.schemas.items()}
        for record in records.to_pylist():
            view, start = memoryview(record), 0
            for name, datum in self._data.items():
                end = datum.end(view, start)
                one = bytes(view[start:end])
                found[name].append(None if one == nulls[name] else one)
                start = end
        return {name: pa.array(data, pa.binary()) for name, data in found.items()}


def decoded_column(column: pa.BinaryArray, schema: Schema) -> list[Any]:
    """The values of a field, as Avro's own types."""
    parsed = parse_schema(physical(schema.avro), _ignore_default_error=True)
    data = column.to_pylist()
    return [None if one is None else schemaless_reader(io.BytesIO(one), parsed, None) for one in data]


def _null_of(schema: Schema) -> bytes | None:
    """The datum of null, where a value may be null."""
    if schema.avro == "null":
        return b""
    if not isinstance(schema.avro, list) or "null" not in schema.avro:
        return None
    place = 2 * schema.avro.index("null")
    return bytes([place]) if place < 128 else bytes([place & 127 | 128, place >> 7])
