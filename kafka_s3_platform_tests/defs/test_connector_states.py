"""What is told of each connector, sources too: whether it loads, its state and since when, its lag and last run."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dagster._core.remote_representation.external import RemoteSensor
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from kafka_s3_platform.operate.monitoring.lookout import HealthReport
from kafka_s3_platform.operate.monitoring.metrics import render_metrics
from kafka_s3_platform.operate.monitoring.overview import Overviews, load_all
from kafka_s3_platform.operate.monitoring.server import describe_health
from kafka_s3_platform.operate.monitoring.status_page import StatusPage, render_status_page
from kafka_s3_platform.operate.status.concerns import list_concerns
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import daemon_context
from kafka_s3_platform_tests.support import Sent

LOG = logging.getLogger(__name__)
SOURCE = {
    "name": "s",
    "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "topics.dir": "others",
}


@pytest.fixture
def folder(kafka_s3: KafkaS3, lab: Lab) -> KafkaS3:
    """A sink `c`, whose topic has a record that is not archived, a source `s`, and a file that does not load."""
    lab.create_topic()
    lab.produce([Sent()])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **SOURCE)
    connectors = kafka_s3.folder / "connectors"
    source = json.loads((connectors / "c.json").read_text())
    del source["topics"]
    (connectors / "s.json").write_text(json.dumps(source))
    (connectors / "broken.json").write_text('{"name": "broken"')
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    return kafka_s3


@pytest.fixture
def daemon(folder: KafkaS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceProcessContext]:
    """The daemon's view of the folder's connectors, in the home that commands use."""
    settings = (folder.folder / "dagster" / "dagster.yaml").read_text()
    with daemon_context(folder.folder, settings, monkeypatch) as context:
        yield context


def list_rows(kafka_s3: KafkaS3) -> dict[str, dict[str, Any]]:
    rows = json.loads(kafka_s3("list", "--json", status=1).stdout)["connectors"]
    return {row["name"] or "?": row for row in rows}


def states(kafka_s3: KafkaS3) -> tuple[str, str]:
    """The states of the sink and of the source."""
    rows = list_rows(kafka_s3)
    return rows["c"]["state"], rows["s"]["state"]


def find_sensor(daemon: WorkspaceProcessContext, name: str) -> RemoteSensor:
    [location] = daemon.create_request_context().code_locations
    [repository] = location.get_repositories().values()
    return repository.get_sensor(name)


def run_daemon(daemon: WorkspaceProcessContext) -> None:
    """What the daemon does now about sensors, and about the schedules of the last day."""
    assert not [error for error in execute_sensor_iteration(daemon, LOG, None, None) if error]
    now = datetime.now(timezone.utc)
    assert not [error for error in launch_scheduled_runs(daemon, LOG, now, {}, max_catchup_runs=1) if error]


def test_a_connector_is_as_what_requests_its_runs(
    folder: KafkaS3, daemon: WorkspaceProcessContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list_rows(folder)
    assert (rows["c"]["type"], rows["c"]["lag"], rows["c"]["last_run"]) == ("sink", 1, None)
    assert (rows["s"]["type"], rows["s"]["lag"], rows["s"]["triggers"]) == ("source", None, [])
    assert {row["status"]: "state" in row for row in rows.values()} == {"loaded": True, "refused": False}
    assert states(folder) == ("PAUSED", "PAUSED"), "Dagster has evaluated nothing yet"

    began = datetime.now(timezone.utc).replace(microsecond=0)
    run_daemon(daemon)
    rows = list_rows(folder)
    assert {each["name"]: each["is_on"] for each in rows["s"]["triggers"]} == {"folders": True}
    assert {each["name"] for each in rows["c"]["triggers"]} == {
        *("lag", "folders", "hourly", "daily", "verify", "upkeep")
    }
    assert states(folder) == ("RUNNING", "PAUSED"), "nobody has turned the polls of the source on"
    assert datetime.fromisoformat(rows["c"]["since"]) >= began

    lag, poll = find_sensor(daemon, "lag__c"), find_sensor(daemon, "poll__s")
    daemon.instance.start_sensor(poll)
    daemon.instance.stop_sensor(lag.get_remote_origin_id(), lag.selector_id, lag)
    assert states(folder) == ("RUNNING", "RUNNING"), "the schedule goes on"
    shown = {line.split()[0]: line for line in folder("list").stdout.splitlines()}
    assert [word in shown["c"] for word in (" lag ", " RUNNING ")] == [True, True]
    assert "refused: cannot be read" in shown["?"]

    monkeypatch.setattr("kafka_s3_platform.operate.instance.history.TICK_PATIENCE", timedelta(days=-1))
    assert states(folder) == ("RUNNING", "UNASSIGNED"), "the daemon has gone since"
    daemon.instance.start_sensor(lag)
    assert states(folder) == ("UNASSIGNED", "UNASSIGNED")
    concerns = look(folder, monkeypatch).concerns
    assert [concern.place for concern in concerns if concern.check == "dagster"] == ["c", "s"]
    assert "nothing requests runs of 2 connectors" in folder("health", status=1).stdout


def look(kafka_s3: KafkaS3, monkeypatch: pytest.MonkeyPatch) -> HealthReport:
    monkeypatch.setenv("DAGSTER_HOME", str(kafka_s3.folder / "dagster"))
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(kafka_s3.folder / "connectors"))
    configs, broken = load_all()
    return HealthReport(tuple(Overviews(20.0).take(configs, broken)), looked_at=datetime.now(timezone.utc))


def test_a_failed_restore_of_a_source_is_counted_until_one_succeeds_or_it_is_deleted(
    folder: KafkaS3, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.folder / "connectors" / "broken.json").unlink()
    folder("archive", "c", "--until-now", status=0)
    before = folder("health", status=0).stdout
    assert "nothing is at risk: 1 topic" in before
    assert [line.split()[0] for line in before.splitlines() if line.endswith("  s")] == ["source"]

    lines = b'{"n": 1}\n{"n": \n'
    key = f"others/{lab.topic}/partition=0/{lab.topic}+0+0000000000.json"
    lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=lines)
    restore = ("restore", "s", "--topic", lab.topic, "--to-topic", f"{lab.topic}.copy", "--create-topic")
    folder(*restore, status=1)
    told = folder("health", status=1).stdout
    assert "0 of 1 topic at risk, 0 not known; 1 failed run" in told
    assert folder("health", "s", status=1).stdout.splitlines()[2].startswith("source ")
    rows = {row["name"]: row for row in json.loads(folder("list", "--json", status=0).stdout)["connectors"]}
    assert (rows["s"]["state"], rows["c"]["state"]) == ("FAILED", "PAUSED")
    assert rows["s"]["since"] == rows["s"]["last_run"]["ended_at"]
    assert (rows["s"]["last_run"]["kind"], rows["s"]["last_run"]["is_success"]) == ("restore", False)

    report = look(folder, monkeypatch)
    [concern] = list_concerns(report.connectors)
    assert "(restore) failed at " in concern.text
    assert " by KS-" in concern.text
    assert describe_health(report)["reasons"] == [{"check": "runs", "reason": concern.text}]
    page = render_status_page(StatusPage(report, "http://dagster", "/hours", report.connectors[0].looked_at, 30.0))
    assert "<title>1 failed run - Kafka-S3</title>" in page
    assert re.search(
        r'id="s"><a [^>]*>[▾▸] s</a> <span class="badge bad">FAILED</span> <span class="soft">\n?source; since', page
    )
    assert 'kafka_s3_failed_runs{connector="s"} 1.0' in render_metrics(report, "")[0].decode()

    lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=lines.replace(b'{"n": \n', b'{"n": 2}\n'))
    folder(*restore, status=0)
    assert "nothing is at risk: 1 topic" in folder("health", status=0).stdout
