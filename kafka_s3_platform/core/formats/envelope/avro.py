"""The envelope as an Avro container: whole records, nothing converted, in the documented `ENVELOPE_SCHEMA`."""

import io
import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_reader

from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError, PlatformError
from kafka_s3_platform.core.formats.avro_container import AvroBlocks, AvroContainer, read_zigzag
from kafka_s3_platform.core.formats.columns import read_headers, read_strings
from kafka_s3_platform.core.formats.envelope.records import build_batch
from kafka_s3_platform.core.formats.format_io import FormatIO
from kafka_s3_platform.core.formats.reading import add_remedy, batch_values
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits

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
"""The Avro form of `RECORD_SCHEMA`, field for field. A change here changes the bytes of objects."""

# Avro's encoding of union branches 0 and 1, and of the count 0 that ends an array.
_NULL = b"\x00"
_PRESENT = b"\x02"
_END = b"\x00"
# Reads timestamps as plain numbers: Python has no dates after the year 9999.
_READ_SCHEMA = parse_schema(json.loads(ENVELOPE_SCHEMA.replace(_TIMESTAMP, '"long"')))


class EnvelopeAvroWriter(AvroBlocks):
    """Writes whole records as Avro data."""

    def __init__(self, sink: Sink, codec: str, level: int | None = None) -> None:
        super().__init__(sink, ENVELOPE_SCHEMA, codec, level)

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch."""
        bodies = read_strings(_encode_bodies(batch.records))
        self.add(bodies.data, bodies.lengths)


def _encode_bodies(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Encode the Avro datum of each record."""
    topic = batch.column("topic").cast(pa.binary())
    numbers = [batch.column(name).cast(pa.int64()).to_numpy() for name in _NUMBERS]
    return pc.binary_join_element_wise(
        *_encode_nullable(batch.column("key")),
        *_encode_nullable(batch.column("value")),
        *_encode_headers(batch.column("headers")),
        *_add_length(topic),
        *(encode_varints(column) for column in numbers),
        b"",
    )


_NUMBERS = ("partition", "offset", "timestamp", "timestampType")


def _add_length(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the two parts of each value in Avro: its length, then its bytes."""
    return encode_varints(read_strings(column).lengths), column


def _encode_nullable(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.BinaryArray]:
    """Encode the union branch, the length and the bytes of each value. A null has no length and no bytes."""
    lengths = read_strings(column).lengths
    branch = pc.if_else(column.is_valid(), _PRESENT, _NULL)
    return branch, encode_varints(lengths, lengths >= 0), pc.fill_null(column, b"")


def _encode_headers(column: pa.ListArray) -> tuple[pa.BinaryArray, ...]:
    """Encode the headers of each record: the union branch, the count, the headers, and the end of the array."""
    counts = read_headers(column).counts
    branch = pc.if_else(column.is_valid(), _PRESENT, _NULL)
    if not (counts > 0).any():
        return branch, _end_arrays(counts == 0)
    keys, values = column.flatten().flatten()
    headers = pc.binary_join_element_wise(*_add_length(keys.cast(pa.binary())), *_encode_nullable(values), b"")
    ends = np.cumsum(np.maximum(counts, 0), dtype=np.int32)
    # Arrow joins the headers of each record as a list of bytes.
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), headers)
    return branch, encode_varints(counts, counts > 0), pc.binary_join(lists, b""), _end_arrays(counts >= 0)


def _end_arrays(where: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Return the end of an array for the rows in `where`, and no bytes for the others."""
    return pc.if_else(pa.array(where), _END, b"")


def encode_varints(numbers: Int64s, where: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """Encode each number as an int or long of Avro. The result is empty for rows outside of `where`."""
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


# Each byte carries 7 of the 64 bits.
_MAX_BYTES = 10


class EnvelopeAvroReader:
    """Reads objects of `EnvelopeAvroWriter`, with any codec. `key` names the object in errors."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self._source = source
        self._key = key
        self._limits = limits

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return record batches in offset order, each of some megabytes.

        Raises IntegrityError if the object is damaged, cut off, or not an envelope. Errors of the source pass through.
        """
        try:
            for rows in batch_values(self._rows(), _count_bytes):
                yield build_batch(rows)
        except IntegrityError as err:
            raise add_remedy(err) from err
        except PlatformError:
            raise
        except Exception as err:  # fastavro raises errors of any type for damaged data
            raise IntegrityError(
                f"object {self._key} cannot be read as Avro: {type(err).__name__}: {err}. It is damaged or cut off; "
                f"{HEAL_OBJECT}"
            ) from err

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of each record as Python values. Raises an error if the object is no envelope."""
        container = AvroContainer(self._source, self._key, self._limits)
        if container.metadata.get("avro.schema", b"").decode() != ENVELOPE_SCHEMA:
            raise IntegrityError(f"object {self._key} is Avro but not an envelope: another tool or version wrote it")
        for count, data in container.blocks():
            body = io.BytesIO(data)
            # fastavro cannot check such a block in bounded memory: our pass over it fails first.
            if len(data) > _LIGHT_BYTES:
                _check_headers(body, count, self._limits.items)
                body.seek(0)
            for _ in range(count):
                record: Any = schemaless_reader(body, _READ_SCHEMA, None)
                yield tuple(record.values())
            if body.tell() != len(data):
                raise ValueError(f"a block of {len(data)} bytes, of which its {count} records have {body.tell()}")
            del data, body  # they would stay in memory while the next block is decompressed


_LIGHT_BYTES = 524_288
"""A larger block may hold too many headers for memory: a header takes two bytes in it, and hundreds as an object."""


def _check_headers(body: IO[bytes], records: int, most: int) -> None:
    """Walk through the records without decoding them. Raise ValueError if one has more than `most` headers."""
    for _ in range(records):
        for _ in ("key", "value"):
            _skip_nullable(body)
        if read_zigzag(body):
            _skip_headers(body, most)
        _skip_bytes(body)
        for _ in _NUMBERS:
            read_zigzag(body)


def _skip_headers(body: IO[bytes], most: int) -> None:
    """Skip the headers of one record. Raise ValueError if there are more than `most`."""
    headers = 0
    while count := read_zigzag(body):
        # After a negative count comes the size of its headers in bytes.
        if count < 0:
            read_zigzag(body)
        headers += abs(count)
        if headers > most:
            raise ValueError(f"a record has more than {most:,} items")
        for _ in range(abs(count)):
            _skip_bytes(body)
            _skip_nullable(body)


def _skip_nullable(body: IO[bytes]) -> None:
    """Skip nullable bytes."""
    if read_zigzag(body):
        _skip_bytes(body)


def _skip_bytes(body: IO[bytes]) -> None:
    """Skip the length and the bytes of a value."""
    size = read_zigzag(body)
    if size < 0:
        raise ValueError(f"a length of {size}")
    body.seek(size, io.SEEK_CUR)


def _count_bytes(row: tuple[Any, ...]) -> int:
    """Count about how many bytes a row takes in memory."""
    key, value, headers, topic = row[:4]
    header_bytes = sum(len(h["key"]) + len(h["value"] or b"") + _HEADER_BYTES for h in headers or ())
    return len(key or b"") + len(value or b"") + len(topic) + header_bytes


_HEADER_BYTES = 256
"""About how many bytes a header takes as Python objects, besides its own."""


FORMAT_IO = FormatIO(
    new_writer=lambda request: EnvelopeAvroWriter(request.sink, request.codec, request.level),
    new_record_reader=EnvelopeAvroReader,
)
