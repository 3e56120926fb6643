"""What Dagster's storage tells of runs, the one of development and the one of servers, from one look to the next."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType

from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.operate.instance.history import RunHistories
from kafka_s3_platform_tests.conftest import present


@pytest.fixture
def instance(dagster_yaml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text(dagster_yaml)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_COMPUTE_LOGS_BUCKET", "logs")
    with dg.DagsterInstance.get() as found:
        yield found


def end_run(instance: dg.DagsterInstance, job: str, kind: DagsterEventType, *picked: str, **run_config: object) -> str:
    """A run that began and ended so."""
    selection = frozenset(dg.AssetKey(each.split("/")) for each in picked) or None
    run = dg.DagsterRun(
        job_name=job, status=dg.DagsterRunStatus.STARTED, asset_selection=selection, run_config=run_config
    )
    instance.add_run(run)
    for each in (DagsterEventType.RUN_START, kind):
        event = dg.DagsterEvent(event_type_value=each.value, job_name=job, message=f"{each.value} of {job}")
        instance.report_dagster_event(event, run.run_id)
    return run.run_id


def test_each_look_adds_what_has_ended_since(instance: dg.DagsterInstance) -> None:
    histories = RunHistories()
    assert not histories.read(["c", "other"])["c"].failures
    failed = end_run(instance, "archive__c", DagsterEventType.RUN_FAILURE, "c/hourly/t")
    end_run(instance, "__ASSET_JOB", DagsterEventType.RUN_FAILURE, "c")  # an asset of others has the connector's name
    [failure] = histories.read(["c", "other"])["c"].failures
    assert (failure.run_id, failure.kind, failure.topics, failure.is_over) == (failed, "archive", ("t",), False)
    assert failure.message.endswith("of archive__c")

    end_run(instance, "compact__c", DagsterEventType.RUN_SUCCESS, "c/daily/t")
    end_run(instance, "archive__c", DagsterEventType.RUN_CANCELED, "c/hourly/t")
    end_run(instance, "archive__c", DagsterEventType.RUN_SUCCESS, "c/hourly/u")
    found = histories.read(["c", "other"])
    assert found["c"].failures == (failure,), "another kind of run, a cancellation and another topic heal nothing"
    assert not found["other"].failures
    assert not found["other"].ended

    # as Dagster's UI names a run of picked assets
    end_run(instance, "__ASSET_JOB", DagsterEventType.RUN_SUCCESS, "c/hourly/t")
    healed = histories.read(["c", "other"])["c"]
    assert [each.is_over for each in healed.failures] == [True]
    assert {(run.kind, run.is_success) for run in healed.ended} == {("archive", True), ("compact", True)}
    assert (healed.day_runs, healed.day_failures) == (4, 1)
    assert all(run.seconds is not None and 0 <= run.seconds < 60 for run in healed.ended)
    assert RunHistories().read(["c"])["c"] == healed, "a server that begins now knows the same"


def test_a_failure_hides_no_other_one_and_is_over_topic_by_topic(instance: dg.DagsterInstance) -> None:
    end_run(instance, "archive__c", DagsterEventType.RUN_FAILURE, "c/hourly/t", "c/hourly/u")
    end_run(instance, "restore__c", DagsterEventType.RUN_FAILURE, "c/restored/t")
    end_run(instance, "archive__c", DagsterEventType.RUN_SUCCESS, "c/hourly/t")
    history = RunHistories().read(["c"])["c"]
    assert {(each.kind, each.topics, each.is_over) for each in history.failures} == {
        ("archive", ("u",), False),
        ("restore", ("t",), False),
    }
    assert present(history.find_failure("u")).kind == "archive"
    assert history.find_failure("v") is None


def test_retention_and_the_archive_of_a_registry_fail_as_other_work_does(instance: dg.DagsterInstance) -> None:
    end_run(instance, "retain__c", DagsterEventType.RUN_FAILURE)
    end_run(instance, "registry__c", DagsterEventType.RUN_FAILURE, "c/registry/one", "c/registry/two")
    end_run(instance, "registry__c", DagsterEventType.RUN_SUCCESS, "c/registry/one")
    failures = RunHistories().read(["c"])["c"].failures
    assert {(each.kind, each.topics, each.is_over) for each in failures} == {
        ("retain", (), False),
        ("registry", ("two",), False),
    }


DRY_RUN = {"ops": {"restored__c": {"config": {"how": {"dry_run": True}}}}}


def test_a_dry_run_is_neither_a_success_nor_a_failure_of_a_restore(instance: dg.DagsterInstance) -> None:
    end_run(instance, "restore__c", DagsterEventType.RUN_FAILURE, "c/restored/t")
    for end in (DagsterEventType.RUN_SUCCESS, DagsterEventType.RUN_FAILURE):
        end_run(instance, "restore__c", end, "c/restored/t", **DRY_RUN)
    history = RunHistories().read(["c"])["c"]
    assert [each.is_over for each in history.failures] == [False]
    assert [(each.kind, each.is_success) for each in history.ended] == [("restore", False)]


def test_a_failed_restore_needs_somebody_until_its_run_is_deleted_and_what_is_requested_again_needs_nobody(
    instance: dg.DagsterInstance,
) -> None:
    histories = RunHistories()
    for kind in ("archive", "compact", "verify", "upkeep", "retain", "registry", "rehearse"):
        end_run(instance, f"{kind}__c", DagsterEventType.RUN_FAILURE)
    permanent = end_run(instance, "verify__other", DagsterEventType.RUN_FAILURE)
    instance.add_run_tags(permanent, {FAILURE_TAG: "permanent"})
    first, second = (end_run(instance, "restore__c", DagsterEventType.RUN_FAILURE, "c/restored/t") for _ in range(2))
    assert find_needy(histories, "c") == [second]
    assert find_needy(histories, "other") == [permanent]
    instance.delete_run(second)
    assert find_needy(histories, "c") == [first]
    instance.delete_run(first)
    assert find_needy(histories, "c") == []


def find_needy(histories: RunHistories, connector: str) -> list[str]:
    """The failed runs of a connector that need somebody, by one look."""
    history = histories.read(["c", "other"])[connector]
    return [run.run_id for run in ConnectorHealth(connector, datetime.now(timezone.utc), history=history).failures]


def test_a_connector_whose_file_is_mended_later_has_its_earlier_runs(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.operate.instance.history.OVERLAP", timedelta())
    failed = end_run(instance, "archive__late", DagsterEventType.RUN_FAILURE)
    histories = RunHistories()
    histories.read(["c"])
    [found] = histories.read(["c", "late"])["late"].failures
    assert found.run_id == failed
