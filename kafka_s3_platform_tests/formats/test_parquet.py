"""ParquetFormat: decoded records as columns of their schema's types, in bytes that depend on nothing but them."""

import io
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.converters.avro import AvroPayload
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.parquet import write as parquet
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.core.model.connect import ConnectBatch, Payload, Schema
from kafka_s3_platform_tests.formats.connect import came, cut, decoded, written

PARQUET = LayoutSettings(format="parquet", codec="snappy")
CODECS = ["none", "snappy", "gzip", "zstd", "lz4"]


def schema(*fields: tuple[str, Any]) -> Schema:
    parts = [{"name": name, "type": type_} for name, type_ in fields]
    return Schema(json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": parts}))


def read(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(io.BytesIO(body)).read().to_pylist()
    return rows


def column(value: Any, type_: Any) -> tuple[pa.Field, Any]:
    """Type and content of the column that a value of this type becomes."""
    found = schema(("f", type_))
    table = pq.read_table(io.BytesIO(written(PARQUET, decoded([{"f": value}], found), schema=found)))
    return table.schema.field("f"), table.column("f")[0].as_py()


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("value", "type_", "arrow", "expected"),
    [
        (True, "boolean", pa.bool_(), True),
        (5, "int", pa.int32(), 5),
        (2**62, "long", pa.int64(), 2**62),
        (0.5, "float", pa.float32(), 0.5),
        (math.inf, "double", pa.float64(), math.inf),
        (b"\x00\xff", "bytes", pa.binary(), b"\x00\xff"),
        ("ü", "string", pa.string(), "ü"),
        ("A", {"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "A"),
        (b"ab", {"type": "fixed", "name": "F", "size": 2}, pa.binary(2), b"ab"),
        (1, logical("int", "date"), pa.date32(), date(1970, 1, 2)),
        (1, logical("int", "time-millis"), pa.time32("ms"), time(0, 0, 0, 1000)),
        (1, logical("long", "time-micros"), pa.time64("us"), time(0, 0, 0, 1)),
        (
            1500,
            logical("long", "timestamp-millis"),
            pa.timestamp("ms", "UTC"),
            datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc),
        ),
        (
            -1,
            logical("long", "timestamp-micros"),
            pa.timestamp("us", "UTC"),
            datetime.fromtimestamp(0, timezone.utc) - timedelta(microseconds=1),
        ),
        (1, logical("long", "local-timestamp-millis"), pa.timestamp("ms"), datetime(1970, 1, 1, 0, 0, 0, 1000)),  # noqa: DTZ001
        (b"\xfb\x2e", logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2), Decimal("-12.34")),
        (b"\xfb\x2e", logical("bytes", "decimal", scale=1), pa.decimal256(64, 1), Decimal("-123.4")),
        ("12", logical("string", "decimal", precision=9), pa.string(), "12"),
        (
            b"\x01\x00",
            {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4},
            pa.decimal128(4, 0),
            Decimal(256),
        ),
        (b"\x01" + bytes(20), logical("bytes", "decimal", precision=60), pa.decimal256(60, 0), Decimal(2**160)),
        ("6f1c", logical("string", "uuid"), pa.string(), "6f1c"),
        (7, logical("int", "not-known"), pa.int32(), 7),
    ],
)
def test_types_become_those_of_parquet(value: Any, type_: Any, arrow: pa.DataType, expected: Any) -> None:
    field, found = column(value, type_)
    assert (field.type, field.nullable, found) == (arrow, False, expected)
    field, found = column(None, ["null", type_])
    assert (field.type, field.nullable, found) == (arrow, True, None)


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ([1, 2], {"type": "array", "items": "int"}, [1, 2]),
        ([], {"type": "array", "items": ["null", "string"]}, []),
        ([None, "a"], {"type": "array", "items": ["null", "string"]}, [None, "a"]),
        ({"a": 1}, {"type": "map", "values": "int"}, [("a", 1)]),
        ({"a": None}, {"type": "map", "values": ["null", "int"]}, [("a", None)]),
        (
            [b"\x05"],
            {"type": "array", "items": logical("bytes", "decimal", precision=3, scale=1)},
            [Decimal("0.5")],
        ),
        (
            {"a": b"\x05", "b": None},
            {"type": "map", "values": ["null", logical("bytes", "decimal", precision=3, scale=1)]},
            [("a", Decimal("0.5")), ("b", None)],
        ),
        (
            {"x": {"y": None}},
            {
                "type": "record",
                "name": "X",
                "fields": [
                    {
                        "name": "x",
                        "type": {
                            "type": "record",
                            "name": "Y",
                            "fields": [{"name": "y", "type": ["null", "string"]}],
                        },
                    }
                ],
            },
            {"x": {"y": None}},
        ),
        (("int", 7), ["null", "string", "int"], {"member0": None, "member1": 7}),
        (("string", "x"), ["string", "int"], {"member0": "x", "member1": None}),
        (
            ("bytes", b"\x07"),
            ["string", logical("bytes", "decimal", precision=3)],
            {"member0": None, "member1": Decimal(7)},
        ),
        (None, ["null", "string", "int"], None),
    ],
)  # fmt: skip
def test_nested_types_come_back(value: Any, type_: Any, expected: Any) -> None:
    assert column(value, type_)[1] == expected


