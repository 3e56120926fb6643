"""ISO 8601 texts are read as Connect reads them, with Joda-Time."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from kafka_s3_platform.java.joda import parse_texts
from kafka_s3_platform_tests.partitioners.batches import ms

JODA = Path(__file__).parent.parent / "golden" / "joda_iso8601.csv"


def parse(zone: str, *texts: str) -> list[int | None]:
    found: list[int | None] = parse_texts(pa.array(texts), ZoneInfo(zone)).to_pylist()
    return found


def test_every_text_is_the_instant_that_joda_time_reads() -> None:
    rows = [line.split("|") for line in JODA.read_text().splitlines()]
    assert len(rows) > 700
    for zone, text, instant in rows:
        assert parse(zone, text) == [int(instant) if instant else None], (zone, text)


def test_a_text_s_instant_does_not_depend_on_the_others() -> None:
    rows = [line.split("|") for line in JODA.read_text().splitlines() if line.startswith("Europe")]
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
