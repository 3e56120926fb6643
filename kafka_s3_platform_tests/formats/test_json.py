"""Lines, however they are cut into pieces; and which of them are JSON that is read.

JsonFormat: one line a record, whatever the records are, as Connect's JsonConverter writes it.
"""

import io
import json
import math
import random
from collections.abc import Sequence
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro.json_values import find_maybe_deeper, is_deeper
from kafka_s3_platform.connect.formats.json import JsonReader
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.lines import split_lines
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS
from kafka_s3_platform_tests.formats.connect import came, cut, decoded, written


@pytest.mark.parametrize("separator", [b"\n", b"||", b"aab"])
def test_lines_are_the_same_however_they_are_cut(separator: bytes) -> None:
    chance = random.Random(1)
    for _ in range(500):
        text = bytes(chance.choices(b"ab|\n", k=chance.randrange(200))) + separator
        cuts = sorted(chance.randrange(len(text)) for _ in range(chance.randrange(20)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        *ended, last = text.split(separator)
        expected = ended + [last] * bool(last)
        assert list(split_lines(iter(pieces), separator, "k", DEFAULT_LIMITS, open_end=True)) == expected


def test_each_line_has_the_fault_that_it_would_have_alone() -> None:
    good = [msgspec.json.encode({"n": n, "rows": [[n]] * 400}) for n in range(20)]
    faulty = {
        3: b"[" * 251 + b"]" * 251,
        5: b"\xff",
        7: b'"\xff' + b"x" * 600 + b'"',
        9: b'{"a":' * 251 + b"1" + b"}" * 251,
        11: b"[" * 100_000,
        13: b"",
        15: b"1 2",
    }
    deepest = {1: b"[" * 250 + b"]" * 250, 2: b'"' + b"[" * 600 + b'"', 4: b"[" + b"[]," * 300 + b"[]]"}
    lines = [(faulty | deepest).get(row, line) for row, line in enumerate(good)]
    (batch,) = JsonReader(io.BytesIO(b"\n".join(lines) + b"\n"), "k").batches()
    assert set(batch.bad) == set(faulty)
    for row, why in batch.bad.items():
        (alone,) = JsonReader(io.BytesIO(faulty[row] + b"\n"), "k").batches()
        assert why == alone.bad[0].replace("line 1:", f"line {row + 1}:")
    assert "deeper than archive.read.max.depth=250" in batch.bad[3]


def test_no_text_that_is_deeper_is_missed() -> None:
    texts = [None, b"", b"[" * 251 + b"]" * 251, b"1", b"[" * 250 + b"]" * 250, b"[{" * 200 + b"}]" * 200, b"x" * 900]
    found = pa.array(texts, pa.binary())
    assert find_maybe_deeper(found, 250).tolist() == [2, 5]
    assert find_maybe_deeper(found.slice(3), 250).tolist() == [2]
    assert find_maybe_deeper(found.slice(3, 2), 250).tolist() == []
    assert find_maybe_deeper(pa.nulls(3, pa.binary()), 250).tolist() == []
    chance = random.Random(2)
    for _ in range(2000):
        text = msgspec.json.encode(_nested(chance, chance.randrange(60)))
        assert np.array_equal(find_maybe_deeper(pa.array([text]), 20), [0]) or not is_deeper(text, 20)


def _nested(chance: random.Random, depth: int) -> object:
    if not depth:
        return chance.choice(("]", 1, "[{"))
    inner = _nested(chance, depth - 1)
    return [inner] if chance.random() < 0.5 else {"k": inner, "l": []}


JSON = LayoutSettings(format="json", codec="none")
NUMERIC = JSON.model_copy(update={"decimal_format": "NUMERIC"})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def schema(*fields: tuple[str, Any]) -> Schema:
    parts = [{"name": name, "type": type_} for name, type_ in fields]
    return Schema(json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": parts}))


def line(value: Any, type_: Any, layout: LayoutSettings = JSON) -> str:
    """What becomes of a value of this type in a field."""
    body = written(layout, decoded([{"f": value}], found := schema(("f", type_))), schema=found)
    assert body.endswith(b"\n")
    return body.decode().removeprefix('{"f":').removesuffix("}\n")


# As they came


@settings(deadline=None)
@given(st.lists(json_values, max_size=20), st.lists(st.integers(0, 20), max_size=3))
def test_json_is_written_as_it_came_however_it_was_batched(values: Sequence[Any], bounds: list[int]) -> None:
    raw = [json.dumps(v, ensure_ascii=False).encode() for v in values]
    batch = came(raw, is_json=True)
    body = written(JSON, *cut(batch, bounds))
    assert body == b"".join(text + b"\n" for text in raw)
    assert [json.loads(found) for found in body.decode().split("\n")[:-1]] == values


def test_numbers_keep_every_digit() -> None:
    raw = [b'{"n":1.10,"big":123456789012345678901234567890,"e":1E400}']
    assert written(JSON, came(raw, is_json=True)) == raw[0] + b"\n"


def test_null_is_a_line_of_its_own() -> None:
    assert written(JSON, came([b"1", None, b"{}"], is_json=True)) == b"1\nnull\n{}\n"
    assert written(JSON, decoded(["a", None], None)) == b'"a"\nnull\n'


def test_no_records_are_no_lines() -> None:
    assert written(JSON, came([], is_json=True)) == b""


def test_text_and_bytes_become_json() -> None:
    text = Schema('"string"')
    assert written(JSON, decoded(["a\nb"], text), schema=text) == b'"a\\nb"\n'
    assert written(JSON, came([b"\xff\n"]), schema=Schema('"bytes"')) == b'"/wo="\n'


# Without a schema


@settings(deadline=None)
@given(st.lists(json_values, max_size=10))
def test_objects_without_a_schema_come_back_and_stay_on_their_line(values: list[Any]) -> None:
    body = written(JSON, decoded(values, None))
    assert body.count(b"\n") == len(values)
    assert [json.loads(found) for found in body.decode().split("\n")[:-1]] == values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, '"NaN"'),
        ({"a": [math.inf, -math.inf]}, '{"a":["Infinity","-Infinity"]}'),
        ({1: "a", "b": 2}, '[[1,"a"],["b",2]]'),
        ({"b": b"\x00\xff"}, '{"b":"AP8="}'),
        (2**70, "1180591620717411303424"),
    ],
)
def test_what_json_has_not_is_written_as_connect_writes_it(value: Any, expected: str) -> None:
    assert written(JSON, decoded([value], None)).decode() == expected + "\n"


