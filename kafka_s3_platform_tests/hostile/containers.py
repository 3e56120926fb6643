"""Builds containers whose parts are whatever an attacker wants them to be.

Archives topics in a process of its own, whose memory is measured.
"""

import bz2
import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import zstandard

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.forked import call_apart
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.support import snapshot, tried

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
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
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


@dataclass(frozen=True)
class Page:
    """A page of Parquet. `stored` are its bytes as they lie there, `size` is what it says they come to."""

    values: int
    stored: bytes
    size: int
    encoding: int = 0
    is_dictionary: bool = False

    @cached_property
    def head(self) -> bytes:
        inner = thrift([(1, _I32, self.values), (2, _I32, self.encoding), (3, _I32, 3), (4, _I32, 3)])
        kind, field = (2, 7) if self.is_dictionary else (0, 5)
        sizes = [(1, _I32, kind), (2, _I32, self.size), (3, _I32, len(self.stored))]
        return thrift([*sizes, (field, _STRUCT, inner)])


def parquet_of(
    pages: Sequence[Page],
    *,
    rows: int,
    codec: int = 0,
    columns: int = 1,
    kind: int = 6,
    same_bytes: bool = False,
    said_bytes: int | None = None,
    is_optional: bool = False,
    statistics: bytes = b"",
) -> bytes:
    """A file of one row group, whose columns are all of the same pages. `codec` and `kind` are Parquet's."""
    chunk = b"".join(page.head + page.stored for page in pages)
    places = [4 if same_bytes else 4 + at * len(chunk) for at in range(columns)]
    size = sum(len(page.head) + page.size for page in pages)
    names = [b"c%d" % at for at in range(columns)]
    chunks = [_chunk(pages, name, at, codec, kind, statistics) for name, at in zip(names, places, strict=True)]
    group = thrift([(1, _LIST, (_STRUCT, chunks)), (2, _I64, said_bytes or size * columns), (3, _I64, rows)])
    leaves = [thrift([(1, _I32, kind), (3, _I32, int(is_optional)), (4, _BINARY, name)]) for name in names]
    schema = (_STRUCT, [thrift([(4, _BINARY, b"r"), (5, _I32, columns)]), *leaves])
    footer = thrift([(1, _I32, 2), (2, _LIST, schema), (3, _I64, rows), (4, _LIST, (_STRUCT, [group]))])
    body = chunk if same_bytes else chunk * columns
    return b"PAR1" + body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _chunk(pages: Sequence[Page], name: bytes, at: int, codec: int, kind: int, statistics: bytes) -> bytes:
    stored = sum(len(page.head + page.stored) for page in pages)
    values = sum(page.values for page in pages if not page.is_dictionary)
    first = len(pages[0].head + pages[0].stored) if pages[0].is_dictionary else 0
    meta = [(1, _I32, kind), (2, _LIST, (_I32, [0, 8])), (3, _LIST, (_BINARY, [name])), (4, _I32, codec)]
    sizes = [(5, _I64, values), (6, _I64, sum(page.size for page in pages)), (7, _I64, stored)]
    ends = [
        (9, _I64, at + first),
        *([(11, _I64, at)] if first else []),
        *([(12, _STRUCT, statistics)] if statistics else []),
    ]
    return thrift([(2, _I64, at), (3, _STRUCT, thrift([*meta, *sizes, *ends]))])


def growing(values: int, size: int) -> bytes:
    """A page of DELTA_BYTE_ARRAY: each value but the first is what the one before it is, and takes no byte."""
    prefixes = _steps(0, 0, [size] + [0] * 127, values)
    return prefixes + _steps(size, -size, [-size] + [0] * 127, values) + b"x" * size


def _steps(first: int, least: int, steps: Sequence[int], count: int) -> bytes:
    """DELTA_BINARY_PACKED: the first number, 128 steps from one to the next, and then none."""
    packed = sum(step - least << 17 * at for at, step in enumerate(steps)).to_bytes(17 * len(steps) // 8, "little")
    head = varint(128) + varint(4) + varint(count) + long(first)
    return head + long(least) + b"\x11" * 4 + packed + (long(0) + bytes(4)) * ((count - 2) // 128)


def said_to_have(count: int) -> bytes:
    """A page of DELTA_LENGTH_BYTE_ARRAY or DELTA_BYTE_ARRAY of so many values, of which there is none."""
    return varint(128) + varint(4) + varint(count) + long(0)


_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def thrift(fields: Sequence[tuple[int, int, Any]]) -> bytes:
    """A struct of Thrift's compact protocol: fields by id and type; what is a struct is given as its bytes."""
    found, last = b"", 0
    for field, kind, value in fields:
        found += bytes([field - last << 4 | kind]) + _thrift_value(kind, value)
        last = field
    return found + b"\0"


def _thrift_value(kind: int, value: Any) -> bytes:
    if kind == _LIST:
        item, values = value
        head = bytes([len(values) << 4 | item]) if len(values) < 15 else bytes([0xF0 | item]) + varint(len(values))
        return head + b"".join(_thrift_value(item, each) for each in values)
    if kind == _BINARY:
        return varint(len(value)) + bytes(value)
    return bytes(value) if kind == _STRUCT else long(value)


@dataclass(frozen=True)
class Archived:
    """What a run came to. `megabytes` are those above what a run before it has left; `offsets` those unresolved."""

    records: int
    dead_letters: int
    failure: str
    offsets: list[list[int]]
    seconds: float
    megabytes: float


def archived_apart(configs: Sequence[ConnectorConfig]) -> Archived:
    """The last of the runs, all in one process."""
    return call_apart(_archive, configs)


def _archive(configs: Sequence[ConnectorConfig]) -> Archived:
    *before, config = configs
    for each in before:
        tried(each).raise_failure()
    held = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    report = tried(config)
    return Archived(
        sum(s.record_count for s in snapshot(config).segments),
        report.dead_letter_count,
        str(report.failure or ""),
        [[u.start_offset, u.end_offset] for u in snapshot(config).state.unresolved],
        report.seconds,
        (kilobytes("VmHWM") - held) / 1024,
    )
