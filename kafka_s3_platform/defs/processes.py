"""Runs and the processes that execute them: what tells a run under way from one whose process was killed.

Dagster's default launcher cannot tell, so its run monitoring never ends such a run: it would hold its topic for ever.
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
"""On runs that began: the host, and pid and start time of the processes that keep the run alive."""

CLOCK_SECONDS = 5.0
"""By how much a process's start time may seem to move: it is kept from boot, and the clock is set now and then."""


def process_tags(run_id: str) -> dict[str, str]:
    """Tags that say which processes execute the run: this one, and the one that made it.

    The latter is the run's own where each step has a process. `run_id` is among them because a run that is executed
    again inherits tags.
    """
    parent = multiprocessing.parent_process()
    pids = [os.getpid(), *([parent.pid] if parent and parent.pid else [])]
    processes = [[pid, started] for pid in pids if (started := _started(pid)) is not None]
    return {PROCESS_TAG: json.dumps({"run_id": run_id, "host": socket.gethostname(), "processes": processes})}


def unfinished_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Runs that are queued or under way. Those whose processes are gone are reported as failed, and left out."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run for run in runs if not _ended(instance, run)]


def place(run: dg.DagsterRun) -> str:
    """Where the run is executed, as far as it is known: a host and a process, for messages."""
    known = _known_process(run)
    if known is None:
        return "in no process that is known"
    return f"in process {' or '.join(str(pid) for pid, _ in known['processes'])} of host {known['host']}"


def _ended(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    known = _known_process(run)
    if known is None or known["host"] != socket.gethostname():
        return False
    if any(_is_alive(pid, started) for pid, started in known["processes"]):
        return False
    # read again: its process may have ended because the run did, since the runs were listed
    latest = instance.get_run_by_id(run.run_id)
    if latest is not None and not latest.is_finished:
        instance.report_run_failed(
            latest,
            f"The run was executed {place(run)}, which is gone without a word: it was killed, or the host went down. "
            f"What the run did not commit does not exist; launch it again, or let the sensors do so",
        )
    return True


def _known_process(run: dg.DagsterRun) -> Mapping[str, Any] | None:
    """None too where the tag is none of ours: whoever launches a run gives it tags."""
    try:
        found = json.loads(run.tags.get(PROCESS_TAG, "{}"))
        processes = [[int(pid), float(started)] for pid, started in found["processes"]]
        known = {"host": str(found["host"]), "processes": processes}
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return known if found["run_id"] == run.run_id else None


def _is_alive(pid: int, started: float) -> bool:
    """Whether the process is there; another one may have got its pid."""
    now = _started(pid)
    return now is not None and abs(now - started) < CLOCK_SECONDS


def _started(pid: int) -> float | None:
    """Start time of a process, seconds since the epoch; None when it is gone or only waits to be reaped."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
