"""Path formats are Joda-Time patterns; what is not honoured is refused with its position."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.java.joda_format import compile_path_format

JODA = Path(__file__).parent.parent / "golden" / "joda_texts.csv"
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
    ("path_format", "where"), [("YYYY/zzz", "'zzz' at position 5"), ("'n'=n", "'n' at position 4")]
)
def test_a_letter_that_is_not_honoured_is_refused_with_its_position(path_format: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        compile_path_format(path_format)


def test_names_of_months_and_days_are_those_of_joda_time_in_every_locale() -> None:
    rows = [line.split("|") for line in JODA.read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 1_000
    for locale, zone, path_format, timestamp, expected in rows:
        local = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=int(timestamp))
        found = compile_path_format(path_format, locale)(local.astimezone(ZoneInfo(zone)))
        assert found == expected, (locale, zone, path_format, timestamp)


def test_a_locale_may_be_written_with_an_underscore_and_matters_only_where_there_are_names() -> None:
    assert compile_path_format("MMMM", "fr_FR")(NEW_YEARS_EVE) == "décembre"
    assert compile_path_format("MM", "xx")(NEW_YEARS_EVE) == "12"


def test_a_locale_that_is_not_known_is_refused_where_there_are_names() -> None:
    with pytest.raises(ValueError, match="in the locale 'xx' are not known"):
        compile_path_format("MMMM", "xx")


def test_a_trailing_delimiter_is_dropped_as_connect_does() -> None:
    assert compile_path_format("YYYY|", directory_delim="|")(NEW_YEARS_EVE) == "2012"


@pytest.mark.parametrize("path_format", ["", "/YYYY", "YYYY//MM", "'..'/YYYY", "YYYY/.", "YYYY'\x00'", "YYYY//"])
def test_a_pattern_whose_folders_are_empty_or_leave_the_topic_s_is_refused(path_format: str) -> None:
    with pytest.raises(ValueError, match="it gives the folders"):
        compile_path_format(path_format)
