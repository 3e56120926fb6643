from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.upkeep.compact.days import find_day
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.defs.running import events, launch, run, tick, topic_of
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    Sent,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

pytestmark = pytest.mark.integration

DAYS = ["2026-01-01", "2026-01-02"]


@pytest.fixture
def config(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str, create_topic: CreateTopic
) -> ConnectorConfig:
    """Two archived days of three hours with one record in each of two kafka partitions."""
    create_topic(topic_name, kafka_partitions=2)
    times = [NOON + d * timedelta(days=1) + h * HOUR for d in range(2) for h in range(3)]
    produce(kafka_settings, topic_name, [Sent(timestamp=t, kafka_partition=p) for t in times for p in (0, 1)])
    made = connector(kafka_settings, store_settings, topic_name)
    archived(made)
    return made


def test_picked_days_are_merged_in_one_run_and_each_shows_its_own_numbers(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    key = topic_of(config).key("daily")
    found = run(config, "compact__c", key, DAYS, instance=instance)
    assert found.success
    reported = events(found, key)
    assert sorted(map(str, reported)) == DAYS
    for day in DAYS:
        [metadata] = reported[day]
        assert (metadata["partition_row_count"], metadata["objects"]) == (6, 2)
        assert (metadata["merged_objects"], metadata["hourly_objects_left"]) == (6, 0)
        assert all("hour=" not in uri for uri in metadata["uris"])
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(6)), 1: list(range(6))}


def test_a_day_that_cannot_be_merged_keeps_no_other_from_being_merged_and_shown(
    config: ConnectorConfig, instance: dg.DagsterInstance, s3_client: Any
) -> None:
    key = topic_of(config).key("daily")
    bad = next(s for s in snapshot(config).segments if find_day(s) == NOON.date())
    s3_client.delete_object(Bucket=config.store.bucket, Key=bad.key)
    [asked] = tick(config, "folders__c", instance).run_requests or ()
    found = launch(config, asked, instance)
    assert not found.success
    run = instance.get_run_by_id(found.run_id)
    assert run is not None
    assert run.tags[FAILURE_TAG] == "permanent"
    [told] = [e.step_failure_data.user_failure_data for e in found.all_events if e.is_step_failure and e.step_key]
    assert told is not None
    assert bad.key in str(told.description)
    live = {(find_day(s), s.chunk) for s in snapshot(config).segments}
    assert live == {(NOON.date(), "hourly"), (NOON.date() + timedelta(days=1), "daily")}
    assert instance.get_materialized_partitions(key) == {DAYS[1]}
    [metadata] = events(found, key)[DAYS[1]]
    assert (metadata["partition_row_count"], metadata["merged_objects"]) == (6, 6)


def test_the_checks_of_a_compaction_count_its_records_again(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    key = topic_of(config).key("daily")
    found = run(config, "compact__c", key, DAYS, instance=instance)
    passed = {e.check_name: e.passed for e in found.get_asset_check_evaluations()}
    assert passed == {"counts": True, "compacted": True}
