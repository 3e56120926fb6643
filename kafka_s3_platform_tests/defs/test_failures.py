import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from kafka_s3_platform.defs.failures import RETRIES_TAG, raise_dagster_failures
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    ClockError,
    MissingTopicError,
    OpenTransactionError,
    PlatformError,
)
from kafka_s3_platform.instance.work import FAILURE_TAG


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


def test_a_permanent_error_fails_at_once_with_its_own_words_and_its_place_in_the_runbook(
    instance: dg.DagsterInstance,
) -> None:
    found = run(instance, MissingTopicError("topic flights does not exist; create it"), retries=3)
    data = found.get_step_failure_events()[0].step_failure_data
    assert data.user_failure_data is not None
    assert data.user_failure_data.description == "[KS-KAFKA-TOPIC] topic flights does not exist; create it"
    place = data.user_failure_data.metadata["runbook"].value
    assert place == "docs/runbook.md#ks-kafka-topic-the-cluster-has-no-such-topic"
    assert tag(found, instance) == "permanent"
    assert not [e for e in found.all_events if e.is_step_up_for_retry]


def test_the_page_of_a_failed_run_says_what_stays(instance: dg.DagsterInstance) -> None:
    data = run(instance, MissingTopicError("gone")).get_step_failure_events()[0].step_failure_data
    assert data.user_failure_data is not None
    assert data.user_failure_data.metadata["what_stays"].value == "hours 1 and 2 stay"


@pytest.mark.parametrize("error", [DagsterExecutionInterruptedError(), ValueError("a defect")])
def test_the_page_of_a_cancelled_run_and_of_one_that_a_defect_ended_says_what_stays(
    instance: dg.DagsterInstance, error: BaseException
) -> None:
    found = run(instance, error)
    assert not found.success
    told = [entry.user_message for entry in instance.all_logs(found.run_id)]
    assert any("hours 1 and 2 stay" in message for message in told)


@pytest.mark.parametrize("error", [BrokerUnavailableError("no broker"), OpenTransactionError("open")])
def test_a_transient_error_that_may_not_be_retried_any_more_is_told_apart(
    instance: dg.DagsterInstance, error: PlatformError
) -> None:
    found = run(instance, error)
    assert not found.success
    assert tag(found, instance) == "transient"


def test_a_wrong_clock_is_not_retried_and_told_apart_since_no_input_says_when_it_is_set(
    instance: dg.DagsterInstance,
) -> None:
    found = run(instance, ClockError("a day ahead"), retries=3)
    assert tag(found, instance) == "clock"
    assert not [e for e in found.all_events if e.is_step_up_for_retry]


def test_a_transient_error_is_retried(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.defs.failures.RETRY_SECONDS", 0.01)
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


def test_a_defect_is_neither(instance: dg.DagsterInstance) -> None:
    found = run(instance, ZeroDivisionError("a defect"), retries=3)
    assert not found.success
    assert tag(found, instance) is None
    assert not [e for e in found.all_events if e.is_step_up_for_retry]


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
