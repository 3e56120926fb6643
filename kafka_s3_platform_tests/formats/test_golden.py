"""Objects written once, and kept: every format and codec reads as the day it was written, by us and by others.

`python -m kafka_s3_platform_tests.formats.test_golden` writes those that are missing.
"""

import base64
import bz2
import gzip
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kafka_s3_platform.connect.formats.block_gzip import read_from, read_index
from kafka_s3_platform.core.codecs.table import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.envelope.avro import EnvelopeAvroReader
from kafka_s3_platform.core.formats.envelope.json import EnvelopeJsonReader
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform_tests.formats.connect import came, decoded, payload, written_with_sidecars
from kafka_s3_platform_tests.formats.records import GOLDEN_RECORDS, batch_of, describe_as_json, rows_of

GOLDEN = Path(__file__).parent.parent / "golden" / "formats"

JSON_LINES = [b'{"id":1,"name":"a"}', b'{"id":2,"name":"\xc3\xbc\\n"}', b'{"id":3,"name":null}']
BYTES = [b"plain", b"", b"\x00\xff", "ü".encode()]
TEXT_LINES = [b"first", b"second\n", b"", b"a third line that is longer than a block may be in these files", b"fourth"]
HEADERS = [[{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}], [], [{"key": "b", "value": b"\xff"}]]
SHAPES = Schema(
    json.dumps(
        {
            "type": "record",
            "name": "Shape",
            "namespace": "golden",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": ["null", "string"]},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "sizes", "type": {"type": "map", "values": "int"}},
                {"name": "either", "type": ["null", "string", "int"]},
            ],
        }
    )
)
OBJECTS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "a",
        "at": 0,
        "price": b"\x04\xd2",
        "tags": ["x", "y"],
        "sizes": {"s": 1},
        "either": ("string", "e"),
    },
    {"id": -2, "name": None, "at": 1_356_998_400_123, "price": b"\xff", "tags": [], "sizes": {}, "either": ("int", 7)},
    {"id": 2**62, "name": "ü", "at": -1, "price": b"\x00", "tags": ["z"], "sizes": {"m": -1}, "either": None},
]
COLUMNS = [
    {
        "id": row["id"],
        "name": row["name"],
        "at": row["at"],
        "price": Decimal(int.from_bytes(row["price"], "big", signed=True)).scaleb(-2),
        "tags": row["tags"],
        "sizes": list(row["sizes"].items()),
        "either": row["either"]
        and {
            f"member{i}": row["either"][1] if row["either"][0] == k else None for i, k in enumerate(("string", "int"))
        },
    }
    for row in OBJECTS
]

Case = tuple[LayoutSettings, ObjectPart, Schema | None, Callable[[], ConnectBatch]]


def envelope() -> ConnectBatch:
    empty = payload(pa.array([], pa.binary()), None)
    return ConnectBatch(batch_of(GOLDEN_RECORDS), empty, empty)


def json_lines() -> ConnectBatch:
    return came(JSON_LINES, [b"k1", b"k2", b""], HEADERS, is_json=True)


def values(format_name: str, codec: str, **more: Any) -> LayoutSettings:
    return LayoutSettings(format=format_name, codec=codec, **more)


HEADERS_AS = {name: values("json", "none", headers_format=name, headers_codec="none") for name in ("json", "parquet")}
CASES: dict[str, Case] = {
    **{f"json-{c}": (values("json", c), "value", None, json_lines) for c in LINE_CODECS},
    **{f"bytes-{c}": (values("bytes", c), "value", None, lambda: came(BYTES)) for c in LINE_CODECS},
    "bytes-length": (values("bytes", "none", bytes_separator="length"), "value", None, lambda: came(BYTES)),
    **{
        f"parquet-{c}": (values("parquet", c), "value", SHAPES, lambda: decoded(OBJECTS, SHAPES))
        for c in PARQUET_CODECS
    },
    **{f"envelope-avro-{c}": (values("envelope.avro", c), "value", None, envelope) for c in AVRO_CODECS},
    **{f"envelope-json-{c}": (values("envelope.json", c), "value", None, envelope) for c in LINE_CODECS},
    "decoded-json": (values("json", "none"), "value", SHAPES, lambda: decoded(OBJECTS, SHAPES)),
    "block-gzip": (values("block_gzip", "gzip", block_size=30), "value", None, lambda: came(TEXT_LINES)),
    "keys-json": (values("json", "none", keys_format="json"), "key", Schema('"bytes"'), json_lines),
    **{f"headers-{name}": (layout, "headers", None, json_lines) for name, layout in HEADERS_AS.items()},
}


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def made(name: str) -> dict[str, bytes]:
    layout, part, schema, batch = CASES[name]
    return written_with_sidecars(layout, batch(), part=part, schema=schema)


