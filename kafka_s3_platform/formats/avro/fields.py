"""Cuts the fields out of Avro records. Their bytes stay as they are, with the branches of unions."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from kafka_s3_platform.avro.objects import AvroObjects
from kafka_s3_platform.avro.schema import encode_null
from kafka_s3_platform.avro.values import AvroSchema
from kafka_s3_platform.avro.walk import Datum
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import ReadLimits


class AvroFields:
    """Cuts out the fields of records of one schema.

    `schemas` holds the schema of each field by the field's name, complete in itself. It is empty if values are no
    records.
    """

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
        """Return the data of each field. Raise ValueError if a record does not fit the schema."""
        columns: dict[str, list[bytes | None]] = {name: [] for name in self._data}
        nulls = {name: encode_null(schema.avro) for name, schema in self.schemas.items()}
        for record in records.to_pylist():
            view = memoryview(record)
            start = 0
            for name, datum in self._data.items():
                end = datum.end(view, start)
                one = bytes(view[start:end])
                columns[name].append(None if one == nulls[name] else one)
                start = end
        return {name: pa.array(data, pa.binary()) for name, data in columns.items()}


def decode_column(column: pa.BinaryArray, schema: Schema) -> list[Any]:
    """Decode the values of a field to Avro's physical types."""
    reader = AvroObjects(schema.avro)
    return [None if one is None else reader.read(one) for one in column.to_pylist()]
