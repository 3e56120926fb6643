"""Patterns of time folders that put two times that are to be apart into one folder, and what is advised."""

import pytest

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.model.times import DAY_MS, HOUR_MS
from kafka_s3_platform.partitioners.folders import explain_shared_folder

TEN_MINUTES_MS = HOUR_MS // 6


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
    said = explain(path_format, span_ms)
    assert said is not None
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
