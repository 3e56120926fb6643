"""What Dagster's storage tells of runs, the one of development and the one of servers, from one look to the next."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType

from kafka_s3_platform.monitoring.history import RunHistories


@pytest.fixture
def instance(dagster_yaml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text(dagster_yaml)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_COMPUTE_LOGS_BUCKET", "logs")
    with dg.DagsterInstance.get() as found:
        yield found


def end_run(instance: dg.DagsterInstance, job: str, kind: DagsterEventType, *picked: str) -> str:
    """A run that began and ended so."""
    selection = frozenset([dg.AssetKey([*picked])]) if picked else None
    run = dg.DagsterRun(job_name=job, status=dg.DagsterRunStatus.STARTED, asset_selection=selection)
    instance.add_run(run)
    for each in (DagsterEventType.RUN_START, kind):
        event = dg.DagsterEvent(event_type_value=each.value, job_name=job, message=f"{each.value} of {job}")
        instance.report_dagster_event(event, run.run_id)
    return run.run_id


def test_each_look_adds_what_has_ended_since(instance: dg.DagsterInstance) -> None:
    histories = RunHistories()
    assert histories.read(["c", "other"])["c"].failed is None
    failed = end_run(instance, "archive__c", DagsterEventType.RUN_FAILURE)
    end_run(instance, "__ASSET_JOB", DagsterEventType.RUN_FAILURE, "c")  # an asset of others has the connector's name
    history = histories.read(["c", "other"])["c"]
    assert history.failed is not None
    assert (history.failed.run_id, history.failed.kind, history.failed.is_over) == (failed, "archive", False)
    assert history.failed.message.endswith("of archive__c")

    end_run(instance, "compact__c", DagsterEventType.RUN_SUCCESS)
    end_run(instance, "archive__c", DagsterEventType.RUN_CANCELED)
    found = histories.read(["c", "other"])
    assert found["c"].failed == history.failed, "the end of another kind of run, or its cancellation, heals nothing"
    assert found["other"].failed is None
    assert not found["other"].ended

    # as Dagster's UI names a run of picked assets
    end_run(instance, "__ASSET_JOB", DagsterEventType.RUN_SUCCESS, "c", "hourly", "t")
    healed = histories.read(["c", "other"])["c"]
    assert healed.failed is not None
    assert healed.failed.is_over
    assert {(run.kind, run.is_success) for run in healed.ended} == {("archive", True), ("compact", True)}
    assert all(run.seconds is not None and 0 <= run.seconds < 60 for run in healed.ended)
    assert RunHistories().read(["c"])["c"] == healed, "a server that begins now knows the same"


def test_a_connector_whose_file_is_mended_later_has_its_earlier_runs(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.monitoring.history.OVERLAP", timedelta())
    failed = end_run(instance, "archive__late", DagsterEventType.RUN_FAILURE)
    histories = RunHistories()
    histories.read(["c"])
    found = histories.read(["c", "late"])["late"].failed
    assert found is not None
    assert found.run_id == failed
