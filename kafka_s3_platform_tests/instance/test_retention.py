"""Old runs are deleted, and what they materialized stays: its id, its time, its metadata."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import sqlalchemy as db
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.event_api import EventLogRecord
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.snap import snapshot_from_execution_plan
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.instance.tables import delete_observations, delete_run, read_alive_until, set_alive_until
from kafka_s3_platform_tests.conftest import REPOSITORY, present
from kafka_s3_platform_tests.instance.support import DEFINITIONS, HOURS, contiguous, materialize, open_home, topic

KEYS = HOURS.get_partition_keys()
[CHECK] = contiguous.check_keys
NOW = datetime.now(timezone.utc)


@pytest.fixture(params=["one file", "a file each", "Postgres"])
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param == "Postgres":
        request.getfixturevalue("database")
    return tmp_path / str(request.param)


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with open_home(home, home.name) as found:
        yield found


def hours_of(instance: dg.DagsterInstance) -> Mapping[str | None, EventLogRecord]:
    """The newest materialization of each hour."""
    records = instance.fetch_materializations(topic.key, limit=1000).records
    return {record.partition_key: record for record in reversed(records)}


def told(record: EventLogRecord) -> list[object]:
    """Everything of a materialization but its run."""
    materialization = present(record.asset_materialization)
    return [record.storage_id, record.timestamp, materialization]


def test_what_a_deleted_run_materialized_stays(instance: dg.DagsterInstance, home: Path) -> None:
    runs = [materialize(instance, 0, 3), materialize(instance, 2, 5)]
    before = hours_of(instance)
    last = instance.get_latest_materialization_event(topic.key)
    logs = home / ".dagster/compute_logs" / runs[0]
    assert logs.is_dir()
    for run_id in runs:
        set_alive_until(instance, run_id, 1.0)
        delete_run(instance, run_id)
        assert read_alive_until(instance, run_id) is None
        assert instance.get_materialized_partitions(topic.key) == {*KEYS[:6]}
        assert instance.get_run_by_id(run_id) is None
        assert not (home / ".dagster/storage/history/runs" / f"{run_id}.db").exists()
    assert not logs.exists()
    after = hours_of(instance)
    assert [told(after[key]) for key in KEYS[:6]] == [told(before[key]) for key in KEYS[:6]]
    assert {record.run_id for record in after.values()} == {RUNLESS_RUN_ID}
    assert len(instance.fetch_materializations(topic.key, limit=1000).records) == 6
    newest = present(instance.get_latest_materialization_event(topic.key))
    assert last is not None
    assert newest.run_id == RUNLESS_RUN_ID
    assert newest.asset_materialization == last.asset_materialization
    [checked] = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=10)
    assert checked.status.value == "SUCCEEDED"
    assert checked.run_id == runs[1]


def test_a_newer_run_keeps_its_hours(instance: dg.DagsterInstance) -> None:
    old = materialize(instance, 0, 1)
    new = materialize(instance, 1, 2)
    delete_run(instance, old)
    assert {key: record.run_id for key, record in hours_of(instance).items()} == {
        KEYS[0]: RUNLESS_RUN_ID,
        KEYS[1]: new,
        KEYS[2]: new,
    }
    assert instance.get_asset_records([topic.key])[0].asset_entry.last_run_id == new


def test_a_run_without_events_is_deleted(instance: dg.DagsterInstance) -> None:
    run = dg.DagsterRun("j", str(uuid4()), status=dg.DagsterRunStatus.CANCELED)
    instance.add_run(run)
    delete_run(instance, run.run_id)
    delete_run(instance, run.run_id)
    assert instance.get_run_by_id(run.run_id) is None


def make_selected_run(instance: dg.DagsterInstance, *checks: dg.AssetCheckKey) -> dg.DagsterRun:
    """A run of the asset with these checks, as it is before it begins."""
    whole = DEFINITIONS.resolve_implicit_global_asset_job_def()
    job = whole.get_subset(asset_selection=frozenset([topic.key]), asset_check_selection=frozenset(checks))
    return instance.create_run(
        job_name=job.name,
        run_id=None,
        run_config={},
        status=dg.DagsterRunStatus.NOT_STARTED,
        tags={"dagster/partition": KEYS[0]},
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=None,
        execution_plan_snapshot=snapshot_from_execution_plan(create_execution_plan(job), job.get_job_snapshot_id()),
        job_snapshot=job.get_job_snapshot(),
        parent_job_snapshot=whole.get_job_snapshot(),
        asset_selection=frozenset([topic.key]),
        asset_check_selection=frozenset(checks),
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=None,
        job_code_origin=None,
        asset_graph=DEFINITIONS.resolve_asset_graph(),
    )


def count_snapshots(instance: dg.DagsterInstance) -> Mapping[str, int]:
    found = execute(instance, "SELECT snapshot_type, count(*) FROM snapshots GROUP BY snapshot_type")
    return {row[0]: row[1] for row in found}


def execute(instance: dg.DagsterInstance, *statements: str) -> Sequence[Any]:
    """Execute them in the storage of runs, and return the rows of the last one."""
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    with storage.connect() as connection:
        *_, found = [connection.execute(db.text(statement)) for statement in statements]
        return found.fetchall() if found.returns_rows else ()


def test_definitions_of_a_selection_go_with_the_last_run_that_has_it(instance: dg.DagsterInstance, home: Path) -> None:
    runs = [make_selected_run(instance), make_selected_run(instance), make_selected_run(instance, CHECK)]
    # the whole job has a definition too, which those of the selections name
    assert count_snapshots(instance) == {"PIPELINE": 3, "EXECUTION_PLAN": 2}
    delete_run(instance, runs[0].run_id)
    assert count_snapshots(instance) == {"PIPELINE": 3, "EXECUTION_PLAN": 2}
    delete_run(instance, runs[1].run_id)
    assert count_snapshots(instance) == {"PIPELINE": 2, "EXECUTION_PLAN": 1}
    assert runs[2].job_snapshot_id is not None
    assert instance.get_historical_job(runs[2].job_snapshot_id).name == runs[2].job_name
    again = make_selected_run(instance)
    assert again.job_snapshot_id == runs[0].job_snapshot_id
    assert count_snapshots(instance) == {"PIPELINE": 3, "EXECUTION_PLAN": 2}
    for run in (again, runs[2]):
        delete_run(instance, run.run_id)
    assert count_snapshots(instance) == {"PIPELINE": 1}


def test_a_run_is_deleted_after_a_kill_behind_its_definitions(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    run = make_selected_run(instance)

    def fail(_: str) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as changed:
        changed.setattr(instance.run_storage, "delete_run", fail)
        with pytest.raises(OSError, match="killed here"):
            delete_run(instance, run.run_id)
    assert count_snapshots(instance) == {"PIPELINE": 1}
    assert instance.get_run_by_id(run.run_id) is not None
    delete_run(instance, run.run_id)
    assert instance.get_run_by_id(run.run_id) is None


def test_a_run_whose_definitions_went_while_it_was_made_runs(instance: dg.DagsterInstance, home: Path) -> None:
    run = make_selected_run(instance)
    execute(instance, "UPDATE runs SET snapshot_id = NULL", "DELETE FROM snapshots")
    job = DEFINITIONS.resolve_implicit_global_asset_job_def().get_subset(asset_selection=frozenset([topic.key]))
    assert execute_run(InMemoryJob(job), run, instance).success
    assert instance.get_materialized_partitions(topic.key) == {KEYS[0]}


def test_the_definition_of_a_whole_job_stays(instance: dg.DagsterInstance, home: Path) -> None:
    runs = [materialize(instance, 0, 0), materialize(instance, 1, 1)]
    for left in ({"PIPELINE": 1, "EXECUTION_PLAN": 1}, {"PIPELINE": 1}):
        delete_run(instance, runs.pop())
        assert count_snapshots(instance) == left


def test_the_newest_observation_and_check_result_of_a_sensor_stay(instance: dg.DagsterInstance) -> None:
    key, check = dg.AssetKey(["c", "kafka", "t"]), "at_risk"
    for lag in range(3):
        instance.report_runless_asset_event(dg.AssetObservation(key, metadata={"lag": lag}))
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=key, check_name=check, passed=lag == 2, metadata={}, blocking=False)
        )
    assert delete_observations(instance, key, NOW - timedelta(days=1)) == 0
    assert delete_observations(instance, key, NOW + timedelta(days=1)) == 2
    [left] = instance.fetch_observations(key, limit=10).records
    assert present(left.asset_observation).metadata["lag"].value == 2
    results = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(key, check), 10)
    assert [result.status.value for result in results] == ["SUCCEEDED"]
    assert results[0].event is not None


def test_a_storage_that_is_no_sql_database_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(instance, "_event_storage", object())
        with pytest.raises(PermanentError, match="KAFKA_S3_RUN_RETENTION_DAYS=0"):
            delete_run(instance, "r")


KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from dagster import DagsterInstance
from kafka_s3_platform.core.instance import tables
from kafka_s3_platform_tests.instance.support import HOURS, topic
home, run_id, moment = sys.argv[1], sys.argv[2], sys.argv[3]
tables.EVENTS_AT_ONCE = 7

def delete(after):
    with DagsterInstance.from_config(home) as instance:
        instance.get_run_by_id(run_id)
        left = [after]
        def kill(*given):
            if moment != "commit" and not given[2].startswith(("DELETE", "UPDATE")):
                return
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        event.listen(Engine, moment, kill)
        tables.delete_run(instance, run_id)

kills = 0
while True:
    child = os.fork()
    if not child:
        delete(kills)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with DagsterInstance.from_config(home) as instance:
        assert instance.get_materialized_partitions(topic.key) == {*HOURS.get_partition_keys()}, kills
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert instance.get_run_by_id(run_id) is not None, kills
    kills += 1
print(kills)
"""


def test_a_kill_at_any_moment_loses_no_hour(instance: dg.DagsterInstance, home: Path) -> None:
    """Killed before the first commit, then before the second one, and so on, and always done again.

    On Postgres most statements are commits of their own.
    """
    run_id = materialize(instance, 0, 23)
    before = hours_of(instance)
    moment = "before_cursor_execute" if home.name == "Postgres" else "commit"
    command = [sys.executable, "-c", KILLED, str(home), run_id, moment]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= 5
    assert instance.get_run_by_id(run_id) is None
    after = hours_of(instance)
    assert [told(after[key]) for key in KEYS] == [told(before[key]) for key in KEYS]
