"""Takes Avro object container files apart, and checks every checksum and every size in them.

Source: Avro specification, "Object Container Files", "Required Codecs" and "Optional Codecs". fastavro's own reader
does not compare snappy's CRC-32.

The ends of records in blocks are found in bounded memory. fastavro crashes the process if data are some thousands of
levels deep. It also makes as many objects as the data ask for: items that take no bytes cost nothing but their count.
So fastavro reads only blocks of few objects, by schemas without recursion and without items of no bytes. For all other
blocks, `Datum` walks through the bytes.

Measured: a record of 96 B and 10 fields takes 6.7 CPU microseconds with fastavro, and 14 with the walk.
"""

import bz2
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import cramjam
import numpy as np
import pyarrow as pa
import zstandard
from fastavro import schemaless_reader
from fastavro.schema import parse_schema
from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from kafka_s3_platform.avro.nodes import FEW_VALUES
from kafka_s3_platform.avro.schema import strip_logical_types
from kafka_s3_platform.avro.walk import Datum
from kafka_s3_platform.config.codecs import AVRO_CODECS, CODECS
from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.formats.compression import CHUNK_BYTES, FIRST_BYTES, MOST_EMPTY_STREAMS, decompress_frames
from kafka_s3_platform.formats.magic_bytes import HEAD_BYTES, describe_head
from kafka_s3_platform.formats.reading import build_limit_error
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.limits import ReadLimits

# Avro puts a CRC-32 of the uncompressed data after each block of snappy.
_CRC_BYTES = 4
_XZ_BYTES = 134_217_728
"""The most memory that xz may take to decompress. Its highest level needs 65 MB."""

# zlib's number for a stream without header and checksum, as Avro has it.
_RAW_DEFLATE = -15
# isal's level: see `AvroBlocks`.
_DEFLATE_LEVEL = 1
# bzip2's own default.
_BZIP2_LEVEL = 9
# Measured in `compression`: level 3 costs twice as much and saves nothing.
_ZSTD_LEVEL = 1

Compress = Callable[[memoryview], Any]
Decompress = Callable[[bytes, int], bytes]
"""Takes a block and the most bytes that it may become."""


@dataclass(frozen=True)
class AvroCodec:
    """Decompresses blocks, and compresses them if containers are written with the codec."""

    decompress: Decompress
    new_compress: Callable[[int | None], Compress] | None = None


def new_compress(codec: str, level: int | None) -> Compress:
    """Return a function to compress blocks with.

    Raises:
        ConfigError: containers are not written with the codec.
    """
    avro_codec = AVRO_COMPRESSION.get(codec)
    if avro_codec is None or avro_codec.new_compress is None:
        raise ConfigError(f"an Avro container has no codec '{codec}'; it has {', '.join(AVRO_CODECS)}")
    return avro_codec.new_compress(level)


def _new_deflate(level: int | None) -> Compress:
    if level:
        return lambda data: zlib_ng.compress(data, level, _RAW_DEFLATE)
    return lambda data: isal_zlib.compress(data, _DEFLATE_LEVEL, _RAW_DEFLATE)


def _compress_snappy(data: memoryview) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + isal_zlib.crc32(data).to_bytes(4, "big")


def _new_zstd(level: int | None) -> Compress:
    return zstandard.ZstdCompressor(level=level or _ZSTD_LEVEL, write_checksum=True).compress


class TooLargeBlockError(Exception):
    """A block becomes larger than the limit."""


def _keep_block(data: bytes, most: int) -> bytes:  # noqa: ARG001 - the caller has checked its size
    return data


def _decompress_snappy(data: bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data[:-_CRC_BYTES]) > most:
        raise TooLargeBlockError
    body = bytes(cramjam.snappy.decompress_raw(data[:-_CRC_BYTES]))
    if isal_zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("a block does not have its checksum")
    return body


def _decompress_deflate(data: bytes, most: int) -> bytes:
    """Decompress a raw deflate stream.

    fastavro for Python leaves most of zlib's checksum after the stream, so only bytes of it may follow.
    """
    stream = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE)
    body = _decompress_whole(stream, data, most)
    rest = bytes(stream.unused_data)
    if rest and not isal_zlib.adler32(body).to_bytes(4, "big").startswith(rest):
        raise ValueError("a block is no complete deflate stream")
    return body