def test_a_named_type_is_used_again_by_its_name() -> None:
    inner = {"type": "record", "name": "I", "namespace": "n", "fields": [{"name": "v", "type": "int"}]}
    found = schema(("a", inner), ("b", ["null", "n.I"]))
    rows = [{"a": {"v": 1}, "b": {"v": 2}}, {"a": {"v": 3}, "b": None}]
    assert read(written(PARQUET, decoded(rows, found), schema=found)) == rows


# Batches, row groups, codecs

PEOPLE = schema(
    ("name", "string"),
    ("age", ["null", "int"]),
    ("tags", {"type": "array", "items": "string"}),
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
)
people = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(max_size=4),
            "age": st.none() | st.integers(-(2**31), 2**31 - 1),
            "tags": st.lists(st.text(max_size=2), max_size=2),
            "price": st.integers(-(10**8), 10**8).map(lambda n: n.to_bytes(4, "big", signed=True)),
        }
    ),
    max_size=20,
)


@settings(deadline=None)
@given(people, st.lists(st.integers(0, 20), max_size=3))
def test_records_come_back_however_they_were_batched(rows: list[dict[str, Any]], bounds: list[int]) -> None:
    batch = decoded(rows, PEOPLE)
    body = written(PARQUET, batch, schema=PEOPLE)
    assert written(PARQUET, *cut(batch, bounds), schema=PEOPLE) == body
    prices = [Decimal(int.from_bytes(row["price"], "big", signed=True)).scaleb(-2) for row in rows]
    assert read(body) == [{**row, "price": price} for row, price in zip(rows, prices, strict=True)]
    table = pq.read_table(io.BytesIO(body))
    assert [str(t) for t in table.schema.types] == [
        "string",
        "int32",
        "list<element: string not null>",
        "decimal128(9, 2)",
    ]


