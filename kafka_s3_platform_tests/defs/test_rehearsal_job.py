"""The job that rehearses every night: it succeeds if all came back, and fails with what did not."""

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.instance.work import find_work, name_work_jobs
from kafka_s3_platform.operate.defs.rehearsal import REHEARSAL_TIME
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, snapshot


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    return with_period(lab.archive([Sent(b"a"), Sent(b"b", timestamp=NOON + HOUR)]))


def with_period(config: ConnectorConfig) -> ConnectorConfig:
    return config.model_copy(update={"archive": config.archive.model_copy(update={"rehearsal_days": 7})})


def test_a_connector_with_a_period_has_the_job_and_its_schedule_and_no_other(lab: Lab) -> None:
    config = lab.connector()
    assert "rehearse__c" not in {job.name for job in definitions(config).resolve_all_job_defs()}
    schedule = definitions(with_period(config)).resolve_schedule_def("rehearse__c")
    assert (schedule.cron_schedule, schedule.job_name) == (REHEARSAL_TIME, "rehearse__c")


def test_the_job_rehearses_and_fails_where_something_does_not_come_back(
    config: ConnectorConfig, lab: Lab, instance: dg.DagsterInstance
) -> None:
    job = definitions(config).resolve_job_def("rehearse__c")
    good = job.execute_in_process(instance=instance)
    assert good.success
    assert find_work(good.dagster_run, name_work_jobs(["c"])) == {("c", "rehearse")}

    # The first rehearsal had the first hour, this one has the second.
    [_, segment] = sorted(snapshot(config).segments, key=lambda s: s.start_offset)
    lab.s3.delete_object(Bucket=config.store.bucket, Key=segment.key)
    bad = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not bad.success
    [failure] = [e for e in bad.all_events if e.is_step_failure]
    text = str(failure.step_failure_data.user_failure_data and failure.step_failure_data.user_failure_data.description)
    assert segment.key in text
    assert "The next rehearsal tries these hours again" in text
