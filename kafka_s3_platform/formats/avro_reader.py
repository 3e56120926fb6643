"""Reads Avro object container files: each record's data as they are, cut out and checked by decoding them."""

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import IO, Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.formats.avro_container import AvroContainer
from kafka_s3_platform.formats.reading import (
    BATCH_BYTES,
    BATCH_RECORDS,
    ReadBatch,
    damaged,
    datum_payload,
    physical,
)
from kafka_s3_platform.model.connect import Schema


class AvroReader:
    """Reads values, or keys, or headers. `key` names the object in errors; the schema is that of the object."""

    def __init__(self, source: IO[bytes], key: str) -> None:
        self._source, self._key = source, key

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
        container = AvroContainer(self._source)
        schema = Schema(container.metadata["avro.schema"].decode())
        parsed = parse_schema(physical(json.loads(schema.text)), _ignore_default_error=True)
        held, lengths, size = [], list[int](), 0
        for records, data in container.blocks():
            lengths += _lengths(data, records, parsed)
            held.append(data)
            size += len(data)
            if size >= BATCH_BYTES or len(lengths) >= BATCH_RECORDS:
                yield _batch(held, lengths, schema)
                held, lengths, size = [], [], 0
        if lengths:
            yield _batch(held, lengths, schema)


def _lengths(data: bytes, records: int, parsed: Any) -> list[int]:
    body, ends = io.BytesIO(data), [0]
    for _ in range(records):
        schemaless_reader(body, parsed, None)
        ends.append(body.tell())
    if ends[-1] != len(data):
        raise ValueError(f"{len(data)} bytes in a block whose {records} records have {ends[-1]}")
    return [end - start for start, end in pairwise(ends)]


def _batch(held: list[bytes], lengths: list[int], schema: Schema) -> ReadBatch:
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(held))]
    return ReadBatch(datum_payload(pa.Array.from_buffers(pa.binary(), len(lengths), buffers), schema))
