"""Compresses and decompresses the blocks of Avro containers.

Source: Avro specification, "Required Codecs" and "Optional Codecs". fastavro's own reader does not compare snappy's
CRC-32.
"""

import bz2
import io
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import cramjam
import pyarrow as pa
import zstandard
from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from kafka_s3_platform.config.codecs import AVRO_CODECS
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.compressed_blocks import MOST_EMPTY_STREAMS
from kafka_s3_platform.formats.compression import CHUNK_BYTES, FIRST_BYTES, decompress_frames

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
