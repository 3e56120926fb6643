"""Streams of blocks that no library of ours reads piece by piece: snappy's framings, and Hadoop's of snappy and LZ4.

Sources: snappy's framing format, snappy-java's SnappyInputStream (xerial), Hadoop's BlockDecompressorStream.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import cramjam
import google_crc32c

from kafka_s3_platform.formats.content import SNAPPY_FRAMES, XERIAL
from kafka_s3_platform.model.limits import ReadLimits

MOST_EMPTY_STREAMS = 10_000
"""Of streams, or parts of one, one after the other in an object or a block: each takes time and gives nothing."""

_READ_BYTES = 262_144
_SNAPPY_BYTES, _SNAPPY_CHUNKS, _SKIPPABLE = 65_536, (0, 1), 0x80
_SNAPPY_MOST, _LZ4_MOST = 32, 255
"""By how much a byte can grow at most."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def snappy_blocks(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """What a stream of snappy's own frames, or of snappy-java's, holds. EOFError where it ends too early."""
    head = _some(source, len(SNAPPY_FRAMES))
    if head == SNAPPY_FRAMES:
        yield from _snappy_frames(source)
    else:
        # Eight bytes of magic, then two versions of four bytes.
        _exactly(source, 2 * len(XERIAL) - len(head))
        yield from _xerial_blocks(source, limits)


def _snappy_frames(source: _Source) -> Iterator[bytes]:
    """The chunks behind the first, each of at most 64 KiB, with a look at its checksum."""
    empty = 0
    while head := _some(source, 4):
        kind, size = _exact(head, 4)[0], int.from_bytes(head[1:], "little")
        chunk = _exactly(source, size)
        if kind == SNAPPY_FRAMES[0]:
            if chunk != SNAPPY_FRAMES[4:]:
                raise ValueError("a stream of snappy does not begin as one")
        elif kind in _SNAPPY_CHUNKS:
            body = chunk[4:] if kind else _raw_snappy(chunk[4:], _SNAPPY_BYTES)
            if len(body) > _SNAPPY_BYTES or _masked_crc(body) != int.from_bytes(chunk[:4], "little"):
                raise ValueError("the checksum of a chunk is wrong, or the chunk too large")
            empty = _empties(empty, body)
            yield body
        elif kind < _SKIPPABLE:
            raise ValueError(f"a chunk of the unknown type {kind}")
        else:
            empty = _empties(empty, b"")


def _xerial_blocks(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    empty = 0
    while size := _some(source, 4):
        if _exact(size, 4) == XERIAL[:4]:
            _exactly(source, 2 * len(XERIAL) - len(size))  # another stream
            body = b""
        else:
            body = _raw_snappy(_block(source, int.from_bytes(size, "big"), limits), limits.block_bytes)
        empty = _empties(empty, body)
        yield body


def hadoop_blocks(codec: str, source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """Blocks behind their size, each of one or more pieces behind the size that they are stored in.

    EOFError where they end too early.
    """
    empty = 0
    while head := _some(source, 4):
        left = int.from_bytes(_exact(head, 4), "big")
        if left > limits.block_bytes:
            raise ValueError(f"a block of {left:,} bytes, more than archive.read.max.block.bytes allows")
        empty = _empties(empty, head if left else b"")
        while left:
            stored = _block(source, int.from_bytes(_exactly(source, 4), "big"), limits)
            body = HADOOP[codec](stored, left)
            left -= len(body)
            empty = _empties(empty, body)
            yield body


def _block(source: _Source, size: int, limits: ReadLimits) -> bytes:
    if size > limits.block_bytes:
        raise ValueError(f"a block of {size:,} bytes, more than archive.read.max.block.bytes allows")
    return _exactly(source, size)


def _raw_snappy(data: bytes, most: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    # The size is the writer's word, for which memory is taken.
    if size > min(most, _SNAPPY_MOST * len(data)):
        raise ValueError(f"{len(data):,} bytes that say they come to {size:,}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _raw_lz4(data: bytes, most: int) -> bytes:
    found = bytearray(min(most, _LZ4_MOST * len(data)))
    return bytes(found[: cramjam.lz4.decompress_block_into(data, found)])


def _empties(before: int, body: bytes) -> int:
    """How many parts were empty so far, this one among them."""
    if before + (not body) > MOST_EMPTY_STREAMS:
        raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} of its parts are empty")
    return before + (not body)


def _masked_crc(body: bytes) -> int:
    crc: int = google_crc32c.value(body)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _some(source: _Source, size: int) -> bytes:
    """As many bytes, or what is left."""
    parts, left = [], size
    while left and (part := source.read(min(left, _READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _exactly(source: _Source, size: int) -> bytes:
    return _exact(_some(source, size), size)


def _exact(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError
    return data


HADOOP: Mapping[str, Callable[[bytes, int], bytes]] = {"snappy": _raw_snappy, "lz4": _raw_lz4}
"""How a piece is read, which comes to so many bytes at most."""
