import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone

import dagster as dg
import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.compact import folder_sensor
from kafka_s3_platform.core.defs.compact.folder_sensor import fingerprint_days
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.compact.run import compact_due_months
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import asked_keys, launch, tick, topic_of
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, compact_day, produce, snapshot

DAY = timedelta(days=1)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    lab.create_topic()
    return lab.connector()


def send_days(config: ConnectorConfig, *days: int) -> None:
    produce(config.kafka, config.topics[0], [Sent(timestamp=NOON + n * DAY + i * HOUR) for n in days for i in (0, 1)])


def test_days_with_hourly_segments_are_asked_for_once_they_are_over(config: ConnectorConfig) -> None:
    assert not tick(config, "folders__c").run_requests
    send_days(config, 0, 1, 5)
    archived(config)
    found = tick(config, "folders__c").run_requests or ()
    assert [asked_keys(r) for r in found] == [("2026-01-01", "2026-01-02"), ("2026-01-06", "2026-01-06")]


def test_a_compacted_day_is_due_again_with_late_records_only(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    send_days(config, 0)
    archived(config)
    [asked] = tick(config, "folders__c").run_requests or ()
    assert launch(config, asked).success
    assert instance.get_materialized_partitions(topic_of(config).key("daily")) == {"2026-01-01"}
    assert not tick(config, "folders__c").run_requests
    send_days(config, 0)
    archived(config)
    [again] = tick(config, "folders__c").run_requests or ()
    assert asked_keys(again) == ("2026-01-01", "2026-01-01")


@pytest.mark.parametrize("by_month", [False, True])
def test_a_day_whose_run_died_between_commit_and_event_is_asked_for_and_shown(
    config: ConnectorConfig, instance: dg.DagsterInstance, by_month: bool
) -> None:
    send_days(config, 0, 1)
    archived(config)
    for day in (1, 2):
        compact_day(CompactRequest(config, config.topics[0], date(2026, 1, day), "killed"), InProcessRunner())
    if by_month:
        archive = config.archive.model_copy(update={"monthly_segment_bytes": 2**20})
        monthly = config.model_copy(update={"archive": archive})
        assert compact_due_months({config.topics[0]: monthly}, "killed", InProcessRunner())
    [asked] = tick(config, "folders__c").run_requests or ()
    assert asked_keys(asked) == ("2026-01-01", "2026-01-02")
    assert launch(config, asked).success
    shown = instance.get_materialized_partitions(topic_of(config).key("daily"))
    assert shown == {"2026-01-01", "2026-01-02"}
    assert not tick(config, "folders__c").run_requests


def test_a_compaction_that_failed_is_asked_for_again_with_a_new_password(
    config: ConnectorConfig,
) -> None:
    send_days(config, 0)
    archived(config)
    store = config.store.model_copy(update={"secret_access_key": SecretStr("wrong")})
    wrong = config.model_copy(update={"store": store})
    snapshot = topic_of(config).index.open()
    days = [date(2026, 1, 1)]
    assert fingerprint_days(topic_of(wrong), days, snapshot) != fingerprint_days(topic_of(config), days, snapshot)


def test_many_days_that_cannot_be_merged_hold_up_no_later_one(
    config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_sensor, "MAX_DAYS", 2)
    send_days(config, 0, 1, 5)
    archived(config)
    for segment in snapshot(config).segments[:4]:
        lab.s3.delete_object(Bucket=config.store.bucket, Key=segment.key)
    [oldest] = tick(config, "folders__c").run_requests or ()
    assert asked_keys(oldest) == ("2026-01-01", "2026-01-02")
    assert not launch(config, oldest).success
    [later] = tick(config, "folders__c").run_requests or ()
    assert asked_keys(later) == ("2026-01-06", "2026-01-06")


def test_folders_that_the_index_does_not_know_are_counted_and_told_once(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.compact.folder_sensor.MAX_LISTINGS", 8)
    monkeypatch.setattr("kafka_s3_platform.core.defs.compact.folder_sensor.WALK_EVERY", timedelta())
    send_days(config, 0, 1)
    archived(config)
    store, base = ObjectStore(config.store), f"topics/{config.topics[0]}"
    for hour in range(3):
        store.put_new(f"{base}/year=2020/month=01/day=01/hour=0{hour}/other+0+0000000000.parquet", b"x")
    store.put_new(f"{base}/year=2030/month=01/day=01/hour=00/other+0+0000000000.parquet", b"x")
    told, cursor = [], None
    for _ in range(30):
        found = tick(config, "folders__c", cursor)
        told += found.asset_events
        cursor = found.cursor
    assert [t.metadata["folders_not_in_index"].value for t in told] == [4]
    assert told[0].metadata["example"].value == "year=2020/month=01/day=01/hour=00/"


def test_folders_are_walked_once_an_hour_and_listed_in_no_tick_between(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    list_prefixes = ObjectStore.list_prefixes

    def listing(store: ObjectStore, prefix: str) -> Iterator[str]:
        listed.append(prefix)
        return list_prefixes(store, prefix)

    send_days(config, 0)
    archived(config)
    monkeypatch.setattr(ObjectStore, "list_prefixes", listing)
    first = tick(config, "folders__c")
    count = len(listed)
    assert count
    ObjectStore(config.store).put_new(f"topics/{config.topics[0]}/year=2020/x.parquet", b"x")
    second = tick(config, "folders__c", first.cursor)
    assert (second.cursor, len(listed)) == (first.cursor, count)
    cursor = json.loads(first.cursor or "")
    cursor[config.topics[0]]["ended_at"] = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    [told] = tick(config, "folders__c", json.dumps(cursor)).asset_events
    assert told.metadata["folders_not_in_index"].value == 1


def test_folders_of_a_connector_without_topics_dir_are_walked_too(config: ConnectorConfig) -> None:
    config = config.model_copy(update={"layout": config.layout.model_copy(update={"topics_dir": ""})})
    send_days(config, 0)
    archived(config)
    ObjectStore(config.store).put_new(f"{config.topics[0]}/year=2020/month=01/day=01/hour=00/x.parquet", b"x")
    [told] = tick(config, "folders__c").asset_events
    assert isinstance(told, dg.AssetObservation)
    assert told.metadata["folders_not_in_index"].value == 1


def test_a_store_that_does_not_answer_is_a_reason_to_skip(config: ConnectorConfig) -> None:
    store = config.store.model_copy(update={"endpoint_url": "http://127.0.0.1:31698", "max_retries": 0})
    found = tick(config.model_copy(update={"store": store}), "folders__c")
    assert "127.0.0.1:31698" in str(found.skip_reason)
