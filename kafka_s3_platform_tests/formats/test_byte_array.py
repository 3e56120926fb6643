"""ByteArrayFormat: bytes as they came, in frames that are read back as the same records or not written at all."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.format_io import find_unsafe_keys, find_unsafe_values
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform_tests.formats.connect import came, cut, decoded, written
from kafka_s3_platform_tests.formats.records import batch_of, with_bytes_under_nulls

pytestmark = pytest.mark.connect

LINES = LayoutSettings(format="bytes", codec="none")
LENGTHS = LINES.model_copy(update={"bytes_separator": "length"})

# Few letters, so that separators come about often.
values = st.lists(st.binary(max_size=3) | st.text("ab|\r\n", max_size=6).map(str.encode), max_size=20)


def separated_by(separator: str) -> LayoutSettings:
    return LINES.model_copy(update={"bytes_separator": separator})


def split(body: bytes, separator: bytes) -> list[bytes]:
    """Reads from the left, as every reader does."""
    *found, rest = body.split(separator)
    assert rest == b""
    return found


def by_length(body: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        found.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return found


@settings(deadline=None)
@given(values, st.lists(st.integers(0, 20), max_size=3))
def test_in_zoozs_layout_a_line_break_at_the_end_of_a_value_ends_its_line(
    drawn: list[bytes], bounds: list[int]
) -> None:
    layout = LINES.model_copy(update={"key_layout": "zooz"})
    mask = find_unsafe_values(came(drawn), layout)
    assert mask.tolist() == [b"\n" in value[:-1] for value in drawn]
    safe = [value for value, is_unsafe in zip(drawn, mask, strict=True) if not is_unsafe]
    assert split(written(layout, *cut(came(safe), bounds)), b"\n") == [value.removesuffix(b"\n") for value in safe]


@settings(deadline=None)
@given(values, st.sampled_from(["\n", "\r\n", "|", "||", "|a|", "ab"]), st.lists(st.integers(0, 20), max_size=3))
def test_what_is_safe_reads_back_as_it_was_and_what_is_not_would_not(
    found: list[bytes], separator: str, bounds: list[int]
) -> None:
    layout, batch = separated_by(separator), came(found)
    mask = find_unsafe_values(batch, layout)
    safe = [value for value, is_unsafe in zip(found, mask, strict=True) if not is_unsafe]
    assert split(written(layout, *cut(came(safe), bounds)), separator.encode()) == safe
    for value in (v for v, is_unsafe in zip(found, mask, strict=True) if is_unsafe):
        assert (value + separator.encode()).split(separator.encode()) != [value, b""]


@settings(deadline=None)
@given(values, st.lists(st.integers(0, 20), max_size=3))
def test_lengths_hold_anything(found: list[bytes], bounds: list[int]) -> None:
    assert not find_unsafe_values(came(found), LENGTHS).any()
    assert by_length(written(LENGTHS, *cut(came(found), bounds))) == found


def test_a_separator_that_begins_at_the_end_of_a_value_is_unsafe() -> None:
    assert find_unsafe_values(came([b"a|", b"a", b"|", b""]), separated_by("||")).tolist() == [True, False, True, False]


def test_null_values_are_never_unsafe_and_never_written() -> None:
    batch = came([b"a", None])
    assert not find_unsafe_values(batch, LINES).any()
    with pytest.raises(IntegrityError, match="record at offset 2 of t-3 is null where its format has no null"):
        written(LINES, batch)


def test_bytes_under_nulls_are_no_separators() -> None:
    records = with_bytes_under_nulls(batch_of([{"key": None, "value": None, "headers": None, "timestamp": 0}]))
    batch = came([None])
    batch.value.raw = records.column("value")
    assert not find_unsafe_values(batch, separated_by("n")).any()


def test_keys_that_are_written_are_there_and_safe() -> None:
    layout = LINES.model_copy(update={"keys_format": "bytes"})
    batch = came([b"1"] * 3, [b"k", None, b"a\nb"])
    assert find_unsafe_keys(batch, layout).tolist() == [False, True, True]
    assert find_unsafe_keys(batch, layout.model_copy(update={"keys_format": "json"})).tolist() == [False, True, False]
    assert not find_unsafe_keys(batch, LINES).any()


def test_what_a_transform_made_is_written_as_bytes() -> None:
    assert written(LINES, decoded(["ü", b"\xff"], Schema('"string"'))) == "ü\n".encode() + b"\xff\n"
    assert find_unsafe_values(decoded(["a\nb", b"c", 5], None), LINES).tolist() == [True, False, False]


def test_a_value_that_is_neither_bytes_nor_text_is_named() -> None:
    with pytest.raises(UnwritableRecordsError, match=r"offset 2 of t-3 cannot be written as bytes: .* type dict"):
        written(LINES, decoded([b"x", {"a": 1}], None))


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"format\.bytearray\.separator is empty"):
        written(separated_by(""), came([b"x"]))


@pytest.mark.parametrize(
    ("mask", "layout"),
    [
        (lambda v: find_unsafe_values(came(v), LINES), LINES),
        (lambda v: find_unsafe_values(came(v), LENGTHS), LENGTHS),
    ],
)
def test_no_records_are_no_bytes(mask: Callable[[list[bytes]], list[bool]], layout: LayoutSettings) -> None:
    assert len(mask([])) == 0
    assert written(layout, came([])) == b""
