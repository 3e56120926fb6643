"""Where the records of Avro blocks end, told without making more of them than a machine can hold.

fastavro crashes its process where data are some thousands of levels deep, and makes as many objects as the data say:
items without bytes cost nothing but their count. So it is used where neither can happen: schemas that do not hold
themselves, whose items all take bytes, in blocks that come to few objects. All else is walked through.

Measured: records of 96 B and 10 fields take 6.7 CPU microseconds each by fastavro, the walk takes 14.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.reading import physical
from kafka_s3_platform.model.avro_walk import FEW_VALUES, Datum
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.limits import ReadLimits

_FEW_OBJECTS = 1_048_576
"""Each takes up to some 200 bytes."""

BATCH_OBJECTS = 1_048_576
"""What the records of a batch come to where they are decoded: fields and items, which may take no byte."""


@dataclass(frozen=True)
class CutRecords:
    """How many bytes each record has, and how many objects it comes to, about, where it is decoded."""

    lengths: Int64s
    objects: Int64s


class AvroRecords:
    """The records of an object's blocks, all of one schema. `key` names the object in errors.

    Raises:
        ValueError: the schema is none that is read. fastavro raises what it has.
    """

    def __init__(self, avro: Any, key: str, limits: ReadLimits) -> None:
        self._key, self._limits = key, limits
        try:
            self._datum = Datum(avro, limits.depth, limits.items)
        except PermanentError as err:
            raise ValueError(str(err)) from err
        self._parsed = parse_schema(physical(avro), _ignore_default_error=True)
        self._empty = 0
        self._items: Int64s = np.zeros(0, np.int64)

    def lengths(self, data: bytes, records: int) -> Int64s:
        """How many bytes each of the records of a block has.

        Raises:
            ValueError: the data are not so many records.
            IntegrityError: they are more than is read. fastavro raises what it has.
        """
        size = self._datum.size
        if size is not None:
            return self._of_one_size(len(data), records, size)
        if records > len(data):
            raise ValueError(f"{records} records in a block of {len(data)} bytes")
        found = self._decoded(data, records) if self.is_light(data) else self._walked(data, records)
        if found[-1] != len(data):
            raise ValueError(f"{len(data)} bytes in a block whose {records} records have {found[-1]}")
        lengths: Int64s = np.diff(found)
        return lengths

    def records(self, data: bytes, count: int) -> CutRecords:
        """The records of a block, as `lengths` has it, with what they come to."""
        lengths = self.lengths(data, count)
        objects = lengths * self._datum.density + self._datum.values
        if self._datum.has_light_items:
            objects += FEW_VALUES * self._items
        return CutRecords(lengths, objects)

    def is_light(self, data: bytes) -> bool:
        """Whether fastavro reads a block without harm."""
        datum = self._datum
        is_plain = not (datum.is_recursive or datum.has_light_items)
        return is_plain and len(data) * max(datum.density, 1) <= _FEW_OBJECTS

    def _of_one_size(self, total: int, records: int, size: int) -> Int64s:
        self._empty += 0 if size else records
        if self._empty > self._limits.empty_records:
            what = f"has more than {self._limits.empty_records:,} records without a byte"
            raise beyond(self._key, what, "empty.records")
        if records * size != total:
            raise ValueError(f"{total} bytes in a block whose {records} records have {records * size}")
        return np.full(records, size, np.int64)

    def _decoded(self, data: bytes, records: int) -> Int64s:
        body, ends = io.BytesIO(data), [0]
        for _ in range(records):
            schemaless_reader(body, self._parsed, None)
            ends.append(body.tell())
        return np.array(ends, np.int64)

    def _walked(self, data: bytes, records: int) -> Int64s:
        ends, view, pos = np.zeros(records + 1, np.int64), memoryview(data), 0
        self._items = np.zeros(records, np.int64)
        for row in range(records):
            pos = self._datum.end(view, pos)
            ends[row + 1], self._items[row] = pos, self._datum.items
        return ends
