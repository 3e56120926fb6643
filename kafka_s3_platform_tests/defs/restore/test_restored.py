from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.defs.restore.config import RestoreConfig
from kafka_s3_platform.defs.restore.restored import find_picked_topic, name_restored_op
from kafka_s3_platform.defs.topic import list_archived_topics
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.defs.running import definitions, events, run, topic_of
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, connector, produce

pytestmark = pytest.mark.integration

LONG_BEFORE = NOON - timedelta(days=300)


@pytest.fixture
def config(
    kafka_settings: KafkaSettings,
    store_settings: StoreSettings,
    topic_name: str,
    create_topic: CreateTopic,
    instance: dg.DagsterInstance,
) -> ConnectorConfig:
    """An archived topic: four hours from noon on of two records each, and one from before the first hour."""
    create_topic(topic_name)
    sent = [Sent(b"%d-%d" % (h, i), timestamp=NOON + h * HOUR + i * HOUR / 2) for h in range(4) for i in range(2)]
    produce(kafka_settings, topic_name, [*sent, Sent(b"old", timestamp=LONG_BEFORE)])
    made = connector(kafka_settings, store_settings, topic_name)
    assert run(made, "archive__c", topic_of(made).key("hourly"), instance=instance).success
    return made


def hour_keys(config: ConnectorConfig, *hours: int) -> list[str]:
    return [topic_of(config).hours.key(NOON + h * HOUR) for h in hours]


def restored(
    config: ConnectorConfig, instance: dg.DagsterInstance, *hours: int, **given: Any
) -> dg.ExecuteInProcessResult:
    topic = topic_of(config)
    to: dict[str, Any] = {"to_topic": f"{topic.topic}-restored", "create_topic": True}
    asked = RestoreConfig(**to | given)
    ops = {name_restored_op("c"): asked}
    keys = hour_keys(config, *hours)
    return run(config, "restore__c", topic.key("restored"), keys, instance=instance, ops=ops)


def values(config: ConnectorConfig) -> list[bytes]:
    found: list[bytes] = records_of(config.kafka, f"{config.topics[0]}-restored").column("value").to_pylist()
    return found


def test_the_hours_picked_are_restored_and_show_it(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    found = restored(config, instance, 1, 2)
    assert found.success
    assert values(config) == [b"1-0", b"1-1", b"2-0", b"2-1"]
    key = topic_of(config).key("restored")
    reported = events(found, key)
    assert set(reported) == set(hour_keys(config, 1, 2))
    [metadata] = reported[hour_keys(config, 1)[0]]
    assert (metadata["records"], metadata["verified"], metadata["restore_id"]) == (4, True, found.run_id)
    [row] = metadata["kafka_partitions"]
    assert (row["first_source_offset"], row["first_target_offset"], row["last_target_offset"]) == (2, 0, 3)
    assert instance.get_materialized_partitions(key) == set(hour_keys(config, 1, 2))


def test_a_window_in_the_config_wins_over_the_hours(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    window = {"from_time": "2026-01-01T12:30:00", "to_time": "2026-01-01T13:00:00.001"}
    assert restored(config, instance, 3, **window).success
    assert values(config) == [b"0-1", b"1-0"]


def test_everything_means_timestamps_before_the_first_hour_too(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    assert restored(config, instance, 3, everything=True).success
    assert values(config) == [b"%d-%d" % (h, i) for h in range(4) for i in range(2)] + [b"old"]


def test_a_dry_run_is_observed_and_creates_nothing(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    found = restored(config, instance, 1, dry_run=True)
    assert found.success
    key = topic_of(config).key("restored")
    [observed] = [e.asset_observation_data.asset_observation for e in found.get_asset_observation_events()]
    assert observed.asset_key == key
    assert observed.metadata["dry_run"].value is True
    assert observed.metadata["records"].value == 2
    assert not instance.get_materialized_partitions(key)


def test_a_restore_that_is_refused_fails_for_good_with_its_reasons(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    found = restored(config, instance, 1, create_topic=False)
    assert not found.success
    stored = instance.get_run_by_id(found.run_id)
    assert stored is not None
    assert stored.tags[FAILURE_TAG] == "permanent"
    data = found.get_step_failure_events()[0].step_failure_data
    assert data.user_failure_data is not None
    assert "does not exist" in str(data.user_failure_data.description)


def test_the_same_restore_id_sends_nothing_again(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    assert restored(config, instance, 1, restore_id="mine").success
    found = restored(config, instance, 1, restore_id="mine")
    [metadata] = events(found, topic_of(config).key("restored"))[hour_keys(config, 1)[0]]
    assert metadata["already_finished"]
    assert values(config) == [b"1-0", b"1-1"]


@pytest.mark.parametrize("count", [2, 12])
def test_a_run_that_picks_several_topics_is_refused_before_anything_is_sent(
    config: ConnectorConfig, instance: dg.DagsterInstance, count: int
) -> None:
    many = config.model_copy(update={"topics": (*config.topics, *(f"other-{n}" for n in range(1, count)))})
    job = definitions(many).resolve_job_def("restore__c")
    given = RestoreConfig(to_topic=f"{config.topics[0]}-restored", create_topic=True)
    found = job.execute_in_process(
        instance=instance,
        partition_key=hour_keys(config, 1)[0],
        run_config=dg.RunConfig(ops={name_restored_op("c"): given}),
        raise_on_error=False,
    )
    [failed] = found.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    assert told is not None
    assert told.description is not None
    assert f"connector c: this run picked {count} topics to restore: {config.topics[0]}, other-1" in told.description
    assert ("and 2 more" in told.description) == (count == 12)
    assert "start a run for each topic" in told.description
    with ClusterAdmin(config.kafka) as admin:
        assert given.to_topic not in admin.topics()
    assert not instance.get_materialized_partitions(topic_of(config).key("restored"))


def test_a_restore_of_one_topic_of_several_shows_nothing_on_the_others(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    many = config.model_copy(update={"topics": (*config.topics, "other-1", "other-2")})
    assert restored(many, instance, 1).success
    assert values(config) == [b"1-0", b"1-1"]
    shown = [instance.get_materialized_partitions(topic.key("restored")) for topic in list_archived_topics([many])]
    assert shown == [set(hour_keys(config, 1)), set(), set()]


def test_a_run_that_picks_no_topic_is_refused(config: ConnectorConfig) -> None:
    with pytest.raises(PreflightError, match="this run picked 0 topics to restore"):
        find_picked_topic([topic_of(config)], [topic_of(config).key("hourly")])
