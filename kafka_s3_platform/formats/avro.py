"""AvroFormat: values or keys of one schema in an Avro object container file.

Sources: Avro specification, "Object Container Files" and "Required Codecs"; Confluent S3 sink, `avro.codec`.
"""

import bz2
import hashlib
import io
from collections.abc import Callable, Mapping
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import zstandard
from fastavro import schemaless_writer
from fastavro.schema import parse_schema
from fastavro.write import LOGICAL_WRITERS
from isal import isal_zlib
from zlib_ng import zlib_ng

from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.formats.columns import strings
from kafka_s3_platform.formats.envelope import Sink
from kafka_s3_platform.model.connect import Int64s, Payload, Schema

EXTENSION = "avro"
BLOCK_BYTES = 262_144
"""A block ends with the record that brings it here. It decides the bytes of an object."""

_RAW_DEFLATE = -15
_DEFLATE_LEVEL = 1
_BZIP2_LEVEL = 9
_ZSTD_LEVEL = 1

Compress = Callable[[memoryview], Any]


class UnfitError(ValueError):
    """Objects that do not fit their schema. Nothing of the payload was written: leave these out and repeat."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"record {row} of its batch: {reason}" for row, reason in list(reasons.items())[:3]))
        self.reasons = reasons


class AvroBlocks:
    """Writes encoded data into a container. The same data give the same bytes, however they are batched.

    The sync marker is made of the schema and the codec. A `deflate` without a level is isal's level 1, which costs a
    tenth of zlib's 6 for some percent more bytes; an explicit level is zlib-ng's.

    Raises:
        ConfigError: the codec is none of null, deflate, snappy, bzip2 and zstd.
    """

    def __init__(self, sink: Sink, schema_text: str, codec: str, level: int | None = None) -> None:
        self._sink, self._compress = sink, _new_compress(codec, level)
        self._pending = bytearray()
        self._records = 0
        name = {"zstd": "zstandard"}.get(codec, codec).encode()
        self._sync = hashlib.sha256(name + b"\0" + schema_text.encode()).digest()[:16]
        facts = _string(b"avro.codec") + _string(name) + _string(b"avro.schema") + _string(schema_text.encode())
        sink.write(b"Obj\x01" + _long(2) + facts + _long(0) + self._sync)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the block that is being filled."""
        return len(self._pending)

    def add(self, bodies: bytes | memoryview, lengths: Int64s) -> None:
        """Append records: their encoded data in a row, and the length of each in bytes."""
        data, ends = memoryview(bodies), np.cumsum(lengths)
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
            row, start = last, end

    def close(self) -> None:
        """Write what is held. The sink stays open."""
        if self._records:
            self._write_block(memoryview(b""))

    def _write_block(self, tail: memoryview) -> None:
        body = self._compress(memoryview(bytes(self._pending) + tail) if self._pending else tail)
        self._sink.write(b"".join((_long(self._records), _long(len(body)), body, self._sync)))
        self._pending.clear()
        self._records = 0


