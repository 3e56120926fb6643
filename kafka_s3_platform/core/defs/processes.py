"""Finds runs of killed processes.

Dagster's default launcher cannot recognise such a run, so Dagster's run monitoring never ends it. Without this module,
the run would block its topic for ever. A process can be found only on its own host. So a run also extends its lease
once a minute, because otherwise a run in a lost container would never end.
"""

import json
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from threading import Event, Thread
from typing import Any

import dagster as dg
import psutil

from kafka_s3_platform.core.instance.tables import read_alive_until, set_alive_until
from kafka_s3_platform.core.instance.work import REQUEST_TAG, UNENDED

logger = logging.getLogger(__name__)

PROCESS_TAG = ".dagster/kafka_s3.process"
"""Tag of runs that have begun. It holds the host, and the pid and start time of each process that executes the run."""

CLOCK_SECONDS = 5.0
"""Tolerance for a process's start time. The kernel counts it from the boot, and the clock may be set later."""

BEAT_SECONDS = 60.0

LIFE_SECONDS = 600.0
"""A run is gone after this time without a sign. A busy machine may be slow, and the clocks of two hosts may differ."""


def make_process_tags(run_id: str) -> dict[str, str]:
    """Make tags with the processes of the run: this process and its parent.

    If each step has a process of its own, the parent is the process of the run. The tag holds `run_id` because a
    re-executed run inherits the tags of the first one.
    """
    parent = multiprocessing.parent_process()
    pids = [os.getpid(), *([parent.pid] if parent and parent.pid else [])]
    processes = [[pid, started] for pid in pids if (started := _find_start(pid)) is not None]
    tag = {"run_id": run_id, "host": socket.gethostname(), "namespace": _find_namespace(), "processes": processes}
    return {PROCESS_TAG: json.dumps(tag)}


def extend_life(instance: dg.DagsterInstance, run_id: str, seconds: float = 0.0) -> None:
    """Extend the run's lease, by `seconds` more than usual."""
    set_alive_until(instance, run_id, time.time() + seconds + LIFE_SECONDS)


@contextmanager
def keep_alive(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Extend the run's lease again and again until the block ends."""
    extend_life(instance, run_id)
    stop = Event()
    thread = Thread(target=_extend_until, args=(instance, run_id, stop), name="alive", daemon=True)
    if not instance.is_ephemeral:  # which no other process sees, and no other thread may use
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join()


def find_unfinished_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the queued runs and the runs under way. Report runs of lost processes as failed instead."""
    records = instance.get_run_records(dg.RunsFilter(statuses=[*UNENDED]))
    return [record.dagster_run for record in records if not _fail_if_gone(instance, record)]


def describe_place(run: dg.DagsterRun) -> str:
    """Return the run's place of execution, for messages: its processes and their host."""
    process = _find_process(run)
    if process is None:
        return "in no process that is known"
    return f"in process {' or '.join(str(pid) for pid, _ in process['processes'])} of host {process['host']}"


def describe_end(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Return the end of a message about how to end a run whose process is lost.

    It is empty if the process is seen from here.
    """
    process = _find_process(run)
    if process is not None and _is_here(process):
        return ""
    until = None if process is None else read_alive_until(instance, run.run_id)
    if until is None:
        return ". If nothing executes it, terminate it in the UI"
    latest = datetime.fromtimestamp(until, timezone.utc)
    return f". If its process is gone, whatever asks after {latest:%H:%M:%S} UTC, such as this command, ends it"


def _extend_until(instance: dg.DagsterInstance, run_id: str, stop: Event) -> None:
    """Extend the run's lease once a minute, until `stop` is set. The thread of `keep_alive` runs this."""
    while not stop.wait(BEAT_SECONDS):
        try:
            extend_life(instance, run_id)
        except Exception as err:  # noqa: BLE001 - the next beat may get through
            logger.warning("run %s could not extend its lease in Dagster's storage: %s", run_id, err)


def _fail_if_gone(instance: dg.DagsterInstance, record: dg.RunRecord) -> bool:
    """Report the run as failed if its processes are gone. Return True if they are."""
    run = record.dagster_run
    if not _is_gone(instance, record):
        return False
    # Read the run again, because it may have ended, and its process with it, after the runs were listed.
    latest = instance.get_run_by_id(run.run_id)
    if latest is not None and not latest.is_finished:
        instance.report_run_failed(
            latest,
            f"The run was executed {describe_place(run)}, which is gone without a word: it was killed, or the host "
            f"went down. What the run did not commit does not exist; launch it again, or let the sensors do so",
        )
    return True


def _is_gone(instance: dg.DagsterInstance, record: dg.RunRecord) -> bool:
    """Return True if no process executes the run any more. If it ran on another host, the end of its lease tells."""
    run = record.dagster_run
    process = _find_process(run)
    if process is None:
        # its process may have been killed before its first step, or it is none of ours
        is_requested = run.status == dg.DagsterRunStatus.STARTED and REQUEST_TAG in run.tags
        return is_requested and record.start_time is not None and record.start_time + LIFE_SECONDS < time.time()
    if _is_here(process):
        return not any(_is_alive(pid, started) for pid, started in process["processes"])
    until = read_alive_until(instance, run.run_id)
    return until is not None and until < time.time()


def _is_here(process: Mapping[str, Any]) -> bool:
    """Return True if this process sees the pids of the run. Two containers may have the same host name."""
    return (process["host"], process["namespace"]) == (socket.gethostname(), _find_namespace())


def _find_namespace() -> str:
    """Return the namespace of this process's pids. In another container, the pids name other processes."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _find_process(run: dg.DagsterRun) -> Mapping[str, Any] | None:
    """Return a run's host and processes from its tag.

    Return None if the tag is absent or not ours, because anybody can set it.
    """
    try:
        tag = json.loads(run.tags.get(PROCESS_TAG, "{}"))
        processes = [[int(pid), float(started)] for pid, started in tag["processes"]]
        process = {"host": str(tag["host"]), "namespace": str(tag["namespace"]), "processes": processes}
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return process if tag["run_id"] == run.run_id else None


def _is_alive(pid: int, started: float) -> bool:
    """Return True if the process still exists. Another process with its pid has another start time."""
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
