"""Patterns of time folders that put two times that are to be apart into one folder, and what is advised."""

from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.times import DAY_MS, HOUR_MS
from kafka_s3_platform.core.partitioners.folders import Folder, TimeFolders, explain_shared_folder
from kafka_s3_platform.core.partitioners.partitioners import TimeBasedPartitioner
from kafka_s3_platform_tests.conftest import present

HOUR = 3_600_000
TEN_MINUTES_MS = HOUR_MS // 6
PATHS = {
    "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH": HOUR,
    "'dt'=YYYY-MM-dd": 24 * HOUR,
    "YYYY/MMM/dd hh a": HOUR,
    "YYYY-DDD/HH-mm": 900_000,
    "xxxx'W'ww": 7 * 24 * HOUR,
    "YYYY-MM": 24 * HOUR,
    "YYYY/MM/dd": HOUR,
    "YY/MM": HOUR,
}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(PATHS)),
    st.sampled_from(["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns"]),
    st.integers(0, 4_000_000_000_000),
)
def test_the_window_of_a_folder_holds_every_time_that_is_put_there(path: str, zone: str, time: int) -> None:
    layout = LayoutSettings(path_format=path, partition_duration_ms=PATHS[path], timezone=zone)
    (name,) = TimeBasedPartitioner(layout).encode(cast("Any", None), np.array([time], np.int64)).names
    found = present(TimeFolders(layout).folder(name))
    if found.window is None:
        assert path.startswith("YY/")
    else:
        assert found.window[0] <= time < found.window[1]


LETTERS = "GCyYxwMdDeEaHkKhmsSZ"
tokens = st.tuples(st.sampled_from(LETTERS), st.integers(1, 4)).map(lambda drawn: drawn[0] * drawn[1])
literals = st.sampled_from(["", "", "-", "/", "'W'", "'1'", "'at '"])
patterns = st.lists(st.tuples(tokens, literals), min_size=1, max_size=5).map(
    lambda drawn: "".join(chain.from_iterable(drawn)).rstrip("/")
)


@settings(deadline=None)
@given(
    patterns,
    st.sampled_from(["en", "fr", "zh", "pt-BR"]),
    st.sampled_from(["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns"]),
    st.sampled_from([TEN_MINUTES_MS, HOUR_MS, DAY_MS, 7 * DAY_MS]),
    st.integers(-2_000_000_000_000, 4_000_000_000_000),
)
@example("'year'=YYYY/'month'=MM/'day'=dd/'hour'=hh", "en", "UTC", HOUR_MS, 1_795_651_200_000)
@example("'year'=YYYY/'week'=ww", "en", "UTC", DAY_MS, 1_795_651_200_000)
@example("YYYY/HH", "en", "UTC", HOUR_MS, 1_795_651_200_000)
@example("YYYYMdH", "en", "UTC", HOUR_MS, 1_795_651_200_000)
@example("YYYY/MM/dd/HH/Z", "en", "Europe/Paris", HOUR_MS, 1_792_891_800_000)
@example("dMMMYYYY", "zh", "UTC", DAY_MS, 1_792_891_800_000)
def test_every_folder_that_the_partitioner_writes_is_read_and_its_window_holds_the_time(
    path: str, locale: str, zone: str, duration: int, time: int
) -> None:
    layout = LayoutSettings(path_format=path, partition_duration_ms=duration, timezone=zone, locale=locale)
    try:
        (name,) = TimeBasedPartitioner(layout).encode(cast("Any", None), np.array([time], np.int64)).names
    except ValueError as err:
        assert "it gives the folders" in str(err)  # noqa: PT017 - of the pattern, whatever the time
        return
    window = present(TimeFolders(layout).folder(name)).window
    assert window is None or window[0] <= time < window[1]


def test_a_folder_of_a_unit_that_is_left_out_has_the_window_of_the_last_one_before_it() -> None:
    november = (datetime(2026, 11, 1, tzinfo=timezone.utc), datetime(2026, 12, 1, tzinfo=timezone.utc))
    layout = LayoutSettings(path_format="YYYY/MM/HH")
    start, end = (int(moment.timestamp()) * 1000 for moment in november)
    assert TimeFolders(layout).folder("2026/11/05") == Folder((start, end))
    assert TimeFolders(layout).folder("2026/11/005") is None
    assert TimeFolders(layout).folder("2026/13/05") is None


