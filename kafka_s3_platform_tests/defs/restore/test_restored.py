from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import yaml

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import RESTORED_CHECK, list_index_checks
from kafka_s3_platform.core.defs.restore.replayed import find_picked_topic
from kafka_s3_platform.core.defs.topic import list_topic_assets
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.instance.work import FAILURE_TAG, name_restored_op
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.defs.running import definitions, events, failure, hour_keys, launch, run, tags_of, topic_of
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce

LONG_BEFORE = NOON - timedelta(days=300)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """An archived topic: four hours from noon on of two records each, and one from before the first hour."""
    sent = [Sent(b"%d-%d" % (h, i), timestamp=NOON + h * HOUR + i * HOUR / 2) for h in range(4) for i in range(2)]
    made = lab.fill([*sent, Sent(b"old", timestamp=LONG_BEFORE)])
    assert run(made, "archive__c", topic_of(made).key("hourly")).success
    return made


def run_config(config: ConnectorConfig, **groups: Any) -> dict[str, Any]:
    """What a person writes into the form, in its groups."""
    to = {"topic": "{topic}-restored", "create_topic": True, **groups.pop("to", {})}
    return {"ops": {name_restored_op(config.name): {"config": {"to": to, **groups}}}}


def restored(config: ConnectorConfig, **groups: Any) -> dg.ExecuteInProcessResult:
    topic = topic_of(config)
    asked = dg.RunRequest(
        job_name="restore__c",
        asset_selection=[topic.key("restored")],
        asset_check_keys=[*list_index_checks(topic.key("restored"))],
        run_config=run_config(config, **groups),
    )
    return launch(config, asked)


def restore_all(config: ConnectorConfig, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return (
        definitions(config)
        .resolve_job_def("restore__c")
        .execute_in_process(
            instance=instance, run_config=run_config(config, what={"everything": True}), raise_on_error=False
        )
    )


def target_values(config: ConnectorConfig) -> list[bytes]:
    return values(config.kafka, f"{config.topics[0]}-restored")


def test_the_hours_in_the_form_are_restored_and_the_page_says_so(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    hours = hour_keys(config, 2, 0)
    found = restored(config, what={"hours": hours})
    assert found.success
    assert target_values(config) == [b"0-0", b"0-1", b"2-0", b"2-1"]
    key = topic_of(config).key("restored")
    reported = events(found, key)
    assert set(reported) == {None}
    [metadata] = reported[None]
    starts = [NOON, NOON + 2 * HOUR]
    assert metadata["terms"]["windows"] == [[start.isoformat(), (start + HOUR).isoformat()] for start in starts]
    assert (metadata["records"], metadata["verified"], metadata["restore_id"]) == (4, True, found.run_id)
    [row] = metadata["kafka_partitions"]
    assert (row["first_source_offset"], row["first_target_offset"], row["last_target_offset"]) == (0, 0, 3)
    assert not instance.get_materialized_partitions(key)


def test_the_page_of_an_hour_has_the_form_of_its_restore(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    event = instance.fetch_materializations(topic_of(config).key("hourly"), limit=1000).records
    by_hour = {r.partition_key: r.asset_materialization.metadata for r in event if r.asset_materialization}
    [hour] = hour_keys(config, 1)
    text = by_hour[hour]["restore"].value
    given = yaml.safe_load(str(text).removeprefix("```yaml\n").removesuffix("```"))
    to = given["ops"][name_restored_op("c")]["config"]["to"]
    assert to == {"topic": "", "create_topic": True}
    to["topic"] = "{topic}-restored"
    key = topic_of(config).key("restored")
    assert launch(config, dg.RunRequest(job_name="restore__c", asset_selection=[key], run_config=given)).success
    assert target_values(config) == [b"1-0", b"1-1"]
    check = dg.AssetCheckKey(key, RESTORED_CHECK)
    [told] = instance.event_log_storage.get_asset_check_execution_history(check, limit=10)
    assert told.status.value == "SUCCEEDED", "also if the run that the form launches picks no checks"


def test_a_window_to_the_millisecond_is_restored(config: ConnectorConfig) -> None:
    window = {"from_time": "2026-01-01T12:30:00", "to_time": "2026-01-01T13:00:00.001"}
    assert restored(config, what=window).success
    assert target_values(config) == [b"0-1", b"1-0"]


def test_everything_means_timestamps_before_the_first_hour_too(config: ConnectorConfig) -> None:
    assert restored(config, what={"everything": True}).success
    assert target_values(config) == [b"%d-%d" % (h, i) for h in range(4) for i in range(2)] + [b"old"]


def test_a_dry_run_is_observed_and_creates_nothing(config: ConnectorConfig) -> None:
    found = restored(config, what={"hours": hour_keys(config, 1)}, how={"dry_run": True})
    assert found.success
    key = topic_of(config).key("restored")
    [observed] = [e.asset_observation_data.asset_observation for e in found.get_asset_observation_events()]
    assert observed.asset_key == key
    assert observed.metadata["dry_run"].value is True
    assert observed.metadata["records"].value == 2
    assert not events(found, key)


def test_a_restore_that_is_refused_fails_for_good_with_its_reasons(config: ConnectorConfig) -> None:
    found = restored(config, what={"everything": True}, to={"create_topic": False})
    assert not found.success
    assert tags_of(found)[FAILURE_TAG] == "permanent"
    assert "does not exist" in failure(found)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"to": {"topic": ""}, "what": {"everything": True}}, "to.topic is empty"),
        ({}, "what: nothing says which records"),
        ({"what": {"everything": True}, "how": {"thaw_seconds": -1.0}}, "how.thaw_seconds -1.0: Input should be"),
    ],
)
def test_a_form_that_cannot_be_used_is_refused_by_the_path_of_the_field(
    config: ConnectorConfig, groups: dict[str, Any], said: str
) -> None:
    assert said in failure(restored(config, **groups))


