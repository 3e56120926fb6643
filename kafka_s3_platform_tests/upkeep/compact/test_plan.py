"""Which segments a compaction merges, and into how many."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.segment import Chunk, Segment
from kafka_s3_platform.core.upkeep.compact.days import find_day, find_day_end, find_day_start
from kafka_s3_platform.core.upkeep.compact.plan import (
    Merge,
    build_merged_layout,
    build_merged_path_format,
    encode_span,
    plan_span,
)
from kafka_s3_platform_tests.support import SETTINGS

UTC = ZoneInfo("UTC")
DAY = date(2026, 1, 1)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=timezone.utc)
TARGET = 1000


def segment(
    start: int,
    end: int,
    size: int = 100,
    chunk: Chunk = "hourly",
    kafka_partition: int = 0,
    chunk_start: datetime | None = MIDNIGHT,
    settings: str = SETTINGS,
) -> Segment:
    return Segment(
        key=f"{chunk}-{kafka_partition}-{start}",
        chunk=chunk,
        chunk_start=chunk_start,
        encoded_partition="e",
        kafka_partition=kafka_partition,
        start_offset=start,
        end_offset=end,
        record_count=end - start,
        late_count=0,
        record_bytes=size * 5,
        size=size,
        etag="etag",
        sha256="sha256",
        digest="digest",
        min_timestamp=0,
        max_timestamp=0,
        settings=settings,
        epoch=1,
    )


def plan(segments: Sequence[Segment], target: int = TARGET) -> list[Merge]:
    return plan_span(segments, DAY, target)


def keys(merges: Sequence[Merge]) -> list[list[str]]:
    return [[s.key for s in m.inputs] for m in merges]


def test_hourly_segments_of_the_day_are_merged_by_kafka_partition() -> None:
    segments = [segment(0, 10), segment(10, 20), segment(0, 5, kafka_partition=1)]
    assert keys(plan(segments)) == [["hourly-0-0", "hourly-0-10"], ["hourly-1-0"]]


def test_other_days_and_out_of_range_records_are_left_alone() -> None:
    others = [segment(0, 10, chunk_start=None), segment(10, 20, chunk_start=MIDNIGHT - timedelta(hours=1))]
    assert plan(others) == []
    assert keys(plan([*others, segment(20, 30)])) == [["hourly-0-20"]]


def test_a_day_without_hourly_segments_is_not_merged_again() -> None:
    assert plan([segment(0, 10, chunk="daily"), segment(10, 20, chunk="daily")]) == []


def test_daily_segments_are_merged_again_if_late_records_overlap_them() -> None:
    segments = [segment(0, 100, 900, "daily"), segment(100, 200, 900, "daily"), segment(150, 151, 10)]
    assert keys(plan(segments)) == [["daily-0-100", "hourly-0-150"]]


def test_daily_segments_are_merged_again_if_they_are_small() -> None:
    segments = [segment(0, 100, TARGET // 2 - 1, "daily"), segment(100, 200, 10)]
    assert keys(plan(segments)) == [["daily-0-0", "hourly-0-100"]]


def test_no_merge_reaches_across_a_daily_segment_that_stays() -> None:
    segments = [segment(0, 10), segment(10, 100, 900, "daily"), segment(100, 110)]
    assert keys(plan(segments)) == [["hourly-0-0"], ["hourly-0-100"]]


def test_a_small_daily_segment_is_not_rewritten_for_itself() -> None:
    segments = [segment(0, 10, 10, "daily"), segment(10, 100, 900, "daily"), segment(100, 110)]
    assert keys(plan(segments)) == [["hourly-0-100"]]


def test_a_day_becomes_segments_of_about_equal_size_near_the_target() -> None:
    merges = plan([segment(n * 10, n * 10 + 10, 130) for n in range(24)])
    assert [m.outputs for m in merges] == [1, 1, 1]
    assert all(0.8 * TARGET < m.size < 1.3 * TARGET for m in merges)


def test_overlapping_segments_are_merged_in_one_go_and_cut_by_their_record_bytes() -> None:
    (merge,) = plan([segment(0, 1000, 2000), segment(5, 990, 1000)])
    assert merge.outputs == 3
    assert merge.segment_bytes == 5001


def test_a_single_output_never_ends_by_bytes() -> None:
    (merge,) = plan([segment(0, 10, 100)])
    assert merge.segment_bytes == 501


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 60), st.integers(1, 2500), st.integers(0, 2)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 5000),
)
def test_every_hourly_segment_is_merged_once_and_merges_do_not_overlap(
    given_segments: list[tuple[int, int, int, int]], target: int
) -> None:
    segments = [segment(start, start + n, size, kafka_partition=p) for start, n, size, p in given_segments]
    merges = plan(segments, target)
    taken = [s for m in merges for s in m.inputs]
    assert sorted(taken, key=repr) == sorted(segments, key=repr)
    for kafka_partition in range(3):
        mine = [m for m in merges if m.kafka_partition == kafka_partition]
        ends = [max(s.end_offset for s in m.inputs) for m in mine]
        assert all(end <= m.inputs[0].start_offset for end, m in zip(ends, mine[1:], strict=False))


def test_objects_of_values_only_are_never_merged_and_hold_no_merge_apart() -> None:
    json_format = LayoutSettings(format="json").model_dump_json()
    segments = [segment(0, 10), segment(10, 20, settings=json_format), segment(20, 30)]
    assert keys(plan(segments)) == [["hourly-0-0", "hourly-0-20"]]
    assert plan([segment(10, 20, settings=json_format)]) == []


def test_hours_of_two_timezones_are_merged_apart_each_with_its_own() -> None:
    new_york = LayoutSettings(timezone="America/New_York").model_dump_json()
    late = MIDNIGHT + timedelta(hours=28)
    segments = [
        segment(0, 10),
        segment(5, 15, chunk_start=late, settings=new_york),
        segment(15, 20, chunk_start=late),
        segment(20, 30, chunk_start=MIDNIGHT, settings=new_york),
    ]
    merges = plan(segments)
    assert keys(merges) == [["hourly-0-5"], ["hourly-0-0"]]
    assert [m.zone.key for m in merges] == ["America/New_York", "UTC"]


@pytest.mark.parametrize(
    ("path_format", "daily"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", "'year'=YYYY/'month'=MM/'day'=dd"),
        ("'year'=YYYY/'month'=MM/'day'=dd", "'year'=YYYY/'month'=MM/'day'=dd"),
        ("YYYY/MM/dd/HH/mm", "YYYY/MM/dd"),
        ("'dt'=YYYY-MM-dd/'half/hour'=HH", "'dt'=YYYY-MM-dd"),
        ("'Hours/m'=YYYY-MM-dd/HH", "'Hours/m'=YYYY-MM-dd"),
        ("'dt'=YYYY-MM-dd-HH", "'year'=YYYY/'month'=MM/'day'=dd"),
        ("HH/'day'=dd", "'year'=YYYY/'month'=MM/'day'=dd"),
    ],
)
def test_daily_folders_are_the_hourly_ones_without_the_hour(path_format: str, daily: str) -> None:
    assert build_merged_path_format(path_format, DAY) == daily


def test_the_folder_is_the_day_of_the_connectors_timezone() -> None:
    layout = LayoutSettings()
    assert encode_span(layout, ZoneInfo("Asia/Kolkata"), DAY) == "year=2026/month=01/day=01"


def test_the_daily_layout_says_how_its_segments_end() -> None:
    layout = build_merged_layout(LayoutSettings(flush_size=10), DAY, UTC, 77)
    assert (layout.flush_size, layout.segment_bytes, layout.path_format) == (
        None,
        77,
        "'year'=YYYY/'month'=MM/'day'=dd",
    )


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("UTC", DAY, datetime(2026, 1, 1, tzinfo=timezone.utc), 24),
        ("Europe/Paris", date(2026, 3, 29), datetime(2026, 3, 28, 23, tzinfo=timezone.utc), 23),
        ("Europe/Paris", date(2026, 10, 25), datetime(2026, 10, 24, 22, tzinfo=timezone.utc), 25),
        ("Asia/Kolkata", DAY, datetime(2025, 12, 31, 18, 30, tzinfo=timezone.utc), 24),
        ("America/Santiago", date(2026, 9, 6), datetime(2026, 9, 6, 4, tzinfo=timezone.utc), 23),
    ],
    ids=["UTC", "spring", "autumn", "half an hour", "midnight skipped"],
)
def test_a_day_is_that_of_the_connectors_timezone(zone: str, day: date, start: datetime, hours: int) -> None:
    found = ZoneInfo(zone)
    assert find_day_start(day, found) == start
    assert find_day_end(day, found) - find_day_start(day, found) == timedelta(hours=hours)
    settings = LayoutSettings(timezone=zone).model_dump_json()
    assert find_day(segment(0, 1, chunk_start=start, settings=settings)) == day
    before = segment(0, 1, chunk_start=start - timedelta(hours=1), settings=settings)
    assert find_day(before) == day - timedelta(days=1)
