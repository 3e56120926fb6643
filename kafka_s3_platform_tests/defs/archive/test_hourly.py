from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import HOURLY_CHECK
from kafka_s3_platform.core.defs.archive.hourly import ArchiveConfig
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import events, run, tags_of, topic_of
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    Sent,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    stored,
)

MIDNIGHT = NOON - 12 * HOUR


@pytest.fixture
def without_spark() -> None:
    """These runs are on Spark."""


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A day of records: hour n holds n + 1 of them, in two kafka partitions; hour 3's last one came an hour late."""
    lab.create_topic(kafka_partitions=2)
    sent = [
        Sent(b"v", timestamp=MIDNIGHT + n * HOUR + timedelta(seconds=i), kafka_partition=i % 2)
        for n in range(24)
        for i in range(n + 1)
    ]
    sent.insert(15, Sent(b"late", timestamp=MIDNIGHT + 3 * HOUR, kafka_partition=0))
    lab.produce(sent)
    return lab.connector()


def keys_of(config: ConnectorConfig, *hours: int) -> list[str]:
    return [topic_of(config).hours.key(MIDNIGHT + n * HOUR) for n in hours]


def test_a_day_of_hours_is_one_run_and_each_hour_shows_its_own_numbers(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    key, keys = topic_of(config).key("hourly"), keys_of(config, *range(24))
    found = run(config, "archive__c", key, keys)
    assert found.success
    reported = events(found, key)
    assert sorted(str(k) for k in reported) == keys
    assert all(len(of_hour) == 1 for of_hour in reported.values())
    metadata = [reported[k][0] for k in keys]
    assert [m["partition_row_count"] for m in metadata] == [n + 1 + (n == 3) for n in range(24)]
    assert [m["late_records"] for m in metadata] == [int(n == 3) for n in range(24)]
    assert all(m["objects"] == len(m["uris"]) >= 1 for m in metadata)
    assert all(m["scanned"] and m["complete"] for m in metadata)
    assert {row["kafka_partition"] for row in metadata[5]["kafka_partitions"]} == {0, 1}
    latest = instance.get_latest_materialization_events([key])[key]
    assert latest is not None
    assert len(instance.get_materialized_partitions(key)) == 24


def test_the_checks_of_a_run_read_what_it_archived(config: ConnectorConfig) -> None:
    key = topic_of(config).key("hourly")
    found = run(config, "archive__c", key, keys_of(config, *range(24)))
    passed = {e.check_name: e.passed for e in found.get_asset_check_evaluations()}
    assert passed == {"archived": True}


def test_hours_covered_in_passing_are_reported_too(config: ConnectorConfig) -> None:
    """The late record of hour 3 lies among those of hour 4."""
    key = topic_of(config).key("hourly")
    assert run(config, "archive__c", key, keys_of(config, 3)).success
    found = run(config, "archive__c", key, keys_of(config, 4))
    assert list(events(found, key)) == keys_of(config, 3, 4)
    assert events(found, key)[keys_of(config, 3)[0]][0]["partition_row_count"] == 5


def test_a_run_without_hours_archives_everything_up_to_now(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    key = topic_of(config).key("hourly")
    found = run(config, "archive__c", key)
    assert found.success
    [totals] = events(found, key)[None]
    assert totals["records"] == 24 * 25 // 2 + 1
    assert instance.get_materialized_partitions(key) == set(keys_of(config, *range(24)))
    offsets = offsets_by_kafka_partition(stored(config))
    assert all(found == list(range(len(found))) for found in offsets.values())


def test_picked_hours_and_everything_up_to_now_go_together(config: ConnectorConfig) -> None:
    key = topic_of(config).key("hourly")
    ops = {make_op_name("hourly", config.name): ArchiveConfig(until_now=True)}
    found = run(config, "archive__c", key, keys_of(config, 2), ops=ops)
    assert found.success
    assert set(events(found, key)) == set(keys_of(config, *range(24)))
    assert stored(config).num_rows == 24 * 25 // 2 + 1


def test_hours_beside_a_bad_record_are_told_though_the_run_fails(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    """Two kafka partitions, in one of which hour 5 holds a record without a folder."""
    records = [Sent(b'{"n":1}', timestamp=MIDNIGHT + n * HOUR, kafka_partition=p) for n in (5, 6) for p in (0, 1)]
    with ClusterAdmin(config.kafka) as admin:
        admin.create_topic(topic := f"{config.topics[0]}-strict", 2, configs={"retention.ms": str(10**12)})
    produce(config.kafka, topic, [Sent(b"{", timestamp=MIDNIGHT + 5 * HOUR), *records])
    layout = {"partitioner": "Field", "partition_fields": ("n",)}
    strict = connector(config.kafka, config.store, topic, layout=layout, records={"value": {"format": "JSON"}})
    key, keys = topic_of(strict).key("hourly"), keys_of(strict, 5, 6)
    found = run(strict, "archive__c", key, keys)
    assert not found.success
    reported = {
        k: [(m["partition_row_count"], m["unresolved_offsets"], m["complete"]) for m in ms]
        for k, ms in events(found, key).items()
    }
    assert reported == {keys[0]: [(2, 1, False)], keys[1]: [(2, 0, True)]}
    checks = {c.check_name: c for c in found.get_asset_check_evaluations()}
    assert set(checks) == {HOURLY_CHECK}
    check = checks["archived"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "1 offset could not be archived" in str(check.description)
    latest, *_ = instance.event_log_storage.get_asset_check_execution_history(check.asset_check_key, 1)
    assert latest.status is AssetCheckExecutionRecordStatus.FAILED
    (row,) = convert_metadata(check.metadata)["unresolved"]
    assert {k: row[k] for k in ("kafka_partition", "start_offset", "end_offset", "reason")} == {
        "kafka_partition": 0,
        "start_offset": 0,
        "end_offset": 1,
        "reason": "VALUE_CONVERTER",
    }
    assert " days, " in row["time_left"]


def test_an_hour_whose_records_are_out_of_range_is_not_complete_to_the_check(lab: Lab) -> None:
    """They were archived under a start hour that was a later one."""
    lab.create_topic()
    start = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 6 * HOUR
    sent = [
        Sent(b"early", timestamp=start - HOUR),
        Sent(b"early", timestamp=start - HOUR),
        Sent(b"ok", timestamp=start),
    ]
    lab.produce(sent)
    archived(lab.connector(start_hour=start))
    moved = lab.connector(start_hour=start - 24 * HOUR)
    keys = [topic_of(moved).hours.key(start - n * HOUR) for n in (2, 1)]
    found = run(moved, "archive__c", topic_of(moved).key("hourly"), keys)
    (check,) = found.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert convert_metadata(check.metadata)["incomplete_hours"] == [
        {
            "hour": keys[1],
            "scanned": True,
            "out_of_range_records": 2,
            "verdict": "not complete: 2 records of it may be archived as out of range",
        }
    ]


def test_a_missing_topic_fails_for_good(config: ConnectorConfig) -> None:
    missing = config.model_copy(update={"topics": ("not-there",)})
    key = topic_of(missing).key("hourly")
    found = run(missing, "archive__c", key, keys_of(config, 1))
    assert not found.success
    assert tags_of(found)[FAILURE_TAG] == "permanent"
    data = found.get_step_failure_events()[0].step_failure_data
    assert data.user_failure_data is not None
    assert "not-there" in str(data.user_failure_data.description)
