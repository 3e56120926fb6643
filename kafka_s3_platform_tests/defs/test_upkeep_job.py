"""The nightly upkeep and retention as Dagster runs them."""

from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs import jobs as module
from kafka_s3_platform.core.defs.jobs import UPKEEP_TIME, make_nightly_schedule, make_upkeep_job
from kafka_s3_platform.core.defs.resources import NoValues
from kafka_s3_platform.core.defs.retain import make_retain_job
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.support import NOON, Sent, connector, snapshot
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, archive_hour
from kafka_s3_platform_tests.upkeep.test_retain import merged, ruled

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    found = connector(lab.kafka, lab.store, "t")
    for number in range(5):
        archive_hour(found, DAY + number * HOUR, number)
    return found


def execute(config: ConnectorConfig, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return make_upkeep_job(config).execute_in_process(
        instance=instance, raise_on_error=False, resources={"io_manager": NoValues()}
    )


def test_a_run_keeps_the_index_up_and_says_what_it_did(config: ConnectorConfig) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = execute(config, instance)
        [output] = result.filter_events(lambda event: event.event_type_value == "STEP_OUTPUT")
    assert result.success
    metadata = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert metadata["merged_files"] == 10
    assert (metadata["new_files"], metadata["removed_files"]) == (2, 0)
    assert metadata["version"] == 12


def test_a_run_without_the_right_to_delete_fails_for_good_and_names_the_right(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "keep_up_index", lambda c, dry_run: keep_up_index(c, dry_run, timedelta()))
    with faulty_proxy(config.store.endpoint_url or "") as proxy, dg.DagsterInstance.ephemeral() as instance:
        proxy.refuse("DELETE", ".", 403, "AccessDenied")
        store = config.store.model_copy(update={"endpoint_url": proxy.endpoint})
        result = execute(config.model_copy(update={"store": store}), instance)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags[FAILURE_TAG] == "permanent"
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "s3:DeleteObject" in str(failure.step_failure_data.error)


def test_one_upkeep_of_a_connector_at_a_time_waits_for_no_other_run(config: ConnectorConfig) -> None:
    job = make_upkeep_job(config)
    [node] = job.graph.node_defs
    assert isinstance(node, dg.OpDefinition)
    assert node.pool == "upkeep__c"
    schedule = make_nightly_schedule(config, job, UPKEEP_TIME, dg.DefaultScheduleStatus.RUNNING)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 4 * * *", config.layout.timezone)
    assert schedule.job_name == "upkeep__c"


def test_the_job_of_retention_removes_what_the_rules_let_go(lab: Lab) -> None:
    config = ruled(lab.archive([Sent(b"a"), Sent(b"b", None, NOON + HOUR)]), ms=(("", 0),))
    job = make_retain_job([TopicAssets(config, lab.topic)])
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, resources={"io_manager": NoValues()})
        [output] = result.filter_events(lambda event: event.event_type_value == "STEP_OUTPUT")
    metadata = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert (metadata["expired_days"], metadata["expired_records"], metadata["removed_objects"]) == (1, 2, 2)
    assert snapshot(config).segments == ()


def test_the_job_of_retention_fails_where_a_day_is_damaged_and_names_it(lab: Lab) -> None:
    config = ruled(lab.archive([Sent(b"a")]), merged_ms=(("", 0),))
    merged(config)
    lab.put_object(snapshot(config).segments[0].key, b"other bytes")
    job = make_retain_job([TopicAssets(config, lab.topic)])
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False, resources={"io_manager": NoValues()})
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "the hours of 2026-01-01 stay" in str(failure.step_failure_data.error)
