"""The attacks: by name the format of the object, what makes its bytes, and what is said of it."""

import bz2
import gzip
import io
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from kafka_s3_platform.core.formats.envelope.avro import ENVELOPE_SCHEMA
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform_tests.hostile.containers import (
    Page,
    avro,
    bomb,
    deep_schema,
    deflated,
    doubling,
    footer_of,
    growing,
    long,
    parquet_of,
    said_to_have,
    thrift,
    varint,
    zstd_frame,
)

_MEGABYTE = 2**20
_EMPTY = {"type": "record", "name": "R", "fields": []}
_ITSELF = {"type": "record", "name": "S", "fields": [{"name": "s", "type": "S"}]}
_LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
_BLOCK = b'{"byte_length_uncompressed":1,"num_records":1,"byte_length":9,"byte_offset":0,"first_record_offset":0}'
_NULLS = [{"name": f"n{i}", "type": "null"} for i in range(1000)]
_WIDE = {"type": "record", "name": "W", "fields": [{"name": "b", "type": "boolean"}, *_NULLS]}


@dataclass(frozen=True)
class Attack:
    """`fault` is what the error says, empty where the object is read, with a bad record."""

    format: str
    build: Callable[[], bytes]
    fault: str


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    # to find the largest of large values takes seconds
    fixed = {"compression": "zstd", "store_schema": False, "write_statistics": False}
    pq.write_table(table, sink, **{**fixed, **options})
    return sink.getvalue()


def _same(value: bytes, times: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), [value])


def _envelope(value: bytes) -> bytes:
    row = {"key": None, "value": value, "headers": None, "topic": "t", "partition": 0, "offset": 0, "timestamp": 0}
    table = pa.Table.from_pylist([{**row, "timestampType": 0}], RECORD_SCHEMA)
    metadata = {"kafka-s3-platform.format": "envelope/1"}
    return _parquet(table.replace_schema_metadata(metadata), use_dictionary=False, store_schema=True)


_CODECS = {"snappy": 1, "gzip": 2, "brotli": 4, "hadoop-lz4": 5, "zstd": 6, "lz4": 7}
_TWO_VALUES = b"\1\0\0\0a\1\0\0\0b"
_LARGE_VALUE = b"\0\0\x10\0" + bytes(2**20)
_TWO = Page(2, _TWO_VALUES, len(_TWO_VALUES))
_EMPTY_VALUES = Page(25 * 2**20, zstd_frame(100), 100 * 2**20, is_dictionary=True)
_INDEXES = zstandard.compress(b"\1\x08\1")
_BY_INDEX = Page(4, _INDEXES, 3, 8)


_ENVELOPE_HEADERS = b'{"key":null,"value":null,"headers":[' + b'{"key":"","value":null},' * (2 * _MEGABYTE)
_ENVELOPE_END = b'{"key":"","value":null}],"topic":"t","partition":0,"offset":0,"timestamp":0,"timestampType":0}\n'
_MANY = 4_000_000


def _lists(column: pa.Array, columns: int, kind: Any = pa.ListArray, **options: Any) -> bytes:
    """One record whose columns are lists that take nearly no bytes."""
    found = kind.from_arrays([0, len(column)], column)
    return _parquet(pa.table({f"a{i}": found for i in range(columns)}), **options)


def _with_default() -> bytes:
    """Records without a field, whose default is 2 MB."""
    field = {"name": "b", "type": {"type": "array", "items": "string"}, "default": ["a" * 20] * 80_000}
    sink, table = io.BytesIO(), pa.table({"a": [1] * 8000})
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {"parquet.avro.schema": json.dumps({"type": "record", "name": "R", "fields": [field]})}
        )
    return sink.getvalue()


def _nulls(fields: int) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.nulls(_MANY, pa.int64())] * fields, [f"x{i}" for i in range(fields)])


