"""Path formats are Joda-Time patterns; what is not honoured is refused with its position.

ISO 8601 texts are read as Connect reads them, with Joda-Time.
"""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from kafka_s3_platform.core.java.joda import parse_texts
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform_tests.partitioners.batches import ms

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


JODA_TEXTS = Path(__file__).parent.parent / "golden" / "joda_iso8601.csv"


def parse(zone: str, *texts: str) -> list[int | None]:
    found: list[int | None] = parse_texts(pa.array(texts), ZoneInfo(zone)).to_pylist()
    return found


def test_every_text_is_the_instant_that_joda_time_reads() -> None:
    rows = [line.split("|") for line in JODA_TEXTS.read_text().splitlines()]
    assert len(rows) > 700
    for zone, text, instant in rows:
        assert parse(zone, text) == [int(instant) if instant else None], (zone, text)


def test_a_text_s_instant_does_not_depend_on_the_others() -> None:
    rows = [line.split("|") for line in JODA_TEXTS.read_text().splitlines() if line.startswith("Europe")]
    assert parse("Europe/Paris", *(text for _, text, _ in rows)) == [int(i) if i else None for _, _, i in rows]


@pytest.mark.parametrize(
    ("zone", "text", "instant"),
    [
        ("Europe/Paris", "2019-10-27T02:30:00", "2019-10-27T02:30:00+02:00"),
        ("Europe/Paris", "2019-03-31T02:30:00", "2019-03-31T03:30:00+02:00"),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"),
        ("America/Sao_Paulo", "2018-02-17T23:30:00", "2018-02-17T23:30:00-02:00"),
        ("Australia/Lord_Howe", "2019-04-07T01:45:00", "2019-04-07T01:45:00+11:00"),
        ("Australia/Lord_Howe", "2019-10-06T02:15:00", "2019-10-06T02:45:00+11:00"),
    ],
)
def test_a_time_that_occurs_twice_is_the_first_and_a_skipped_one_comes_after_the_gap(
    zone: str, text: str, instant: str
) -> None:
    assert parse(zone, text, text + "Z") == [ms(instant), parse("UTC", text)[0] if "T" in text else None]


def test_a_day_that_no_calendar_holds_is_no_time() -> None:
    assert parse("UTC", "9999-999", "0000-01-01", "0000-01-01T00:00:00Z") == [None] * 3
