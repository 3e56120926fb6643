"""Takes Avro object container files apart, with a look at every checksum there is.

Source: Avro specification, "Object Container Files", "Required Codecs" and "Optional Codecs". fastavro's own reader
does not compare snappy's CRC-32.
"""

import bz2
import lzma
from collections.abc import Callable, Iterator, Mapping
from typing import IO

import cramjam
import zstandard
from isal import isal_zlib

_MAGIC, _SYNC_BYTES, _RAW_DEFLATE, _CRC_BYTES = b"Obj\x01", 16, -15, 4


class AvroContainer:
    """A file's metadata, and its blocks.

    Raises:
        ValueError: it is no such file, damaged or cut off. What the codecs raise passes through.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        if self._exactly(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as an Avro container does")
        self.metadata: Mapping[str, bytes] = dict(self._pairs())
        self._sync = self._exactly(_SYNC_BYTES)
        codec = self.metadata.get("avro.codec", b"null").decode()
        if codec not in _DECOMPRESS:
            raise ValueError(f"its codec is {codec!r}; known are {', '.join(_DECOMPRESS)}")
        self._decompress = _DECOMPRESS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """How many records each block has, and their data in a row."""
        while start := self._source.read(1):
            count, size = self._long(start), self._long()
            if count < 0 or size < 0:
                raise ValueError(f"a block of {count} records and {size} bytes")
            data = self._exactly(size)
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the marker of its file")
            yield count, self._decompress(data)

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._exactly(self._long()).decode()
                yield name, self._exactly(self._long())

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


def _snappy(data: bytes) -> bytes:
    body = bytes(cramjam.snappy.decompress_raw(data[:-_CRC_BYTES]))
    if isal_zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("a block does not have its checksum")
    return body


def _deflate(data: bytes) -> bytes:
    """Python's fastavro leaves most of zlib's checksum behind the stream: if anything is there, it has to be that."""
    stream = isal_zlib.decompressobj(wbits=_RAW_DEFLATE)
    body = bytes(stream.decompress(data))
    rest = bytes(stream.unused_data)
    if not stream.eof or (rest and not isal_zlib.adler32(body).to_bytes(4, "big").startswith(rest)):
        raise ValueError("a block is no whole deflate stream")
    return body


def _zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdDecompressor().decompressobj()
    body = stream.decompress(data)
    if not stream.eof or stream.unused_data:
        raise ValueError("a block is no whole zstd frame")
    return body


_DECOMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.decompress,
    "zstandard": _zstd,
    "xz": lzma.decompress,
}
