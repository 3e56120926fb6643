"""The doors through which compressed bytes of others come in, each with one who writes such bytes."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import cramjam
import zstandard

from kafka_s3_platform.core.codecs.table import SNAPPY_FRAMES
from kafka_s3_platform.core.formats.avro_container import AvroContainer
from kafka_s3_platform.core.formats.reading import read_pieces
from kafka_s3_platform.core.kafka.fetch.log_batches import open_batch, parse_batches
from kafka_s3_platform.core.model.limits import ReadLimits
from kafka_s3_platform_tests.hostile.containers import avro
from kafka_s3_platform_tests.kafka.wire import GZIP, LZ4, NO_PRODUCER, SNAPPY, ZSTD, WireRecord, framed, records_body

MOST = 1_048_576
"""The most bytes that a batch or a block may become here."""

RECORDS = [WireRecord(0, value=b'{"id":%d,"name":"user %d"}' % (i, i * i % 97)) for i in range(9_000)]
TEXT = records_body(RECORDS)
"""Below MOST, and the body of a batch of Kafka too."""

Compress = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_frames(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(data)) or SNAPPY_FRAMES


def raw_lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def xerial(data: bytes, size: int = 32_768) -> bytes:
    """As snappy-java's SnappyOutputStream writes it, and so Kafka's clients and Aiven's sink."""
    head = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    return head + b"".join(sized(raw_snappy(data[at : at + size])) for at in range(0, len(data), size))


def hadoop(compress: Compress) -> Compress:
    """As Hadoop's BlockCompressorStream writes it, and so Spark."""

    def blocks(data: bytes, block: int = 200_000, size: int = 65_536) -> bytes:
        found = b"" if data else bytes(4)
        for start in range(0, len(data), block):
            piece = data[start : start + block]
            parts = [sized(compress(piece[at : at + size])) for at in range(0, len(piece), size)]
            found += len(piece).to_bytes(4, "big") + b"".join(parts)
        return found

    return blocks


def sized(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


def kafka(number: int, body: bytes) -> bytes:
    """Read a record batch that a broker sent."""
    batch = next(parse_batches(memoryview(framed(body, RECORDS, 0, number, NO_PRODUCER))))
    return bytes(open_batch(batch, MOST).body)


def container(codec: str, body: bytes) -> bytes:
    """Read a block of an Avro container. After one of snappy follows a checksum."""
    if codec == "snappy":
        body += zlib.crc32(TEXT).to_bytes(4, "big")
    file = io.BytesIO(avro("bytes", [(1, body)], codec))
    return b"".join(data for _, data in AvroContainer(file, "k", ReadLimits(block_bytes=MOST)).blocks())


def lines(codec: str, body: bytes) -> bytes:
    """Read an object of lines."""
    return b"".join(read_pieces(io.BytesIO(body), "k", codec, ReadLimits(block_bytes=MOST)))


Read = Callable[[Any, bytes], bytes]
DOORS: Mapping[str, tuple[Read, Any, Compress]] = {
    "kafka gzip": (kafka, GZIP, gzip.compress),
    "kafka snappy": (kafka, SNAPPY, raw_snappy),
    "kafka xerial": (kafka, SNAPPY, xerial),
    "kafka lz4": (kafka, LZ4, lz4),
    "kafka zstd": (kafka, ZSTD, zstd),
    "avro deflate": (container, "deflate", deflate),
    "avro snappy": (container, "snappy", raw_snappy),
    "avro bzip2": (container, "bzip2", bz2.compress),
    "avro zstandard": (container, "zstandard", zstd),
    "avro xz": (container, "xz", lzma.compress),
    "lines gzip": (lines, "gzip", gzip.compress),
    "lines bzip2": (lines, "bzip2", bz2.compress),
    "lines zstd": (lines, "zstd", zstd),
    "lines lz4": (lines, "lz4", lz4),
    "lines snappy": (lines, "snappy", snappy_frames),
    "lines xerial": (lines, "snappy", xerial),
    "lines xz": (lines, "xz", lzma.compress),
    "lines hadoop snappy": (lines, "snappy", hadoop(raw_snappy)),
    "lines hadoop lz4": (lines, "lz4", hadoop(raw_lz4)),
}
