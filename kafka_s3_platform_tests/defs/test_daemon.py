"""Two due topics, as Dagster's daemon finds them: its own code, a code server of its own, connector files on disk.

One of the files is broken, which is red and stops nothing.

`kafka-s3 archive` and runs whose processes are gone, or may be.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.defs.file_checks import FILES_KEY, name_file_check
from kafka_s3_platform.core.defs.processes import LIFE_SECONDS, PROCESS_TAG, extend_life
from kafka_s3_platform_tests.cli.conftest import (
    REPOSITORY,
    KafkaS3,
    parsed,
    write_connector,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import daemon_context, index_hours
from kafka_s3_platform_tests.support import Sent

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
    for config in load_connectors(folder, {}).connectors:
        index_hours(config, config.topics)
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


def killed_under_way(folder: KafkaS3) -> str:
    """Start an archive run, kill its process once it runs, and return the run's id."""
    home = str(folder.folder / "dagster")
    env = {**os.environ, "DAGSTER_HOME": home, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "archive", "c"]
    child = subprocess.Popen(command, cwd=folder.folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 180
    with dg.DagsterInstance.from_config(home) as instance:
        while not (started := instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    child.kill()
    child.wait(60)
    return started[0].run_id


def test_a_killed_archive_run_does_not_hold_its_topic(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"%d" % n) for n in range(20)])
    slowly = {"archive.records.per.second": "10"}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **slowly)
    killed = killed_under_way(kafka_s3)
    [archived] = parsed(kafka_s3("archive", "c", "--json"))["runs"]
    assert archived["totals"]["records"] == 20
    with dg.DagsterInstance.from_config(str(kafka_s3.folder / "dagster")) as instance:
        run = instance.get_run_by_id(killed)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.FAILURE


def test_a_run_on_another_host_is_named_with_when_it_ends_if_it_is_dead(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t")
    run_id = str(uuid4())
    elsewhere = {"run_id": run_id, "host": "elsewhere", "namespace": "", "processes": [[4711, 0.0]]}
    run = dg.DagsterRun("archive__c", run_id, status=dg.DagsterRunStatus.STARTED)
    with dg.DagsterInstance.from_config(str(kafka_s3.folder / "dagster")) as instance:
        instance.add_run(run.with_tags({PROCESS_TAG: json.dumps(elsewhere)}))
        extend_life(instance, run_id)
        found = kafka_s3("archive", "c")
        assert found.returncode == 75
        for words in (run_id, "process 4711 of host elsewhere", "UTC, such as this command, ends it"):
            assert words in found.stderr
        extend_life(instance, run_id, -LIFE_SECONDS - 1)
        assert run_id not in kafka_s3("archive", "c").stderr
        ended = instance.get_run_by_id(run_id)
    assert ended is not None
    assert ended.status == dg.DagsterRunStatus.FAILURE
