"""Hours and days that are picked on a job's page: runs of a backfill, as Dagster's daemon makes them."""

from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.failures import RETRIES_TAG
from kafka_s3_platform.defs.restore.picked import TOPIC_TAG
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions, events, launch, run, topic_of
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import HOUR, NOON, Sent

pytestmark = pytest.mark.integration


@pytest.fixture
def config(lab: Lab, instance: dg.DagsterInstance) -> ConnectorConfig:
    """An archived topic: three hours from noon on, of one record each."""
    made = lab.fill([Sent(b"%d" % hour, timestamp=NOON + hour * HOUR) for hour in range(3)])
    assert run(made, "archive__c", topic_of(made).key("hourly"), instance=instance).success
    return made


def restore(
    config: ConnectorConfig, instance: dg.DagsterInstance, key: str, job: str = "restore__c", **tags: str
) -> dg.ExecuteInProcessResult:
    """Run the job for a picked key, with its tags."""
    asked = definitions(config).resolve_job_def(job).partitioned_config
    assert asked is not None
    request = dg.RunRequest(
        job_name=job,
        asset_selection=[topic_of(config).key("restored")],
        run_config=asked.get_run_config_for_partition_key(key),
        tags={"dagster/partition": key, **tags},
    )
    return launch(config, request, instance)


def execute_again(config: ConnectorConfig, instance: dg.DagsterInstance, run_id: str) -> None:
    """Re-execute a run as the UI does, which leaves out the tag of the backfill."""
    first = instance.get_run_by_id(run_id)
    assert first is not None
    job = definitions(config).resolve_job_def("restore__c")
    job = job.get_subset(asset_selection=frozenset({topic_of(config).key("restored")}))
    tags = {"dagster/root_run_id": run_id, "dagster/parent_run_id": run_id, RETRIES_TAG: "0"}
    again = instance.create_run_for_job(
        job, run_config=first.run_config, tags=tags, parent_run_id=run_id, root_run_id=run_id
    )
    execute_run(InMemoryJob(job), again, instance)


def hour(config: ConnectorConfig, number: int) -> str:
    return topic_of(config).hours.key(NOON + number * HOUR)


def explain(result: dg.ExecuteInProcessResult) -> str:
    [failed] = result.get_step_failure_events()
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    return str(data.description)


def values(config: ConnectorConfig, backfill: str) -> list[bytes]:
    records: list[bytes] = records_of(config.kafka, f"{config.topics[0]}.replay-{backfill}").column("value").to_pylist()
    return records


def test_picked_hours_of_a_backfill_lie_in_one_new_topic_in_their_order(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    backfill = {"dagster/backfill": uuid4().hex[:8]}
    results = [restore(config, instance, hour(config, number), **backfill) for number in (0, 2)]
    assert [result.success for result in results] == [True, True]
    assert values(config, *backfill.values()) == [b"0", b"2"]
    key = topic_of(config).key("restored")
    for result in results:
        [metadata] = events(result, key)[None]
        assert (metadata["records"], metadata["verified"]) == (1, True)
    assert not instance.get_materialized_partitions(key)


def test_a_picked_day_is_restored_to_a_topic_of_the_run_where_there_is_no_backfill(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    result = restore(config, instance, hour(config, 0)[:10], "restore_days__c")
    assert result.success
    assert values(config, result.run_id[:8]) == [b"0", b"1", b"2"]


def test_an_hour_waits_for_those_before_it_until_they_are_executed_again(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    backfill = {"dagster/backfill": uuid4().hex[:8]}
    missing = restore(config, instance, hour(config, 0), **backfill, **{TOPIC_TAG: "no-such-topic"})
    assert "picked 0 topics" in explain(missing)
    refused = restore(config, instance, hour(config, 1), **backfill)
    assert f"{hour(config, 0)} is not restored yet (run {missing.run_id})" in explain(refused)
    with ClusterAdmin(config.kafka) as admin:
        assert not [topic for topic in admin.topics() if topic.endswith(backfill["dagster/backfill"])]

    instance.add_run_tags(missing.run_id, {TOPIC_TAG: config.topics[0]})
    execute_again(config, instance, missing.run_id)
    assert restore(config, instance, hour(config, 1), **backfill).success
    assert values(config, *backfill.values()) == [b"0", b"1"]
