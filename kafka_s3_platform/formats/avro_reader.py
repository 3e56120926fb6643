"""Reads Avro object container files: each record's data as they are, cut out and checked by decoding them."""

import json
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.formats.avro_container import AvroContainer
from kafka_s3_platform.formats.avro_records import AvroRecords
from kafka_s3_platform.formats.damage import damaged
from kafka_s3_platform.formats.reading import BATCH_BYTES, BATCH_RECORDS, ReadBatch, datum_payload
from kafka_s3_platform.model.connect import Int64s, Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class AvroReader:
    """Reads values, or keys, or headers. `key` names the object in errors; the schema is that of the object."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS) -> None:
        self._source, self._key, self._limits = source, key, limits

    def batches(self) -> Iterator[ReadBatch]:
        """Its records.

        Raises:
            IntegrityError: the object is damaged, cut off, or no Avro. What the source raises passes through.
        """
        blocks = self._blocks()
        while True:
            try:
                found = next(blocks, None)
            except PlatformError:
                raise
            except Exception as err:  # damaged data fail in as many ways as fastavro has
                raise damaged(self._key, f"cannot be read as Avro: {type(err).__name__}: {err}") from err
            if found is None:
                return
            yield found

    def _blocks(self) -> Iterator[ReadBatch]:
        container = AvroContainer(self._source, self._key, self._limits)
        schema = Schema(container.metadata["avro.schema"].decode())
        cut = AvroRecords(json.loads(schema.text), self._key, self._limits)
        held, lengths, records, size = list[bytes](), list[Int64s](), 0, 0
        for count, data in container.blocks():
            for part, ends in _portions(data, cut.lengths(data, count)):
                held.append(part)
                lengths.append(ends)
                records += len(ends)
                size += len(part)
                if size >= BATCH_BYTES or records >= BATCH_RECORDS:
                    yield _batch(held, lengths, schema)
                    held, lengths, records, size = [], [], 0, 0
        if lengths:
            yield _batch(held, lengths, schema)


def _portions(data: bytes, lengths: Int64s) -> Iterator[tuple[bytes, Int64s]]:
    """A block of many records in several portions."""
    if len(lengths) <= BATCH_RECORDS:
        yield data, lengths
        return
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for start in range(0, len(lengths), BATCH_RECORDS):
        stop = min(start + BATCH_RECORDS, len(lengths))
        yield data[ends[start] : ends[stop]], lengths[start:stop]


def _batch(held: list[bytes], lengths: list[Int64s], schema: Schema) -> ReadBatch:
    sizes = np.concatenate(lengths)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(held))]
    return ReadBatch(datum_payload(pa.Array.from_buffers(pa.binary(), len(sizes), buffers), schema))
