"""The envelope as an Avro container: whole records, nothing converted, under the documented `ENVELOPE_SCHEMA`."""

import io
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_reader

from kafka_s3_platform.errors import HEAL_OBJECT, IntegrityError, PlatformError
from kafka_s3_platform.formats.avro import AvroBlocks
from kafka_s3_platform.formats.avro_container import AvroContainer
from kafka_s3_platform.formats.avro_records import AvroRecords
from kafka_s3_platform.formats.columns import Int64s, headers, strings
from kafka_s3_platform.formats.envelope import Sink
from kafka_s3_platform.formats.reading import batched
from kafka_s3_platform.formats.rows import batch_of
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_TIMESTAMP = '{"type":"long","logicalType":"timestamp-millis"}'
ENVELOPE_SCHEMA = (
    '{"type":"record","name":"Record","namespace":"kafka_s3_platform","fields":['
    '{"name":"key","type":["null","bytes"]},'
    '{"name":"value","type":["null","bytes"]},'
    '{"name":"headers","type":["null",{"type":"array","items":{"type":"record","name":"Header","fields":['
    '{"name":"key","type":"string"},{"name":"value","type":["null","bytes"]}]}}]},'
    '{"name":"topic","type":"string"},'
    '{"name":"partition","type":"int"},'
    '{"name":"offset","type":"long"},'
    f'{{"name":"timestamp","type":{_TIMESTAMP}}},'
    '{"name":"timestampType","type":"int"}]}'
)
"""Field for field `RECORD_SCHEMA`, of which it is the Avro form. It decides the bytes of objects."""

_NULL, _PRESENT, _END = b"\x00", b"\x02", b"\x00"
# Without the logical type of the timestamp: Python has no dates after the year 9999.
_READ_SCHEMA = parse_schema(json.loads(ENVELOPE_SCHEMA.replace(_TIMESTAMP, '"long"')))


class EnvelopeAvroWriter:
    """Writes record batches as Avro data. The same records give the same bytes, however they are batched."""

    def __init__(self, sink: Sink, codec: str, level: int | None = None) -> None:
        self._blocks = AvroBlocks(sink, ENVELOPE_SCHEMA, codec, level)

    @property
    def buffered_bytes(self) -> int:
        return self._blocks.buffered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of `RECORD_SCHEMA`."""
        found = strings(_bodies(batch))
        self._blocks.add(found.data, found.lengths)

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002 - the header is written before it is known
        """Write what is held. The sink stays open; `metadata` has no place behind the header."""
        self._blocks.close()


def _bodies(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The Avro datum of each record."""
    topic = batch.column("topic").cast(pa.binary())
    numbers = [batch.column(name).cast(pa.int64()).to_numpy() for name in _NUMBERS]
    return pc.binary_join_element_wise(
        *_nullable(batch.column("key")),
        *_nullable(batch.column("value")),
        *_headers(batch.column("headers")),
        *_with_length(topic),
        *(varints(found) for found in numbers),
        b"",
    )


_NUMBERS = ("partition", "offset", "timestamp", "timestampType")


def _with_length(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    return varints(strings(column).lengths), column


def _nullable(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.BinaryArray]:
    """The branch of the union, the length and the bytes of each value; the last two empty for null."""
    lengths = strings(column).lengths
    branch = pc.if_else(column.is_valid(), _PRESENT, _NULL)
    return branch, varints(lengths, lengths >= 0), pc.fill_null(column, b"")


def _headers(column: pa.ListArray) -> tuple[pa.BinaryArray, ...]:
    counts = headers(column).counts
    branch = pc.if_else(column.is_valid(), _PRESENT, _NULL)
    if not (counts > 0).any():
        return branch, _repeated(_END, counts == 0)
    keys, values = column.flatten().flatten()
    each = pc.binary_join_element_wise(*_with_length(keys.cast(pa.binary())), *_nullable(values), b"")
    ends = np.cumsum(np.maximum(counts, 0), dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), each)
    return branch, varints(counts, counts > 0), pc.binary_join(lists, b""), _repeated(_END, counts >= 0)


def _repeated(value: bytes, where: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    return pc.if_else(pa.array(where), value, b"")


def varints(numbers: Int64s, where: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """Each number as Avro writes an int or a long; nothing where `where` is false."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    lengths = np.ones(len(numbers), np.int32)
    for size in range(1, _MAX_BYTES):
        longer = zigzag >= np.uint64(1 << 7 * size)
        if not longer.any():
            break
        lengths += longer
    if where is not None:
        lengths[~where] = 0
    places = np.arange(lengths.max(initial=1))
    groups = (zigzag[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & 0x7F
    groups[places < lengths[:, None] - 1] |= 0x80
    data = groups[places < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


_MAX_BYTES = 10


class EnvelopeAvroReader:
    """Reads what `EnvelopeAvroWriter` wrote, of whatever codec. `key` names the object in errors."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS) -> None:
        self._source, self._key, self._limits = source, key, limits

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches in offset order, each of some megabytes.

        Raises:
            IntegrityError: the object is damaged, cut off, or not an envelope. What the source raises passes through.
        """
        batches = self._batches()
        while True:
            try:
                batch = next(batches, None)
            except IntegrityError as err:
                raise IntegrityError(str(err) if HEAL_OBJECT in str(err) else f"{err}; {HEAL_OBJECT}") from err
            except PlatformError:
                raise
            except Exception as err:  # damaged data fail in as many ways as fastavro has
                raise IntegrityError(
                    f"object {self._key} cannot be read as Avro: {type(err).__name__}: {err}. It is damaged or cut "
                    f"off; {HEAL_OBJECT}"
                ) from err
            if batch is None:
                return
            yield batch

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in batched(self._rows(), _size_of):
            yield batch_of(rows)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        container = AvroContainer(self._source, self._key, self._limits)
        if container.metadata.get("avro.schema", b"").decode() != ENVELOPE_SCHEMA:
            raise IntegrityError(f"object {self._key} is Avro but not an envelope: another tool or version wrote it")
        records = AvroRecords(json.loads(ENVELOPE_SCHEMA), self._key, self._limits)
        for count, data in container.blocks():
            if not records.is_light(data):
                records.lengths(data, count)
            body = io.BytesIO(data)
            for _ in range(count):
                record: Any = schemaless_reader(body, _READ_SCHEMA, None)
                yield tuple(record.values())
            if body.tell() != len(data):
                raise ValueError(f"a block of {len(data)} bytes, of which its {count} records have {body.tell()}")
            del data, body  # else it would be in memory while the next one is decompressed


def _size_of(row: tuple[Any, ...]) -> int:
    """Of all that a record may have much of, headers as Python's objects."""
    key, value, headers, topic = row[:4]
    held = sum(len(h["key"]) + len(h["value"] or b"") + _HEADER_BYTES for h in headers or ())
    return len(key or b"") + len(value or b"") + len(topic) + held


_HEADER_BYTES = 256
"""About what a header takes beside its bytes."""
