"""Writes Avro object container files, and reads them, checking every checksum and every size.

Source: Avro specification, "Object Container Files", "Required Codecs" and "Optional Codecs". fastavro's own reader
does not compare snappy's CRC-32.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import IO

import numpy as np
from isal import isal_zlib

from kafka_s3_platform.core.codecs.compression import Sink, compress_block
from kafka_s3_platform.core.codecs.decompression import TooLargeError, decompress_block
from kafka_s3_platform.core.codecs.table import AVRO_CODECS, CODECS
from kafka_s3_platform.core.formats.magic_bytes import HEAD_BYTES, describe_head
from kafka_s3_platform.core.formats.reading import build_limit_error
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.limits import ReadLimits

# As the specification has them.
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# Snappy's blocks are followed by a CRC-32 of the uncompressed data.
_CRC_BYTES = 4
_CODECS: Mapping[str, str] = {row.avro_name: row.name for row in CODECS.values() if row.avro_name}
"""Each codec, by the name that it has in a container."""


def compress_avro(codec: str, level: int | None, data: memoryview) -> bytes:
    """Return the bytes of a block as a container holds them."""
    body = compress_block(codec, level, data)
    return body + isal_zlib.crc32(data).to_bytes(_CRC_BYTES, "big") if codec == "snappy" else body


def _decompress_avro(codec: str, data: bytes, most: int) -> bytes:
    """Return the bytes of a block, at most `most`, after checking the checksum of a snappy block."""
    if codec != "snappy":
        return bytes(decompress_block(codec, data, most))
    body = bytes(decompress_block(codec, data[:-_CRC_BYTES], most))
    if isal_zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:]):
        raise ValueError("a block does not have its checksum")
    return body


def read_zigzag(source: IO[bytes], start: bytes = b"") -> int:
    """Read a zigzag number of Avro. Its first byte may have been read before, as `start`.

    Raise ValueError if it has more than 64 bits, or is cut off.
    """
    value = shift = 0
    while True:
        byte = (start or read_exactly(source, 1))[0]
        start = b""
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value >> 1 ^ -(value & 1)
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def read_exactly(source: IO[bytes], size: int) -> bytes:
    """Read exactly `size` bytes. Raise ValueError if there are fewer."""
    if size < 0:
        raise ValueError(f"a length of {size}")
    data = source.read(size)
    if len(data) != size:
        raise ValueError(f"it ends {size - len(data)} bytes too early")
    return data


class AvroContainer:
    """The metadata and the blocks of a file, read from its start. `key` names the file in errors.

    Raises ValueError if the file is no container, or is damaged or cut off, and IntegrityError if it exceeds `limits`.
    """

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits) -> None:
        self._source = source
        self._key = key
        self._limits = limits
        if (magic := read_exactly(self._source, len(_MAGIC))) != _MAGIC:
            what = describe_head(magic + source.read(HEAD_BYTES))
            raise ValueError(f"it does not begin as an Avro container does{what and f', it is {what}'}")
        self.metadata: Mapping[str, bytes] = dict(self._pairs())
        self._sync = read_exactly(self._source, _SYNC_BYTES)
        codec = self.metadata.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ValueError(f"its codec is {codec!r:.40}; known are {', '.join(_CODECS)}")
        self._codec = _CODECS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield each block's number of records, and their encoded data, one after the other."""
        most = self._limits.block_bytes
        while start := self._source.read(1):
            count = read_zigzag(self._source, start)
            size = read_zigzag(self._source)
            if count < 0 or size < 0:
                raise ValueError(f"a block of {count} records and {size} bytes")
            if size > most:
                raise build_limit_error(self._key, f"has a block of {size:,} bytes", "block.bytes")
            data = read_exactly(self._source, size)
            if read_exactly(self._source, _SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the marker of its file")
            try:
                yield count, _decompress_avro(self._codec, data, most)
            except TooLargeError as err:
                raise build_limit_error(self._key, f"has a block of more than {most:,} bytes", "block.bytes") from err

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names and values of the header's metadata."""
        remaining = self._limits.footer_bytes
        while count := read_zigzag(self._source):
            # After a negative count comes the size of its pairs in bytes.
            if count < 0:
                read_zigzag(self._source)
            for _ in range(abs(count)):
                texts = []
                for _ in ("name", "value"):
                    size = read_zigzag(self._source)
                    remaining -= size + 1
                    if remaining < 0:
                        what = f"has more than {self._limits.footer_bytes:,} bytes of metadata"
                        raise build_limit_error(self._key, what, "footer.bytes")
                    texts.append(read_exactly(self._source, size))
                yield texts[0].decode(), texts[1]


BLOCK_BYTES = 262_144
"""A block ends with the record that brings it to this size. A change here changes the bytes of objects."""


class AvroBlocks:
    """Writes encoded records into a container. The same records give the same bytes, however they are batched.

    `deflate` without a level uses isal's level 1, at a tenth of the cost of zlib's 6, for a few percent more bytes. An
    explicit level is zlib-ng's.
    """

    def __init__(self, sink: Sink, schema_text: str, codec: str, level: int | None = None) -> None:
        self._sink = sink
        self._codec = codec
        self._level = level
        self._pending = bytearray()
        self._records = 0
        self.sidecars: Mapping[str, bytes] = {}
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
        """Append records: `bodies` is their encoded data, one after the other, `lengths` the size of each."""
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

    def close(self, _: Mapping[str, str], /) -> None:
        """Write the buffered records. The sink stays open. Facts are ignored, since the header is already written."""
        if self._records:
            self._write_block(memoryview(b""))

    def _write_block(self, tail: memoryview) -> None:
        """Write the pending records, followed by those in `tail`, as a block."""
        data = memoryview(bytes(self._pending) + tail) if self._pending else tail
        body = compress_avro(self._codec, self._level, data)
        self._sink.write(b"".join((_encode_long(self._records), _encode_long(len(body)), body, self._sync)))
        self._pending.clear()
        self._records = 0


def _encode_string(data: bytes) -> bytes:
    """Encode bytes or UTF-8 as Avro does: the length, then the bytes."""
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
