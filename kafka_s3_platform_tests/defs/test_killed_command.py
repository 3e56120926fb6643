"""`kafka-s3 archive` and runs whose processes are gone, or may be."""

import json
import os
import subprocess
import sys
import time
from uuid import uuid4

import dagster as dg
import pytest

from kafka_s3_platform.defs.processes import LIFE_SECONDS, PROCESS_TAG, extend_life
from kafka_s3_platform_tests.cli.conftest import (
    REPOSITORY,
    KafkaS3,
    parsed,
    write_connector,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import Sent

pytestmark = pytest.mark.integration


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
