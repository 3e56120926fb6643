"""Decompresses data that others wrote, in bounded memory: a few bytes can become terabytes, and sizes can be lies.

Consecutive streams are read as one, as other readers of these codecs do. Each stream costs time even if it is empty, so
the number of small ones is limited. A `_Room` counts them, and says how much may be read and produced.

Our libraries cannot read snappy's framings or Hadoop's snappy and LZ4 piece by piece, so this module does. Sources:
RFC 1952 (gzip), snappy's framing format, snappy-java's SnappyInputStream (xerial), Hadoop's BlockDecompressorStream.
"""

import bz2
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO

import cramjam
import google_crc32c
import pyarrow as pa
from backports import zstd
from isal import igzip_lib, isal_zlib

from kafka_s3_platform.core.codecs.table import SNAPPY_FRAMES, XERIAL
from kafka_s3_platform.core.model.limits import ReadLimits

_Bytes = bytes | memoryview

READ_BYTES = 262_144
CHUNK_BYTES = 1_048_576
"""The greatest number of bytes in a piece of a stream."""

_BLOCK_PIECE_BYTES = 8_388_608
_FIRST_BYTES = 128
"""The size of a further stream's first piece, since it may be one of a million. Each next piece is twice as large."""

_MOST_SMALL = 10_000
# The smallest block of snappy-java. No other batch or block consists of many streams.
_SMALL_BYTES = 1_024

# zlib's numbers for gzip's header, and for a stream without header and checksum, each with the largest window.
GZIP_WBITS = 31
RAW_WBITS = -15
# The most memory that xz may take to decompress. Its highest level needs 65 MB.
_XZ_BYTES = 134_217_728

# By snappy's framing format: the most bytes of a chunk, the types of chunks with data (compressed, plain), and the
# first of the types that a reader skips.
_SNAPPY_BYTES = 65_536
_SNAPPY_CHUNKS = (0, 1)
_SKIPPABLE = 0x80
# More bytes than one byte can become: in snappy, three bytes copy 64.
_SNAPPY_MOST = 32
_LZ4_MOST = 255


_CUT_OFF = "it ends in the middle of a stream"
# The stub of isal declares an instance, but it is the class.
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]
_FAULTS = (EOFError, OSError, _IsalError, lzma.LZMAError, zstd.ZstdError, cramjam.DecompressionError)


class TooLargeError(ValueError):
    """Decompressed data that would have more bytes than are allowed."""

    def __init__(self) -> None:
        super().__init__("it becomes more bytes than are allowed")


def decompress_block(codec: str, data: _Bytes, most: int) -> _Bytes:
    """Decompress the bytes of a batch or a block, to no more than `most` bytes.

    Raises:
        TooLargeError: the data become more than `most` bytes.
        ValueError: the data are not of this codec, are cut off, or consist of too many small parts.
    """
    try:
        if decompress := _BLOCKS.get(codec):
            return decompress(data, most)
        return _join(_STREAMS[codec], data, most)
    except _FAULTS as err:
        raise ValueError(str(err) or _CUT_OFF) from err


def decompress_stream(codec: str, source: IO[bytes], limits: ReadLimits, start: bytes = b"") -> Iterator[bytes]:
    """Decompress an object in pieces of at most `CHUNK_BYTES`, or of one block. `start` has already been read from it.

    Raises:
        TooLargeError: a block becomes larger than `limits` allow.
        ValueError: the stream is not of this codec, is cut off, or consists of too many empty parts.
    """
    room = _Room(limits.block_bytes, CHUNK_BYTES, READ_BYTES, 1)
    try:
        for piece in _STREAMS[codec](_Prefixed(start, source), room):
            yield bytes(piece)
    except _FAULTS as err:
        raise ValueError(str(err) or _CUT_OFF) from err