# With a schema

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MAP_ENTRY = {
    "type": "record",
    "name": "MapEntry",
    "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "double"}],
}


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (5, {"type": "int", "logicalType": "date"}, "5"),
        (1_700_000_000_000, {"type": "long", "logicalType": "timestamp-millis"}, "1700000000000"),
        (b"\x00\xff", "bytes", '"AP8="'),
        (b"\x01\x02", {"type": "fixed", "name": "F", "size": 2}, '"AQI="'),
        (b"\x04\xd2", DECIMAL, '"BNI="'),
        ("A", {"type": "enum", "name": "E", "symbols": ["A"]}, '"A"'),
        (0.5, "double", "0.5"),
        (math.nan, "double", '"NaN"'),
        (-math.inf, "float", '"-Infinity"'),
        (0.10000000149011612, "float", "0.1"),
        (None, ["null", "double"], "null"),
        (math.nan, ["null", "double"], '"NaN"'),
        ([math.nan, 1.0], {"type": "array", "items": "double"}, '["NaN",1.0]'),
        ({"a": math.inf}, {"type": "map", "values": "float"}, '{"a":"Infinity"}'),
        (("int", 7), ["null", "int", "string"], '{"int":7,"string":null}'),
        (("string", "x"), ["null", "int", "string"], '{"int":null,"string":"x"}'),
        (None, ["null", "int", "string"], "null"),
        ([{"key": 1, "value": math.nan}], {"type": "array", "items": MAP_ENTRY}, '[[1,"NaN"]]'),
    ],
)
def test_types_of_avro_are_written_as_connect_writes_them(value: Any, type_: Any, expected: str) -> None:
    assert line(value, type_) == expected


@pytest.mark.parametrize("keys", [("null", None), ("a", "a")])
def test_entries_of_a_map_that_would_get_one_name_fail(keys: tuple[str | None, ...]) -> None:
    entry = {**MAP_ENTRY, "fields": [{"name": "key", "type": ["null", "string"]}, {"name": "value", "type": "int"}]}
    entries = {"type": "array", "items": entry}
    assert line([{"key": "a", "value": 1}, {"key": None, "value": 2}], entries) == '{"a":1,"null":2}'
    with pytest.raises(UnwritableRecordsError, match="more than once"):
        line([{"key": key, "value": 1} for key in keys], entries)


