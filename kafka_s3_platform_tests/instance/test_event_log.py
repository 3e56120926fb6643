"""Dagster's event log in one file: what a run writes, and who writes at once."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.events.log import EventLogEntry

from kafka_s3_platform.operate.instance.event_log import OneFileEventLogStorage
from kafka_s3_platform_tests.conftest import REPOSITORY, present
from kafka_s3_platform_tests.instance.support import (
    HOURS,
    contiguous,
    make_line,
    make_materialization,
    materialize,
    open_home,
    topic,
)

KEYS = HOURS.get_partition_keys()
[CHECK] = contiguous.check_keys


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with open_home(home) as found:
        yield found


def folder(home: Path) -> Path:
    return home / ".dagster/storage/history/runs"


def files(home: Path) -> set[str]:
    return {path.name for path in folder(home).glob("*.db")}


def log_of(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """What happened in the run, as its page shows it."""
    entries = instance.all_logs(run_id)
    return [e.get_dagster_event().event_type_value if e.is_dagster_event else e.user_message for e in entries]


def statuses(instance: dg.DagsterInstance) -> list[str]:
    return [r.status.value for r in instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=10)]


def test_runs_share_one_file(instance: dg.DagsterInstance, home: Path) -> None:
    runs = [materialize(instance, 0), materialize(instance, 1, 3)]
    assert isinstance(instance.event_log_storage, OneFileEventLogStorage)
    assert files(home) == {"index.db"}
    assert instance.get_materialized_partitions(topic.key) == {KEYS[0], *KEYS[1:4]}
    assert statuses(instance) == ["SUCCEEDED", "SUCCEEDED"]
    for run_id in runs:
        log = log_of(instance, run_id)
        assert log[-1] == "PIPELINE_SUCCESS"
        assert log.index("STEP_START") < log.index("ASSET_MATERIALIZATION") < log.index("STEP_SUCCESS")
        assert instance.get_run_stats(run_id).steps_succeeded == 2


def test_a_run_is_told_as_dagsters_own_storage_tells_it(instance: dg.DagsterInstance, home: Path) -> None:
    with open_home(home.with_name("own"), "a file each") as other:
        told = log_of(other, materialize(other, 0, 2))
    assert log_of(instance, materialize(instance, 0, 2)) == told


@pytest.mark.parametrize(("first", "then"), [("a file each", "one file"), ("one file", "a file each")])
def test_the_hours_are_found_when_dagsters_own_storage_takes_the_place_or_leaves_it(
    home: Path, first: str, then: str
) -> None:
    with open_home(home, first) as before:
        materialize(before, 0)
    with open_home(home, then) as after:
        assert after.get_materialized_partitions(topic.key) == {KEYS[0]}


def test_who_watches_a_run_sees_what_another_process_writes(instance: dg.DagsterInstance, home: Path) -> None:
    run_id = str(uuid4())
    seen: list[str] = []
    is_complete = threading.Event()

    def see(entry: EventLogEntry, cursor: str) -> None:
        seen.append(entry.user_message)
        if len(seen) == 40:
            is_complete.set()

    instance.watch_event_logs(run_id, None, see)
    process = writer(home, [run_id, str(uuid4())], 20)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert is_complete.wait(30)
    assert [said for said in seen if said] == [str(number) for number in range(20)]
    instance.end_watch_event_logs(run_id, see)


WRITE = """
import sys, json
from pathlib import Path
from kafka_s3_platform_tests.instance.support import make_line, make_materialization, open_home
home, run_ids, count = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
from dagster import DagsterInstance
with DagsterInstance.from_config(str(home)) as instance:
    for number in range(count):
        for run_id in run_ids:
            instance.event_log_storage.store_event(make_line(run_id, number))
            instance.event_log_storage.store_event(make_materialization(run_id, number % 24, number))
            print(number, flush=True)
"""


def writer(home: Path, run_ids: list[str], count: int) -> "subprocess.Popen[str]":
    """A process that writes two events a number and run."""
    command = [sys.executable, "-W", "error", "-c", WRITE, str(home), json.dumps(run_ids), str(count)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def test_processes_write_at_once_and_one_is_killed(instance: dg.DagsterInstance, home: Path) -> None:
    """This process and three others write at once. What was written before a kill is there."""
    run_ids = [str(uuid4()) for _ in range(2)]
    killed = str(uuid4())
    processes = [writer(home, [run_id], 30) for run_id in run_ids]
    victim = writer(home, [killed], 100_000)
    written = [int(present(victim.stdout).readline()) for _ in range(10)]
    os.kill(victim.pid, signal.SIGKILL)
    for number in range(20):
        instance.event_log_storage.store_event(make_line("here", number))
        assert instance.get_materialized_partitions(topic.key)
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    written += [int(line) for line in victim.communicate()[0].splitlines()]
    for run_id in run_ids:
        assert [m for m in log_of(instance, run_id) if m.isdigit()] == [str(n) for n in range(30)]
    left = [m for m in log_of(instance, killed) if m.isdigit()]
    assert left[: len(written)] == [str(n) for n in written]
    assert len(left) <= len(written) + 1
    with sqlite3.connect(folder(home) / "index.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_slots_of_a_pool_are_not_given_twice(instance: dg.DagsterInstance) -> None:
    storage = instance.event_log_storage
    storage.set_concurrency_slots("pool", 2)
    claims = [storage.claim_concurrency_slot("pool", f"run {n}", "step") for n in range(4)]
    assert [claim.is_claimed for claim in claims] == [True, True, False, False]
    storage.free_concurrency_slots_for_run("run 0")
    assert storage.claim_concurrency_slot("pool", "run 2", "step").is_claimed
    assert not storage.claim_concurrency_slot("pool", "run 3", "step").is_claimed


def test_a_batch_is_stored_in_order(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    run_id = materialize(instance, 0, 23)
    assert instance.get_materialized_partitions(topic.key) == {*KEYS}
    log = log_of(instance, run_id)
    assert log.count("ASSET_MATERIALIZATION") == 24
    assert log.index("STEP_START") < log.index("ASSET_MATERIALIZATION") < log.index("STEP_SUCCESS")


COPY = """
    INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)
    SELECT run_id || i % 20, event, dagster_event_type, timestamp, step_key, asset_key, partition
    FROM event_logs, n WHERE run_id = ?
"""


def test_a_long_log_is_read_quickly(instance: dg.DagsterInstance, home: Path) -> None:
    """100,000 rows of other runs cost a page nothing."""
    other = str(uuid4())
    instance.event_log_storage.store_event(make_materialization(other, 0))
    with sqlite3.connect(folder(home) / "index.db") as database:
        database.execute(COPY, [other])
    database.close()
    run_id = materialize(instance, 1, 23)
    begun = time.process_time()
    assert len(instance.get_materialized_partitions(topic.key)) == 24
    assert log_of(instance, run_id)
    assert instance.get_run_stats(run_id).steps_succeeded == 2
    assert instance.get_latest_materialization_event(topic.key) is not None
    assert time.process_time() - begun < 1
