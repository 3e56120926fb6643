"""The retention sensor on a real instance: runs go, hours and days stay, and nothing is asked for again."""

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.operate.defs import retention_sensor as module
from kafka_s3_platform.operate.defs.retention_sensor import make_retention_sensor, read_retention_days
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    ago,
    asked_by,
    connector_of_this_hour,
    definitions,
    launch,
    open_instance,
    tick,
    topic_of,
)
from kafka_s3_platform_tests.instance.support import open_home
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, compact_day

HOURS = (50, 49, 3, 2, 1)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A topic with records of two hours some days ago, and of the last three."""
    lab.create_topic()
    found = connector_of_this_hour(lab.kafka, lab.store, lab.topic)
    lab.produce([Sent(timestamp=ago(found, h) + timedelta(minutes=1)) for h in HOURS])
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def instance(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_home(home) as found:
        yield found


def clean(config: ConnectorConfig, cursor: str = "") -> tuple[str, str]:
    """What a tick of the sensor says, and its cursor."""
    sensor = make_retention_sensor(dg.DefaultSensorStatus.STOPPED)
    with dg.build_sensor_context(instance=open_instance(), cursor=cursor, definitions=definitions(config)) as context:
        found = sensor(context)
        assert isinstance(found, dg.SkipReason)
        return found.skip_message or "", context.cursor or ""


def archive_and_compact(config: ConnectorConfig) -> None:
    """Have runs report all that is archived, until nothing is due."""
    archived(config, [ago(config, h) for h in range(max(HOURS), 0, -1)])
    while asked := [*(tick(config, "lag__c").run_requests or ())]:
        assert all(launch(config, each).success for each in asked)
    while asked := [*(tick(config, "folders__c").run_requests or ())]:
        for each in asked:
            first, last = (
                date.fromisoformat(each.tags[f"dagster/asset_partition_range_{end}"]) for end in ("start", "end")
            )
            for n in range((last - first).days + 1):
                request = CompactRequest(config, config.topics[0], first + timedelta(days=n), f"run-{uuid4()}")
                compact_day(request, InProcessRunner())
            assert launch(config, each).success


def age(home: Path, run_ids: list[str], days: int = 31) -> None:
    """Have runs and observations end that long ago, as far as Dagster knows."""
    folder = home / ".dagster/storage/history"
    with sqlite3.connect(folder / "runs.db") as database:
        for column in ("create_timestamp", "update_timestamp"):
            for run_id in run_ids:
                sql = f"UPDATE runs SET {column} = datetime({column}, ?) WHERE run_id = ?"  # noqa: S608 - of here
                database.execute(sql, [f"-{days} days", run_id])
    database.close()
    with sqlite3.connect(folder / "runs/index.db") as database:
        sql = "UPDATE event_logs SET timestamp = datetime(timestamp, ?) WHERE dagster_event_type = 'ASSET_OBSERVATION'"
        database.execute(sql, [f"-{days} days"])
    database.close()


def count_rows(home: Path) -> Mapping[str, int]:
    """The event rows by the runs that they belong to."""
    with sqlite3.connect(home / ".dagster/storage/history/runs/index.db") as database:
        rows = database.execute("SELECT run_id, count(*) FROM event_logs GROUP BY run_id").fetchall()
    database.close()
    return dict(rows)


def shown(config: ConnectorConfig) -> dict[tuple[str, str | None], list[Any]]:
    """What the pages of the topic's hours and days show."""
    found: dict[tuple[str, str | None], list[Any]] = {}
    for group in ("hourly", "daily"):
        key = topic_of(config).key(group)
        for record in reversed(open_instance().fetch_materializations(key, limit=1000).records):
            if record.partition_key is not None:
                told = record.asset_materialization
                assert told is not None
                found[group, record.partition_key] = [record.timestamp, convert_metadata(told.metadata)]
    return found


def requests(config: ConnectorConfig) -> list[dg.RunRequest]:
    """Everything that sensors and schedules ask for."""
    ticked = [tick(config, name) for name in ("lag__c", "folders__c")]
    scheduled = [asked_by(config, name) for name in ("hourly__c", "daily__c")]
    return [asked for found in (*(t.run_requests or () for t in ticked), *scheduled) for asked in found]


def test_old_runs_go_their_hours_and_days_stay_and_nothing_is_asked_for_again(
    config: ConnectorConfig, instance: dg.DagsterInstance, home: Path
) -> None:
    archive_and_compact(config)
    observed = dg.AssetObservation(topic_of(config).key("kafka"), metadata={"lag": 4})
    for _ in range(3):
        instance.report_runless_asset_event(observed)
    before = shown(config)
    assert {key for group, key in before if group == "hourly"} >= {
        topic_of(config).hours.key(ago(config, h)) for h in HOURS
    }
    assert any(group == "daily" for group, _ in before)
    assert not requests(config)
    runs = [run.run_id for run in instance.get_runs()]
    age(home, runs, days=29)
    assert clean(config)[0].startswith("0 runs deleted")
    assert len(instance.get_runs()) == len(runs) > 1
    age(home, runs, days=2)
    assert clean(config)[0].startswith(f"{len(runs)} runs deleted")
    assert not instance.get_runs()
    assert shown(config) == before
    assert count_rows(home) == {"": len(before) + 1}
    [lag] = instance.fetch_observations(topic_of(config).key("kafka"), limit=10).records
    assert lag.asset_observation == observed
    for group in ("hourly", "daily"):
        shown_keys = instance.get_materialized_partitions(topic_of(config).key(group))
        assert shown_keys == {key for of, key in before if of == group}
    assert not requests(config)


