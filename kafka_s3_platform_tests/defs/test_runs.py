import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    HIDDEN_TAG_PREFIX,
    PARTITION_NAME_TAG,
)

from kafka_s3_platform.core.defs.failures import RETRIES_TAG, raise_dagster_failures
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.runs import REMEMBERED_RUNS, Requests, list_windows
from kafka_s3_platform.core.errors import BrokerUnavailableError, ClockError, MissingTopicError, OpenTransactionError
from kafka_s3_platform.core.instance.windows import Windows
from kafka_s3_platform.core.instance.work import (
    FAILED_TAG,
    FAILURE_TAG,
    INPUTS_TAG,
    REQUEST_TAG,
    TAG_SIZE,
    TOPIC_TAG,
    make_failed_tags,
    make_request_tags,
)
from kafka_s3_platform_tests.support import HOUR, NOON

KEY = dg.AssetKey(["c", "hourly", "t"])
Status = dg.DagsterRunStatus


@dg.asset(key=KEY)
def hourly() -> None:
    pass


def add_run(
    instance: dg.DagsterInstance,
    status: Status,
    inputs: str | None = "same",
    failure: str | None = None,
    keys: Sequence[dg.AssetKey] = (KEY,),
    tags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A run as an earlier request left it; `inputs` None: somebody else's run."""
    given = {} if inputs is None else make_request_tags(dict.fromkeys(keys, inputs))
    given |= {FAILURE_TAG: failure} if failure else {}
    run = dg.DagsterRun(
        "archive__c", str(uuid4()), status=Status.STARTED, asset_selection=frozenset(keys), tags={**given, **tags}
    )
    instance.add_run(run)
    events = {
        Status.FAILURE: "PIPELINE_FAILURE",
        Status.CANCELED: "PIPELINE_CANCELED",
        Status.SUCCESS: "PIPELINE_SUCCESS",
    }
    if status in events:
        instance.handle_run_event(run.run_id, dg.DagsterEvent(events[status], run.job_name))


def find_reason_to_wait(instance: dg.DagsterInstance, key: dg.AssetKey, fingerprint: str) -> str | None:
    return Requests(instance, [key]).find_reason_to_wait(key, fingerprint)


def find_unfinished(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dg.DagsterRun]:
    return Requests(instance, [key]).list_unfinished(key)


@pytest.mark.parametrize(
    ("before", "same", "other"),
    [
        ([], None, None),
        ([{"status": Status.SUCCESS}], "", None),
        ([{"status": Status.CANCELED}], "", None),
        ([{"status": Status.FAILURE, "failure": "permanent"}], "", None),
        ([{"status": Status.FAILURE, "failure": "permanent"}, {"status": Status.SUCCESS}], "succeeded", None),
        ([{"status": Status.FAILURE, "failure": "transient"}], "asked for again at", "asked for again at"),
        ([{"status": Status.FAILURE, "failure": "clock"}], "asked for again at", "asked for again at"),
        ([{"status": Status.FAILURE}], "asked for again at", "asked for again at"),
        ([{"status": Status.FAILURE, "inputs": None, "failure": "permanent"}], None, None),
    ],
    ids=["nothing", "done", "cancelled", "failed for good", "re-executed", "transient", "clock", "defect", "another's"],
)
def test_a_request_waits_by_the_end_of_earlier_ones_and_their_inputs(
    instance: dg.DagsterInstance, before: list[dict[str, Any]], same: str | None, other: str | None
) -> None:
    for each in before:
        add_run(instance, **each)
    for inputs, said in (("same", same), ("other", other)):
        reason = find_reason_to_wait(instance, KEY, inputs)
        assert (reason is None) == (said is None)
        assert (said or "") in str(reason)


def test_runs_under_way_are_found_whoever_launched_them(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.STARTED, inputs=None)
    assert len(find_unfinished(instance, KEY)) == 1
    assert not Requests(instance, [KEY]).is_requested(KEY)
    add_run(instance, Status.STARTED)
    assert Requests(instance, [KEY]).is_requested(KEY)
    assert find_unfinished(instance, dg.AssetKey("other")) == []


def test_what_failed_for_good_long_ago_is_not_asked_for_again(instance: dg.DagsterInstance) -> None:
    add_run(instance, Status.FAILURE, failure="permanent")
    for n in range(REMEMBERED_RUNS):
        add_run(instance, Status.SUCCESS, inputs=f"later {n}")
    reason = find_reason_to_wait(instance, KEY, "same")
    assert reason is not None
    assert "fix its cause, then re-execute that run" in reason


@pytest.mark.parametrize(
    ("job_name", "path", "is_changed"),
    [
        ("archive__c", "c/hourly/t", True),
        ("archive__c", "c/hourly/u", True),
        ("archive__c", "c/daily/t", False),
        ("archive__d", "c/hourly/t", False),
        ("compact__c", "c/daily/t", True),
        ("restore__c", "c/restored/t", True),
        ("restore__c", "c/restored", True),
        ("restore__c", "d/restored/t", False),
        ("restore__c", "c/hourly/t", False),
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


@pytest.mark.parametrize(
    ("job_name", "path", "is_changed"),
    [
        ("replay_hours__c", "c/restored/t", True),
        ("replay_days__c", "c/restored/u", False),
        ("archive__c", "c/hourly/u", True),
        ("archive__c", "c/restored/t", False),
    ],
)
def test_the_topic_in_a_tag_is_what_a_replay_writes_and_no_other_run(
    instance: dg.DagsterInstance, job_name: str, path: str, *, is_changed: bool
) -> None:
    tags = {TOPIC_TAG: "t"}
    instance.add_run(dg.DagsterRun(job_name=job_name, run_id=str(uuid4()), status=Status.STARTED, tags=tags))
    assert bool(find_unfinished(instance, dg.AssetKey(path.split("/")))) == is_changed


def test_a_run_of_checks_alone_changes_nothing(instance: dg.DagsterInstance) -> None:
    checks = frozenset([dg.AssetCheckKey(KEY, "orphans")])
    run = dg.DagsterRun("archive__c", str(uuid4()), status=Status.STARTED, asset_check_selection=checks)
    instance.add_run(run)
    assert find_unfinished(instance, KEY) == []


OTHER = dg.AssetKey(["c", "hourly", "u"])


@pytest.mark.parametrize("kind", ["permanent", "transient"])
def test_of_a_run_that_failed_in_part_the_others_are_done(instance: dg.DagsterInstance, kind: str) -> None:
    failed = make_failed_tags({OTHER: kind})
    add_run(instance, Status.FAILURE, failure=kind, keys=(KEY, OTHER), tags=failed)
    requests = Requests(instance, [KEY, OTHER])
    assert "succeeded" in str(requests.find_reason_to_wait(KEY, "same"))
    assert requests.find_reason_to_wait(KEY, "other") is None, "it has not failed, and need not wait"
    said = {"permanent": "fix its cause", "transient": "asked for again at"}
    assert said[kind] in str(requests.find_reason_to_wait(OTHER, "same"))
    assert (requests.find_reason_to_wait(OTHER, "other") is None) == (kind == "permanent")


def test_a_topic_waits_longer_with_each_failure_of_its_own(instance: dg.DagsterInstance) -> None:
    for _ in range(5):
        add_run(
            instance,
            Status.FAILURE,
            failure="transient",
            keys=(KEY, OTHER),
            tags=make_failed_tags({OTHER: "transient"}),
        )
    add_run(instance, Status.FAILURE, "b", "transient", keys=(KEY,))
    until = [Requests(instance, [KEY, OTHER]).find_reason_to_wait(key, "new") for key in (KEY, OTHER)]
    clocks = [datetime.strptime(str(text)[-12:-4], "%H:%M:%S").replace(tzinfo=timezone.utc) for text in until]
    assert timedelta(minutes=10) < (clocks[1] - clocks[0]) % timedelta(days=1) < timedelta(minutes=16)


def test_topics_with_the_same_range_are_one_request(instance: dg.DagsterInstance) -> None:
    hours = ["2026-01-01-00:00", "2026-01-01-01:00"]
    requests = Requests(instance, [KEY, OTHER])
    assert requests.ask(KEY, hours, "a") is None
    assert requests.ask(OTHER, hours, "b") is None
    assert requests.ask(OTHER, hours[:1], "c") is None
    assert requests.ask(OTHER, [], "d") is None
    both, one, until_now = requests.make("archive__c")
    assert both.tags["dagster/asset_partition_range_start"] == hours[0]
    assert both.tags["dagster/asset_partition_range_end"] == hours[1]
    assert both.asset_selection == [KEY, OTHER]
    assert both.tags["hours"] == "2026-01-01-00:00 to 01:00"
    assert one.tags["hours"] == hours[0]
    shown = [name for name in both.tags if not name.startswith(HIDDEN_TAG_PREFIX)]
    assert sorted(shown) == [ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG, "hours"]
    assert one.tags["dagster/asset_partition_range_end"] == hours[0]
    assert not {"dagster/asset_partition_range_start", "dagster/asset_partition_range_end"} & until_now.tags.keys()
    assert len({request.run_key for request in (both, one, until_now)}) == 3


def test_each_try_has_a_run_key_of_its_own(instance: dg.DagsterInstance) -> None:
    keys = set()
    for n in range(3):
        requests = Requests(instance, [KEY])
        assert requests.ask(KEY, [], "same") is None
        keys.add(requests.make("archive__c")[0].run_key)
        if n < 2:
            add_run(instance, Status.SUCCESS, inputs=f"between {n}")
    assert len(keys) == 3


def test_the_tags_of_hundreds_of_topics_are_small_and_tell_of_each(instance: dg.DagsterInstance) -> None:
    topics = [dg.AssetKey(["c", "hourly", f"topic.{n}"]) for n in range(500)]
    requests = Requests(instance, topics)
    for n, key in enumerate(topics):
        assert requests.ask(key, [], f"inputs of {n}") is None
    [asked] = requests.make("archive__c")
    assert max(map(len, asked.tags.values())) <= TAG_SIZE
    assert sum(map(len, asked.tags.values())) < 7_000
    failed = make_failed_tags(dict.fromkeys(topics[:400], "permanent"))
    tags = {**asked.tags, **failed, FAILURE_TAG: "permanent"}
    add_run(instance, Status.FAILURE, None, keys=topics, tags=tags)
    again = Requests(instance, topics)
    reasons = [str(again.find_reason_to_wait(key, f"inputs of {n}")) for n, key in enumerate(topics)]
    assert ["fix its cause" in reason for reason in reasons] == [n < 400 for n in range(500)]
    assert ["succeeded" in reason for reason in reasons] == [n >= 400 for n in range(500)]
    assert all(again.find_reason_to_wait(key, "other inputs") is None for key in topics)


@pytest.mark.parametrize("tag", ["", "x", "x" * 12, "x" * 5000, "\0" * 12])
def test_tags_that_somebody_else_set_stop_no_request(instance: dg.DagsterInstance, tag: str) -> None:
    hostile = {REQUEST_TAG: "c/hourly", INPUTS_TAG: tag, f"{INPUTS_TAG}.1": tag, f"{FAILED_TAG}.permanent": tag}
    add_run(instance, Status.FAILURE, None, "permanent", tags=hostile)
    add_run(instance, Status.STARTED, None, tags=hostile)
    requests = Requests(instance, [KEY])
    assert requests.find_reason_to_wait(KEY, "same") is None


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


def run(instance: dg.DagsterInstance, error: BaseException, retries: int = 0) -> dg.ExecuteInProcessResult:
    @dg.asset
    def failing(context: dg.AssetExecutionContext) -> None:
        with raise_dagster_failures(context, "hours 1 and 2 stay"):
            raise error

    return dg.materialize([failing], instance=instance, tags={RETRIES_TAG: str(retries)}, raise_on_error=False)


def tag(found: dg.ExecuteInProcessResult, instance: dg.DagsterInstance) -> str | None:
    stored = instance.get_run_by_id(found.run_id)
    assert stored is not None
    return stored.tags.get(FAILURE_TAG)


def test_a_permanent_error_fails_at_once_and_is_in_the_runbook(instance: dg.DagsterInstance) -> None:
    found = run(instance, MissingTopicError("topic flights does not exist; create it"), retries=3)
    data = found.get_step_failure_events()[0].step_failure_data
    assert data.user_failure_data is not None
    assert data.user_failure_data.description == "[KS-KAFKA-TOPIC] topic flights does not exist; create it"
    metadata = data.user_failure_data.metadata
    assert metadata["what_stays"].value == "hours 1 and 2 stay"
    assert metadata["runbook"].value == "docs/runbook.md#ks-kafka-topic-the-cluster-has-no-such-topic"
    assert tag(found, instance) == "permanent"
    assert not [e for e in found.all_events if e.is_step_up_for_retry]


@pytest.mark.parametrize("error", [DagsterExecutionInterruptedError(), ValueError("a defect")])
def test_the_page_of_a_cancelled_run_and_of_one_that_a_defect_ended_says_what_stays(
    instance: dg.DagsterInstance, error: BaseException
) -> None:
    found = run(instance, error)
    assert not found.success
    told = [entry.user_message for entry in instance.all_logs(found.run_id)]
    assert any("hours 1 and 2 stay" in message for message in told)


@pytest.mark.parametrize(
    ("error", "retries", "kind"),
    [
        (BrokerUnavailableError("no broker"), 0, "transient"),
        (OpenTransactionError("open"), 0, "transient"),
        (ClockError("a day ahead: no input says when it is set"), 3, "clock"),
        (ZeroDivisionError("a defect"), 3, None),
    ],
)
def test_an_error_that_is_not_retried_is_told_apart(
    instance: dg.DagsterInstance, error: Exception, retries: int, kind: str | None
) -> None:
    found = run(instance, error, retries)
    assert not found.success
    assert tag(found, instance) == kind
    assert not [e for e in found.all_events if e.is_step_up_for_retry]


def test_a_transient_error_is_retried(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.failures.RETRY_SECONDS", 0.01)
    found = run(instance, BrokerUnavailableError("no broker"), retries=2)
    assert len([e for e in found.all_events if e.is_step_up_for_retry]) == 2
    assert tag(found, instance) == "transient"


def test_a_full_disk_is_an_error_that_may_pass(instance: dg.DagsterInstance) -> None:
    with pytest.raises(OSError, match="No space left") as full:
        Path("/dev/full").write_text("more than there is room for")
    found = run(instance, full.value)
    assert tag(found, instance) == "transient"
    data = found.get_step_failure_events()[0].step_failure_data
    assert str(data.user_failure_data and data.user_failure_data.description).startswith("[KS-DISK] No space left")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"resources": {"spark": {"config": {"spark_config": {"spark.authenticate.secret": "hunter2"}}}}},
            ["resources.spark.config.spark_config is ignored", "KAFKA_S3_SPARK_CONF"],
        ),
        ({"execution": {"config": {"retries": {"enabled": {}}}}}, []),
        ({"execution": {"config": {"marker_to_close": "hunter2"}}}, ["execution.config.marker_to_close is ignored"]),
        ({"resources": {}, "execution": {}}, []),
        ({}, []),
    ],
)
def test_a_run_is_told_what_of_its_config_does_nothing(
    instance: dg.DagsterInstance, given: Mapping[str, Any], told: list[str]
) -> None:
    @dg.asset
    def settled(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> None:
        with raise_dagster_failures(context):
            pass

    found = dg.materialize([settled], instance=instance, resources={"spark": SparkResource()}, run_config=given)
    warnings = [e.user_message for e in instance.all_logs(found.run_id) if e.level == logging.WARNING]
    assert len(warnings) == bool(told)
    assert all(text in warnings[0] for text in told)
    assert not any("hunter2" in text for text in warnings)
