"""Two due topics, as Dagster's daemon finds them: its own code, a code server of its own, connector files on disk.

One of the files is broken, which is red and stops nothing.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from kafka_s3_platform.config.files import load_connectors
from kafka_s3_platform.defs.file_checks import FILES_KEY, name_file_check
from kafka_s3_platform.defs.topic import list_topic_assets
from kafka_s3_platform_tests.cli.conftest import (
    KafkaS3,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.compact.test_due_topics import index_an_hour
from kafka_s3_platform_tests.defs.running import daemon_context

pytestmark = pytest.mark.integration

MIDNIGHT = datetime(2026, 3, 1, tzinfo=timezone.utc)
LOG = logging.getLogger(__name__)


@pytest.fixture
def daemon(
    kafka_s3_without_spark: KafkaS3, lab: Lab, dagster_yaml: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkspaceProcessContext]:
    """The daemon's view of a home where connector `c` archives two topics; each has a day to compact."""
    topics = [lab.create(f"{lab.topic}-{n}") for n in range(2)]
    late = {"timezone": "UTC", "archive.allowed.lateness.ms": "60000"}
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, ",".join(topics), **late)
    folder = kafka_s3_without_spark.folder / "connectors"
    (folder / "bad.json").write_text('{"name": "bad"')
    for topic in list_topic_assets(load_connectors(folder, {}).connectors):
        index_an_hour(topic, MIDNIGHT - timedelta(hours=12))
    with daemon_context(kafka_s3_without_spark.folder, dagster_yaml, monkeypatch) as context:
        yield context


def schedule(daemon: WorkspaceProcessContext, until: datetime) -> None:
    """What the daemon does about schedules up to then; an error of a tick is raised."""
    errors = [error for error in launch_scheduled_runs(daemon, LOG, until, {}, max_catchup_runs=1) if error]
    assert not errors


def asked(daemon: WorkspaceProcessContext, by: dict[str, str]) -> list[set[str]]:
    """The assets of each run that was asked for and is queued now."""
    runs = daemon.instance.get_runs(dg.RunsFilter(tags=by))
    assert {run.status for run in runs} <= {dg.DagsterRunStatus.QUEUED}
    return [{key.to_user_string() for key in run.asset_selection or ()} for run in runs]


def test_each_sensor_and_each_schedule_launches_one_run_for_both_topics(
    daemon: WorkspaceProcessContext, topic_name: str
) -> None:
    both = {group: [{f"c/{group}/{topic_name}-{n}" for n in range(2)}] for group in ("hourly", "daily")}
    assert not [error for error in execute_sensor_iteration(daemon, LOG, None, None) if error]
    for name, group in (("lag__c", "hourly"), ("folders__c", "daily")):
        assert asked(daemon, {"dagster/sensor_name": name}) == both[group]
    for file, status in (("c", "SUCCEEDED"), ("bad", "FAILED")):
        check = dg.AssetCheckKey(FILES_KEY, name_file_check(Path(f"{file}.json")))
        [told] = daemon.instance.event_log_storage.get_asset_check_execution_history(check, limit=10)
        assert told.status.value == status

    daemon.instance.wipe()  # else the hours would be those of the sensors' runs
    schedule(daemon, MIDNIGHT)
    schedule(daemon, MIDNIGHT + timedelta(hours=2))
    schedule(daemon, MIDNIGHT + timedelta(hours=2, seconds=1))
    for name, group in (("hourly__c", "hourly"), ("daily__c", "daily")):
        assert asked(daemon, {"dagster/schedule_name": name}) == both[group]