@dataclass
class _Room:
    """The number of bytes that one step may read and yield, and the number of small parts so far.

    Attributes:
        block_bytes: the most bytes of a block, compressed or not.
        piece_bytes: the most bytes of a piece of a stream without blocks.
        read_bytes: the number of bytes to read at once.
        small_bytes: a part with fewer decompressed bytes is small.
        free_bytes: the number of bytes that may still come.
        small: the number of small parts.
    """

    block_bytes: int
    piece_bytes: int
    read_bytes: int
    small_bytes: int
    free_bytes: int = sys.maxsize
    small: int = 0

    @property
    def next_bytes(self) -> int:
        """The most bytes of the next piece. It is one more than allowed, so that an excess is noticed."""
        return min(self.free_bytes + 1, self.piece_bytes)

    def count(self, size: int) -> None:
        """Count a part of `size` decompressed bytes. Raise ValueError if there are too many small parts."""
        if size < self.small_bytes:
            self.small += 1
        if self.small > _MOST_SMALL:
            what = "are empty" if self.small_bytes == 1 else f"have fewer than {self.small_bytes:,} bytes"
            raise ValueError(f"more than {_MOST_SMALL:,} of its parts {what}")

    def require(self, size: int) -> int:
        """Return the size of a block. Raise TooLargeError if it is too large."""
        return _require_at_most(size, self.block_bytes)


def _join(decompress: "_Stream", data: _Bytes, most: int) -> _Bytes:
    """Decompress bytes in memory with a decompressor for streams, to no more than `most` bytes."""
    if not data:
        raise EOFError
    room = _Room(max(most, len(data)), _BLOCK_PIECE_BYTES, len(data), _SMALL_BYTES, most)
    parts = []
    for piece in decompress(_Prefixed(data), room):
        room.free_bytes -= _require_at_most(len(piece), room.free_bytes)
        parts.append(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _require_at_most(size: int, most: int) -> int:
    """Return the size. Raise TooLargeError if it is larger than allowed."""
    if size > most:
        raise TooLargeError
    return size


class _Prefixed:
    """A file whose first bytes (`start`) are read already. Reading returns them, then the bytes of `rest`, if any."""

    closed = False

    def __init__(self, start: _Bytes, rest: IO[bytes] | None = None) -> None:
        self._start = memoryview(start)
        self._at = 0
        self._rest = rest

    def read(self, size: int, /) -> _Bytes:
        part = self._start[self._at : self._at + size]
        self._at += len(part)
        return part if part or self._rest is None else self._rest.read(size)

    def open_for_arrow(self) -> pa.NativeFile:
        """Return the bytes as a file of Arrow, which calls Python for them only if there is a `rest`."""
        return pa.BufferReader(self._start) if self._rest is None else pa.PythonFile(self, "r")

    def read_up_to(self, size: int) -> _Bytes:
        """Return `size` bytes, or fewer at the end of the stream."""
        part = self._start[self._at : self._at + size]
        if len(part) == size:
            self._at += size
            return part
        # In pieces: a damaged stream may claim a size that it does not have.
        parts: list[_Bytes] = []
        while size and (piece := self.read(min(size, READ_BYTES))):
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def read_exactly(self, size: int) -> _Bytes:
        """Return `size` bytes. Raise EOFError if there are fewer."""
        data = self.read_up_to(size)
        if len(data) < size:
            raise EOFError
        return data

    def read_number(self) -> int | None:
        """Return a big-endian number of four bytes, or None at the end of the stream."""
        head = self.read_up_to(4)
        if 0 < len(head) < 4:
            raise EOFError
        return int.from_bytes(head) if head else None

    def close(self) -> None:
        """Do nothing: Arrow closes a file after reading it, but closing `rest` is up to the caller."""


class _Inflater:
    """isal's decompressor with the interface of bz2's, for blocks. isal's own class for this takes twice as long."""

    def __init__(self, wbits: int) -> None:
        self._stream = isal_zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data)

    def decompress(self, data: _Bytes, max_length: int) -> bytes:
        output: bytes = self._stream.decompress(data or self._stream.unconsumed_tail, max_length)
        self.needs_input = len(output) < max_length
        return output


