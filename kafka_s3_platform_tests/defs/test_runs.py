from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from kafka_s3_platform.defs.failures import FAILURE_TAG
from kafka_s3_platform.defs.runs import (
    INPUTS_TAG,
    REMEMBERED_RUNS,
    REQUEST_TAG,
    find_reason_to_wait,
    find_unfinished,
    is_requested,
    list_windows,
    request_run,
)
from kafka_s3_platform.defs.topic import Windows
from kafka_s3_platform_tests.support import HOUR, NOON

KEY = dg.AssetKey(["c", "hourly", "t"])
Status = dg.DagsterRunStatus


@dg.asset(key=KEY)
def hourly() -> None:
    pass


def add_run(
    instance: dg.DagsterInstance, status: Status, inputs: str | None = "same", failure: str | None = None
) -> None:
    """A run as an earlier request left it; `inputs` None: somebody else's run."""
    tags = {} if inputs is None else {REQUEST_TAG: "c/hourly/t", INPUTS_TAG: inputs}
    tags |= {FAILURE_TAG: failure} if failure else {}
    job = dg.Definitions(assets=[hourly]).resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(job, asset_selection=frozenset([KEY]), tags=tags, status=Status.STARTED)
    if status == Status.FAILURE:
        instance.report_run_failed(run)
    elif status == Status.CANCELED:
        instance.report_run_canceled(run)
    elif status == Status.SUCCESS:
        instance.handle_run_event(run.run_id, dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name))


def test_a_first_request_does_not_wait(instance: dg.DagsterInstance) -> None:
    assert find_reason_to_wait(instance, KEY, "same") is None


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.CANCELED])
def test_what_ended_is_not_asked_for_again_with_the_same_inputs(instance: dg.DagsterInstance, status: Status) -> None:
    add_run(instance, status)
    assert find_reason_to_wait(instance, KEY, "same") is not None
    assert find_reason_to_wait(instance, KEY, "other") is None


def test_a_permanent_failure_is_asked_for_again_when_its_inputs_change(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.FAILURE, failure="permanent")
    assert find_reason_to_wait(instance, KEY, "same") is not None
    assert find_reason_to_wait(instance, KEY, "other") is None


@pytest.mark.parametrize("failure", ["transient", "clock", None])
def test_other_failures_are_asked_for_again_after_a_while(instance: dg.DagsterInstance, failure: str | None) -> None:
    add_run(instance, Status.FAILURE, failure=failure)
    reason = find_reason_to_wait(instance, KEY, "same")
    assert reason is not None
    assert "asked for again at" in reason


def test_a_run_of_somebody_else_says_nothing_about_our_requests(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.FAILURE, inputs=None, failure="permanent")
    assert find_reason_to_wait(instance, KEY, "same") is None


def test_runs_under_way_are_found_whoever_launched_them(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.STARTED, inputs=None)
    assert len(find_unfinished(instance, KEY)) == 1
    assert not is_requested(find_unfinished(instance, KEY), KEY)
    add_run(instance, Status.STARTED)
    assert is_requested(find_unfinished(instance, KEY), KEY)
    assert find_unfinished(instance, dg.AssetKey("other")) == []


def test_what_failed_for_good_long_ago_is_not_asked_for_again(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.FAILURE, failure="permanent")
    for n in range(REMEMBERED_RUNS):
        add_run(instance, Status.SUCCESS, inputs=f"later {n}")
    reason = find_reason_to_wait(instance, KEY, "same")
    assert reason is not None
    assert "fix its cause, then re-execute that run" in reason


def test_what_was_re_executed_with_success_is_not_a_failure_any_more(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.FAILURE, failure="permanent")
    add_run(instance, Status.SUCCESS)
    assert "succeeded" in str(find_reason_to_wait(instance, KEY, "same"))


@pytest.mark.parametrize(
    ("job_name", "path", "is_changed"),
    [
        ("archive__c", "c/hourly/t", True),
        ("archive__c", "c/hourly/u", True),
        ("archive__c", "c/daily/t", False),
        ("archive__d", "c/hourly/t", False),
        ("compact__c", "c/daily/t", True),
        ("restore__c__t", "c/restored/t", True),
        ("restore__c__t", "c/restored/u", False),
        ("verify__c", "c/hourly/t", False),
        ("verify__c", "c/daily/t", False),
        ("verify__c", "c/restored/t", False),
        ("archive__c", "kafka/t", False),
    ],
)
def test_a_run_without_a_selection_counts_for_what_its_job_changes(
    instance: dg.DagsterInstance, job_name: str, path: str, *, is_changed: bool
) -> None:
    instance.create_run_for_job(dg.Definitions([hourly]).resolve_implicit_global_asset_job_def())  # not ours
    instance.add_run(dg.DagsterRun(job_name=job_name, run_id=str(uuid4()), status=Status.STARTED))
    assert bool(find_unfinished(instance, dg.AssetKey(path.split("/")))) == is_changed


def test_a_run_of_checks_alone_changes_nothing(instance: dg.DagsterInstance) -> None:
    checks = frozenset([dg.AssetCheckKey(KEY, "orphans")])
    run = dg.DagsterRun("archive__c", str(uuid4()), status=Status.STARTED, asset_check_selection=checks)
    instance.add_run(run)
    assert find_unfinished(instance, KEY) == []


def test_a_request_is_one_run_over_its_range(instance: dg.DagsterInstance) -> None:
    asked = request_run(instance, KEY, "archive__c", ["2026-01-01-00:00", "2026-01-01-01:00"], "same")
    assert asked.tags["dagster/asset_partition_range_start"] == "2026-01-01-00:00"
    assert asked.tags["dagster/asset_partition_range_end"] == "2026-01-01-01:00"
    assert asked.asset_selection == [KEY]
    assert asked.run_key == "c/hourly/t same"


@pytest.mark.parametrize("end", ["never", "", "9999-12-31-23:00", "\0"])
def test_a_range_that_ends_in_no_key_ends_no_look_at_the_runs(instance: dg.DagsterInstance, end: str) -> None:
    """Tags are for whoever launches a run to set: each look at the runs under way failed, so the sensors did."""
    windows = Windows(dg.HourlyPartitionsDefinition(NOON))
    key = windows.key(NOON + HOUR)
    hostile = {ASSET_PARTITION_RANGE_START_TAG: key, ASSET_PARTITION_RANGE_END_TAG: end}
    for tags in (hostile, {PARTITION_NAME_TAG: key}):
        instance.add_run(dg.DagsterRun("archive__c", str(uuid4()), status=Status.STARTED, tags=tags))
    found = list_windows(instance.get_runs(), windows)
    assert (NOON + HOUR, NOON + 2 * HOUR) in found
    assert len(found) == (2 if end == "" else 1)
