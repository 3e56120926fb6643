"""Requests runs and reads from the instance which runs of a topic are unfinished and how earlier requests ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from kafka_s3_platform.defs.archive.checks import list_index_checks
from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.defs.jobs import list_changing_jobs
from kafka_s3_platform.defs.processes import find_unfinished_runs
from kafka_s3_platform.defs.topic import Windows

REQUEST_TAG = "kafka_s3/request"
"""Tag of runs that a sensor or schedule requested. It holds the asset's key."""

INPUTS_TAG = "kafka_s3/inputs"
"""Tag of the same runs. It holds the fingerprint of the inputs that they were requested with."""

# Enough to count failures: the wait doubles with each, and after seven it is at LONGEST_WAIT.
REMEMBERED_RUNS = 10
FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)


def request_run(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    job_name: str,
    keys: Sequence[str],
    fingerprint: str = "",
    run_config: Mapping[str, Any] | None = None,
) -> dg.RunRequest:
    """Return a request for one run of the contiguous partition keys `keys`. Without keys, the run has no partitions."""
    picked = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]} if keys else {}
    known = {REQUEST_TAG: key.to_user_string(), INPUTS_TAG: fingerprint}
    # If the request named no checks, Dagster would run all checks of the asset, also those that list the bucket.
    return dg.RunRequest(
        run_key=_make_run_key(instance, key, fingerprint),
        job_name=job_name,
        asset_selection=[key],
        asset_check_keys=list_index_checks(key),
        tags={**picked, **known},
        run_config=run_config,
    )


def find_unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    """Return the unfinished runs that change the asset. Report a run whose process was killed as failed."""
    return [run for run in find_unfinished_runs(instance) if _is_changing(run, key)]


def list_windows(runs: Sequence[dg.DagsterRun], windows: Windows) -> list[tuple[datetime, datetime]]:
    """Return the windows of the runs' partition keys. Skip tags that hold no key: anybody can set tags of a run."""
    found = []
    for run in runs:
        first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG) or run.tags.get(PARTITION_NAME_TAG)
        last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG) or first
        if first and last and all(windows.names(key) for key in (first, last)):
            found.append((windows.start(first), windows.end(last)))
    return found


def is_requested(runs: Sequence[dg.DagsterRun], key: dg.AssetKey) -> bool:
    """Return whether a sensor or schedule requested one of the runs."""
    return any(run.tags.get(REQUEST_TAG) == key.to_user_string() for run in runs)


def find_reason_to_wait(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str | None:
    """Return why no run should be requested now, or None if one should.

    The reason is a run with the same inputs that has not failed transiently, or a failure a short time ago.
    """
    same = _find_newest(instance, key, fingerprint)
    if same is not None and not _is_transient(same):
        return _describe_run(same)
    requested = dg.RunsFilter(tags={REQUEST_TAG: key.to_user_string()})
    records = instance.get_run_records(requested, limit=REMEMBERED_RUNS)
    failures = _list_failures(records)
    if not failures:
        return None
    ended = datetime.fromtimestamp(failures[0].end_time or failures[0].create_timestamp.timestamp(), timezone.utc)
    until = ended + min(FIRST_WAIT * 2 ** (len(failures) - 1), LONGEST_WAIT)
    if datetime.now(timezone.utc) < until:
        return f"run {failures[0].dagster_run.run_id} failed; asked for again at {until:%H:%M:%S} UTC"
    return None


def _make_run_key(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str:
    """Make a run key that no other request has. It names the asset, its inputs and the last run with these inputs.

    A schedule that makes several requests needs a different key for each. Dagster drops a sensor's request if an
    earlier run of the sensor has the same key, so the next try needs another key. `find_reason_to_wait` decides
    whether there is a next try.
    """
    tried = _find_newest(instance, key, fingerprint)
    return f"{key.to_user_string()} {fingerprint}" + (f" after {tried.run_id}" if tried else "")


def _find_newest(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> dg.DagsterRun | None:
    """Return the newest run that was requested with these inputs, None if there is none."""
    tags = {REQUEST_TAG: key.to_user_string(), INPUTS_TAG: fingerprint}
    return next(iter(instance.get_runs(dg.RunsFilter(tags=tags), limit=1)), None)


def _is_changing(run: dg.DagsterRun, key: dg.AssetKey) -> bool:
    """Return whether the run writes the asset. A run without a selection (None or empty) runs its whole job."""
    if run.asset_selection or run.asset_check_selection:
        return key in (run.asset_selection or ())
    return run.job_name in list_changing_jobs(key)


def _describe_run(run: dg.DagsterRun) -> str:
    what = f"run {run.run_id} with the same inputs"
    if not run.is_finished:
        return f"{what} is queued or under way"
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return f"{what} succeeded; to do it again, re-execute that run"
    return f"{what} ended as {run.status.value}; fix its cause, then re-execute that run"


def _is_transient(run: dg.DagsterRun) -> bool:
    """Return whether the run failed for a reason that may pass: a broker was down, or the process was killed."""
    return run.status == dg.DagsterRunStatus.FAILURE and run.tags.get(FAILURE_TAG) != "permanent"


def _list_failures(records: Sequence[dg.RunRecord]) -> list[dg.RunRecord]:
    found: list[dg.RunRecord] = []
    for record in records:
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            break
        if _is_transient(record.dagster_run):
            found.append(record)
    return found
