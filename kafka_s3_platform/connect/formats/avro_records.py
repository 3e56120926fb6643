"""Finds the records in the blocks of Avro files, in bounded memory, and makes their payloads.

fastavro crashes the process if data are some thousands of levels deep. It also makes as many objects as the data ask
for, and a small block may ask for very many, because some items take no bytes. So fastavro reads only *light* blocks:
they hold few objects, and their schema has neither recursion nor items without bytes. In all other blocks, `Datum`
*walks*: it passes over the bytes of each record without decoding them.

Measured: a record of 96 B and 10 fields takes 6.7 CPU microseconds with fastavro, and 14 with the walk.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.avro.schema import strip_logical_types
from kafka_s3_platform.connect.avro.walk import Datum
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.formats.reading import refuse_many_empty
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Int64s, Payload, Schema
from kafka_s3_platform.core.model.limits import FEW_VALUES, ReadLimits

_FEW_OBJECTS = 1_048_576
"""The most objects in a block that fastavro reads. Each takes up to some 200 bytes."""

BATCH_OBJECTS = 1_048_576
"""A batch ends as soon as its decoded records are this many objects: fields and items, which may take no bytes."""


@dataclass(frozen=True)
class RecordSizes:
    """The length of each record in bytes, and about how many objects it becomes when it is decoded."""

    lengths: Int64s
    objects: Int64s


class AvroRecords:
    """Finds the records in the blocks of an object, all of one schema. `key` names the object in errors.

    Raises ValueError if the schema cannot be read. Errors of fastavro pass through.
    """

    def __init__(self, avro: Any, key: str, limits: ReadLimits) -> None:
        self._key = key
        self._limits = limits
        try:
            self._datum = Datum(avro, limits.depth, limits.items)
        except PermanentError as err:
            raise ValueError(err.text) from err
        self._parsed = parse_schema(strip_logical_types(avro), _ignore_default_error=True)
        self._empty = 0
        self._items: Int64s = np.zeros(0, np.int64)

    def find_lengths(self, data: bytes, records: int) -> Int64s:
        """Return the length of each record of a block, in bytes.

        Raises:
            ValueError: the data are not this number of records.
            IntegrityError: they exceed the limits. Errors of fastavro pass through.
        """
        size = self._datum.size
        if size is not None:
            return self._find_equal_lengths(len(data), records, size)
        # Each record takes a byte at least: those without any are all of one size.
        if records > len(data):
            raise ValueError(f"{records} records in a block of {len(data)} bytes")
        ends = self._find_record_bounds(data, records) if self.is_light(data) else self._walk_records(data, records)
        if ends[-1] != len(data):
            raise ValueError(f"{len(data)} bytes in a block whose {records} records have {ends[-1]}")
        lengths: Int64s = np.diff(ends)
        return lengths

    def measure(self, data: bytes, count: int) -> RecordSizes:
        """Return the length of each record of a block, and about how many Python objects it becomes when decoded."""
        lengths = self.find_lengths(data, count)
        objects = lengths * self._datum.density + self._datum.values
        if self._datum.has_light_items:
            objects += FEW_VALUES * self._items
        return RecordSizes(lengths, objects)

    def is_light(self, data: bytes) -> bool:
        """Return True if fastavro can read a block in bounded memory."""
        datum = self._datum
        is_plain = not (datum.is_recursive or datum.has_light_items)
        return is_plain and len(data) * max(datum.density, 1) <= _FEW_OBJECTS

    def _find_equal_lengths(self, total: int, records: int, size: int) -> Int64s:
        """Return the length of each record, if all have the same. Raise ValueError if the block has another length."""
        self._empty += 0 if size else records
        refuse_many_empty(self._empty, self._key, self._limits)
        if records * size != total:
            raise ValueError(f"{total} bytes in a block whose {records} records have {records * size}")
        return np.full(records, size, np.int64)

    def _find_record_bounds(self, data: bytes, records: int) -> Int64s:
        """Return the byte offsets between the records of a block. To find where a record ends, it has to be decoded."""
        body = io.BytesIO(data)
        ends = [0]
        for _ in range(records):
            schemaless_reader(body, self._parsed, None)
            ends.append(body.tell())
        return np.array(ends, np.int64)

    def _walk_records(self, data: bytes, records: int) -> Int64s:
        """Return the byte offsets between the records, found by `Datum`, and note the number of items of each."""
        ends = np.zeros(records + 1, np.int64)
        view = memoryview(data)
        pos = 0
        self._items = np.zeros(records, np.int64)
        for row in range(records):
            pos = self._datum.end(view, pos)
            ends[row + 1] = pos
            self._items[row] = self._datum.items
        return ends


class DatumPayload(Payload):
    """Avro data of one schema, without a schema id in front. They are decoded when their values are first used."""

    raw_is_value = False
    avro_start = 0

    def _decode(self) -> Sequence[object]:
        """Decode all records, each by its own schema."""
        readers = [AvroObjects(schema.avro) for schema in self.schemas]
        rows = pa.array(self.raw).to_pylist()
        return [
            None if row is None else readers[code].read(row)
            for row, code in zip(rows, self.codes.tolist(), strict=True)
        ]


def build_datum_payload(data: pa.BinaryArray, schema: Schema) -> Payload:
    """Build a payload of Avro data without schema ids."""
    codes = np.zeros(len(data), np.int32)
    codes[data.is_null().to_numpy(zero_copy_only=False)] = NO_SCHEMA
    return DatumPayload(data, codes, [schema])
