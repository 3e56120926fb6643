"""What the instance knows of a topic's runs: which hours are being worked on, and how earlier requests ended."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from kafka_s3_platform.defs.checks import index_checks
from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.defs.topic import Windows

REQUEST_TAG = "kafka_s3/request"
"""On runs that a sensor or schedule asked for: the asset's key."""

INPUTS_TAG = "kafka_s3/inputs"
"""On the same runs: the fingerprint of what they were asked for with."""

REMEMBERED_RUNS = 10
FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)


def request(key: dg.AssetKey, job_name: str, keys: Sequence[str], fingerprint: str = "") -> dg.RunRequest:
    """One run for the contiguous partition keys `keys`; for none, a run without partitions."""
    picked = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]} if keys else {}
    known = {REQUEST_TAG: key.to_user_string(), INPUTS_TAG: fingerprint}
    # without naming checks, all of the asset's would run, those that list the bucket too
    return dg.RunRequest(
        job_name=job_name, asset_selection=[key], asset_check_keys=index_checks(key), tags={**picked, **known}
    )


def unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    """Runs of the asset that are queued or under way."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run for run in runs if run.asset_selection is None or key in run.asset_selection]


def windows_of(runs: Sequence[dg.DagsterRun], windows: Windows) -> list[tuple[datetime, datetime]]:
    """The time windows that the runs' partition keys span."""
    found = []
    for run in runs:
        first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG) or run.tags.get(PARTITION_NAME_TAG)
        last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG) or first
        if first and last and windows.definition.has_partition_key(first):
            found.append((windows.start(first), windows.end(last)))
    return found


def is_requested(runs: Sequence[dg.DagsterRun], key: dg.AssetKey) -> bool:
    """Whether one of the runs was asked for by a sensor or schedule."""
    return any(run.tags.get(REQUEST_TAG) == key.to_user_string() for run in runs)


def reason_to_wait(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str | None:
    """Why not to ask again: the same inputs ended for good before, or failed a moment ago. None: ask."""
    records = instance.get_run_records(dg.RunsFilter(tags={REQUEST_TAG: key.to_user_string()}), limit=REMEMBERED_RUNS)
    for record in records:
        if record.dagster_run.tags.get(INPUTS_TAG) == fingerprint and not _is_transient(record):
            return f"run {record.dagster_run.run_id} ended as {record.dagster_run.status.value} with the same inputs"
    failures = _failures_since_success(records)
    if not failures:
        return None
    ended = datetime.fromtimestamp(failures[0].end_time or failures[0].create_timestamp.timestamp(), timezone.utc)
    until = ended + min(FIRST_WAIT * 2 ** (len(failures) - 1), LONGEST_WAIT)
    if datetime.now(timezone.utc) < until:
        return f"run {failures[0].dagster_run.run_id} failed; asked for again at {until:%H:%M:%S} UTC"
    return None


def _is_transient(record: dg.RunRecord) -> bool:
    """Failed, and not for good: a broker that was down, or a process that was killed."""
    run = record.dagster_run
    return run.status == dg.DagsterRunStatus.FAILURE and run.tags.get(FAILURE_TAG) != "permanent"


def _failures_since_success(records: Sequence[dg.RunRecord]) -> list[dg.RunRecord]:
    found: list[dg.RunRecord] = []
    for record in records:
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            break
        if _is_transient(record):
            found.append(record)
    return found
