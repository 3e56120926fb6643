"""Runs whose processes are killed, by really killing them.

What the `dagster.yaml` of this project says to Dagster.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType

from kafka_s3_platform.core.defs import processes
from kafka_s3_platform.core.defs.processes import LIFE_SECONDS, PROCESS_TAG, extend_life, keep_alive, make_process_tags
from kafka_s3_platform.core.defs.runs import Requests
from kafka_s3_platform.core.instance.tables import read_alive_until
from kafka_s3_platform.core.instance.work import make_request_tags
from kafka_s3_platform_tests.cli.conftest import REPOSITORY
from kafka_s3_platform_tests.conftest import copy_home
from kafka_s3_platform_tests.defs.slow import QUICK, SLOW, slow_job

Status = dg.DagsterRunStatus


def find_unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    return Requests(instance, [key]).list_unfinished(key)


@pytest.fixture
def home(tmp_path: Path, fresh_home: Path) -> Path:
    """The folder of an instance that processes share."""
    return copy_home(fresh_home, tmp_path / "dagster")


@contextmanager
def under_way(how: str, home: Path, instance: dg.DagsterInstance) -> Iterator[list[psutil.Process]]:
    """A run in a child process that has come to its slow step; yields all processes that execute it."""
    # not with -m: steps import the module by its name, which would be `__main__`
    script = "import sys; from kafka_s3_platform_tests.defs.slow import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(home), how]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 180
    while not instance.fetch_observations(SLOW, limit=1).records:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    found = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    try:
        yield found
    finally:
        for process in found:
            if process.is_running():
                process.kill()
        child.wait(60)


@pytest.mark.parametrize("how", ["in-process", "steps"])
def test_a_run_whose_processes_were_killed_ends_as_failed_and_says_so(how: str, home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance, under_way(how, home, instance) as executing:
        [run] = find_unfinished(instance, SLOW)
        assert run.status == Status.STARTED
        for process in executing:
            process.kill()
        psutil.wait_procs(executing[1:], 10)
        # this process has not fetched its exit status yet, as a launcher may not
        os.waitid(os.P_PID, executing[0].pid, os.WEXITED | os.WNOWAIT)
        assert find_unfinished(instance, SLOW) == []
        stored = instance.get_run_by_id(run.run_id)
        assert stored is not None
        assert stored.status == Status.FAILURE
        [said] = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        assert "was killed" in str(said.user_message or said.message)
        assert str(executing[0].pid) in str(said.user_message or said.message)


def test_a_run_goes_on_when_the_process_of_one_of_its_steps_has_ended(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance, under_way("steps", home, instance):
        assert instance.get_latest_materialization_event(QUICK)
        assert [run.status for run in find_unfinished(instance, SLOW)] == [Status.STARTED]


def add_run(instance: dg.DagsterInstance, **process: object) -> str:
    """A run under way, with its process tag changed as given."""
    run = instance.create_run_for_job(slow_job(), asset_selection=frozenset([SLOW]), status=Status.STARTED)
    known = json.loads(make_process_tags(run.run_id)[PROCESS_TAG])
    instance.add_run_tags(run.run_id, {PROCESS_TAG: json.dumps({**known, **process})})
    return run.run_id


def test_a_process_that_got_the_pid_of_a_killed_one_is_not_taken_for_it(instance: dg.DagsterInstance) -> None:
    me = psutil.Process()
    alive = add_run(instance, processes=[[me.pid, me.create_time()]])
    add_run(instance, processes=[[me.pid, me.create_time() - 60]])
    assert [run.run_id for run in find_unfinished(instance, SLOW)] == [alive]


def test_a_run_of_a_container_that_is_gone_ends_once_it_has_said_nothing_for_long(instance: dg.DagsterInstance) -> None:
    """A recreated container has another host name, or the same one and its own pids."""
    elsewhere = [{"host": f"not-{socket.gethostname()}"}, {"namespace": "pid:[1]"}]
    alive = [add_run(instance, **other, processes=[[4711, 0.0]]) for other in elsewhere]
    gone = [add_run(instance, **other, processes=[[4711, 0.0]]) for other in elsewhere]
    for run_id in alive:
        extend_life(instance, run_id)
    for run_id in gone:
        extend_life(instance, run_id, -LIFE_SECONDS - 1)
    assert {run.run_id for run in find_unfinished(instance, SLOW)} == set(alive)
    assert {run.status for run in instance.get_runs() if run.run_id in gone} == {Status.FAILURE}


def test_a_run_says_that_it_is_alive_as_long_as_it_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BEAT_SECONDS", 0.05)
    with dg.DagsterInstance.from_config(str(home)) as instance, keep_alive(instance, "a-run"):
        first = read_alive_until(instance, "a-run")
        assert first is not None
        deadline = time.monotonic() + 60
        while read_alive_until(instance, "a-run") == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("how", ["in-process", "steps"])
def test_a_run_under_way_is_known_to_be_alive_on_other_hosts(how: str, home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance, under_way(how, home, instance):
        [run] = instance.get_runs()
        until = read_alive_until(instance, run.run_id)
        assert until is not None
        assert until > time.time() + LIFE_SECONDS / 2


def test_a_requested_run_that_was_killed_before_its_first_step_ends_too(instance: dg.DagsterInstance) -> None:
    request = make_request_tags({SLOW: "f"})
    made = [
        instance.create_run_for_job(slow_job(), asset_selection=frozenset([SLOW]), tags=tags).run_id
        for tags in (request, {})
    ]
    started = datetime.now(timezone.utc) - timedelta(seconds=LIFE_SECONDS + 1)
    for run_id in made:
        event = DagsterEvent(DagsterEventType.RUN_START.value, "archive__c")
        instance.run_storage.handle_run_event(run_id, event, started)
    assert [run.run_id for run in find_unfinished(instance, SLOW)] == made[1:], "the other may be anybody's"


def test_tags_that_a_re_execution_inherits_are_not_its_own(instance: dg.DagsterInstance) -> None:
    run_id = add_run(instance, run_id="the-run-before", processes=[[1, 0.0]])
    assert [run.run_id for run in find_unfinished(instance, SLOW)] == [run_id]


@pytest.mark.parametrize(
    "tag",
    ["", "[", "[" * 100_000, "5", "[]", "{}", '{"run_id": "RUN"}', '{"run_id": "RUN", "host": "HOST"}',
     '{"run_id": "RUN", "host": "HOST", "processes": [[1, 0.0]]}',
     '{"run_id": "RUN", "host": "HOST", "namespace": "", "processes": [5]}',
     '{"run_id": "RUN", "host": "HOST", "namespace": "", "processes": [["a", 1]]}',
     '{"run_id": "RUN", "host": "HOST", "namespace": "", "processes": [[1e999, 1]]}'],
)  # fmt: skip
def test_a_tag_that_is_none_of_ours_keeps_no_run_from_being_seen(home: Path, tag: str) -> None:
    """Whoever launches a run gives it tags, and every sensor and command looks at those of all runs."""
    run_id = "0b9b1b7e-5f0c-4f0e-9a35-5f3d4d0f6c1a"
    told = tag.replace("RUN", run_id).replace("HOST", socket.gethostname())
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.create_run_for_job(slow_job(), run_id=run_id, status=Status.STARTED, tags={PROCESS_TAG: told})
        assert find_unfinished(instance, SLOW) == [run]


def test_few_runs_start_at_once_and_a_backfill_takes_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # its paths are relative
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 4
    limits = [{"key": "dagster/backfill", "limit": 1}, {"key": "kafka_s3/restores", "limit": 2}]
    assert queue.tag_concurrency_limits == limits
