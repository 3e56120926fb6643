import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.converters import ConvertedPayload, new_converter
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.model.connect import MISSING, NO_SCHEMA
from kafka_s3_platform_tests.conftest import present

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
INVALID = [
    b"",
    b"  ",
    b"\n",
    b"{",
    b'{"a":1}x',
    b"1 2",
    b'{"a":1,}',
    b"[1,]",
    b"{'a':1}",
    b"NaN",
    b"Infinity",
    b"01",
    b"1.",
    b"+1",
    b"tru",
    b'"a\nb"',
    b'"a\tb"',
    b'"a\x01b"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\\x"',
    b'"\\ud800"',
    b"\xef\xbb\xbf",
    b"{}\xef\xbb\xbf",
    b"\xef\xbb\xbf" * 5_000 + b"{}",
    b"\x00",
    b"[" * 251 + b"]" * 251,
    b"[" * 100_000,
]


def converted(*rows: bytes | None) -> ConvertedPayload:
    converter = new_converter(ConverterSettings(format="JSON"), "t", is_key=False)
    return converter.convert(pa.array(rows, pa.binary()), np.arange(100, 100 + len(rows)))


def lines(*rows: bytes | None) -> list[bytes | None]:
    result = converted(*rows)
    assert not result.failures
    assert result.payload.raw_is_json
    found: list[bytes | None] = present(result.payload.raw).to_pylist()
    return found


@pytest.mark.parametrize(
    "row",
    [b'{"a":1.50e+05}', b"123456789012345678901234567890", b'{"a":1,"a":2}', b' "x\\n\\u00e9" ', b"[\t1]"],
)
def test_what_is_valid_on_one_line_stays_as_it_is(row: bytes) -> None:
    assert lines(row) == [row]


def test_the_text_null_is_a_null_value() -> None:
    result = converted(b"null", b" null\n", b'"null"', b"{}" + b" " * 100)
    assert [o is None for o in result.payload.objects] == result.payload.is_null.tolist() == [True, True, False, False]


def test_line_breaks_between_values_go_and_numbers_keep_their_digits() -> None:
    assert lines(b'{\r\n "a" : [1.10,\n 1e2 ],"b":"x\\n y"}\n') == [b'{"a":[1.10,1e2],"b":"x\\n y"}']


def test_a_byte_order_mark_before_the_text_goes_as_in_connect() -> None:
    assert lines(b"\xef\xbb\xbf{}", b'{"a":1}', b"\xef\xbb\xbfnull", None) == [b"{}", b'{"a":1}', None, None]


@pytest.mark.parametrize("row", INVALID)
def test_what_is_no_json_fails_with_its_offset(row: bytes) -> None:
    result = converted(b"{}", row, b"[]")
    assert [(f.offset, f.stage) for f in result.failures] == [(101, "VALUE_CONVERTER")]
    assert "offset 101 of topic t" in result.failures[0].message
    assert result.positions.tolist() == [0, 2]
    assert result.payload.objects == [{}, []]


def test_neighbours_that_are_valid_only_together_fail() -> None:
    assert [f.offset for f in converted(b'{"a":', b"1}", b"1 2", b"3").failures] == [100, 101, 102]
    assert [f.offset for f in converted(b"1", b"2", b"tru", b"e").failures] == [102, 103]


def test_a_depth_that_is_allowed_does_not_depend_on_the_stack() -> None:
    def deep(frames: int) -> ConvertedPayload:
        return deep(frames - 1) if frames else converted(b"[" * 250 + b"]" * 250)

    assert not deep(300).failures


def test_a_tombstone_stays_null_and_is_no_failure() -> None:
    result = converted(None, b"1", None)
    assert result.payload.is_null.tolist() == [True, False, True]
    assert result.payload.objects == [None, 1, None]
    assert result.payload.codes.tolist() == [NO_SCHEMA] * 3
    assert not result.failures


def test_a_field_is_found_without_decoding_the_rest() -> None:
    payload = converted(b'{"a":{"b":1},"c":[1]}', b'{"a":null}', None, b'{"a":{"b":null}}', b"{}").payload
    assert payload.field(["a", "b"]) == [1, MISSING, MISSING, None, MISSING]
    assert payload.field(["a"]) == [{"b": 1}, None, MISSING, {"b": None}, MISSING]
    assert payload.field(["c"]) == [[1], MISSING, MISSING, MISSING, MISSING]


def test_a_field_of_what_is_no_object_is_missing() -> None:
    payload = converted(b'{"a":{"b":1}}', b'{"a":5}', b"[1]", b"7", b'"x"').payload
    assert payload.field(["a", "b"]) == [1, MISSING, MISSING, MISSING, MISSING]


def test_a_number_beyond_doubles_is_kept_as_text_and_as_an_object() -> None:
    payload = converted(b'{"a":1e999}').payload
    assert present(payload.raw).to_pylist() == [b'{"a":1e999}']
    assert payload.field(["a"]) == [Decimal("1e999")]
    assert payload.objects == [{"a": Decimal("1e999")}]


def test_a_slice_of_a_column_is_read_from_where_it_begins() -> None:
    column = pa.array([b"nope", b'{"a":1}', b'{"a":2}', b"nope"]).slice(1, 2)
    converter = new_converter(ConverterSettings(format="JSON"), "t", is_key=True)
    assert converter.convert(column, np.arange(2)).payload.field(["a"]) == [1, 2]


@given(st.lists(JSON_VALUES, max_size=20), st.sampled_from([None, 0, 2]))
def test_every_value_comes_back_whatever_its_layout(values: list[Any], indent: int | None) -> None:
    result = converted(*(json.dumps(value, indent=indent).encode() for value in values))
    found = [] if result.payload.raw is None else result.payload.raw.to_pylist()
    surrogates = {f.offset - 100 for f in result.failures}
    assert all("\\ud" in json.dumps(values[at]) for at in surrogates)
    assert not any(b"\n" in line for line in found if line is not None)
    assert [None if line is None else json.loads(line) for line in found] == [
        v for at, v in enumerate(values) if at not in surrogates
    ]


@given(
    st.lists(
        st.one_of(st.none(), st.sampled_from([b"{}", b"1", b"[1,\n2]", b'{"a":2}', b"{", b"", b"1 1"])), max_size=30
    )
)
def test_what_becomes_of_a_record_does_not_depend_on_its_batch(rows: list[bytes | None]) -> None:
    together, alone = converted(*rows), [converted(row) for row in rows]
    assert [f.offset - 100 for f in together.failures] == [at for at, one in enumerate(alone) if one.failures]
    each = [line for one in alone if one.payload.raw is not None for line in one.payload.raw.to_pylist()]
    assert present(together.payload.raw).to_pylist() == each
