"""What the names of folders tell of the times below them, so that a walk leaves old ones out."""

from typing import Any

import pytest

from kafka_s3_platform.layouts.new_layout import new_key_reader
from kafka_s3_platform_tests.partitioners.batches import ms
from kafka_s3_platform_tests.sources.memory import source

YEAR = (ms("2026-01-01T00:00:00+00:00"), ms("2027-01-01T00:00:00+00:00"))
MONTH = (ms("2026-02-01T00:00:00+00:00"), ms("2026-03-01T00:00:00+00:00"))
DAY = (ms("2026-02-03T00:00:00+00:00"), ms("2026-02-04T00:00:00+00:00"))
FIVE = (ms("2026-02-03T05:00:00+00:00"), ms("2026-02-03T06:00:00+00:00"))

CONNECT = {"partitioner": "Hourly"}
AIVEN = {"key_layout": "template", "file_name_template": "{{topic}}/{{timestamp:unit=yyyy}}-{{timestamp:unit=MM}}/x"}
BY_KEY = {"key_layout": "template", "file_name_template": "{{key}}/{{timestamp:unit=yyyy}}/{{topic}}-{{start_offset}}"}
WEEKS = {"partitioner": "TimeBased", "path_format": "xxxx/ww/e", "partition_duration_ms": 86_400_000}


@pytest.mark.parametrize(
    ("layout", "folder", "span"),
    [
        (CONNECT, "orders", None),
        (CONNECT, "orders/year=2026", YEAR),
        (CONNECT, "orders/year=2026/month=02", MONTH),
        (CONNECT, "orders/year=2026/month=02/day=03", DAY),
        (CONNECT, "orders/year=2026/month=02/day=03/hour=05", FIVE),
        (CONNECT, "orders/year=2026/month=02/day=03/hour=05/more", None),
        (CONNECT, "orders/month=02", None),
        (CONNECT, "orders/__out_of_range__", None),
        ({**CONNECT, "path_format": "'in/'YYYY/MM"}, "orders/in/2026", YEAR),
        ({**CONNECT, "path_format": "MM/YYYY"}, "orders/02", None),
        ({**CONNECT, "path_format": "MM/YYYY"}, "orders/02/2026", MONTH),
        (WEEKS, "orders/2026", None),
        ({**CONNECT, "directory_delim": "_", "path_format": "YYYY_MM"}, "orders_2026_02", MONTH),
        ({"partitioner": "Default"}, "orders/partition=0", None),
        ({"partitioner": "Field", "partition_fields": ("year",)}, "orders/year=2026", None),
        ({**CONNECT, "key_layout": "block_gzip", "path_format": "YYYY-MM-dd"}, "2026-02-03", DAY),
        (AIVEN, "orders/2026-02", MONTH),
        (AIVEN, "orders", None),
        (BY_KEY, "a/2026", None),
        ({"key_layout": "lenses", "format": "lenses.json"}, "orders/0", None),
    ],
)
def test_a_folder_tells_the_span_of_all_times_below_it_or_nothing(
    layout: dict[str, Any], folder: str, span: tuple[int, int] | None
) -> None:
    assert new_key_reader(source({"format": "json", **layout})).find_span(folder) == span