def test_an_hours_window_is_that_hour() -> None:
    layout = LayoutSettings(timezone="Europe/Paris")
    noon = datetime(2026, 7, 1, 10, tzinfo=timezone.utc)
    start = noon.timestamp() * 1000
    assert TimeFolders(layout).folder("year=2026/month=07/day=01/hour=12") == Folder((int(start), int(start) + HOUR))


def test_the_hour_that_occurs_twice_is_both() -> None:
    found = present(TimeFolders(LayoutSettings(timezone="Europe/Paris")).folder("year=2026/month=10/day=25/hour=02"))
    assert found.window is not None
    assert found.window[1] - found.window[0] == timedelta(hours=2) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "folder",
    [
        "year=2026/month=13/day=01/hour=12",
        "year=2026/month=02/day=30/hour=12",
        "year=2026/month=2/day=03/hour=12",
        "year=2026/month=01/day=01",
        "partition=0",
        "year=2026/month=01/day=01/hour=25",
    ],
)
def test_what_no_time_is_put_into_is_no_folder(folder: str) -> None:
    assert TimeFolders(LayoutSettings()).folder(folder) is None


@pytest.mark.parametrize("name", ["__out_of_range__", "odd"])
def test_the_folder_of_times_out_of_range_tells_no_time_by_its_name_of_now_or_the_default(name: str) -> None:
    assert TimeFolders(LayoutSettings(out_of_range_folder="odd")).folder(name) == Folder()


def explain(path_format: str, span_ms: int, partitioner: str = "TimeBased") -> str | None:
    layout = LayoutSettings(partitioner=partitioner, path_format=path_format, partition_duration_ms=span_ms)
    return explain_shared_folder(layout)


@pytest.mark.parametrize(
    ("path_format", "span_ms", "times", "advice"),
    [
        ("YYYY-MM-dd-hh", HOUR_MS, "00:00 and of 2024-01-01 12:00", "write HH for the hour of the day"),
        ("YYYY-MM-dd", HOUR_MS, "00:00 and of 2024-01-01 01:00", "partition.duration.ms=86400000"),
        ("YYYY-MM-dd/HH-MM", TEN_MINUTES_MS, "00:00 and of 2024-01-01 00:10", "write mm for the minute"),
        ("'dt'=YYYY-mm-dd", DAY_MS, "2024-01-01 00:00 and of 2024-02-01 00:00", "write MM for the month"),
        ("'month'=mm/'day'=YYYYdd-HH", HOUR_MS, "2024-01-01 00:00 and of 2024-02-01 00:00", "write MM for the month"),
        ("YYYY/ww/e", DAY_MS, "2024-01-01 00:00 and of 2024-12-30 00:00", "write xxxx beside ww"),
        ("xxxx/ww", DAY_MS, "2024-01-01 00:00 and of 2024-01-02 00:00", "write e for the day of the week"),
        ("MM/dd", DAY_MS, "2024-01-01 00:00 and of 2025-01-01 00:00", "write YYYY"),
        ("YYYY/MM", DAY_MS, "2024-01-01 00:00 and of 2024-01-02 00:00", "name year, month and day"),
    ],
)
def test_times_that_share_a_folder_are_told_with_what_to_write(
    path_format: str, span_ms: int, times: str, advice: str
) -> None:
    said = present(explain(path_format, span_ms))
    assert times in said
    assert advice in said


@pytest.mark.parametrize(
    ("path_format", "span_ms"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", HOUR_MS),
        ("YYYY-MM-dd-hh-a", HOUR_MS),
        ("YYYY/DDD/kk", HOUR_MS),
        ("YYYY-MM-dd/HH-mm", TEN_MINUTES_MS),
        ("xxxx/ww/e", DAY_MS),
        ("YYYY-MM-dd", 7 * DAY_MS),
        ("YYYY-MMM-dd ZZZ", DAY_MS),
    ],
)
def test_a_pattern_that_keeps_spans_apart_is_not_told(path_format: str, span_ms: int) -> None:
    assert explain(path_format, span_ms) is None


def test_a_pattern_that_makes_no_folders_is_not_told() -> None:
    assert explain("YYYY", HOUR_MS, "Field") is None
