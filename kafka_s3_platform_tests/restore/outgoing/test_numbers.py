"""A restore that changes one field writes the others as their texts say, or refuses the record."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import RecordError
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform_tests.restore.outgoing.test_sink_converters import JSON, MASK, SINK, config_of, stream_of
from kafka_s3_platform_tests.restore.outgoing.test_values import records

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False).map(repr)
TEXTS = st.sampled_from(['"a"', '"\\u0061"', '"e4"', '":"', '"\\":"', '"\\"\\u003a"', '"\\u0022:"'])
SCALARS = NUMBERS | DOUBLES | TEXTS | st.sampled_from(["null", "true", "-0", "-0.0", "[]", "{}"])


def join_members(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key} :{value}" for key, value in pairs) + "}"


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(TEXTS, inner), max_size=4).map(join_members)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> OutgoingStream:
    return stream_of(config_of(tmp_path_factory.mktemp("connectors"), SINK | JSON), JSON | MASK)


def sent(stream: OutgoingStream, value: str) -> bytes:
    [(_, batch)] = stream.apply(records([f'{{"n":7,"v":{value}}}'.encode()]))
    text: bytes = batch.column("value")[0].as_py()
    assert text.startswith(b'{"n":0,"v":')
    return text[len(b'{"n":0,"v":') : -1]


def parse_exactly(text: str | bytes) -> Any:
    """Parse to pairs in place of objects, so that a key twice is seen, and numbers to Decimals."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=lambda pairs: ("object", pairs))


def has_key_twice(parsed: Any) -> bool:
    if isinstance(parsed, tuple):
        names = [name for name, _ in parsed[1]]
        return len(set(names)) < len(names) or any(has_key_twice(value) for _, value in parsed[1])
    return isinstance(parsed, list) and any(map(has_key_twice, parsed))


@given(value=VALUES)
def test_a_value_is_the_same_to_each_digit_or_is_refused_for_a_key(stream: OutgoingStream, value: str) -> None:
    expected = parse_exactly(value)
    if has_key_twice(expected):
        with pytest.raises(RecordError, match=r"an object has the key .* more than once"):
            sent(stream, value)
    else:
        assert parse_exactly(sent(stream, value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-2.5e999", b"-2.5E+999"),
        ("7e-777", b"7E-777"),
        ("0.2000000000000000111022302462515654", b"0.2000000000000000111022302462515654"),
        ("-98765432109876543210.25", b"-98765432109876543210.25"),
        ("-0", b"-0"),
        ("1" * 5000, b"1" * 5000),
        ("0.1", b"0.1"),
        ("2.5e20", b"2.5e20"),
    ],
)
def test_numbers_beyond_doubles_keep_their_digits(stream: OutgoingStream, value: str, expected: bytes) -> None:
    assert sent(stream, value) == expected


def test_an_exponent_that_nothing_holds_is_refused(stream: OutgoingStream) -> None:
    with pytest.raises(RecordError, match="cannot be decoded without a change of its value"):
        sent(stream, "1e9999999999999999999")


def test_one_more_key_than_is_compared_quickly_is_seen_too(stream: OutgoingStream) -> None:
    members = [(f'"k{at}"', "1") for at in range(300)]
    assert json.loads(sent(stream, join_members(members))) == {f"k{at}": 1 for at in range(300)}
    with pytest.raises(RecordError, match="the key 'k299' more than once"):
        sent(stream, join_members([*members, members[-1]]))
