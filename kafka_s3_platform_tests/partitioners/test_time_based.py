"""Timestamps are encoded as Kafka Connect encodes them, and counted to the hours of the connector's timezone."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.times import HOUR_MS
from kafka_s3_platform.core.partitioners.partitioners import NO_HOUR, TimeBasedPartitioner, find_hour_starts

JODA = Path(__file__).parent.parent / "golden" / "joda_partitions.csv"
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"])
TIMES = st.lists(st.integers(0, 2_000_000_000_000), max_size=50)


def encode(layout: LayoutSettings, *timestamps: int) -> list[tuple[int | None, str]]:
    """The (hour, encoded partition) of each timestamp."""
    times = np.array(timestamps, np.int64)
    hours = find_hour_starts(times, layout.timezone).tolist()
    encoded = TimeBasedPartitioner(layout).encode(cast("Any", None), times)
    names = [encoded.names[code] for code in encoded.codes]
    return [(None if hour == NO_HOUR else hour, name) for hour, name in zip(hours, names, strict=True)]


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_every_path_is_the_one_that_joda_time_gives() -> None:
    rows = [line.split("|") for line in JODA.read_text().splitlines()]
    assert len(rows) > 1_000
    for zone, duration, path_format, timestamp, expected in rows:
        layout = LayoutSettings(
            partitioner="TimeBased", path_format=path_format, partition_duration_ms=int(duration), timezone=zone
        )
        assert encode(layout, int(timestamp))[0][1] == expected, (zone, duration, path_format, timestamp)


@given(zone=ZONES, timestamps=TIMES)
def test_a_batch_is_encoded_as_its_records_one_by_one(zone: str, timestamps: list[int]) -> None:
    layout = LayoutSettings(timezone=zone)
    assert encode(layout, *timestamps) == [encode(layout, t)[0] for t in timestamps]


@given(zone=ZONES, timestamp=st.integers(0, 2_000_000_000_000))
def test_an_hour_starts_where_the_local_clock_shows_it(zone: str, timestamp: int) -> None:
    hour, _ = encode(LayoutSettings(timezone=zone), timestamp)[0]
    assert hour is not None
    offset = datetime.fromtimestamp(timestamp / 1000, ZoneInfo(zone)).utcoffset() or timedelta()
    assert 0 <= timestamp - hour < HOUR_MS
    assert (hour + offset // timedelta(milliseconds=1)) % HOUR_MS == 0


def test_the_hour_repeated_in_autumn_is_two_hours_in_one_folder() -> None:
    summer, winter = encode(
        LayoutSettings(timezone="Europe/Berlin"), ms("2013-10-27T02:30:00+02:00"), ms("2013-10-27T02:30:00+01:00")
    )
    folder = "year=2013/month=10/day=27/hour=02"
    assert (summer, winter) == (
        (ms("2013-10-27T02:00:00+02:00"), folder),
        (ms("2013-10-27T02:00:00+01:00"), folder),
    )


def test_a_folder_that_spring_skips_begins_after_the_gap() -> None:
    layout = LayoutSettings(partitioner="TimeBased", partition_duration_ms=2 * HOUR_MS, timezone="Europe/Berlin")
    assert encode(layout, ms("2013-03-31T03:30:00+02:00"))[0][1].endswith("hour=03")


def test_a_half_hour_zone_has_its_own_hours() -> None:
    assert encode(LayoutSettings(timezone="Asia/Kolkata"), ms("2013-01-01T00:10:00+00:00"))[0] == (
        ms("2012-12-31T23:30:00+00:00"),
        "year=2013/month=01/day=01/hour=05",
    )


def test_the_daily_partitioner_keeps_the_hours_of_a_day_apart() -> None:
    layout = LayoutSettings(
        partitioner="Daily", path_format="'year'=YYYY/'month'=MM/'day'=dd", partition_duration_ms=24 * HOUR_MS
    )
    assert encode(layout, 0, HOUR_MS) == [(0, "year=1970/month=01/day=01"), (HOUR_MS, "year=1970/month=01/day=01")]


def test_an_hourly_layout_may_have_a_path_format_of_its_own_as_in_confluent_cloud() -> None:
    assert encode(LayoutSettings(path_format="'dt'=YYYY-MM-dd/'hr'=HH"), 0) == [(0, "dt=1970-01-01/hr=00")]


def test_a_timestamp_of_no_calendar_year_is_out_of_range() -> None:
    assert encode(LayoutSettings(), -(2**63), 2**63 - 1, 0) == [
        (None, "__out_of_range__"),
        (None, "__out_of_range__"),
        (0, "year=1970/month=01/day=01/hour=00"),
    ]


@given(zone=ZONES, timestamps=TIMES)
def test_hours_alone_are_those_of_the_pairs(zone: str, timestamps: list[int]) -> None:
    starts = find_hour_starts(np.array(timestamps, np.int64), zone).tolist()
    assert starts == [encode(LayoutSettings(timezone=zone), t)[0][0] for t in timestamps]


@given(zone=ZONES, start=st.integers(0, 2_000_000_000_000))
def test_a_change_of_the_clocks_inside_of_an_hour_is_seen(zone: str, start: int) -> None:
    times = start + np.arange(0, 3 * HOUR_MS, 420_000, dtype=np.int64)
    for time, hour in zip(times.tolist(), find_hour_starts(times, zone).tolist(), strict=True):
        assert hour == find_hour_starts(np.array([time, 0], np.int64), zone)[0]


def test_the_hour_of_half_a_length_on_lord_howe_is_one_of_its_own() -> None:
    # 2019-04-07, 02:00 goes back to 01:30: an hour from 01:00, and half of one that the clock shows a second time
    times = np.arange(ms("2019-04-06T14:00:00+00:00"), ms("2019-04-06T17:00:00+00:00"), 1_800_000, dtype=np.int64)
    starts = (find_hour_starts(times, "Australia/Lord_Howe") - times[0]) // 60_000
    assert starts.tolist() == [0, 0, 30, 90, 90, 150]


def test_an_hour_of_no_calendar_year_is_none() -> None:
    assert find_hour_starts(np.array([-(2**63), 0, 2**63 - 1], np.int64), "UTC").tolist() == [NO_HOUR, 0, NO_HOUR]


def test_no_times_have_no_hours() -> None:
    assert find_hour_starts(np.array([], np.int64), "Europe/Paris").tolist() == []