@pytest.mark.parametrize("name", [n for n in CASES if n.split("-")[-1] in {"none", "null", "json", "length"}])
def test_what_is_not_compressed_is_written_as_the_golden_file(name: str) -> None:
    if CASES[name][0].format != "parquet":
        assert made(name)[""] == golden(name)


DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "bzip2": bz2.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}


@pytest.mark.parametrize("codec", LINE_CODECS)
def test_json_and_bytes_of_each_codec(codec: str) -> None:
    text = DECOMPRESS[codec](golden(f"json-{codec}")).decode()
    assert [json.loads(line) for line in text.split("\n")[:-1]] == [json.loads(line) for line in JSON_LINES]
    assert DECOMPRESS[codec](golden(f"bytes-{codec}")).split(b"\n") == [*BYTES, b""]


def test_bytes_with_their_lengths() -> None:
    source, found = io.BytesIO(golden("bytes-length")), []
    while size := source.read(4):
        found.append(source.read(int.from_bytes(size, "big")))
    assert found == BYTES


@pytest.mark.parametrize("codec", PARQUET_CODECS)
def test_parquet_of_each_codec(codec: str) -> None:
    table = pq.read_table(GOLDEN / f"parquet-{codec}")
    at = table.schema.get_field_index("at")
    assert table.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert table.set_column(at, "at", table.column("at").cast(pa.int64())).to_pylist() == COLUMNS
    rows = duckdb.read_parquet(str(GOLDEN / f"parquet-{codec}")).project('id, name, epoch_ms("at"), price, tags')
    assert rows.fetchall() == [(c["id"], c["name"], c["at"], c["price"], c["tags"]) for c in COLUMNS]


def test_decoded_json() -> None:
    rows = [json.loads(line) for line in golden("decoded-json").splitlines()]
    assert rows == [
        {
            **row,
            "price": base64.b64encode(row["price"]).decode(),
            "either": row["either"]
            and {k: row["either"][1] if row["either"][0] == k else None for k in ("string", "int")},
        }
        for row in OBJECTS
    ]


@pytest.mark.parametrize("codec", AVRO_CODECS)
def test_the_avro_envelope_of_each_codec(codec: str) -> None:
    body, expected = golden(f"envelope-avro-{codec}"), rows_of(batch_of(GOLDEN_RECORDS))
    assert rows_of(EnvelopeAvroReader(io.BytesIO(body), "k").batches()) == expected
    rows: Any = list(fastavro.reader(io.BytesIO(body), reader_schema={"type": "record", "name": "Record", "fields": [
        {"name": "offset", "type": "long"}, {"name": "value", "type": ["null", "bytes"]},
    ]}))  # fmt: skip
    assert rows == [{"offset": row["offset"], "value": row["value"]} for row in expected]


@pytest.mark.parametrize("codec", LINE_CODECS)
def test_the_json_envelope_of_each_codec(codec: str) -> None:
    body, expected = golden(f"envelope-json-{codec}"), rows_of(batch_of(GOLDEN_RECORDS))
    assert rows_of(EnvelopeJsonReader(io.BytesIO(body), "k").batches()) == expected
    rows = [json.loads(line) for line in DECOMPRESS[codec](body).splitlines()]
    assert rows == [describe_as_json(row) for row in expected]


def test_block_gzip_and_its_index() -> None:
    body, index = golden("block-gzip"), golden("block-gzip.index.json")
    assert gzip.decompress(body) == b"first\nsecond\n\n" + TEXT_LINES[3] + b"\nfourth\n"
    chunks = json.loads(index)["chunks"]
    assert [(c["byte_length_uncompressed"], c["num_records"], c["first_record_offset"]) for c in chunks] == [
        (14, 3, 0),
        (63, 1, 6),
        (7, 1, 8),
    ]
    found = list(read_from(lambda start, size: body[start : start + size], read_index(index, "k"), 6, 9, "k"))
    assert found == [TEXT_LINES[3], b"fourth"]


def test_keys_and_headers() -> None:
    assert golden("keys-json") == b'"azE="\n"azI="\n""\n'
    expected = [
        {"headers": [{"key": "trace", "value": "1"}, {"key": "trace", "value": None}]},
        {"headers": []},
        {"headers": [{"key": "b", "value": "data:application/x-kafka-header;base64,/w=="}]},
    ]
    assert [json.loads(line) for line in golden("headers-json").splitlines()] == expected
    assert pq.read_table(GOLDEN / "headers-parquet").to_pylist() == expected


if __name__ == "__main__":
    for case in CASES:
        for suffix, content in made(case).items():
            path = GOLDEN / (f"{case}.{suffix}" if suffix else case)
            if not path.exists():
                path.write_bytes(content)
