"""What the pages show of records that no object holds."""

from typing import Any

import pytest

from kafka_s3_platform.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.config.settings import (
    ErrorSettings,
    KafkaSettings,
    RecordSettings,
    StoreSettings,
    TransformSettings,
)
from kafka_s3_platform.defs.metadata import make_hour_metadata, make_totals_metadata
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.model.judge import HourVerdict
from kafka_s3_platform_tests.support import NOON, connector

DROPPED = {"filtered_records", "dead_letters"}


def report(**counts: int) -> ArchiveReport:
    facts: dict[str, Any] = {
        "hours": (),
        "record_count": 1,
        "record_bytes": 1,
        "object_count": 1,
        "out_of_range_count": 0,
        "gaps": (),
        "waiting": {},
        "version": 1,
        "seconds": 1.0,
        "filtered_count": 0,
        "dead_letter_count": 0,
    }
    return ArchiveReport(**{**facts, **counts})


def hour(taken_over_count: int = 0, **counts: int) -> HourReport:
    verdict = HourVerdict(NOON, frozenset([0]), taken_over_count=taken_over_count)
    return HourReport(NOON, (), verdict, True, **counts)


def test_what_was_left_out_is_counted_on_the_hours_page_and_on_the_runs() -> None:
    counts = {"filtered_count": 3, "dead_letter_count": 2}
    for found in (
        make_hour_metadata(hour(**counts), report(), "b", can_drop=False),
        make_totals_metadata(report(**counts), can_drop=False),
    ):
        assert (found["filtered_records"].value, found["dead_letters"].value) == (3, 2)


def test_an_hours_page_begins_with_complete_its_records_and_their_size() -> None:
    shown = make_hour_metadata(hour(), report(), "b", can_drop=False)
    assert [*shown][:3] == ["complete", "dagster/partition_row_count", "size"]
    assert shown["size"].value == "0 B in 0 objects"


def test_where_records_can_be_left_out_none_is_told_as_zero_and_else_not_at_all() -> None:
    assert not DROPPED & make_hour_metadata(hour(), report(), "b", can_drop=False).keys()
    shown = make_totals_metadata(report(), can_drop=True)
    assert {shown[name].value for name in DROPPED} == {0}


def test_offsets_that_another_sink_archived_are_shown_as_such() -> None:
    assert make_hour_metadata(hour(taken_over_count=7), report(), "b", can_drop=False)["taken_over_offsets"].value == 7
    assert "taken_over_offsets" not in make_hour_metadata(hour(), report(), "b", can_drop=False)


@pytest.mark.parametrize(
    ("records", "null_values", "can_drop"),
    [
        (RecordSettings(), "write", False),
        (RecordSettings(), "fail", False),
        (RecordSettings(), "ignore", True),
        (RecordSettings(errors=ErrorSettings(tolerance="all")), "write", True),
        (RecordSettings(transforms=(TransformSettings(alias="f", type="Filter"),)), "write", True),
    ],
)
def test_records_can_be_left_out_by_transforms_tolerance_and_ignored_nulls(
    records: RecordSettings, null_values: str, can_drop: bool
) -> None:
    config = connector(
        KafkaSettings(bootstrap_servers="b:1"), StoreSettings(bucket="bucket"), "t", layout={"null_values": null_values}
    )
    assert TopicAssets(config.model_copy(update={"records": records}), "t").can_drop == can_drop