def test_the_same_restore_id_sends_nothing_again(config: ConnectorConfig) -> None:
    terms = {"what": {"hours": hour_keys(config, 1)}, "how": {"restore_id": "mine"}}
    assert restored(config, **terms).success
    found = restored(config, **terms)
    [metadata] = events(found, topic_of(config).key("restored"))[None]
    assert metadata["already_finished"]
    assert target_values(config) == [b"1-0", b"1-1"]


def test_a_run_that_picks_a_topic_without_an_archive_is_refused_as_a_whole(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    many = config.model_copy(update={"topics": (*config.topics, "other-1", "other-2")})
    told = failure(restore_all(many, instance))
    for name in ("other-1", "other-2"):
        assert f". connector c has archived nothing of topic {name}" in told
    with ClusterAdmin(config.kafka) as admin:
        assert f"{config.topics[0]}-restored" not in admin.list_topics()


def test_a_run_of_several_topics_shows_on_each_what_it_restored(
    config: ConnectorConfig, instance: dg.DagsterInstance, lab: Lab
) -> None:
    other = lab.create(f"{config.topics[0]}-other")
    produce(config.kafka, other, [Sent(b"o", timestamp=NOON)])
    archived(config.model_copy(update={"topics": (other,)}))
    many = config.model_copy(update={"topics": (*config.topics, other)})
    assert restore_all(many, instance).success
    shown = [instance.get_latest_materialization_event(topic.key("restored")) for topic in list_topic_assets([many])]
    records = [present(present(event).asset_materialization).metadata["records"].value for event in shown]
    assert records == [9, 1]


def test_a_restore_of_one_topic_of_several_shows_nothing_on_the_others(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    many = config.model_copy(update={"topics": (*config.topics, "other-1", "other-2")})
    assert restored(many, what={"hours": hour_keys(config, 1)}).success
    assert target_values(config) == [b"1-0", b"1-1"]
    shown = [instance.get_latest_materialization_event(topic.key("restored")) for topic in list_topic_assets([many])]
    assert [event is not None for event in shown] == [True, False, False]


def test_a_run_that_picks_no_topic_is_refused(config: ConnectorConfig) -> None:
    with pytest.raises(PreflightError, match="this run picked 0 topics to replay"):
        find_picked_topic([topic_of(config)], [topic_of(config).key("hourly")])
