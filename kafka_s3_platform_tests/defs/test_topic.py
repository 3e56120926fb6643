"""What the pages show of records that no object holds.

Whoever reaches Dagster's UI can report any event of any asset: nothing that it says stops a sensor or a run.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys.values import FORMATS, find_broken_hour
from kafka_s3_platform.core.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    ErrorSettings,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    StoreSettings,
    TransformSettings,
)
from kafka_s3_platform.core.defs.archive.checks import RISK_CHECK, read_hours_at_risk
from kafka_s3_platform.core.defs.metadata import make_hour_metadata, make_totals_metadata
from kafka_s3_platform.core.defs.runs import ShownHours
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.instance.names import make_name, make_op_name
from kafka_s3_platform.core.instance.windows import Days, Hours
from kafka_s3_platform.core.model.judge import HourVerdict
from kafka_s3_platform.core.status.topic import find_newest_closed_hour
from kafka_s3_platform_tests.support import NOON, connector

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
NAMES = st.text("abcABC019._-", min_size=1, max_size=8)


def config(timezone_name: str, start_hour: datetime) -> ConnectorConfig:
    return ConnectorConfig(
        name="c",
        topics=("t",),
        kafka=KafkaSettings(bootstrap_servers="broker:9092"),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(timezone=timezone_name),
        archive=ArchiveSettings(start_hour=start_hour),
    )


@given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3))
def test_different_keys_have_different_op_names_that_dagster_takes(one: list[str], other: list[str]) -> None:
    assert make_op_name(*one).replace("_", "").isalnum()
    assert (make_op_name(*one) == make_op_name(*other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("orders-s3-sink", "orders_s3_sink"),
        ("flights", "flights"),
        ("a_b", "a_b___u"),
        ("a.b", "a_b___p"),
        ("a--b", "a__b___dd"),
        ("__consumer_offsets", "__consumer_offsets___uuu"),
        ("\u00e9t\u00e9.json", "__t___json___xc3xa9xc3xa9p"),
    ],
)
def test_a_name_stays_readable_whatever_other_names_there_are(name: str, made: str) -> None:
    assert make_name(name) == made


@pytest.mark.parametrize(
    ("layout", "kinds"),
    [
        ({}, {"parquet"}),
        ({"format": "parquet", "codec": "snappy"}, {"parquet"}),
        ({"format": "avro", "codec": "deflate"}, {"avro"}),
        ({"format": "envelope.avro", "codec": "zstd"}, {"avro"}),
        ({"format": "json", "codec": "gzip"}, {"json", "gzip"}),
        ({"format": "json", "codec": "none"}, {"json"}),
        ({"format": "bytes", "codec": "zstd"}, {"bytes", "zstd"}),
        ({"format": "bytes", "codec": "gzip", "key_layout": "block_gzip"}, {"bytes", "gzip"}),
        ({"format": "my_company.formats.Csv", "codec": "none"}, set()),
    ],
)
def test_an_asset_is_of_the_kind_of_its_format(layout: dict[str, Any], kinds: set[str]) -> None:
    made = config("UTC", NOON).model_copy(update={"layout": LayoutSettings().model_copy(update=layout)})
    assert TopicAssets(made, "t").kinds == {"s3", "spark"} | kinds


@pytest.mark.parametrize("format_name", sorted(set(FORMATS.values())))
def test_every_format_of_ours_is_a_kind_of_the_asset(format_name: str) -> None:
    made = config("UTC", NOON).model_copy(update={"layout": LayoutSettings(format=format_name)})
    assert format_name.removeprefix("envelope.") in TopicAssets(made, "t").kinds


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Sydney"])
def test_every_hour_has_one_key_and_every_key_one_hour_also_where_the_clock_changes(zone: str) -> None:
    hours = Hours(config(zone, datetime(2025, 1, 1, tzinfo=ZoneInfo(zone))))
    starts = [hours.first + n * HOUR for n in range(366 * 24)]
    keys = [hours.key(start) for start in starts]
    assert len(set(keys)) == len(keys)
    assert [hours.start(key) for key in keys] == starts
    assert [hours.end(key) for key in keys] == [start + HOUR for start in starts]
    assert keys == list(hours.definition.get_partition_keys()[: len(keys)])
    assert all(map(hours.is_key, keys[:: 24 * 7]))
    hours.check(keys)
    with pytest.raises(ConfigError, match=r"2025-06-01-12:30 is none .* that holds it is 2025-06-01-12:00"):
        hours.check(["2025-06-01-11:00", "2025-06-01-12:30"])


def clock_changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """Clock changes from 2020 to 2030, each as the first hour after it, and the UTC offset then."""
    moment = datetime(2020, 1, 1, tzinfo=timezone.utc)
    while moment.year < 2031:
        if (moment + WEEK).astimezone(zone).utcoffset() == moment.astimezone(zone).utcoffset():
            moment += WEEK
            continue
        before = moment.astimezone(zone).utcoffset()
        while moment.astimezone(zone).utcoffset() == before:
            moment += HOUR
        yield moment, moment.astimezone(zone).utcoffset() or timedelta()


def zones_that_differ() -> dict[str, list[tuple[datetime, timedelta]]]:
    """Clock changes of every timezone that the machine knows, of those that change alike only one."""
    found = {}
    for name in sorted(available_timezones() - {"localtime"}):
        changes = list(clock_changes(ZoneInfo(name)))
        found[str((changes, datetime(2020, 1, 1, tzinfo=ZoneInfo(name)).utcoffset()))] = (name, changes)
    return dict(found.values())


def test_hours_and_keys_are_one_to_one_in_every_timezone_that_is_not_refused() -> None:
    refused = set()
    for name, changes in zones_that_differ().items():
        start = datetime(2020, 1, 1, tzinfo=ZoneInfo(name))
        if find_broken_hour(ZoneInfo(name), start):
            refused.add(name)
            continue
        hours = Hours(config(name, start))
        for change, _ in changes:
            first = hours.first + ((change - hours.first) // HOUR - 3) * HOUR
            starts = [first + n * HOUR for n in range(7)]
            keys = [hours.key(start) for start in starts]
            assert [hours.start(key) for key in keys] == starts, (name, keys)
            assert [hours.end(key) for key in keys] == [start + HOUR for start in starts], (name, keys)
    assert refused == {"Australia/Lord_Howe"}


def test_both_hours_of_a_clock_set_back_have_keys_of_their_own() -> None:
    hours = Hours(config("Europe/Paris", datetime(2025, 10, 26, tzinfo=ZoneInfo("Europe/Paris"))))
    twice = [datetime(2025, 10, 26, h, 30, tzinfo=timezone.utc) for h in (0, 1)]
    assert [hours.key(t) for t in twice] == ["2025-10-26-02:00", "2025-10-26-02:00+0100"]


def test_hours_and_days_begin_with_the_day_of_the_start_hour() -> None:
    paris = ZoneInfo("Europe/Paris")
    given_config = config("Europe/Paris", datetime(2025, 3, 5, 14, tzinfo=timezone.utc))
    assert Hours(given_config).first == datetime(2025, 3, 5, tzinfo=paris)
    assert Days(given_config).first == datetime(2025, 3, 5, tzinfo=paris)


def test_the_open_hour_can_be_picked_and_no_later_one() -> None:
    now = datetime.now(timezone.utc)
    hours = Hours(config("UTC", now - timedelta(days=2)))
    last = hours.definition.get_last_partition_key()
    assert last is not None
    assert hours.start(last) <= datetime.now(timezone.utc)
    assert hours.end(last) >= now


@pytest.mark.parametrize(
    ("now", "newest"),
    [
        ("12:00", "10:00"),
        ("12:04", "10:00"),
        ("12:05", "11:00"),
        ("13:04", "11:00"),
        ("01:05", "00:00"),
        ("01:04", None),
    ],
)
def test_an_hour_is_closed_when_its_allowed_lateness_has_passed(now: str, newest: str | None) -> None:
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def at(text: str) -> datetime:
        return datetime.fromisoformat(f"2026-01-01T{text}:00+00:00")

    found = find_newest_closed_hour(at(now), timedelta(minutes=5), first)
    assert found == (at(newest) if newest else None)


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


def hour(taken_over_count: int = 0, **counts: Any) -> HourReport:
    verdict = HourVerdict(NOON, frozenset([0]), taken_over_count=taken_over_count)
    return HourReport(NOON, (), verdict, True, **counts)


def test_what_was_left_out_is_counted_on_the_hours_page_and_on_the_runs() -> None:
    counts = {"filtered_count": 3, "dead_letter_count": 2}
    for found in (
        make_hour_metadata(hour(**counts), report(), "b", can_drop=False),
        make_totals_metadata(report(**counts), can_drop=False),
    ):
        assert (found["filtered_records"], found["dead_letters"]) == (3, 2)


def test_an_hours_page_begins_with_complete_its_records_and_their_size() -> None:
    shown = make_hour_metadata(hour(), report(), "b", can_drop=False)
    assert [*shown][:3] == ["complete", "dagster/partition_row_count", "size"]
    assert shown["size"] == "0 B in 0 objects"


def test_where_records_can_be_left_out_none_is_told_as_zero_and_else_not_at_all() -> None:
    assert not DROPPED & make_hour_metadata(hour(), report(), "b", can_drop=False).keys()
    shown = make_totals_metadata(report(), can_drop=True)
    assert {shown[name] for name in DROPPED} == {0}


def test_offsets_that_another_sink_archived_are_shown_as_such() -> None:
    assert make_hour_metadata(hour(taken_over_count=7), report(), "b", can_drop=False)["taken_over_offsets"] == 7
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


TOPIC = TopicAssets(
    ConnectorConfig(
        name="c",
        topics=("t",),
        kafka=KafkaSettings(bootstrap_servers="broker:9092"),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(timezone="UTC"),
        archive=ArchiveSettings(start_hour=datetime(2026, 1, 1, tzinfo=timezone.utc)),
    ),
    "t",
)
NO_HOURS = ["x", "", "../x", "2026-01-02", "2026-01-02 00:00", "0001-01-01-00:00", "9999-12-31-23:00", "\u0661"]


def test_what_was_reported_of_no_hour_hides_no_hour_that_is_shown() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for key in [*NO_HOURS, "2026-01-02-03:00"]:
            instance.report_runless_asset_event(dg.AssetMaterialization(TOPIC.key("hourly"), partition=key))
        shown = ShownHours(instance).of(TOPIC)
        assert datetime(2026, 1, 2, 3, tzinfo=timezone.utc) in shown
        assert datetime(2026, 1, 2, tzinfo=timezone.utc) not in shown


@pytest.mark.parametrize("time", [dg.MetadataValue.text("x"), *map(dg.MetadataValue.float, (1e308, float("nan")))])
def test_a_reported_risk_without_times_is_none(time: dg.MetadataValue[Any]) -> None:
    metadata = {"hours_at_risk_from": time, "hours_at_risk_to": time}
    evaluation = dg.AssetCheckEvaluation(
        asset_key=TOPIC.key("kafka"), check_name=RISK_CHECK, passed=False, metadata=metadata
    )
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(evaluation)
        assert read_hours_at_risk(instance, [TOPIC]) == {}