class AvroWriter:
    """Writes payloads of one schema. Encoded data that have it already are moved, not decoded and encoded again."""

    def __init__(self, sink: Sink, schema: Schema, codec: str, level: int | None = None) -> None:
        self._blocks = AvroBlocks(sink, schema.text, codec, level)
        self._schema = schema
        self._parsed = parse_schema(_with_ranges(schema.avro), _ignore_default_error=True)

    @property
    def buffered_bytes(self) -> int:
        return self._blocks.buffered_bytes

    def write(self, payload: Payload) -> None:
        """Append the records of a payload, none of them null.

        Raises:
            UnfitError: objects do not fit the schema.
            IntegrityError: a record is null, or shorter than what stands before its body.
        """
        nulls = payload.is_null
        if nulls.any():
            raise IntegrityError(
                f"record {int(nulls.argmax())} of a batch is null, which an Avro container of one schema cannot hold: "
                f"such records have to be left out before, by `behavior.on.null.values` or into their own folder"
            )
        self._blocks.add(*(self._moved(payload) if self._is_written(payload) else self._encoded(payload)))

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002 - the header is written before it is known
        """Write what is held. The sink stays open; `metadata` has no place behind the header."""
        self._blocks.close()

    def _is_written(self, payload: Payload) -> bool:
        """Whether all records hold data of exactly this schema."""
        if payload.raw is None or payload.avro_start is None or self._schema.schema_id is None:
            return False
        same = [code for code, s in enumerate(payload.schemas) if s.schema_id == self._schema.schema_id]
        return bool(np.isin(payload.codes, same).all())

    def _moved(self, payload: Payload) -> tuple[memoryview, Int64s]:
        found = strings(_without_start(payload.raw, payload.avro_start or 0))
        return found.data, found.lengths

    def _encoded(self, payload: Payload) -> tuple[memoryview, Int64s]:
        body, ends, reasons = io.BytesIO(), [0], {}
        for row, value in enumerate(payload.objects):
            try:
                schemaless_writer(body, self._parsed, value)
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError, IndexError) as err:
                reasons[row] = f"{type(err).__name__}: {err}"
            ends.append(body.tell())
        if reasons:
            raise UnfitError(reasons)
        bounds = np.array(ends, np.int64)
        return body.getbuffer(), bounds[1:] - bounds[:-1]


def _without_start(column: pa.BinaryArray, size: int) -> pa.BinaryArray:
    """The values without their first bytes. None may be null."""
    if not len(column):
        return column
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if (np.diff(bounds) < size).any():
        raise IntegrityError(
            f"a value has less than the {size} bytes before its Avro datum: it was to be refused before"
        )
    # What is kept and what is left out take turns. pyarrow 26 has a kernel for it, binary_slice, which fails.
    turns = np.empty(2 * len(column), np.int32)
    turns[0::2], turns[1::2] = bounds[:-1] + size, bounds[1:]
    spaced = pa.Array.from_buffers(column.type, len(turns) - 1, [None, pa.py_buffer(turns), column.buffers()[2]])
    return spaced.take(pa.array(np.arange(0, len(turns), 2)))


def _with_ranges(avro: Any) -> Any:
    """The schema with each int as one that is checked: fastavro writes what other readers of Avro stumble over."""
    if isinstance(avro, list):
        return [_with_ranges(branch) for branch in avro]
    if avro == "int":
        return {"type": "int", "logicalType": _RANGE}
    if not isinstance(avro, Mapping) or "logicalType" in avro:
        return avro
    inner = {key: _with_ranges(avro[key]) for key in ("type", "items", "values") if key in avro}
    if avro["type"] == "int":
        return inner["type"]
    if "fields" in avro:
        inner["fields"] = [{**field, "type": _with_ranges(field["type"])} for field in avro["fields"]]
    return {**avro, **inner}


def _in_range(value: Any, schema: Any) -> Any:  # noqa: ARG001 - as fastavro calls it
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise OverflowError(f"{value} is no int of 32 bits")
    return value


_RANGE = "kafka-s3-platform-range"
LOGICAL_WRITERS[f"int-{_RANGE}"] = _in_range


def _new_compress(codec: str, level: int | None) -> Compress:
    match codec:
        case "null":
            return lambda data: data
        case "deflate" if level:
            return lambda data: zlib_ng.compress(data, level, _RAW_DEFLATE)
        case "deflate":
            return lambda data: isal_zlib.compress(data, _DEFLATE_LEVEL, _RAW_DEFLATE)
        case "snappy":
            return _snappy
        case "bzip2":
            return lambda data: bz2.compress(data, level or _BZIP2_LEVEL)
        case "zstd":
            return zstandard.ZstdCompressor(level=level or _ZSTD_LEVEL, write_checksum=True).compress
    raise ConfigError(f"an Avro container has no codec '{codec}'; it has null, deflate, snappy, bzip2, zstd")


def _snappy(data: memoryview) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + isal_zlib.crc32(data).to_bytes(4, "big")


def _string(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(number: int) -> bytes:
    """A count as Avro's zigzag number."""
    value, out = number << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
