"""Runs whose processes are killed, by really killing them."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil
import pytest

from kafka_s3_platform.defs.processes import PROCESS_TAG, make_process_tags
from kafka_s3_platform.defs.runs import Requests
from kafka_s3_platform_tests.defs.slow import QUICK, SLOW, slow_job

Status = dg.DagsterRunStatus


def find_unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    return Requests(instance, [key]).list_unfinished(key)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of an instance that processes share."""
    (tmp_path / "dagster").mkdir()
    return tmp_path / "dagster"


@contextmanager
def under_way(how: str, home: Path, instance: dg.DagsterInstance) -> Iterator[list[psutil.Process]]:
    """A run in a child process that has come to its slow step; yields all processes that execute it."""
    # not with -m: steps import the module by its name, which would be `__main__`
    script = "import sys; from kafka_s3_platform_tests.defs.slow import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(home), how]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
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
        child.wait(10)


@pytest.mark.parametrize("how", ["in-process", "steps"])
def test_a_run_whose_processes_were_killed_ends_as_failed_and_says_so(how: str, home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance, under_way(how, home, instance) as processes:
        [run] = find_unfinished(instance, SLOW)
        assert run.status == Status.STARTED
        for process in processes:
            process.kill()
        psutil.wait_procs(processes[1:], 10)
        assert find_unfinished(instance, SLOW) == []
        stored = instance.get_run_by_id(run.run_id)
        assert stored is not None
        assert stored.status == Status.FAILURE
        [said] = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        assert "was killed" in str(said.user_message or said.message)
        assert str(processes[0].pid) in str(said.user_message or said.message)


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


def test_a_run_on_another_host_is_left_alone(instance: dg.DagsterInstance) -> None:
    run_id = add_run(instance, host=f"not-{socket.gethostname()}", processes=[[1, 0.0]])
    assert [run.run_id for run in find_unfinished(instance, SLOW)] == [run_id]


def test_tags_that_a_re_execution_inherits_are_not_its_own(instance: dg.DagsterInstance) -> None:
    run_id = add_run(instance, run_id="the-run-before", processes=[[1, 0.0]])
    assert [run.run_id for run in find_unfinished(instance, SLOW)] == [run_id]


@pytest.mark.parametrize(
    "tag",
    ["", "[", "[" * 100_000, "5", "[]", "{}", '{"run_id": "RUN"}', '{"run_id": "RUN", "host": "HOST"}',
     '{"run_id": "RUN", "host": "HOST", "processes": [5]}',
     '{"run_id": "RUN", "host": "HOST", "processes": [["a", 1]]}',
     '{"run_id": "RUN", "host": "HOST", "processes": [[1e999, 1]]}'],
)  # fmt: skip
def test_a_tag_that_is_none_of_ours_keeps_no_run_from_being_seen(home: Path, tag: str) -> None:
    """Whoever launches a run gives it tags, and every sensor and command looks at those of all runs."""
    run_id = "0b9b1b7e-5f0c-4f0e-9a35-5f3d4d0f6c1a"
    told = tag.replace("RUN", run_id).replace("HOST", socket.gethostname())
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.create_run_for_job(slow_job(), run_id=run_id, status=Status.STARTED, tags={PROCESS_TAG: told})
        assert find_unfinished(instance, SLOW) == [run]