_Decompressor = (
    _Inflater | igzip_lib.IgzipDecompressor | bz2.BZ2Decompressor | lzma.LZMADecompressor | zstd.ZstdDecompressor
)


def _decompress_members(
    new_decompressor: Callable[[], _Decompressor], source: _Prefixed, room: _Room
) -> Iterator[bytes]:
    """Decompress consecutive streams, and yield their pieces. Raise EOFError if the last one is cut off."""
    stream = new_decompressor()
    size = room.read_bytes
    total = 0
    while data := memoryview(source.read(room.read_bytes)):
        while data:
            if stream.eof:
                room.count(total)
                stream = new_decompressor()
                size = _FIRST_BYTES
                total = 0
            # In growing pieces: the decompressor copies all bytes after its stream, and there may be a million streams.
            piece = data[:size]
            output = stream.decompress(piece, room.next_bytes)
            total += len(output)
            yield output
            # A few bytes may expand a lot, so the output comes in pieces too.
            while not (stream.needs_input or stream.eof):
                yield stream.decompress(b"", room.next_bytes)
            data = data[len(piece) - (len(stream.unused_data) if stream.eof else 0) :]
            size = min(2 * size, READ_BYTES)
    if not stream.eof:
        raise EOFError


def _decompress_lz4(source: _Prefixed, room: _Room) -> Iterator[_Bytes]:
    """Decompress LZ4's frames. Arrow's stream takes 0.2 microseconds for an empty frame."""
    with pa.CompressedInputStream(source.open_for_arrow(), "lz4") as stream:
        # Not `read`: if that fails, it never frees the bytes that it has taken for the piece.
        while piece := stream.read_buffer(room.next_bytes):
            yield memoryview(piece)


def _read_snappy(source: _Prefixed, room: _Room) -> Iterator[_Bytes]:
    """Decompress a stream of snappy's own frames, or one of snappy-java."""
    head = source.read_up_to(len(SNAPPY_FRAMES))
    if head == SNAPPY_FRAMES:
        yield from _read_frames(source, room)
    else:
        # The head of snappy-java: eight bytes of magic, then two versions of four bytes each.
        source.read_exactly(2 * len(XERIAL) - len(head))
        yield from _read_xerial_blocks(source, room)


def _read_frames(source: _Prefixed, room: _Room) -> Iterator[_Bytes]:
    """Read the chunks after the first one, and compare their checksums."""
    while head := source.read_up_to(1):
        kind = head[0]
        chunk = source.read_exactly(int.from_bytes(source.read_exactly(3), "little"))
        body = b""
        if kind in _SNAPPY_CHUNKS:
            body = bytes(chunk[4:] if kind else _decompress_raw_snappy(chunk[4:], _SNAPPY_BYTES))
            if len(body) > _SNAPPY_BYTES or _mask_crc(body) != int.from_bytes(chunk[:4], "little"):
                raise ValueError("the checksum of a chunk is wrong, or the chunk too large")
        elif kind == SNAPPY_FRAMES[0] and chunk != SNAPPY_FRAMES[4:]:
            raise ValueError("a stream of snappy does not begin as one")
        elif kind < _SKIPPABLE:
            raise ValueError(f"a chunk of the unknown type {kind}")
        room.count(len(body))
        yield body


def _read_xerial_blocks(source: _Prefixed, room: _Room) -> Iterator[_Bytes]:
    """Decompress blocks of snappy-java after the head. The head of another stream may stand in place of a block."""
    while (size := source.read_number()) is not None:
        body: _Bytes = b""
        if size == int.from_bytes(XERIAL[:4]):
            source.read_exactly(2 * len(XERIAL) - 4)  # the head of another stream
        else:
            block = source.read_exactly(room.require(size))
            body = _decompress_raw_snappy(block, min(room.block_bytes, room.free_bytes))
        room.count(len(body))
        yield body


