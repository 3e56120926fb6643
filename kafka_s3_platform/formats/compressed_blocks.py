"""Decompresses formats that our libraries cannot read piece by piece: snappy's framings, Hadoop's snappy and LZ4.

Sources: snappy's framing format, snappy-java's SnappyInputStream (xerial), Hadoop's BlockDecompressorStream.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import cramjam
import google_crc32c

from kafka_s3_platform.config.codecs import SNAPPY_FRAMES, XERIAL
from kafka_s3_platform.model.limits import ReadLimits

MOST_EMPTY_STREAMS = 10_000
"""An object or a block may hold so many empty streams, or empty parts of one: each takes time and yields nothing."""

_READ_BYTES = 262_144
# By snappy's framing format: the bytes of a chunk at most, the types of chunks with data (compressed, plain), and the
# first of the types that a reader skips.
_SNAPPY_BYTES = 65_536
_SNAPPY_CHUNKS = (0, 1)
_SKIPPABLE = 0x80
# Above the most that a byte can become: in snappy, three bytes copy 64.
_SNAPPY_MOST = 32
_LZ4_MOST = 255
"""The most bytes that a compressed byte can become."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_snappy(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """Decompress a stream of snappy's own frames, or one of snappy-java. Raise EOFError if it is cut off."""
    head = _read_up_to(source, len(SNAPPY_FRAMES))
    if head == SNAPPY_FRAMES:
        yield from _read_frames(source)
    else:
        # The head of snappy-java: eight bytes of magic, then two versions of four bytes each.
        _read_exactly(source, 2 * len(XERIAL) - len(head))
        yield from _read_xerial_blocks(source, limits)


def _read_frames(source: _Source) -> Iterator[bytes]:
    """Read the chunks after the first one, and compare their checksums."""
    empty = 0
    while head := _read_up_to(source, 4):
        kind = _require_bytes(head, 4)[0]
        size = int.from_bytes(head[1:], "little")
        chunk = _read_exactly(source, size)
        if kind == SNAPPY_FRAMES[0]:
            if chunk != SNAPPY_FRAMES[4:]:
                raise ValueError("a stream of snappy does not begin as one")
        elif kind in _SNAPPY_CHUNKS:
            body = chunk[4:] if kind else _decompress_raw_snappy(chunk[4:], _SNAPPY_BYTES)
            if len(body) > _SNAPPY_BYTES or _mask_crc(body) != int.from_bytes(chunk[:4], "little"):
                raise ValueError("the checksum of a chunk is wrong, or the chunk too large")
            empty = _count_empty(empty, body)
            yield body
        elif kind < _SKIPPABLE:
            raise ValueError(f"a chunk of the unknown type {kind}")
        else:
            empty = _count_empty(empty, b"")


def _read_xerial_blocks(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    empty = 0
    while size := _read_up_to(source, 4):
        if _require_bytes(size, 4) == XERIAL[:4]:
            _read_exactly(source, 2 * len(XERIAL) - len(size))  # the head of another stream
            body = b""
        else:
            body = _decompress_raw_snappy(_read_block(source, int.from_bytes(size, "big"), limits), limits.block_bytes)
        empty = _count_empty(empty, body)
        yield body


def read_hadoop_blocks(codec: str, source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """Decompress the blocks of Hadoop. Raise EOFError if the stream is cut off.

    Each block follows its size, and consists of one or more pieces. Each piece follows its compressed size.
    """
    empty = 0
    while head := _read_up_to(source, 4):
        remaining = int.from_bytes(_require_bytes(head, 4), "big")
        if remaining > limits.block_bytes:
            raise ValueError(f"a block of {remaining:,} bytes, more than archive.read.max.block.bytes allows")
        empty = _count_empty(empty, head if remaining else b"")
        while remaining:
            piece = _read_block(source, int.from_bytes(_read_exactly(source, 4), "big"), limits)
            body = HADOOP[codec](piece, remaining)
            remaining -= len(body)
            empty = _count_empty(empty, body)
            yield body


def _read_block(source: _Source, size: int, limits: ReadLimits) -> bytes:
    if size > limits.block_bytes:
        raise ValueError(f"a block of {size:,} bytes, more than archive.read.max.block.bytes allows")
    return _read_exactly(source, size)


def _decompress_raw_snappy(data: bytes, most: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    # snappy takes as much memory as the data claim to become, so the claim is checked first.
    if size > min(most, _SNAPPY_MOST * len(data)):
        raise ValueError(f"{len(data):,} bytes that claim to become {size:,}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _decompress_raw_lz4(data: bytes, most: int) -> bytes:
    output = bytearray(min(most, _LZ4_MOST * len(data)))
    return bytes(output[: cramjam.lz4.decompress_block_into(data, output)])


def _count_empty(before: int, body: bytes) -> int:
    """Return how many parts were empty so far, including this one."""
    if before + (not body) > MOST_EMPTY_STREAMS:
        raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} of its parts are empty")
    return before + (not body)


def _mask_crc(body: bytes) -> int:
    # As the framing format masks its CRC-32C.
    crc: int = google_crc32c.value(body)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _read_up_to(source: _Source, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the stream."""
    # In pieces: a damaged stream may claim a size that it does not have.
    parts = []
    remaining = size
    while remaining and (part := source.read(min(remaining, _READ_BYTES))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def _read_exactly(source: _Source, size: int) -> bytes:
    return _require_bytes(_read_up_to(source, size), size)


def _require_bytes(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError
    return data


HADOOP: Mapping[str, Callable[[bytes, int], bytes]] = {"snappy": _decompress_raw_snappy, "lz4": _decompress_raw_lz4}
"""Decompresses a piece. The number is how many bytes it may become."""
