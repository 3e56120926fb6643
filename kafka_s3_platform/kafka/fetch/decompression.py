"""Decompresses record batches up to a limit: a few bytes can become terabytes.

Kafka's Java broker and clients read successive streams (two gzip members, two frames) as one; so does this. Sources:
RFC 1952 (gzip), RFC 8878 (zstd), LZ4's frame format, snappy-java's SnappyInputStream (xerial).
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import cramjam
import pyarrow as pa

_GZIP = 1
_SNAPPY = 2
_LZ4 = 3
_ZSTD = 4
_CODECS: Mapping[int, tuple[str, Any]] = {
    _GZIP: ("gzip", cramjam.gzip),
    _LZ4: ("lz4", cramjam.lz4),
    _ZSTD: ("zstd", cramjam.zstd),
}
# Facts of the formats: DEFLATE makes at most 258 bytes of two bits, LZ4 255 of one byte of length.
_MOST = {_GZIP: 1032, _LZ4: 255}
"""Codec -> how many bytes one byte can become at most."""

_XERIAL = b"\x82SNAPPY\x00"
# The magic bytes and two numbers of four bytes: the version, and the least one that can read it.
_XERIAL_HEAD = 16
# A copy makes at most 64 bytes of three, about 21 times as many.
_SNAPPY_MOST = 32

# snappy-java makes no smaller blocks, except the last one of a stream and where a writer flushes. Each costs time.
_SMALL_BYTES = 1024
_MOST_SMALL = 10_000

# Magic numbers; of skippable frames there are sixteen, which differ in the last four bits.
_ZSTD_FRAME = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A5
_ZSTD_BLOCK = 128 * 1024
_MOST_PARTS = 100_000
# Sizes of two fields of a frame's header, by the two bits of its descriptor that name each.
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
# Types of blocks. A block of one repeated byte stores that byte only, whatever its size says.
_COMPRESSED_BLOCK = 2
_ONE_BYTE_BLOCK = 1


class TooLargeError(ValueError):
    """The bytes decompress to more than is allowed."""


def decompress_batch(codec: int, body: memoryview, most: int) -> Any:
    """Decompress bytes of Kafka's `codec`, to no more than `most`.

    Raises:
        KeyError: there is no such codec.
        TooLargeError: they become more than `most`.
        ValueError: they are not of that codec.
    """
    try:
        if codec == _SNAPPY:
            return _decompress_snappy(body, most)
        name, library = _CODECS[codec]
        if _bound_size(codec, body) <= most:
            return library.decompress(body)
        # Not `read`: if that fails, it never frees the bytes that it has taken, which are as many as are allowed.
        data = pa.CompressedInputStream(pa.BufferReader(body), name).read_buffer(most + 1)
    except (cramjam.DecompressionError, OSError) as err:
        raise ValueError(str(err)) from err
    if len(data) > most:
        raise TooLargeError(f"there are more than {most:,} bytes")
    return data


def _bound_size(codec: int, body: memoryview) -> int:
    """Return the largest size the bytes can decompress to, without decompressing them; sys.maxsize if unknown."""
    if codec == _ZSTD:
        # So many parts are a library's work, which needs a limit anyway, and less time for each than we.
        parts = list(islice(_bound_zstd_blocks(body), _MOST_PARTS))
        return sum(parts) if len(parts) < _MOST_PARTS else sys.maxsize
    return _MOST[codec] * len(body)


def _decompress_snappy(body: memoryview, most: int) -> bytes:
    """Decompress raw snappy, or snappy-java's framed blocks (Kafka's Java clients)."""
    if bytes(body[:8]) != _XERIAL:
        return b"".join(_decompress_blocks([body], most))
    return b"".join(_decompress_blocks(_split_xerial(body), most))


def _decompress_blocks(blocks: Iterable[memoryview], most: int) -> Iterator[bytes]:
    """Decompress blocks of snappy one after the other."""
    taken = small = 0
    for block in blocks:
        size = cramjam.snappy.decompress_raw_len(block)
        # Memory is taken for the size that the writer claims. So that is first compared with what the bytes can become.
        if size > _SNAPPY_MOST * len(block):
            raise ValueError(f"a snappy block of {len(block)} bytes says it is {size}")
        taken += size
        if taken > most:
            raise TooLargeError(f"there are more than {most:,} bytes")
        small = _count_small(small, size)
        yield bytes(cramjam.snappy.decompress_raw(block))


def _count_small(before: int, size: int) -> int:
    """Return how many parts were small so far, including this one of `size`."""
    if before + (size < _SMALL_BYTES) > _MOST_SMALL:
        raise ValueError(f"more than {_MOST_SMALL:,} of its parts have fewer than {_SMALL_BYTES:,} bytes")
    return before + (size < _SMALL_BYTES)


def _split_xerial(body: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of one stream, or of successive ones."""
    at = streams = 0
    while at < len(body):
        if bytes(body[at : at + 8]) == _XERIAL:
            streams = _count_small(streams, 0)
            at += _XERIAL_HEAD
            continue
        size = int.from_bytes(body[at : at + 4], "big")
        if at + 4 + size > len(body):
            raise ValueError(f"a block of {size} bytes is cut off")
        yield body[at + 4 : at + 4 + size]
        at += 4 + size


def _bound_zstd_blocks(body: memoryview) -> Iterator[int]:
    """Yield the largest size of each block. Where another kind of frame begins, yield sys.maxsize and end."""
    at = 0
    while at + 5 <= len(body):
        magic = int.from_bytes(body[at : at + 4], "little")
        if magic >> 4 == _ZSTD_SKIPPABLE:
            at += 8 + int.from_bytes(body[at + 4 : at + 8], "little")
            yield 0
            continue
        if magic != _ZSTD_FRAME:
            # The library also reads frames of zstd before 0.8. Their blocks are others, and grow as much.
            yield sys.maxsize
            return
        descriptor = body[at + 4]
        single = descriptor >> 5 & 1
        at += 5 + (1 - single) + _DICTIONARY_BYTES[descriptor & 3]
        at += _SIZE_BYTES[descriptor >> 6] or single
        last = 0
        while not last and at + 3 <= len(body):
            block = int.from_bytes(body[at : at + 3], "little")
            last = block & 1
            kind = block >> 1 & 3
            size = block >> 3
            yield _ZSTD_BLOCK if kind == _COMPRESSED_BLOCK else size
            at += 3 + (1 if kind == _ONE_BYTE_BLOCK else size)
        at += 4 * (descriptor >> 2 & 1)
