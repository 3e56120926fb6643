"""The processes of a server, on Postgres: code location, daemon and two webservers, as `deploy/` has them.

A topic is archived by the sensors and by a backfill over which the daemon is killed, and restored, twice at once.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform_tests.conftest import REPOSITORY, Lab, fresh_bucket
from kafka_s3_platform_tests.dagster_ui import DONE, ENDED, LAUNCH, LAUNCH_RUN, STATUS, TERMINATE, DagsterUI
from kafka_s3_platform_tests.deploy.servers import Servers, start_code_location, wait_for
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import HOUR, Sent, produce

# Five runs with a JVM each: minutes on a small machine.
pytestmark = pytest.mark.long

RUNS = """
{ runsOrError {
    ... on Runs { results { runId status jobName startTime endTime assetSelection { path } tags { key value } } }
} }"""


@pytest.fixture
def logs_bucket(lab: Lab) -> Iterator[str]:
    """The bucket for what runs print."""
    with fresh_bucket(lab.s3) as name:
        yield name


@pytest.fixture
def servers(tmp_path: Path, database: str, lab: Lab, logs_bucket: str) -> Iterator[Servers]:
    """The code location runs; its connectors are in `connectors`."""
    assert lab.store.access_key_id is not None
    assert lab.store.secret_access_key is not None
    (tmp_path / "connectors").mkdir()
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "deploy/dagster.yaml").read_text())
    workspace = (REPOSITORY / "deploy/workspace.yaml").read_text()
    (tmp_path / "workspace.yaml").write_text(workspace.replace("/run/kafka-s3", str(tmp_path)))
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_COMPUTE_LOGS_BUCKET": logs_bucket,
        "AWS_ENDPOINT_URL_S3": str(lab.store.endpoint_url),
        "AWS_REGION": lab.store.region,
        "AWS_ACCESS_KEY_ID": lab.store.access_key_id.get_secret_value(),
        "AWS_SECRET_ACCESS_KEY": lab.store.secret_access_key.get_secret_value(),
        "KAFKA_S3_CONNECTORS": str(tmp_path / "connectors"),
        "KAFKA_S3_AUTOSTART": "1",
    }
    with ExitStack() as opened:
        yield Servers(tmp_path, env, opened)


def write_connector(servers: Servers, kafka: KafkaSettings, store: StoreSettings, topic: str, first: datetime) -> None:
    folder = servers.home / "connectors"
    (folder / "worker.properties").write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")
    keys = {
        "name": "c",
        "topics": topic,
        "timezone": "UTC",
        "archive.start.hour": f"{first:%Y-%m-%dT%H:%M}",
        "s3.bucket.name": store.bucket,
        "store.url": str(store.endpoint_url),
        "s3.region": store.region,
        "archive.allowed.lateness.ms": "60000",
    }
    (folder / "c.json").write_text(json.dumps(keys))


def list_runs(ui: DagsterUI, group: str) -> Sequence[Mapping[str, Any]]:
    runs = ui.query(RUNS, {})["runsOrError"]["results"]
    return [run for run in runs if any(key["path"][1] == group for key in run["assetSelection"] or ())]


def wait_for_end(ui: DagsterUI, group: str, count: int) -> Sequence[Mapping[str, Any]]:
    def look() -> Sequence[Mapping[str, Any]] | None:
        runs = list_runs(ui, group)
        return runs if len(runs) >= count and all(run["status"] in ENDED for run in runs) else None

    found: Sequence[Mapping[str, Any]] = wait_for(look, f"{count} runs of {group}")
    return found


def restore(ui: DagsterUI, topic: str, hours: Sequence[str], to_topic: str, **how: Any) -> None:
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "kafka_s3_platform",
        "jobName": "restore__c",
        "assetSelection": [{"path": ["c", "restored", topic]}],
    }
    asked = {"what": {"hours": hours}, "to": {"topic": to_topic}, "how": how}
    config = {"ops": {"restored__c": {"config": asked}}}
    params = {"selector": selector, "runConfigData": config}
    answer = ui.query(LAUNCH_RUN, {"params": params})["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer


def test_an_hour_is_archived_and_restored_while_a_daemon_is_killed(
    servers: Servers, lab: Lab, logs_bucket: str
) -> None:
    first = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 3 * HOUR
    produce(
        lab.kafka,
        lab.create_topic(),
        [Sent(timestamp=first + timedelta(minutes=minute)) for minute in range(0, 120, 5)],
    )
    write_connector(servers, lab.kafka, lab.store, lab.topic, first)
    start_code_location(servers)
    daemon = servers.start_daemon()
    one, other = servers.start_webserver(), servers.start_webserver()

    archived = wait_for_end(one, "hourly", 1)
    assert {run["status"] for run in archived} == {"SUCCESS"}
    assert wait_for(lambda: list_runs(other, "hourly"), "the other webserver")
    printed = lab.s3.list_objects_v2(Bucket=logs_bucket)["Contents"]
    assert any(archived[0]["runId"] in found["Key"] for found in printed)

    hours = [f"{first + n * HOUR:%Y-%m-%d-%H:%M}" for n in range(2)]
    params = {"assetSelection": [{"path": ["c", "hourly", lab.topic]}], "partitionNames": hours}
    backfill = one.query(LAUNCH, {"params": params})["launchPartitionBackfill"]["backfillId"]
    daemon.kill()
    daemon.wait()
    servers.start_daemon()

    def is_done() -> bool:
        found = other.query(STATUS, {"id": backfill})["partitionBackfillOrError"]
        return found["status"] in DONE or [run["status"] for run in found["runs"]] == ["SUCCESS"]

    wait_for(is_done, "the backfill")
    assert {run["status"] for run in wait_for_end(one, "hourly", 2)} == {"SUCCESS"}

    targets = [lab.create(f"{lab.topic}-{n}") for n in range(3)]
    restore(one, lab.topic, hours, targets[0])
    wait_for_end(other, "restored", 1)
    # Dagster knows the pool from now on: of runs that are queued before, it starts several.
    for ui, target in zip((one, other), targets[1:], strict=True):
        restore(ui, lab.topic, hours, target)
    restored = sorted(wait_for_end(other, "restored", 3), key=lambda run: float(run["startTime"]))
    # which a restore is only if it found in its target what the archive has
    assert [run["status"] for run in restored] == ["SUCCESS"] * 3
    assert restored[1]["endTime"] <= restored[2]["startTime"], "a pool holds one restore of a connector"


def test_a_restore_that_is_terminated_in_the_ui_is_finished_by_another_run(servers: Servers, lab: Lab) -> None:
    """Twice, at other moments: each record is there once, in order."""
    first = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 3 * HOUR
    produce(
        lab.kafka,
        lab.create_topic(),
        [Sent(b"%d" % (n // 2), b"k", first + timedelta(seconds=n)) for n in range(900)],
    )
    write_connector(servers, lab.kafka, lab.store, lab.topic, first)
    start_code_location(servers)
    servers.start_daemon()
    ui = servers.start_webserver()
    assert {run["status"] for run in wait_for_end(ui, "hourly", 1)} == {"SUCCESS"}
    target, hours = lab.create(f"{lab.topic}-restored"), [f"{first:%Y-%m-%d-%H:%M}"]

    def has(end: int) -> bool:
        with ClusterAdmin(lab.kafka) as admin:
            return admin.frontiers(target, [0])[0].high_watermark > end

    for number, end in enumerate((0, 500), 1):
        restore(ui, lab.topic, hours, target, restore_id="r", records_per_second=60.0)
        wait_for(partial(has, end), f"more than {end} offsets")
        [under_way] = [run for run in list_runs(ui, "restored") if run["status"] not in ENDED]
        answer = ui.query(TERMINATE, {"id": under_way["runId"]})["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer
        assert [run["status"] for run in wait_for_end(ui, "restored", number)] == ["CANCELED"] * number
    restore(ui, lab.topic, hours, target, restore_id="r")
    ended = wait_for_end(ui, "restored", 3)
    assert sorted(run["status"] for run in ended) == ["CANCELED", "CANCELED", "SUCCESS"]
    was, now = (records_of(lab.kafka, topic)["value"] for topic in (lab.topic, target))
    assert now.equals(was)
