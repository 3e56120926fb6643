"""What `java.text.SimpleDateFormat` makes of the same pattern (observed with JDK 17, in UTC and English)."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.java.simple_date_format import SimpleDateFormat

MS = 1_709_210_096_007


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2024-02-29T12:34:56.007Z"),
        ("EEE, d MMM yyyy hh:mm a", "Thu, 29 Feb 2024 12:34 PM"),
        ("EEEE MMMM dd yy", "Thursday February 29 24"),
        ("D kk KK u S SSS", "60 12 00 4 7 007"),
        ("yyyy Z z zzzz G", "2024 +0000 UTC Coordinated Universal Time AD"),
        ("''yy'x'", "'24x"),
        ("y yyyyy", "2024 02024"),
    ],
)
def test_times_are_formatted(pattern: str, text: str) -> None:
    assert SimpleDateFormat(pattern).format(MS) == text


def test_years_beyond_9999_are_formatted() -> None:
    assert SimpleDateFormat("yyyy-MM-dd").format(1_709_210_096_007_000) == "56132-09-17"


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd", "2020-1-5", 1_578_182_400_000),
        ("yyyy-MM-dd", "2020-13-40", 1_612_828_800_000),
        ("yyyy-MM-dd", "2020-01-05T23:00", 1_578_182_400_000),
        ("yyyyMMddHHmm", "202001050607tail", 1_578_204_420_000),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2020-01-05T06:07:08+02:00", 1_578_197_228_000),
        ("EEE, d MMM yyyy hh:mm a", "sunday, 5 january 2020 12:07 pm", 1_578_226_020_000),
        ("HH:mm:ss.SSS", "25:61:61.5", 93_721_005),
        ("HH:mm:ss.SSS", "00:00:01.000000", 1_000),
        ("D yyyy", "60 2020", 1_582_934_400_000),
    ],
)
def test_text_is_parsed_leniently(pattern: str, text: str, ms: int) -> None:
    assert SimpleDateFormat(pattern).parse(text) == ms


@pytest.mark.parametrize("text", ["", "20", "2020-01-", "x", "2020/01/05"])
def test_text_that_does_not_match_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match pattern"):
        SimpleDateFormat("yyyy-MM-dd").parse(text)


@pytest.mark.parametrize("fraction", ["123456", "000123", "1000"])
def test_a_finer_fraction_is_not_read_as_milliseconds(fraction: str) -> None:
    """Java adds 123,456 ms to a time that ends with .123456."""
    with pytest.raises(ValueError, match=f"would read {fraction} .* as a number of milliseconds"):
        SimpleDateFormat("HH:mm:ss.SSS").parse(f"12:00:00.{fraction}")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("ss.SSSSSS", "'SSSSSS' in 'ss.SSSSSS' would be a number of milliseconds"),
        ("YYYY-ww", "'Y' in 'YYYY-ww' is not honoured"),
        ("yyyy'T", "a quote at position 4 is not closed"),
        ("b", "'b' in"),
    ],
)
def test_a_pattern_that_is_not_honoured_is_refused_when_it_is_read(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SimpleDateFormat(pattern)


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_formatted_is_parsed_back(ms: int) -> None:
    for pattern in ("yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMddHHmmssSSS", "d MMMM yyyy h:mm:ss a SSS Z"):
        date_format = SimpleDateFormat(pattern)
        assert date_format.parse(date_format.format(ms)) == ms


@given(st.integers(-(10**14), 10**14))
def test_all_times_of_one_span_of_the_resolution_are_formatted_alike(ms: int) -> None:
    for pattern in ("yyyy-MM-dd", "yyyyMMddHH", "HH:mm", "ss", "S"):
        date_format = SimpleDateFormat(pattern)
        start = ms // date_format.resolution_ms * date_format.resolution_ms
        assert date_format.format(start) == date_format.format(ms)


def test_a_format_travels_to_executors() -> None:
    assert pickle.loads(pickle.dumps(SimpleDateFormat("yyyy"))).format(0) == "1970"  # noqa: S301 - our own bytes