def test_row_groups_end_at_the_same_record_however_batches_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1_000)
    monkeypatch.setattr(parquet, "ROW_GROUP_RECORDS", 100)
    found = schema(("n", "int"))
    sizes = [*[9] * 250, *[400] * 7, 5_000, 1, *[99] * 20]
    batch = came([b"x" * size for size in sizes])
    values = decoded([{"n": i} for i in range(len(sizes))], found).value
    whole = ConnectBatch(batch.records, batch.key, values)
    body = written(PARQUET, whole, schema=found)
    described = pq.ParquetFile(io.BytesIO(body)).metadata
    assert described.num_row_groups > 5
    for seed in range(10):
        bounds = random.Random(seed).choices(range(len(sizes)), k=12)
        assert written(PARQUET, *cut(whole, bounds), schema=found) == body


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_others(codec: str, tmp_path: Any) -> None:
    found = schema(("n", "int"), ("seen", logical("long", "timestamp-millis")))
    body = written(
        PARQUET.model_copy(update={"codec": codec}),
        decoded([{"n": 1, "seen": 0}, {"n": 2, "seen": 1}], found),
        schema=found,
    )
    path = tmp_path / "f.parquet"
    path.write_bytes(body)
    assert duckdb.read_parquet(str(path)).project("n, epoch_ms(seen)").fetchall() == [(1, 0), (2, 1)]
    used = {"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(codec, codec.upper())
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == used


def test_levels_are_honoured() -> None:
    found = schema(("s", "string"))
    batch = decoded([{"s": f"user {i * i}"} for i in range(5_000)], found)
    for codec in ("gzip", "zstd"):
        layouts = [PARQUET.model_copy(update={"codec": codec, "codec_level": level}) for level in (1, 9)]
        assert len({written(layout, batch, schema=found) for layout in layouts}) == 2


def test_facts_are_kept_in_the_footer() -> None:
    found = schema(("n", "int"))
    body = written(PARQUET, decoded([{"n": 1}], found), schema=found)
    assert pq.ParquetFile(io.BytesIO(body)).metadata.metadata[b"topic"] == b"t"


def test_no_records_are_a_file_of_no_rows() -> None:
    found = schema(("n", "int"))
    assert read(written(PARQUET, schema=found)) == []
    assert read(written(PARQUET, decoded([], found), schema=found)) == []


# What came as columns already


class Columns(Payload):
    """A payload that a converter has decoded into Avro's physical types, and never into objects."""

    def __init__(self, found: pa.StructArray, schema: Schema) -> None:
        super().__init__(pa.array([b"raw"] * len(found)), np.zeros(len(found), np.int32), [schema])
        self._found = found

    def columns(self) -> pa.StructArray:
        return self._found

    def _decode(self) -> Sequence[Any]:
        raise AssertionError("decoded record by record")


def test_columns_that_a_converter_made_become_the_same_file() -> None:
    found = schema(
        ("at", logical("long", "timestamp-millis")),
        ("day", ["null", logical("int", "date")]),
        ("price", logical("bytes", "decimal", precision=9, scale=2)),
        ("who", ["null", {"type": "record", "name": "W", "fields": [{"name": "name", "type": ["null", "string"]}]}]),
    )
    rows: list[dict[str, Any]] = [
        {"at": 5, "day": 1, "price": b"\x05", "who": {"name": "a"}},
        {"at": 6, "day": None, "price": b"\xff", "who": None},
        {"at": 7, "day": 3, "price": b"\x00", "who": {"name": None}},
    ]
    physical = pa.struct(
        [
            pa.field("at", pa.int64(), nullable=False),
            ("day", pa.int32()),
            pa.field("price", pa.binary(), nullable=False),
            ("who", pa.struct([("name", pa.string())])),
        ]
    )
    objects = decoded(rows, found)
    columns = ConnectBatch(objects.records, objects.key, Columns(pa.array(rows, physical), found))
    assert written(PARQUET, columns, schema=found) == written(PARQUET, objects, schema=found)


# What is no record


def test_values_that_are_no_records_are_one_column() -> None:
    text = Schema('"string"')
    assert read(written(PARQUET, decoded(["a", "b"], text), schema=text)) == [{"value": "a"}, {"value": "b"}]


def test_keys_and_headers_are_one_column_each() -> None:
    layout = PARQUET.model_copy(update={"keys_format": "parquet", "headers_format": "parquet"})
    found = schema(("n", "int"))
    assert read(written(layout, decoded([{"n": 1}], found, keys=True), part="key", schema=found)) == [{"key": {"n": 1}}]
    batch = came([b"1", b"2"], headers=[[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None])
    assert read(written(layout, batch, part="headers")) == [
        {"headers": [{"key": "a", "value": "x"}, {"key": "b", "value": None}]},
        {"headers": []},
    ]


def test_a_key_record_may_be_named_like_its_column() -> None:
    named = Schema('{"type":"record","name":"key","fields":[{"name":"key","type":"int"}]}')
    layout = PARQUET.model_copy(update={"keys_format": "parquet"})
    assert read(written(layout, decoded([{"key": 1}], named, keys=True), part="key", schema=named)) == [
        {"key": {"key": 1}}
    ]


def test_a_nullable_record_may_be_null_whatever_fields_it_requires() -> None:
    """Arrow's error for the nulls under a null ended the run, where data became columns without objects."""
    part = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "string"}]}
    inner = [("id", "string"), ("day", logical("int", "date")), ("part", part)]
    found = schema(("who", ["null", schema(*inner).avro | {"name": "I"}]), ("n", "int"))
    rows = [{"who": None, "n": 1}, {"who": {"id": "a", "day": 1, "part": {"id": "b"}}, "n": 2}]
    batch = came([b"\0" * 5 + encoded(row, found) for row in rows], schema=found)
    columns = replace(batch, value=AvroPayload(batch.value.raw, batch.value.codes, [found]))
    expected = [rows[0], {"who": {"id": "a", "day": date(1970, 1, 2), "part": {"id": "b"}}, "n": 2}]
    assert read(written(PARQUET, columns, schema=found)) == expected


