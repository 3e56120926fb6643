"""Writes AvroFormat: values or keys of one schema in an Avro object container file.

Sources: Avro specification, "Object Container Files" and "Required Codecs"; Confluent S3 sink, `avro.codec`.
"""

import hashlib
import io
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from kafka_s3_platform.avro.objects import AvroObjects
from kafka_s3_platform.config.codecs import AVRO_CODECS
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.avro.codecs import new_compress
from kafka_s3_platform.formats.columns import read_strings
from kafka_s3_platform.formats.sink import Sink
from kafka_s3_platform.model.connect import Int64s, Payload, Schema

BLOCK_BYTES = 262_144
"""A block ends with the record that brings it to this size. A change here changes the bytes of objects."""


class UnfitError(ValueError):
    """Values that do not fit their schema. Nothing of the payload was written: leave these out and repeat."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"record {row} of its batch: {reason}" for row, reason in list(reasons.items())[:3]))
        self.reasons = reasons


class AvroBlocks:
    """Writes encoded data into a container. The same data give the same bytes, however they are batched.

    `deflate` without a level uses isal's level 1: a tenth of the cost of zlib's 6, for a few percent more bytes. An
    explicit level is zlib-ng's.

    Raises:
        ConfigError: containers are not written with the codec.
    """

    def __init__(self, sink: Sink, schema_text: str, codec: str, level: int | None = None) -> None:
        self._sink = sink
        self._compress = new_compress(codec, level)
        self._pending = bytearray()
        self._records = 0
        name = AVRO_CODECS[codec].avro_name.encode()
        # Not random: the same records have to give the same object.
        self._sync = hashlib.sha256(name + b"\0" + schema_text.encode()).digest()[:16]
        facts = (
            _encode_string(b"avro.codec")
            + _encode_string(name)
            + _encode_string(b"avro.schema")
            + _encode_string(schema_text.encode())
        )
        sink.write(b"Obj\x01" + _encode_long(2) + facts + _encode_long(0) + self._sync)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of the unfinished block."""
        return len(self._pending)

    def add(self, bodies: bytes | memoryview, lengths: Int64s) -> None:
        """Append records: `bodies` is their encoded data in a row, `lengths` the bytes of each."""
        data = memoryview(bodies)
        ends = np.cumsum(lengths)
        row = start = 0
        while row < len(ends):
            full = int(np.searchsorted(ends, start + BLOCK_BYTES - len(self._pending))) + 1
            last = min(full, len(ends))
            end = int(ends[last - 1])
            self._records += last - row
            if full <= len(ends):
                self._write_block(data[start:end])
            else:
                self._pending += data[start:end]
            row = last
            start = end

    def close(self) -> None:
        """Write the buffered records. The sink stays open."""
        if self._records:
            self._write_block(memoryview(b""))

    def _write_block(self, tail: memoryview) -> None:
        body = self._compress(memoryview(bytes(self._pending) + tail) if self._pending else tail)
        self._sink.write(b"".join((_encode_long(self._records), _encode_long(len(body)), body, self._sync)))
        self._pending.clear()
        self._records = 0


class AvroWriter:
    """Writes payloads of one schema. Data encoded by it are copied, not decoded and encoded again."""

    def __init__(self, sink: Sink, schema: Schema, codec: str, level: int | None = None) -> None:
        self._blocks = AvroBlocks(sink, schema.text, codec, level)
        self._schema = schema
        self._objects = AvroObjects(schema.avro)

    @property
    def buffered_bytes(self) -> int:
        return self._blocks.buffered_bytes

    def write(self, payload: Payload) -> None:
        """Append the records of a payload, none of them null.

        Raises:
            UnfitError: objects do not fit the schema.
            IntegrityError: a record is null, or shorter than the frame before its body.
        """
        nulls = payload.is_null
        if nulls.any():
            raise IntegrityError(
                f"record {int(nulls.argmax())} of a batch is null, which an Avro container of one schema cannot hold: "
                f"such records have to be left out before, by `behavior.on.null.values` or into their own folder"
            )
        self._blocks.add(*(self._moved(payload) if self._is_written(payload) else self._encoded(payload)))

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002 - the header is written before it is known
        """Write the buffered records. The sink stays open; `metadata` cannot follow the header."""
        self._blocks.close()

    def _is_written(self, payload: Payload) -> bool:
        """Return whether all records hold data of exactly this schema."""
        if payload.raw is None or payload.avro_start is None or self._schema.schema_id is None:
            return False
        same = [code for code, s in enumerate(payload.schemas) if s.schema_id == self._schema.schema_id]
        return bool(np.isin(payload.codes, same).all())

    def _moved(self, payload: Payload) -> tuple[memoryview, Int64s]:
        strings = read_strings(_cut_start(payload.raw, payload.avro_start or 0))
        return strings.data, strings.lengths

    def _encoded(self, payload: Payload) -> tuple[memoryview, Int64s]:
        body = io.BytesIO()
        ends = [0]
        reasons = {}
        for row, value in enumerate(payload.objects):
            try:
                self._objects.write(body, value)
            # All that fastavro raises for a value that does not fit.
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError, IndexError) as err:
                reasons[row] = f"{type(err).__name__}: {err}"
            ends.append(body.tell())
        if reasons:
            raise UnfitError(reasons)
        bounds = np.array(ends, np.int64)
        return body.getbuffer(), bounds[1:] - bounds[:-1]


def _cut_start(column: pa.BinaryArray, size: int) -> pa.BinaryArray:
    """Return the values without their first bytes. No value may be null."""
    if not len(column):
        return column
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if (np.diff(bounds) < size).any():
        raise IntegrityError(
            f"a value has less than the {size} bytes before its Avro datum: it was to be refused before"
        )
    # Kept and dropped ranges take turns, and every second one is taken. binary_slice of pyarrow 26 fails here.
    turns = np.empty(2 * len(column), np.int32)
    turns[0::2] = bounds[:-1] + size
    turns[1::2] = bounds[1:]
    spaced = pa.Array.from_buffers(column.type, len(turns) - 1, [None, pa.py_buffer(turns), column.buffers()[2]])
    return spaced.take(pa.array(np.arange(0, len(turns), 2)))


def _encode_string(data: bytes) -> bytes:
    return _encode_long(len(data)) + data


def _encode_long(number: int) -> bytes:
    """Encode a count as a zigzag number of Avro."""
    value = number << 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