def _read_hadoop_blocks(decompress: "_Decompress", source: _Prefixed, room: _Room) -> Iterator[_Bytes]:
    """Decompress Hadoop's blocks. After a block's size come its pieces, each with its compressed size before it."""
    while (remaining := source.read_number()) is not None:
        room.require(remaining)
        if not remaining:
            room.count(0)
        while remaining:
            size = int.from_bytes(source.read_exactly(4))
            body = decompress(source.read_exactly(room.require(size)), remaining)
            remaining -= len(body)
            room.count(len(body))
            yield body


_Stream = Callable[[_Prefixed, _Room], Iterator[_Bytes]]
_Decompress = Callable[[_Bytes, int], _Bytes]
"""Takes bytes, and the number of bytes that they may become."""


def _decompress_snappy(data: _Bytes, most: int) -> _Bytes:
    """Decompress a block of snappy, or a stream of snappy-java. No block begins as such a stream does."""
    if data[: len(XERIAL)] != XERIAL:
        return _decompress_raw_snappy(data, most)
    return _join(_read_xerial_blocks, data, most)


def _decompress_raw_snappy(data: _Bytes, most: int) -> _Bytes:
    """Decompress one block of snappy to at most `most` bytes. The size that it claims is checked first."""
    size = cramjam.snappy.decompress_raw_len(data)
    # snappy takes as much memory as the data claim to need.
    if size > _SNAPPY_MOST * len(data):
        raise ValueError(f"{len(data):,} bytes that claim to become {size:,}")
    _require_at_most(size, most)
    return memoryview(cramjam.snappy.decompress_raw(data))


def _decompress_raw_lz4(data: _Bytes, most: int) -> _Bytes:
    output = bytearray(min(most, _LZ4_MOST * len(data)))
    return memoryview(output)[: cramjam.lz4.decompress_block_into(data, output)]


def _decompress_lz4_frames(data: _Bytes, most: int) -> _Bytes:
    """Decompress frames of LZ4 to at most `most` bytes: small data at once, other data piece by piece."""
    # Arrow's stream takes a fifth more time for 16 KiB.
    if _LZ4_MOST * len(data) <= most:
        return memoryview(cramjam.lz4.decompress(data))
    return _join(_decompress_lz4, data, most)


def _decompress_deflate(data: _Bytes, most: int) -> _Bytes:
    """Decompress one raw stream. Most of zlib's checksum may follow it: fastavro for Python leaves it there."""
    stream = _Inflater(RAW_WBITS)
    body = stream.decompress(data, most + 1)
    _require_at_most(len(body), most)
    if not stream.eof:
        raise EOFError
    if not isal_zlib.adler32(body).to_bytes(4).startswith(stream.unused_data):
        raise ValueError("there are bytes after its stream")
    return body


def _mask_crc(body: bytes) -> int:
    """Return the CRC-32C as snappy's framing format stores it: rotated, with a constant added."""
    crc: int = google_crc32c.value(body)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_BLOCKS: Mapping[str, _Decompress] = {
    "null": lambda data, most: data[: _require_at_most(len(data), most)],
    "deflate": _decompress_deflate,
    "gzip": partial(_join, partial(_decompress_members, partial(_Inflater, GZIP_WBITS))),
    "snappy": _decompress_snappy,
    "lz4": _decompress_lz4_frames,
}
_STREAMS: Mapping[str, _Stream] = {
    "none": lambda source, room: iter(lambda: source.read(room.read_bytes), b""),
    "gzip": partial(_decompress_members, partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_GZIP)),
    "bzip2": partial(_decompress_members, bz2.BZ2Decompressor),
    "xz": partial(_decompress_members, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_BYTES)),
    "zstd": partial(_decompress_members, zstd.ZstdDecompressor),
    "lz4": _decompress_lz4,
    "snappy": _read_snappy,
    "snappy of Hadoop": partial(_read_hadoop_blocks, _decompress_raw_snappy),
    "lz4 of Hadoop": partial(_read_hadoop_blocks, _decompress_raw_lz4),
}
