"""Reads Avro object container files. Each record is decoded as a check, and its bytes are returned unchanged."""

import json
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.formats.avro.container import AvroContainer
from kafka_s3_platform.formats.avro.records import BATCH_OBJECTS, AvroRecords, RecordSizes
from kafka_s3_platform.formats.damage import build_damage_error
from kafka_s3_platform.formats.reading import BATCH_BYTES, BATCH_RECORDS, ReadBatch, build_datum_payload
from kafka_s3_platform.model.connect import Int64s, Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class AvroReader:
    """Reads values, keys or headers. `key` names the object in errors. The object holds the schema."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS) -> None:
        self._source = source
        self._key = key
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches.

        Raises:
            IntegrityError: the object is damaged, cut off, or no Avro. Errors of the source pass through.
        """
        blocks = self._blocks()
        while True:
            try:
                batch = next(blocks, None)
            except PlatformError:
                raise
            except Exception as err:  # fastavro raises errors of any type for damaged data
                raise build_damage_error(self._key, f"cannot be read as Avro: {type(err).__name__}: {err}") from err
            if batch is None:
                return
            yield batch

    def _blocks(self) -> Iterator[ReadBatch]:
        container = AvroContainer(self._source, self._key, self._limits)
        schema = Schema(container.metadata["avro.schema"].decode())
        avro_records = AvroRecords(json.loads(schema.text), self._key, self._limits)
        bodies = list[bytes]()
        lengths = list[Int64s]()
        records = 0
        size = 0
        objects = 0
        for count, data in container.blocks():
            for part, sizes in _cut_block(data, avro_records.measure(data, count)):
                bodies.append(part)
                lengths.append(sizes.lengths)
                records += len(sizes.lengths)
                size += len(part)
                objects += int(sizes.objects.sum())
                if size >= BATCH_BYTES or records >= BATCH_RECORDS or objects >= BATCH_OBJECTS:
                    yield _build_batch(bodies, lengths, schema)
                    bodies = []
                    lengths = []
                    records = 0
                    size = 0
                    objects = 0
        if lengths:
            yield _build_batch(bodies, lengths, schema)


def _cut_block(data: bytes, sizes: RecordSizes) -> Iterator[tuple[bytes, RecordSizes]]:
    """Cut a block of many records into portions for a batch, each of at least one record."""
    count = len(sizes.lengths)
    come = np.cumsum(sizes.objects)
    if count <= BATCH_RECORDS and come[-1:].sum() <= BATCH_OBJECTS:
        yield data, sizes
        return
    ends = np.concatenate([[0], np.cumsum(sizes.lengths)])
    start = 0
    while start < count:
        before = come[start] - sizes.objects[start]
        fitting = int(np.searchsorted(come, before + BATCH_OBJECTS, "right"))
        stop = min(max(fitting, start + 1), start + BATCH_RECORDS, count)
        yield data[ends[start] : ends[stop]], RecordSizes(sizes.lengths[start:stop], sizes.objects[start:stop])
        start = stop


def _build_batch(bodies: list[bytes], lengths: list[Int64s], schema: Schema) -> ReadBatch:
    sizes = np.concatenate(lengths)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(bodies))]
    return ReadBatch(build_datum_payload(pa.Array.from_buffers(pa.binary(), len(sizes), buffers), schema))
