"""Real objects of each format, small, of which others are made."""

import gzip
import io
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.compression import CompressedSink
from kafka_s3_platform.formats.envelope.avro import EnvelopeAvroWriter
from kafka_s3_platform.formats.envelope.json import EnvelopeJsonWriter
from kafka_s3_platform.formats.envelope.parquet import EnvelopeWriter
from kafka_s3_platform_tests.formats.records import GOLDEN_RECORDS, batch_of
from kafka_s3_platform_tests.sources import lenses

_RICH = {
    "type": "record",
    "name": "Rich",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "four", "type": {"type": "fixed", "name": "F", "size": 4}},
    ],
}
_TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "v", "type": "int"}, {"name": "on", "type": {"type": "array", "items": "Tree"}}],
}
_ROWS = [
    {"n": i, "maybe": None if i % 3 else "x" * i, "list": [i] * i, "map": {"a": 0.5}, "kind": "A", "four": b"4444"}
    for i in range(9)
]
_LINES = b'{"a":[1,{"b":"\\u00e9\\n"}],"c":null}\n"text"\n-1.5e3\n[]\n' * 3
_AIVEN = b'{"key":1,"value":{"a":2},"offset":7,"timestamp":1700000000000,"headers":[{"key":"h","value":"aGk="}]}'


def seeds(format_name: str) -> list[bytes]:
    """Objects of a format of `hostile.readers`."""
    name, _, suffix = format_name.partition(".")
    if name in {"json", "bytes"}:
        return [_COMPRESSORS[suffix](_LINES)]
    return _MAKERS[format_name]()


def _compressed(body: bytes, codec: str) -> bytes:
    target = io.BytesIO()
    sink = CompressedSink(target, codec)
    sink.write(body)
    sink.close()
    return target.getvalue()


def _avro() -> list[bytes]:
    tree = {"v": 1, "on": [{"v": 2, "on": []}, {"v": 3, "on": [{"v": 4, "on": []}]}]}
    codecs = ("null", "deflate", "snappy", "bzip2", "zstandard", "xz")
    return [_container(_RICH, _ROWS, codec) for codec in codecs] + [_container(_TREE, [tree] * 3, "null")]


def _container(schema: Any, rows: Sequence[Any], codec: str) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(json.loads(json.dumps(schema))), rows, codec)
    return sink.getvalue()


def _parquet() -> list[bytes]:
    rows = [{**row, "list": row["list"] or None, "map": [("a", 0.5)]} for row in _ROWS]
    types: Mapping[str, pa.DataType] = {
        "n": pa.int64(),
        "maybe": pa.string(),
        "list": pa.list_(pa.int32()),
        "map": pa.map_(pa.string(), pa.float64()),
        "kind": pa.string(),
        "four": pa.binary(4),
    }
    table = pa.Table.from_pylist(rows, pa.schema(list(types.items())))
    found = []
    for codec, version in (("none", "1.0"), ("snappy", "1.0"), ("gzip", "2.0"), ("zstd", "2.0"), ("lz4", "1.0")):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=codec, data_page_version=version, row_group_size=5)
        found.append(sink.getvalue())
    return found


def _envelope(writer: Any, **options: Any) -> list[bytes]:
    sink = io.BytesIO()
    made = writer(sink, **options)
    made.write(batch_of(GOLDEN_RECORDS))
    made.close({})
    return [sink.getvalue()]


def _block_gzip() -> list[bytes]:
    members = [gzip.compress(b"one\ntwo\n"), gzip.compress(b"three\n")]
    at, chunks = 0, []
    for offset, (member, count) in enumerate(zip(members, (2, 1), strict=True)):
        sizes = {"byte_length_uncompressed": 8, "num_records": count, "byte_length": len(member), "byte_offset": at}
        chunks.append({**sizes, "first_record_offset": 2 * offset})
        at += len(member)
    return [json.dumps({"chunks": chunks}).encode() + b"\n" + b"".join(members)]


_COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": partial(_compressed, codec="gzip"),
    "bz2": partial(_compressed, codec="bzip2"),
    "zst": partial(_compressed, codec="zstd"),
    "xz": lzma.compress,
    "lz4": lambda body: bytes(cramjam.lz4.compress(body)),
    "snappy": lambda body: bytes(cramjam.snappy.compress(body)),
}

_MAKERS: Mapping[str, Callable[[], list[bytes]]] = {
    "avro": _avro,
    "parquet": _parquet,
    "length": lambda: [b"\0\0\0\3one\0\0\0\0\0\0\0\5three" * 3],
    "block_gzip": _block_gzip,
    "envelope.parquet": lambda: _envelope(EnvelopeWriter),
    "envelope.avro": lambda: _envelope(EnvelopeAvroWriter, codec="null") + _envelope(EnvelopeAvroWriter, codec="zstd"),
    "envelope.json": lambda: _envelope(EnvelopeJsonWriter, codec="none") + _envelope(EnvelopeJsonWriter, codec="gzip"),
    "lenses.json": lambda: [lenses.LINES],
    "lenses.avro": lambda: [lenses.avro(lenses.FIELDS, [lenses.record(n) for n in range(5)])],
    "lenses.parquet": lambda: [lenses.parquet([lenses.record(n) for n in range(5)])],
    "aiven.csv": lambda: [b"a2V5,dmFsdWU=,7,2023-11-14T22:13:20Z,aA==:aGk=;aQ==:\n" * 3],
    "aiven.jsonl": lambda: [(_AIVEN + b"\n") * 3],
    "aiven.json": lambda: [b"[\n" + _AIVEN + b",\n" + _AIVEN + b"\n]"],
    "aiven.avro": _avro,
    "aiven.parquet": _parquet,
}