def _null_rows(rows: int, pages: int) -> bytes:
    """Nothing but nulls, whose footer says that they take a petabyte."""
    levels = varint(rows // pages << 1) + b"\0"
    body = struct.pack("<I", len(levels)) + levels
    return parquet_of([Page(rows // pages, body, len(body))] * pages, rows=rows, said_bytes=2**50, is_optional=True)


def _page(body: bytes, values: int, encoding: int) -> Page:
    return Page(values, body, len(body), encoding)


def _saying(encoding: int, kind: int) -> bytes:
    """A page of nine million values by its head, of two thousand million by its body."""
    return parquet_of([_page(said_to_have(2**31 - 1) * 2, 9 * 10**6, encoding)], rows=9 * 10**6, kind=kind)


def _bomb_page(codec: int, said: int) -> bytes:
    """A page of 256 MiB that is said to come to something."""
    return parquet_of([Page(2, _compress_zeros(codec), said)], rows=2, codec=codec)


@cache
def _compress_zeros(codec: int) -> bytes:
    compress: Mapping[int, Callable[[bytes], Any]] = {
        1: cramjam.snappy.compress_raw,
        2: partial(gzip.compress, compresslevel=1),
        4: partial(cramjam.brotli.compress, level=5),
        5: partial(cramjam.lz4.compress_block, store_size=False),
        6: zstandard.compress,
        7: partial(cramjam.lz4.compress_block, store_size=False),
    }
    return bytes(compress[codec](bytes(2**28)))


@cache
def _xz_bomb() -> bytes:
    return lzma.compress(bytes(2**24)) * 16


def _ask_for_dictionary() -> bytes:
    """Return a line in xz that asks for a dictionary of 1 GiB. To compress it with one takes a second."""
    compressed = lzma.compress(b"1\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**20}])
    head, size_at, crc_at = 12, 16, 20
    block_header = compressed[head:size_at] + b"\x24" + compressed[size_at + 1 : crc_at]
    checked = block_header + struct.pack("<I", zlib.crc32(block_header))
    return compressed[:head] + checked + compressed[crc_at + 4 :]


def _xerial(block: bytes) -> bytes:
    return b"\x82SNAPPY\0" + bytes(8) + len(block).to_bytes(4, "big") + block


def _hadoop(piece: bytes, size: int) -> bytes:
    return size.to_bytes(4, "big") + len(piece).to_bytes(4, "big") + piece


ATTACKS: Mapping[str, Attack] = {
    "avro-record-in-itself": Attack("avro", lambda: avro(_ITSELF, [(1, b"")]), "1 records in a block of 0 bytes"),
    "avro-deep": Attack("avro", lambda: avro(_LIST, [(1, b"\2" * 100_000 + b"\0")]), "values inside each other"),
    "avro-empty-items": Attack(
        "avro",
        lambda: avro({"type": "array", "items": "null"}, [(1, long(2**40) + b"\0")]),
        "more than 1,000,000 items",
    ),
    "avro-empty-records": Attack("avro", lambda: avro(_EMPTY, [(2**40, b"")]), "max.empty.records"),
    "avro-deflate": Attack("avro", lambda: avro("bytes", [(1, deflated(256))], "deflate"), "max.block.bytes"),
    "avro-zstd": Attack("avro", lambda: avro("bytes", [(1, zstd_frame(256))], "zstandard"), "max.block.bytes"),
    "avro-bzip2": Attack("avro", lambda: avro("bytes", [(1, bomb(".bz2", 256))], "bzip2"), "max.block.bytes"),
    "avro-xz": Attack("avro", lambda: avro("bytes", [(1, _xz_bomb())], "xz"), "max.block.bytes"),
    "avro-snappy": Attack(
        "avro",
        lambda: avro("bytes", [(1, bytes(cramjam.snappy.compress_raw(bytes(2**28))) + b"CRC ")], "snappy"),
        "max.block.bytes",
    ),
    "avro-many-small-items": Attack(
        "avro",
        lambda: avro(
            {"type": "array", "items": {"type": "map", "values": "int"}},
            [(1, deflated(120, start=long(119 * _MEGABYTE)))],
            "deflate",
        ),
        "more than 1,000,000 items",
    ),
    "avro-wide-items": Attack(
        "avro",
        lambda: avro({"type": "array", "items": _WIDE}, [(1, long(200_000) + bytes(200_001))]),
        "more than 1,000,000 items",
    ),
    "avro-doubling-schema": Attack("avro", lambda: avro(doubling(40), [(1, b"")]), "more than 100,000 values"),
    "avro-nested-schema": Attack(
        "avro", lambda: avro(b'{"type":"array","items":' * 50_000 + b'"int"' + b"}" * 50_000, []), "RecursionError"
    ),
    "avro-bzip2-empty-streams": Attack(
        "avro",
        lambda: avro("bytes", [(1, bz2.compress(b"") * 400_000)], "bzip2"),
        "10,000 of its parts have fewer than 1,024 bytes",
    ),
    "avro-xz-empty-streams": Attack(
        "avro",
        lambda: avro("bytes", [(1, lzma.compress(b"") * 200_000)], "xz"),
        "10,000 of its parts have fewer than 1,024 bytes",
    ),
    "avro-branches": Attack(
        "avro",
        lambda: avro([{"type": "record", "name": f"R{i}", "fields": []} for i in range(70_000)], [(1, b"\0")]),
        "more than 2,000 branches",
    ),
    "avro-metadata": Attack("avro", lambda: b"Obj\x01" + long(1) + long(2**40), "max.footer.bytes"),
    "json-gzip": Attack("json.gz", lambda: bomb(".gz", 256), "max.record.bytes"),
    "json-bzip2": Attack("json.bz2", lambda: bomb(".bz2", 256), "max.record.bytes"),
    "json-zstd": Attack("json.zst", lambda: bomb(".zst", 256), "max.record.bytes"),
    "json-xz": Attack("json.xz", _xz_bomb, "max.record.bytes"),
    "json-xz-dictionary": Attack(
        "json.xz",
        _ask_for_dictionary,
        "emory usage limit",
    ),
    "json-lz4": Attack("json.lz4", lambda: bytes(cramjam.lz4.compress(bytes(2**28))), "max.record.bytes"),
    "json-lz4-empty-frames": Attack(
        "json.lz4", lambda: bytes(cramjam.lz4.compress(b"")) * _MEGABYTE + bytes(cramjam.lz4.compress(b"x\n")), ""
    ),
    "json-snappy": Attack("json.snappy", lambda: bytes(cramjam.snappy.compress(bytes(2**28))), "max.record.bytes"),
    "json-snappy-empty-chunks": Attack(
        "json.snappy",
        lambda: b"\xff\x06\0\0sNaPpY" + b"\xfe\0\0\0" * _MEGABYTE,
        "10,000 of its parts are empty",
    ),
    "json-xerial": Attack(
        "json.snappy", lambda: _xerial(bytes(cramjam.snappy.compress_raw(bytes(2**28)))), "max.block.bytes"
    ),
    "json-xerial-that-says-more": Attack("json.snappy", lambda: _xerial(b"\xff\xff\xff\x3f" + bytes(9)), "claim to"),
    "json-xerial-block": Attack("json.snappy", lambda: _xerial(b"")[:-4] + b"\x7f\xff\xff\xff", "max.block.bytes"),
    "json-hadoop-snappy": Attack(
        "json.snappy", lambda: b"\0\xff\xff\xff" + b"\0\0\0\1\0" * 10**6, "10,000 of its parts are empty"
    ),
    "json-hadoop-lz4": Attack(
        "json.lz4",
        lambda: _hadoop(bytes(cramjam.lz4.compress_block(bytes(2**23), store_size=False)), 2**23) * 20,
        "max.record.bytes",
    ),
    "json-empty": Attack("json.gz", lambda: bomb(".gz", 20, b"\n"), "max.empty.records"),
    "json-nested": Attack("json", lambda: b"[" * 1000 + b"]" * 1000 + b"\n", ""),
    "json-line": Attack("json", lambda: b"a" * 150 * _MEGABYTE + b"\n", "max.record.bytes"),
    "json-nested-unclosed": Attack("json", lambda: b"[" * 20 * _MEGABYTE + b"\n", ""),
    "json-gzip-empty-members": Attack(
        "json.gz", lambda: gzip.compress(b"") * _MEGABYTE, "10,000 of its parts are empty"
    ),
    "json-bzip2-empty-streams": Attack(
        "json.bz2", lambda: bz2.compress(b"") * _MEGABYTE, "10,000 of its parts are empty"
    ),
    "bytes-gzip": Attack("bytes.gz", lambda: bomb(".gz", 256), "max.record.bytes"),
    "bytes-empty": Attack("bytes.gz", lambda: bomb(".gz", 256, b"\n"), "max.empty.records"),
    "bytes-length": Attack("length", lambda: b"\xff" * 4 + bytes(_MEGABYTE), "max.record.bytes"),
    "block-gzip-nested-index": Attack(
        "block_gzip", lambda: b'{"chunks":' + b"[" * 100_000 + b"\n", "no Block-GZIP index"
    ),
    "block-gzip-text-count": Attack(
        "block_gzip",
        lambda: (
            b'{"chunks":[{"byte_length_uncompressed":1,"num_records":"x","byte_length":1,"byte_offset":0,'
            b'"first_record_offset":0}]}\n'
        ),
        "no Block-GZIP index",
    ),
    "block-gzip-same-block": Attack(
        "block_gzip",
        lambda: b'{"chunks":[' + b",".join([_BLOCK] * 10_000) + b"]}\n",
        "does not end before",
    ),
    "block-gzip-bomb": Attack(
        "block_gzip",
        lambda: (
            b'{"chunks":[{"byte_length_uncompressed":1,"num_records":1,"byte_length":%d,"byte_offset":0,'
            b'"first_record_offset":0}]}\n' % len(bomb(".gz", 256)) + bomb(".gz", 256)
        ),
        "max.record.bytes",
    ),
    "aiven-json-nested": Attack(
        "aiven.json", lambda: b'[{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "no array of JSON"
    ),
    "aiven-json-elements": Attack("aiven.json", lambda: b"[0" + b",0" * 30 * _MEGABYTE + b"]", "elements"),
    "aiven-jsonl-nested": Attack("aiven.jsonl", lambda: b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ""),
    "aiven-jsonl-offset": Attack("aiven.jsonl", lambda: b'{"value":1,"offset":"x"}\n', ""),
    "aiven-jsonl-large-offset": Attack("aiven.jsonl", lambda: b'{"value":1,"offset":99999999999999999999}\n', ""),
    "aiven-jsonl-headers": Attack("aiven.jsonl", lambda: b'{"value":1,"headers":[{"key":5,"value":""}]}\n', ""),
    **{
        f"aiven-jsonl-{name}-items": Attack(
            "aiven.jsonl",
            partial(lambda n: b'{"value":1,"%s":[' % n + b"[]," * 8 * _MEGABYTE + b"[]]}\n", name.encode()),
            "",
        )
        for name in ("headers", "offset", "timestamp")
    },
    "aiven-csv-headers": Attack("aiven.csv", lambda: b"QQ==,QQ==,1,1," + b"QQ==:;" * 5 * _MEGABYTE + b"\n", ""),
    "lenses-json-nested": Attack("lenses.json", lambda: b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ""),
    "lenses-json-headers": Attack(
        "lenses.json", lambda: b'{"value":1,"headers":{"a":1' + b',"a":1' * 2 * _MEGABYTE + b"}}\n", ""
    ),
    "lenses-json-large-offset": Attack(
        "lenses.json",
        lambda: b'{"value":1,"metadata":{"offset":99999999999999999999}}\n',
        "",
    ),
    "lenses-json-array": Attack("lenses.json", lambda: b'{"valueIsArray":true,"value":' + b"[" * 10**6 + b"}\n", ""),
    "parquet-page": Attack("parquet", lambda: _parquet(pa.table({"a": [bytes(2**28)]})), "max.block.bytes"),
    "parquet-pages": Attack(
        "parquet",
        lambda: _parquet(pa.table({f"a{i}": [bytes(2**25)] for i in range(9)}), use_dictionary=False),
        "max.block.bytes",
    ),
    "parquet-dictionary": Attack(
        "parquet", lambda: _parquet(pa.table({"a": _same(bytes(10**6), 10**6)})), "max.block.bytes"
    ),
    "parquet-list-of-dictionary": Attack(
        "parquet",
        lambda: _parquet(pa.table({"a": pa.ListArray.from_arrays([0, 10**6], _same(bytes(10**5), 10**6))})),
        "max.block.bytes",
    ),
    **{
        f"parquet-{name}-page": Attack("parquet", partial(_bomb_page, codec, 2**28), "has a page of 268,435,456 bytes")
        for name, codec in _CODECS.items()
    },
    **{
        f"parquet-{name}-page-that-says-less": Attack("parquet", partial(_bomb_page, codec, 120 * 2**20), "Parquet")
        for name, codec in _CODECS.items()
    },
    "parquet-dictionary-of-nothing": Attack(
        "parquet", lambda: parquet_of([_EMPTY_VALUES, _BY_INDEX], rows=4, codec=6), "max.block.bytes"
    ),
    "parquet-pages-without-values": Attack(
        "parquet", lambda: parquet_of([Page(0, b"", 0)] * 100_000, rows=4), "17 pages of 0 values"
    ),
    "envelope-parquet-statistic-that-is-a-number": Attack(
        "envelope.parquet",
        lambda: parquet_of([_TWO], rows=2, statistics=thrift([(5, 6, 2**40), (6, 6, 2**40)])),
        "not an envelope/1",
    ),
    "parquet-more-rows": Attack("parquet", lambda: parquet_of([_TWO], rows=3), "2 values in a row group of 3 records"),
    "parquet-fewer-rows": Attack("parquet", lambda: parquet_of([_TWO], rows=1), "2 values in a row group of 1 records"),
    "parquet-too-many-rows": Attack("parquet", lambda: parquet_of([_TWO], rows=10**12), "max.empty.records"),
    "parquet-columns-at-the-same-pages": Attack(
        "parquet",
        lambda: parquet_of([_page(_LARGE_VALUE, 1, 0)], rows=1, columns=500, same_bytes=True),
        "max.row.group.bytes",
    ),
    "parquet-records-side-by-side": Attack(
        "parquet",
        lambda: _parquet(pa.table({f"a{i}": [bytes(2**26)] for i in range(3)}), use_dictionary=False),
        "side by side",
    ),
    "parquet-delta-byte-array": Attack(
        "parquet",
        lambda: parquet_of([_page(growing(100_000, 100_000), 100_000, 7)], rows=100_000),
        "has a row group that comes to more than",
    ),
    **{
        f"parquet-{name}-that-says-more": Attack(
            "parquet", partial(_saying, encoding, kind), "cannot be read as Parquet"
        )
        for name, encoding, kind in (
            ("delta-byte-array", 7, 6),
            ("delta-length-byte-array", 6, 6),
            ("byte-stream-split", 9, 5),
            ("delta-binary", 5, 2),
            ("plain", 0, 6),
        )
    },
    "parquet-nulls": Attack(
        "parquet", lambda: _parquet(pa.table({"a": pa.nulls(2 * 10**7, pa.int32())})), "max.empty.records"
    ),
    "parquet-list-of-nulls": Attack(
        "parquet",
        lambda: _parquet(pa.table({"a": pa.ListArray.from_arrays([0, 2 * 10**7], pa.nulls(2 * 10**7, pa.int32()))})),
        "max.empty.records",
    ),
    "parquet-lists-side-by-side": Attack("parquet", lambda: _lists(pa.nulls(_MANY, pa.int64()), 40), "side by side"),
    "parquet-list-of-wide": Attack("parquet", lambda: _lists(_nulls(40), 1), "has records of"),
    "parquet-list-of-many": Attack("parquet", lambda: _lists(pa.nulls(_MANY + 1, pa.int64()), 1), "max.items"),
    "parquet-list-of-one-value": Attack("parquet", lambda: _lists(pa.repeat("x" * 100, _MANY), 1), "has records of"),
    "parquet-large-list-of-one-value": Attack(
        "parquet",
        lambda: _lists(pa.repeat("x" * 100, _MANY), 1, pa.LargeListArray, store_schema=True),
        "has records of",
    ),
    "parquet-list-of-numbers": Attack("parquet", lambda: _lists(pa.repeat(1, 9_000_000), 1), "max.items"),
    "parquet-default-of-its-schema": Attack("parquet", _with_default, "its schema and its columns differ in b, a"),
    "parquet-rows-of-a-footer-that-lies": Attack("parquet", lambda: _null_rows(2**40, 2**10), "max.empty.records"),
    "parquet-row-groups": Attack("parquet", lambda: footer_of(400_000), "Parquet"),
    "parquet-large-footer": Attack("parquet", lambda: footer_of(10**6), "max.footer.bytes"),
    "parquet-deep-schema": Attack("parquet", lambda: deep_schema(100_000), "Parquet"),
    "envelope-json-zstd": Attack("envelope.json", lambda: bomb(".zst", 256), "max.record.bytes"),
    "envelope-json-headers": Attack("envelope.json", lambda: _ENVELOPE_HEADERS + _ENVELOPE_END, "max.items"),
    "envelope-avro-zstd": Attack(
        "envelope.avro", lambda: avro(ENVELOPE_SCHEMA.encode(), [(1, zstd_frame(256))], "zstandard"), "max.block.bytes"
    ),
    "envelope-avro-headers": Attack(
        "envelope.avro",
        lambda: avro(
            ENVELOPE_SCHEMA.encode(),
            [(1, deflated(100, start=b"\0\0\2" + long(49 * _MEGABYTE)))],
            "deflate",
        ),
        "more than 1,000,000 items",
    ),
    "envelope-parquet-page": Attack("envelope.parquet", lambda: _envelope(bytes(2**28)), "max.block.bytes"),
}