@pytest.mark.parametrize(
    ("unscaled", "expected"), [(b"\x04\xd2", "12.34"), (b"\xfb\x2e", "-12.34"), (b"", "0.00"), (b"\x00\x01", "0.01")]
)
def test_decimals_are_numbers_when_asked(unscaled: bytes, expected: str) -> None:
    assert line(unscaled, DECIMAL, NUMERIC) == expected


@pytest.mark.parametrize("digits", [60, 1_001, 4_000])
def test_a_decimal_keeps_all_of_its_digits(digits: int) -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 5}
    number = 10 ** (digits - 1) + 1
    size = number.bit_length() // 8 + 1
    assert line(number.to_bytes(size, "big"), wide, NUMERIC) == f"1{'0' * (digits - 6)}.00001"


def test_a_map_whose_keys_are_strings_or_null_is_an_object() -> None:
    entry = {**MAP_ENTRY, "fields": [{"name": "key", "type": ["null", "string"]}, {"name": "value", "type": "int"}]}
    value = [{"key": "a", "value": 1}, {"key": None, "value": 2}]
    assert line(value, {"type": "array", "items": entry}) == '{"a":1,"null":2}'


def test_members_of_a_union_have_the_short_names_of_their_types() -> None:
    union = [
        {"type": "record", "name": "a.b.Left", "fields": [{"name": "x", "type": "double"}]},
        {"type": "record", "name": "a.b.Right", "fields": [{"name": "y", "type": "double"}]},
    ]
    assert line(("a.b.Right", {"y": math.nan}), union) == '{"Left":null,"Right":{"y":"NaN"}}'
    assert line(("a.b.Left", {"x": 1.0}), union) == '{"Left":{"x":1.0},"Right":null}'


def test_members_of_a_union_have_full_names_where_two_types_have_one_short_name() -> None:
    union = [{"type": "enum", "name": f"{space}.Kind", "symbols": ["A"]} for space in ("a", "b")]
    assert line(("b.Kind", "A"), [*union, "long"]) == '{"a.Kind":null,"b.Kind":"A","long":null}'


def test_a_type_that_holds_itself_is_followed() -> None:
    found = schema(("v", "double"), ("next", ["null", "n.R"]))
    value = {"v": math.nan, "next": {"v": math.inf, "next": None}}
    expected = b'{"v":"NaN","next":{"v":"Infinity","next":null}}\n'
    assert written(JSON, decoded([value], found), schema=found) == expected


def test_objects_of_the_caller_are_not_changed() -> None:
    found, value = schema(("f", "double")), {"f": math.nan}
    written(JSON, decoded([value], found), schema=found)
    assert math.isnan(value["f"])


def test_records_that_cannot_be_json_are_named_and_nothing_is_written() -> None:
    found = schema(("f", "double"))
    batch = decoded([{"f": 1.0}, {"f": "no number"}, {"g": 1.0}, {"f": 2.0}], found)
    with pytest.raises(UnwritableRecordsError, match=r"offset 2 of t-3 .*; the record at offset 4 of t-3") as caught:
        written(JSON, batch, schema=found)
    assert [(f.offset, f.stage) for f in caught.value.failures] == [(2, "TASK_PUT"), (4, "TASK_PUT")]


# Keys, headers, readers


def test_keys_and_headers_are_lines_beside_the_values() -> None:
    layout = LayoutSettings(format="json", codec="none", keys_format="json", headers_format="json")
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "c", "value": b"\xff"}], [], None]
    batch = came([b"1", b"2", b"3"], [b"k", b"\xff", b""], headers, is_json=True)
    data_uri = "data:application/x-kafka-header;base64,/w=="
    assert written(layout, batch, part="key", schema=Schema('"bytes"')) == b'"aw=="\n"/w=="\n""\n'
    assert written(layout, batch, part="headers").decode().splitlines() == [
        f'{{"headers":[{{"key":"a","value":"1"}},{{"key":"b","value":null}},{{"key":"c","value":"{data_uri}"}}]}}',
        '{"headers":[]}',
        '{"headers":[]}',
    ]


@pytest.mark.parametrize(("codec", "name"), [("none", "uncompressed"), ("gzip", "gzip"), ("zstd", "zstd")])
def test_duckdb_reads_it(codec: str, name: str, tmp_path: Any) -> None:
    path = tmp_path / "lines"
    path.write_bytes(written(LayoutSettings(format="json", codec=codec), came([b'{"a":1}', b'{"a":2}'], is_json=True)))
    assert duckdb.read_json(str(path), compression=name, format="newline_delimited").fetchall() == [(1,), (2,)]