def _decompress_streams(new_stream: Callable[[], Any], data: bytes, most: int) -> bytes:
    """Decompress bzip2 or xz: one stream, or several in a row."""
    output = io.BytesIO()
    remaining = most
    at = 0
    empty = 0
    view = memoryview(data)
    while True:
        stream = new_stream()
        size = FIRST_BYTES
        start = output.tell()
        # In growing pieces: the decompressor copies all bytes after its stream, and there may be a million streams.
        while not stream.eof:
            if at == len(data):
                raise ValueError("a block ends in the middle of its compressed stream")
            piece = view[at : at + size]
            remaining -= output.write(stream.decompress(piece, remaining + 1))
            if remaining < 0:
                raise TooLargeBlockError
            at = at + len(piece)
            size = min(2 * size, CHUNK_BYTES)
        at -= len(stream.unused_data)
        empty += output.tell() == start
        if empty > MOST_EMPTY_STREAMS:
            raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} streams of a block are empty")
        if at == len(data):
            return output.getvalue()


def _decompress_whole(stream: Any, data: bytes, most: int) -> bytes:
    body: bytes = stream.decompress(data, most + 1)
    if len(body) > most:
        raise TooLargeBlockError
    if not stream.eof:
        raise ValueError("a block ends in the middle of its compressed stream")
    return body


def _decompress_zstd(data: bytes, most: int) -> bytes:
    pieces = []
    remaining = most
    for piece in decompress_frames("zstd", pa.BufferReader(data)):
        pieces.append(piece)
        remaining -= len(piece)
        if remaining < 0:
            raise TooLargeBlockError
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


AVRO_COMPRESSION: Mapping[str, AvroCodec] = {
    "null": AvroCodec(_keep_block, lambda _: lambda data: data),
    "deflate": AvroCodec(_decompress_deflate, _new_deflate),
    "snappy": AvroCodec(_decompress_snappy, lambda _: _compress_snappy),
    "bzip2": AvroCodec(
        partial(_decompress_streams, bz2.BZ2Decompressor),
        lambda level: lambda data: bz2.compress(data, level or _BZIP2_LEVEL),
    ),
    "zstd": AvroCodec(_decompress_zstd, _new_zstd),
    "xz": AvroCodec(partial(_decompress_streams, partial(lzma.LZMADecompressor, memlimit=_XZ_BYTES))),
}
"""Each codec, by the name of its row in `config/codecs.py`."""


# As the specification has them.
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16

_DECOMPRESS: Mapping[str, Decompress] = {
    row.avro_name: AVRO_COMPRESSION[row.name].decompress for row in CODECS.values() if row.avro_name
}
"""Each codec, by the name that it has in a container."""


