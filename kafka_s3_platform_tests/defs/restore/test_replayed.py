"""Picked hours and days: each is a restore, and all of one backfill lie in one new topic, in their order."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.tags import BACKFILL_ID_TAG, PARTITION_NAME_TAG, ROOT_BACKFILL_ID_TAG

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import RETRIES_TAG
from kafka_s3_platform.core.instance.work import TOPIC_TAG, read_run_error
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions, events, failure, hour_keys, run, topic_of
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import HOUR, NOON, Sent

BACKFILL, OTHER = "abcdefgh", "ijklmnop"


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """An archived topic: two records in each of the hours 0, 1 and 3 from noon on, none in hour 2."""
    sent = [Sent(b"%d-%d" % (h, i), timestamp=NOON + h * HOUR + i * HOUR / 2) for h in (0, 1, 3) for i in range(2)]
    made = lab.fill(sent)
    assert run(made, "archive__c", topic_of(made).key("hourly")).success
    return made


def pick(instance: dg.DagsterInstance, keys: Sequence[str], backfill: str = BACKFILL) -> None:
    """A backfill as Dagster notes it; `replay` executes its runs."""
    noted = PartitionBackfill(backfill, BulkActionStatus.REQUESTED, False, {}, 0.0, partition_names=list(keys))
    instance.add_backfill(noted)


def replay(
    config: ConnectorConfig, instance: dg.DagsterInstance, key: str | None, **more: Any
) -> dg.ExecuteInProcessResult:
    """A run of the job for the hour or day `key`."""
    tags = {RETRIES_TAG: "0", **more.pop("tags", {BACKFILL_ID_TAG: BACKFILL})}
    name = "replay_days__c" if key and len(key) == len("2013-01-31") else "replay_hours__c"
    job = definitions(config).resolve_job_def(name)
    return job.execute_in_process(instance=instance, partition_key=key, tags=tags, raise_on_error=False, **more)


def replayed(config: ConnectorConfig, target: str) -> list[bytes]:
    return values(config.kafka, f"{config.topics[0]}.replay-{target}")


def metadata_of(config: ConnectorConfig, found: dg.ExecuteInProcessResult) -> Mapping[str, Any]:
    """Of the one materialization, which has no partition."""
    reported = events(found, topic_of(config).key("restored"))
    assert set(reported) == {None}
    [metadata] = reported[None]
    return metadata


def test_the_hours_of_a_backfill_follow_each_other_in_one_new_topic(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    keys = hour_keys(config, 0, 2, 3)
    pick(instance, keys)
    found = [replay(config, instance, key) for key in keys]
    assert [each.success for each in found] == [True, True, True]
    assert replayed(config, BACKFILL) == [b"0-0", b"0-1", b"3-0", b"3-1"]
    key = topic_of(config).key("restored")
    for each, hour in zip(found, keys, strict=True):
        metadata = metadata_of(config, each)
        assert metadata["to_topic"] == f"{config.topics[0]}.replay-{BACKFILL}"
        assert metadata["verified"]
        assert hour in unquote(metadata["hour"])
        [stored] = instance.get_runs(dg.RunsFilter(run_ids=[each.run_id]))
        assert (stored.tags["hours"], stored.tags["to_topic"]) == (hour, metadata["to_topic"])
    assert not instance.get_materialized_partitions(key)


def test_an_hour_before_which_another_is_missing_is_refused_and_goes_on_after_it(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    keys = hour_keys(config, 0, 1)
    pick(instance, keys)
    told = failure(replay(config, instance, keys[1]))
    assert f"{keys[1]} has to follow {keys[0]}" in told
    assert f"re-execute backfill {BACKFILL} from failure" in told
    with ClusterAdmin(config.kafka) as admin:
        assert f"{config.topics[0]}.replay-{BACKFILL}" not in admin.list_topics()
    again = {BACKFILL_ID_TAG: OTHER, ROOT_BACKFILL_ID_TAG: BACKFILL}
    assert all(replay(config, instance, key, tags=again).success for key in keys)
    done = replay(config, instance, keys[1], tags=again)
    assert metadata_of(config, done)["already_finished"]
    assert replayed(config, BACKFILL) == [b"0-0", b"0-1", b"1-0", b"1-1"]


def test_a_run_executed_again_after_its_backfill_goes_on(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    [key] = hour_keys(config, 1)
    pick(instance, [key])
    first = replay(config, instance, key)
    job = definitions(config).resolve_job_def("replay_hours__c")
    tags = {PARTITION_NAME_TAG: key}
    again = instance.create_run_for_job(
        job, run_config=first.dagster_run.run_config, tags=tags, root_run_id=first.run_id, parent_run_id=first.run_id
    )
    assert execute_run(InMemoryJob(job), again, instance).success
    assert replayed(config, BACKFILL) == [b"1-0", b"1-1"]


def test_nothing_is_sent_where_the_backfill_or_the_first_run_is_deleted(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    [key, other] = hour_keys(config, 0, 1)
    assert f"no backfill {BACKFILL} that names {key}" in failure(replay(config, instance, key))
    pick(instance, [other])
    assert f"no backfill {BACKFILL} that names {key}" in failure(replay(config, instance, key))

    job = definitions(config).resolve_job_def("replay_hours__c")
    gone = "00000000-0000-4000-8000-000000000000"
    run_config = {
        "ops": {"replay__c": {"config": {"what": {"hours": [key]}, "to": {"topic": "{topic}.replay-{backfill}"}}}}
    }
    again = instance.create_run_for_job(
        job, run_config=run_config, tags={RETRIES_TAG: "0"}, root_run_id=gone, parent_run_id=gone
    )
    assert not execute_run(InMemoryJob(job), again, instance, raise_on_error=False).success
    assert f"run {gone}, which this one executes again, is deleted" in read_run_error(instance, again.run_id)
    with ClusterAdmin(config.kafka) as admin:
        assert not [topic for topic in admin.list_topics() if topic.startswith(f"{config.topics[0]}.replay-")]


def test_another_backfill_of_the_same_day_makes_another_topic(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    day = f"{NOON:%Y-%m-%d}"
    for backfill in (BACKFILL, OTHER):
        pick(instance, [day], backfill)
        assert replay(config, instance, day, tags={BACKFILL_ID_TAG: backfill}).success
        assert len(replayed(config, backfill)) == 6


def test_a_launch_without_a_backfill_is_a_restore_as_its_form_says(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    [key] = hour_keys(config, 3)
    picked = replay(config, instance, key, tags={})
    assert replayed(config, picked.run_id[:8]) == [b"3-0", b"3-1"]
    form = {"what": {"everything": True}, "to": {"topic": "{topic}.replay-all", "create_topic": True}}
    assert replay(config, instance, None, tags={}, run_config={"ops": {"replay__c": {"config": form}}}).success
    assert len(replayed(config, "all")) == 6


@pytest.mark.parametrize(("tags", "said"), [({}, "picked 2 topics"), ({TOPIC_TAG: "absent"}, "picked 0 topics")])
def test_of_several_topics_a_tag_names_the_one_that_is_replayed(
    config: ConnectorConfig, instance: dg.DagsterInstance, tags: dict[str, str], said: str
) -> None:
    many = config.model_copy(update={"topics": (*config.topics, "other")})
    [key] = hour_keys(config, 1)
    told = failure(replay(many, instance, key, tags=tags))
    assert said in told
    assert TOPIC_TAG in told
    pick(instance, [key])
    assert replay(many, instance, key, tags={TOPIC_TAG: config.topics[0], BACKFILL_ID_TAG: BACKFILL}).success
    assert replayed(config, BACKFILL) == [b"1-0", b"1-1"]
