"""Takes Avro object container files apart, with a look at every checksum there is, and at every size.

Source: Avro specification, "Object Container Files", "Required Codecs" and "Optional Codecs". fastavro's own reader
does not compare snappy's CRC-32.
"""

import bz2
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any

import cramjam
import pyarrow as pa
from isal import igzip_lib, isal_zlib

from kafka_s3_platform.formats.blocks import MOST_EMPTY_STREAMS
from kafka_s3_platform.formats.compression import CHUNK_BYTES, FIRST_BYTES
from kafka_s3_platform.formats.content import HEAD_BYTES, told_of
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.model.limits import ReadLimits

_MAGIC, _SYNC_BYTES, _CRC_BYTES = b"Obj\x01", 16, 4
_XZ_BYTES = 134_217_728
"""What xz may take for its dictionary: 65 MB at its highest level."""


class AvroContainer:
    """A file's metadata, and its blocks. `key` names it in errors.

    Raises:
        ValueError: it is no such file, damaged or cut off. What the codecs raise passes through.
        IntegrityError: it asks for more than `limits` allow.
    """

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits) -> None:
        self._source, self._key, self._limits = source, key, limits
        if (magic := self._exactly(len(_MAGIC))) != _MAGIC:
            what = told_of(magic + source.read(HEAD_BYTES))
            raise ValueError(f"it does not begin as an Avro container does{what and f', it is {what}'}")
        self.metadata: Mapping[str, bytes] = dict(self._pairs())
        self._sync = self._exactly(_SYNC_BYTES)
        codec = self.metadata.get("avro.codec", b"null").decode()
        if codec not in _DECOMPRESS:
            raise ValueError(f"its codec is {codec!r:.40}; known are {', '.join(_DECOMPRESS)}")
        self._decompress = _DECOMPRESS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """How many records each block has, and their data in a row."""
        most = self._limits.block_bytes
        while start := self._source.read(1):
            count, size = self._long(start), self._long()
            if count < 0 or size < 0:
                raise ValueError(f"a block of {count} records and {size} bytes")
            if size > most:
                raise beyond(self._key, f"has a block of {size:,} bytes", "block.bytes")
            data = self._exactly(size)
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the marker of its file")
            try:
                yield count, self._decompress(data, most)
            except _TooLargeError as err:
                raise beyond(self._key, f"has a block of more than {most:,} bytes", "block.bytes") from err

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        left = self._limits.footer_bytes
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                texts = []
                for _ in ("name", "value"):
                    size = self._long()
                    left -= size + 1
                    if left < 0:
                        what = f"has more than {self._limits.footer_bytes:,} bytes of metadata"
                        raise beyond(self._key, what, "footer.bytes")
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
        found = self._source.read(size)
        if len(found) != size:
            raise ValueError(f"it ends {size - len(found)} bytes too early")
        return found


class _TooLargeError(Exception):
    """A block comes to more than is read."""


def _stored(data: bytes, most: int) -> bytes:  # noqa: ARG001 - its size is known already
    return data


def _snappy(data: bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data[:-_CRC_BYTES]) > most:
        raise _TooLargeError
    body = bytes(cramjam.snappy.decompress_raw(data[:-_CRC_BYTES]))
    if isal_zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("a block does not have its checksum")
    return body


def _deflate(data: bytes, most: int) -> bytes:
    """Python's fastavro leaves most of zlib's checksum behind the stream: if anything is there, it has to be that."""
    stream = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE)
    body = _whole(stream, data, most)
    rest = bytes(stream.unused_data)
    if rest and not isal_zlib.adler32(body).to_bytes(4, "big").startswith(rest):
        raise ValueError("a block is no whole deflate stream")
    return body


def _streams(new_stream: Callable[[], Any], data: bytes, most: int) -> bytes:
    """Of bzip2 or xz: one stream, or several in a row."""
    found, left, at, empty, view = io.BytesIO(), most, 0, 0, memoryview(data)
    while True:
        stream, size, start = new_stream(), FIRST_BYTES, found.tell()
        # In growing pieces: what lies behind a stream is copied, and there may be a million of them.
        while not stream.eof:
            if at == len(data):
                raise ValueError("a block ends in the middle of its compressed stream")
            piece = view[at : at + size]
            left -= found.write(stream.decompress(piece, left + 1))
            if left < 0:
                raise _TooLargeError
            at, size = at + len(piece), min(2 * size, CHUNK_BYTES)
        at -= len(stream.unused_data)
        empty += found.tell() == start
        if empty > MOST_EMPTY_STREAMS:
            raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} streams of a block are empty")
        if at == len(data):
            return found.getvalue()


def _whole(stream: Any, data: bytes, most: int) -> bytes:
    body: bytes = stream.decompress(data, most + 1)
    if len(body) > most:
        raise _TooLargeError
    if not stream.eof:
        raise ValueError("a block ends in the middle of its compressed stream")
    return body


def _zstd(data: bytes, most: int) -> bytes:
    """By Arrow: python-zstandard either gives all that its input holds at once, or does not tell a cut-off stream."""
    found, left = [], most
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while piece := stream.read(min(CHUNK_BYTES, left + 1)):
            found.append(piece)
            left -= len(piece)
            if left < 0:
                raise _TooLargeError
    return found[0] if len(found) == 1 else b"".join(found)


_DECOMPRESS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": _stored,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": partial(_streams, bz2.BZ2Decompressor),
    "zstandard": _zstd,
    "xz": partial(_streams, partial(lzma.LZMADecompressor, memlimit=_XZ_BYTES)),
}
