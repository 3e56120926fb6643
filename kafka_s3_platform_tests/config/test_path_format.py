"""Path formats are Joda-Time patterns; what is not honoured is refused with its position."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.config.path_format import compile_path_format

NEW_YEARS_EVE = datetime(2012, 12, 31, 5, 6, 7, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("path_format", "encoded"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", "year=2012/month=12/day=31/hour=05"),
        ("xxxx-'W'ww", "2013-W01"),
        ("'o''clock'", "o'clock"),
        ("yyyyMMdd/", "20121231"),
        ("D", "366"),
    ],
)
def test_a_pattern_formats_as_joda_does(path_format: str, encoded: str) -> None:
    assert compile_path_format(path_format)(NEW_YEARS_EVE) == encoded


@pytest.mark.parametrize(
    ("path_format", "where"), [("YYYY/MMM", "'MMM' at position 5"), ("'n'=n", "'n' at position 4")]
)
def test_a_letter_that_is_not_honoured_is_refused_with_its_position(path_format: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        compile_path_format(path_format)