def encoded(value: Any, of: Schema) -> bytes:
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(of.avro), value)
    return body.getvalue()


# What Parquet cannot hold


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (["null", "n.R"], r"the type n\.R holds itself \(n\.R > n\.R\): Parquet has no such columns; write"),
        (
            {"type": "array", "items": {"type": "record", "name": "n.I", "fields": [{"name": "r", "type": "n.R"}]}},
            r"holds itself \(n\.R > n\.I > n\.R\)",
        ),
        ({"type": "record", "name": "n.E", "fields": []}, r"the record n\.E has no fields: Parquet has"),
        (logical("bytes", "decimal", precision=77), "a decimal of 77 digits: columns have 1 to 76"),
        (logical("bytes", "decimal", precision=0), "a decimal of 0 digits"),
    ],
)  # fmt: skip
def test_a_schema_that_columns_cannot_have_is_refused(type_: Any, message: str) -> None:
    with pytest.raises(UnwritableSchemaError, match=message):
        written(PARQUET, schema=schema(("f", type_)))


@pytest.mark.parametrize(
    ("value", "type_", "reason"),
    [
        ("x", "int", "ArrowInvalid: Could not convert 'x'"),
        (2**31, "int", "too large"),
        (None, "string", "ValueError: f is null or missing"),
        ([None], {"type": "array", "items": "string"}, "ValueError: f is null or missing"),
        ({"a": None}, {"type": "map", "values": "string"}, "ValueError: f is null or missing"),
        (b"\x7f\xff", logical("bytes", "decimal", precision=3), "precision"),
        (1.5, ["int", "string"], "TypeError: a value of type float names none of the branches int, string"),
    ],
)
def test_values_that_are_not_of_their_schema_are_named_and_nothing_is_written(
    value: Any, type_: Any, reason: str
) -> None:
    found = schema(("f", ["null", type_] if isinstance(type_, str) and type_ != "string" else type_))
    fine = {"f": column_value(type_)}
    batch = decoded([fine, {"f": value}, fine], found)
    with pytest.raises(UnwritableRecordsError, match=f"1 records cannot be written: .* offset 2 of t-3 .*{reason}"):
        written(PARQUET, batch, schema=found)


def column_value(type_: Any) -> Any:
    """Some value of the type."""
    if isinstance(type_, list):
        return type_[0], column_value(type_[0])
    kind = type_ if isinstance(type_, str) else type_["type"]
    return {"int": 1, "string": "s", "array": [], "map": {}, "bytes": b"\x01"}[kind]


def test_a_missing_field_is_not_taken_for_null() -> None:
    found = schema(("a", "int"), ("b", "int"))
    with pytest.raises(UnwritableRecordsError, match="b is null or missing, and its schema allows neither"):
        written(PARQUET, decoded([{"a": 1}], found), schema=found)


def test_a_null_record_is_refused_by_name() -> None:
    found = schema(("a", "int"))
    with pytest.raises(IntegrityError, match="offset 2 of t-3 is null"):
        written(PARQUET, decoded([{"a": 1}, None], found), schema=found)
