"""Finds runs whose process was killed.

Dagster's default launcher cannot recognise such a run, so Dagster's run monitoring never ends it. Without this module,
it would block its topic for ever.
"""

import json
import multiprocessing
import os
import socket
from collections.abc import Mapping
from typing import Any

import dagster as dg
import psutil
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

PROCESS_TAG = "kafka_s3/process"
"""Tag of runs that began. It holds the host, and the pid and start time of each process that executes the run."""

CLOCK_SECONDS = 5.0
"""How far a process's start time may seem to move. The kernel counts it from boot, and the clock may be set later."""


def make_process_tags(run_id: str) -> dict[str, str]:
    """Make the tags that name the processes of the run: this process and its parent.

    If each step has a process of its own, the parent is the process of the run. The tag holds `run_id` because a run
    that is executed again inherits the tags of the first one.
    """
    parent = multiprocessing.parent_process()
    pids = [os.getpid(), *([parent.pid] if parent and parent.pid else [])]
    processes = [[pid, started] for pid in pids if (started := _find_start(pid)) is not None]
    return {PROCESS_TAG: json.dumps({"run_id": run_id, "host": socket.gethostname(), "processes": processes})}


def find_unfinished_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the runs that are queued or under way. Report runs whose processes are gone as failed; leave these out."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run for run in runs if not _mark_ended(instance, run)]


def describe_place(run: dg.DagsterRun) -> str:
    """Name the process and the host that execute the run, if they are known. For messages."""
    known = _find_process(run)
    if known is None:
        return "in no process that is known"
    return f"in process {' or '.join(str(pid) for pid, _ in known['processes'])} of host {known['host']}"


def _mark_ended(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    known = _find_process(run)
    if known is None or known["host"] != socket.gethostname():
        return False
    if any(_is_alive(pid, started) for pid, started in known["processes"]):
        return False
    # Read the run again: it may have ended, and its process with it, after the runs were listed.
    latest = instance.get_run_by_id(run.run_id)
    if latest is not None and not latest.is_finished:
        instance.report_run_failed(
            latest,
            f"The run was executed {describe_place(run)}, which is gone without a word: it was killed, or the host "
            f"went down. What the run did not commit does not exist; launch it again, or let the sensors do so",
        )
    return True


def _find_process(run: dg.DagsterRun) -> Mapping[str, Any] | None:
    """Read the process tag. Return None if it is absent or not ours: anybody who launches a run can set tags."""
    try:
        found = json.loads(run.tags.get(PROCESS_TAG, "{}"))
        processes = [[int(pid), float(started)] for pid, started in found["processes"]]
        known = {"host": str(found["host"]), "processes": processes}
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return known if found["run_id"] == run.run_id else None


def _is_alive(pid: int, started: float) -> bool:
    """Return whether the process still exists. The start time shows whether another process has its pid now."""
    now = _find_start(pid)
    return now is not None and abs(now - started) < CLOCK_SECONDS


def _find_start(pid: int) -> float | None:
    """Return a process's start time in seconds since the epoch, or None if it is gone or a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.NoSuchProcess:
        return None