def test_runs_of_others_and_runs_under_way_stay(
    config: ConnectorConfig, instance: dg.DagsterInstance, home: Path
) -> None:
    hourly = topic_of(config).key("hourly")
    done, failed = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
    kept = [
        dg.DagsterRun("job_of_another_team", str(uuid4()), status=done),
        dg.DagsterRun("__ASSET_JOB", str(uuid4()), status=done, asset_selection=frozenset([dg.AssetKey("other")])),
        dg.DagsterRun("archive__c", str(uuid4()), status=dg.DagsterRunStatus.STARTED),
    ]
    gone = [
        dg.DagsterRun("archive__c", str(uuid4()), status=failed),
        dg.DagsterRun("__ASSET_JOB", str(uuid4()), status=failed, asset_selection=frozenset([hourly])),
    ]
    for run in (*kept, *gone):
        instance.add_run(run)
    age(home, [run.run_id for run in (*kept, *gone)])
    told, cursor = clean(config)
    assert told.startswith("2 runs")
    assert {run.run_id for run in instance.get_runs()} == {run.run_id for run in kept}
    assert clean(config, cursor)[0].startswith("0 runs deleted")


def test_a_tick_is_bounded_and_the_next_one_goes_on(
    config: ConnectorConfig, instance: dg.DagsterInstance, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [dg.DagsterRun("archive__c", str(uuid4()), status=dg.DagsterRunStatus.SUCCESS) for _ in range(3)]
    for run in runs:
        instance.add_run(run)
    age(home, [run.run_id for run in runs])
    with monkeypatch.context() as changed:
        changed.setattr(module, "TICK_SECONDS", -1.0)
        told, cursor = clean(config)
    assert told.endswith("the next tick goes on")
    assert len(instance.get_runs()) == 3
    assert clean(config, cursor)[0].startswith("3 runs")


def test_a_run_that_cannot_be_deleted_is_told_and_holds_up_no_other(
    config: ConnectorConfig, instance: dg.DagsterInstance, home: Path
) -> None:
    runs = [dg.DagsterRun("archive__c", str(uuid4()), status=dg.DagsterRunStatus.SUCCESS) for _ in range(2)]
    for run in runs:
        instance.add_run(run)
    age(home, [run.run_id for run in runs])
    key = topic_of(config).key("hourly").to_string()
    with sqlite3.connect(home / ".dagster/storage/history/runs/index.db") as database:
        sql = "INSERT INTO event_logs (run_id, event, dagster_event_type, asset_key, partition) VALUES (?, ?, ?, ?, ?)"
        database.execute(sql, [runs[0].run_id, "no JSON", "ASSET_MATERIALIZATION", key, "2026-01-01-00:00"])
    database.close()
    assert clean(config)[0].startswith("1 run ")
    assert [run.run_id for run in instance.get_runs()] == [runs[0].run_id]
    with pytest.raises(ValueError, match="Expecting value"):
        clean(config)


def test_backfills_go_after_their_runs(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    for name, topic in (("ours", topic_of(config).key("hourly")), ("others", dg.AssetKey("other"))):
        for status in (BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.REQUESTED):
            instance.add_backfill(
                PartitionBackfill(
                    f"{name}{status.value}", status, False, {}, 0.0, asset_selection=[topic], partition_names=[]
                )
            )
    with_run = dg.DagsterRun("__ASSET_JOB", str(uuid4()), tags={"dagster/backfill": "oursCOMPLETED_SUCCESS"})
    instance.add_run(with_run)
    clean(config)
    assert len(instance.get_backfills()) == 4
    instance.delete_run(with_run.run_id)
    clean(config)
    left = {backfill.backfill_id for backfill in instance.get_backfills()}
    assert left == {"oursREQUESTED", "othersCOMPLETED_SUCCESS", "othersREQUESTED"}


def test_the_environment_says_how_long(config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_retention_days({}) == 30
    assert read_retention_days({"KAFKA_S3_RUN_RETENTION_DAYS": "7"}) == 7
    with pytest.raises(ConfigError, match="KAFKA_S3_RUN_RETENTION_DAYS: 'a week' is no number of days"):
        read_retention_days({"KAFKA_S3_RUN_RETENTION_DAYS": "a week"})
    monkeypatch.setenv("KAFKA_S3_RUN_RETENTION_DAYS", "0")
    assert clean(config)[0] == "KAFKA_S3_RUN_RETENTION_DAYS is 0: all runs are kept"