class AvroContainer:
    """The metadata and the blocks of a file. `key` names the file in errors.

    Raises:
        ValueError: the file is no container, or it is damaged or cut off. Errors of the codecs pass through.
        IntegrityError: the file exceeds `limits`.
    """

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits) -> None:
        self._source = source
        self._key = key
        self._limits = limits
        if (magic := self._exactly(len(_MAGIC))) != _MAGIC:
            what = describe_head(magic + source.read(HEAD_BYTES))
            raise ValueError(f"it does not begin as an Avro container does{what and f', it is {what}'}")
        self.metadata: Mapping[str, bytes] = dict(self._pairs())
        self._sync = self._exactly(_SYNC_BYTES)
        codec = self.metadata.get("avro.codec", b"null").decode()
        if codec not in _DECOMPRESS:
            raise ValueError(f"its codec is {codec!r:.40}; known are {', '.join(_DECOMPRESS)}")
        self._decompress = _DECOMPRESS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Return the number of records of each block, and their data in a row."""
        most = self._limits.block_bytes
        while start := self._source.read(1):
            count = self._long(start)
            size = self._long()
            if count < 0 or size < 0:
                raise ValueError(f"a block of {count} records and {size} bytes")
            if size > most:
                raise build_limit_error(self._key, f"has a block of {size:,} bytes", "block.bytes")
            data = self._exactly(size)
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the marker of its file")
            try:
                yield count, self._decompress(data, most)
            except TooLargeBlockError as err:
                raise build_limit_error(self._key, f"has a block of more than {most:,} bytes", "block.bytes") from err

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        remaining = self._limits.footer_bytes
        while count := self._long():
            # After a negative count comes the size of its pairs in bytes.
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                texts = []
                for _ in ("name", "value"):
                    size = self._long()
                    remaining -= size + 1
                    if remaining < 0:
                        what = f"has more than {self._limits.footer_bytes:,} bytes of metadata"
                        raise build_limit_error(self._key, what, "footer.bytes")
                    texts.append(self._exactly(size))
                yield texts[0].decode(), texts[1]

    def _long(self, start: bytes = b"") -> int:
        value = shift = 0
        while True:
            byte = (start or self._exactly(1))[0]
            start = b""
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value >> 1 ^ -(value & 1)
            if shift > 63:
                raise ValueError("a number has more than 64 bits")

    def _exactly(self, size: int) -> bytes:
        if size < 0:
            raise ValueError(f"a length of {size}")
        data = self._source.read(size)
        if len(data) != size:
            raise ValueError(f"it ends {size - len(data)} bytes too early")
        return data


_FEW_OBJECTS = 1_048_576
"""fastavro reads blocks of up to this many objects. An object takes up to some 200 bytes."""

BATCH_OBJECTS = 1_048_576
"""A batch ends before its decoded records become more objects: fields and items, which may take no byte."""


@dataclass(frozen=True)
class RecordSizes:
    """The bytes of each record, and about how many objects it becomes when it is decoded."""

    lengths: Int64s
    objects: Int64s


class AvroRecords:
    """Finds the records in the blocks of an object, all of one schema. `key` names the object in errors.

    Raises:
        ValueError: the schema cannot be read. Errors of fastavro pass through.
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

    def lengths(self, data: bytes, records: int) -> Int64s:
        """Return the bytes of each record of a block.

        Raises:
            ValueError: the data are not so many records.
            IntegrityError: they exceed the limits. Errors of fastavro pass through.
        """
        size = self._datum.size
        if size is not None:
            return self._of_one_size(len(data), records, size)
        # Each record takes a byte at least: those without any are all of one size.
        if records > len(data):
            raise ValueError(f"{records} records in a block of {len(data)} bytes")
        ends = self._find_record_bounds(data, records) if self.is_light(data) else self._walked(data, records)
        if ends[-1] != len(data):
            raise ValueError(f"{len(data)} bytes in a block whose {records} records have {ends[-1]}")
        lengths: Int64s = np.diff(ends)
        return lengths

    def measure(self, data: bytes, count: int) -> RecordSizes:
        """Return the length of each record of a block, and its number of objects."""
        lengths = self.lengths(data, count)
        objects = lengths * self._datum.density + self._datum.values
        if self._datum.has_light_items:
            objects += FEW_VALUES * self._items
        return RecordSizes(lengths, objects)

    def is_light(self, data: bytes) -> bool:
        """Return whether fastavro can read a block in bounded memory."""
        datum = self._datum
        is_plain = not (datum.is_recursive or datum.has_light_items)
        return is_plain and len(data) * max(datum.density, 1) <= _FEW_OBJECTS

    def _of_one_size(self, total: int, records: int, size: int) -> Int64s:
        self._empty += 0 if size else records
        if self._empty > self._limits.empty_records:
            what = f"has more than {self._limits.empty_records:,} records without a byte"
            raise build_limit_error(self._key, what, "empty.records")
        if records * size != total:
            raise ValueError(f"{total} bytes in a block whose {records} records have {records * size}")
        return np.full(records, size, np.int64)

    def _find_record_bounds(self, data: bytes, records: int) -> Int64s:
        """Return the byte offsets between the records of a block. Only decoding tells where one ends."""
        body = io.BytesIO(data)
        ends = [0]
        for _ in range(records):
            schemaless_reader(body, self._parsed, None)
            ends.append(body.tell())
        return np.array(ends, np.int64)

    def _walked(self, data: bytes, records: int) -> Int64s:
        ends = np.zeros(records + 1, np.int64)
        view = memoryview(data)
        pos = 0
        self._items = np.zeros(records, np.int64)
        for row in range(records):
            pos = self._datum.end(view, pos)
            ends[row + 1] = pos
            self._items[row] = self._datum.items
        return ends
