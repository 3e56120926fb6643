"""What the instance knows of a topic's runs: which hours are being worked on, and how earlier requests ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from kafka_s3_platform.defs.checks import index_checks
from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.defs.jobs import jobs_that_change
from kafka_s3_platform.defs.processes import unfinished_runs
from kafka_s3_platform.defs.topic import Windows

REQUEST_TAG = "kafka_s3/request"
"""On runs that a sensor or schedule asked for: the asset's key."""

INPUTS_TAG = "kafka_s3/inputs"
"""On the same runs: the fingerprint of what they were asked for with."""

REMEMBERED_RUNS = 10
FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)


def request(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    job_name: str,
    keys: Sequence[str],
    fingerprint: str = "",
    run_config: Mapping[str, Any] | None = None,
) -> dg.RunRequest:
    """One run for the contiguous partition keys `keys`; for none, a run without partitions."""
    picked = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]} if keys else {}
    known = {REQUEST_TAG: key.to_user_string(), INPUTS_TAG: fingerprint}
    # without naming checks, all of the asset's would run, those that list the bucket too
    return dg.RunRequest(
        run_key=_run_key(instance, key, fingerprint),
        job_name=job_name,
        asset_selection=[key],
        asset_check_keys=index_checks(key),
        tags={**picked, **known},
        run_config=run_config,
    )


def unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    """Runs that change the asset and are queued or under way; those whose process was killed end here, as failed."""
    return [run for run in unfinished_runs(instance) if _changes(run, key)]


def windows_of(runs: Sequence[dg.DagsterRun], windows: Windows) -> list[tuple[datetime, datetime]]:
    """The time windows that the runs' partition keys span, if they are keys: whoever launches a run gives it tags."""
    found = []
    for run in runs:
        first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG) or run.tags.get(PARTITION_NAME_TAG)
        last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG) or first
        if first and last and all(windows.names(key) for key in (first, last)):
            found.append((windows.start(first), windows.end(last)))
    return found


def is_requested(runs: Sequence[dg.DagsterRun], key: dg.AssetKey) -> bool:
    """Whether one of the runs was asked for by a sensor or schedule."""
    return any(run.tags.get(REQUEST_TAG) == key.to_user_string() for run in runs)


def reason_to_wait(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str | None:
    """Why not to ask again: the same inputs ended for good before, or failed a moment ago. None: ask."""
    same = _newest(instance, key, fingerprint)
    if same is not None and not _is_transient(same):
        return _same_inputs(same)
    requested = dg.RunsFilter(tags={REQUEST_TAG: key.to_user_string()})
    records = instance.get_run_records(requested, limit=REMEMBERED_RUNS)
    failures = _failures_since_success(records)
    if not failures:
        return None
    ended = datetime.fromtimestamp(failures[0].end_time or failures[0].create_timestamp.timestamp(), timezone.utc)
    until = ended + min(FIRST_WAIT * 2 ** (len(failures) - 1), LONGEST_WAIT)
    if datetime.now(timezone.utc) < until:
        return f"run {failures[0].dagster_run.run_id} failed; asked for again at {until:%H:%M:%S} UTC"
    return None


def _run_key(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str:
    """What tells a request from every other one: the asset, its inputs and, after a failed try, that try's run.

    Dagster wants one of each request where a schedule makes several. It drops a sensor's request whose key any earlier
    run of that sensor has, so that the next try needs another key: it is `reason_to_wait` that decides.
    """
    tried = _newest(instance, key, fingerprint)
    return f"{key.to_user_string()} {fingerprint}" + (f" after {tried.run_id}" if tried else "")


def _newest(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> dg.DagsterRun | None:
    """The newest run that was asked for with these inputs."""
    tags = {REQUEST_TAG: key.to_user_string(), INPUTS_TAG: fingerprint}
    return next(iter(instance.get_runs(dg.RunsFilter(tags=tags), limit=1)), None)


def _changes(run: dg.DagsterRun, key: dg.AssetKey) -> bool:
    """Whether the run writes the asset. Without a selection (None or empty) it is a run of its whole job."""
    if run.asset_selection or run.asset_check_selection:
        return key in (run.asset_selection or ())
    return run.job_name in jobs_that_change(key)


def _same_inputs(run: dg.DagsterRun) -> str:
    what = f"run {run.run_id} with the same inputs"
    if not run.is_finished:
        return f"{what} is queued or under way"
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return f"{what} succeeded; to do it again, re-execute that run"
    return f"{what} ended as {run.status.value}; fix its cause, then re-execute that run"


def _is_transient(run: dg.DagsterRun) -> bool:
    """Failed, and not for good: a broker that was down, or a process that was killed."""
    return run.status == dg.DagsterRunStatus.FAILURE and run.tags.get(FAILURE_TAG) != "permanent"


def _failures_since_success(records: Sequence[dg.RunRecord]) -> list[dg.RunRecord]:
    found: list[dg.RunRecord] = []
    for record in records:
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            break
        if _is_transient(record.dagster_run):
            found.append(record)
    return found
