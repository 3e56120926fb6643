"""Builds containers whose parts are whatever an attacker wants them to be."""

import bz2
import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zstandard

_SYNC = b"S" * 16
_PIECE = 16 * 2**20


def long(number: int) -> bytes:
    """As Avro and Thrift write it: zigzag."""
    return varint((number << 1 ^ number >> 63) & (2**64 - 1))


def varint(number: int) -> bytes:
    """Seven bits a byte."""
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def avro(schema: Any, blocks: Sequence[tuple[int, bytes]], codec: str = "null") -> bytes:
    """A container. `schema` is JSON, or its text; a block is a number of records and its bytes as they are stored."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    pairs = b"".join(long(len(p)) + p for p in (b"avro.codec", codec.encode(), b"avro.schema", text))
    body = b"".join(long(count) + long(len(data)) + data + _SYNC for count, data in blocks)
    return b"Obj\x01" + long(2) + pairs + b"\0" + _SYNC + body


def doubling(steps: int) -> Any:
    """A schema of records without bytes, of which each holds the one before twice."""
    found: Any = {"type": "record", "name": "R0", "fields": []}
    for step in range(1, steps + 1):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{step - 1}"}]
        found = {"type": "record", "name": f"R{step}", "fields": fields}
    return found


def deflated(megabytes: int, byte: bytes = b"\0", start: bytes = b"") -> bytes:
    """A raw deflate stream of one byte many times."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    pieces = [stream.compress(start), *(stream.compress(byte * 2**20) for _ in range(megabytes))]
    return b"".join(pieces) + stream.flush()


def bomb(suffix: str, megabytes: int, byte: bytes = b"\0") -> bytes:
    """One byte many times, as several streams in a row."""
    compress: Mapping[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    found = compress[suffix](byte * _PIECE)
    return found * (megabytes * 2**20 // _PIECE)


def zstd_frame(megabytes: int) -> bytes:
    """One frame of zeros."""
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(bytes(2**20)) for _ in range(megabytes)) + stream.flush()


def footer_of(row_groups: int) -> bytes:
    """A Parquet file that is a footer of so many row groups without columns."""
    group = b"\x19\x0c\x16\x00\x16\x00\x00"
    root, leaf = b"\x48\x01r\x15\x02\x00", b"\x15\x02\x25\x00\x18\x01x\x00"
    body = b"\x15\x02\x19\x2c" + root + leaf + b"\x16\x00\x19\xfc" + varint(row_groups) + group * row_groups + b"\x00"
    return b"PAR1" + body + struct.pack("<I", len(body)) + b"PAR1"


def deep_schema(depth: int) -> bytes:
    """A Parquet file whose footer has groups inside each other."""
    group, leaf = b"\x35\x02\x18\x01g\x15\x02\x00", b"\x15\x02\x25\x00\x18\x01x\x00"
    body = b"\x15\x02\x19\xfc" + varint(depth + 1) + group * depth + leaf + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + body + struct.pack("<I", len(body)) + b"PAR1"
