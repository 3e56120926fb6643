"""Broken connector files in the code location: red, and nobody else's matter."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest

from kafka_s3_platform.core.defs.archive.hourly import make_hourly_assets
from kafka_s3_platform.core.defs.file_checks import FILES_KEY
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.definitions import defs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three connectors, `a`, `b` and `c`."""
    (tmp_path / "worker.properties").write_text("bootstrap.servers=broker.invalid:9092\n")
    for name in "abc":
        write(tmp_path, name)
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, **more: str) -> None:
    keys = {"name": name, "topics": f"topic-{name}", "s3.bucket.name": "bucket"}
    (folder / f"{name}.json").write_text(json.dumps({**keys, **more}))


def connectors(found: dg.Definitions) -> list[str]:
    """Whose archive jobs there are."""
    jobs = found.get_repository_def().get_all_jobs()
    return sorted(job.name.removeprefix("archive__") for job in jobs if job.name.startswith("archive__"))


def look(cursor: str | None = None, found: dg.Definitions | None = None) -> dg.SensorResult:
    """A tick of the sensor, of a code server that loaded its definitions now, or before."""
    sensor = (found or defs()).get_repository_def().get_sensor_def("connector_files")
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance, cursor) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def states(events: Sequence[object]) -> dict[str, bool]:
    """Check -> whether it passed."""
    evaluations = [event for event in events if isinstance(event, dg.AssetCheckEvaluation)]
    assert len(evaluations) == len(events)
    assert all(evaluation.asset_key == FILES_KEY for evaluation in evaluations)
    return {evaluation.check_name: evaluation.passed for evaluation in evaluations}


def test_good_files_are_green_checks_which_are_told_once(folder: Path) -> None:
    found = defs()
    dg.Definitions.validate_loadable(found)
    keys = found.get_repository_def().asset_graph.asset_check_keys
    assert {key.name for key in keys if key.asset_key == FILES_KEY} == {"a__json", "b__json", "c__json"}
    first = look()
    assert states(first.asset_events) == {"a__json": True, "b__json": True, "c__json": True}
    assert "3 files loaded" in str(first.skip_reason)
    assert not look(first.cursor).asset_events


@pytest.mark.parametrize("text", ['{"name": "b"', '{"name": "b", "flush.sise": "3"}', '{"name": "${env:NOT_SET}"}'])
def test_a_broken_file_is_red_and_the_others_are_defined(
    folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "b.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        found = defs()
    dg.Definitions.validate_loadable(found)
    assert connectors(found) == ["a", "c"]
    assert "b.json" in caplog.text
    first = look()
    assert states(first.asset_events) == {"a__json": True, "b__json": False, "c__json": True}
    assert "b.json" in str(first.skip_reason)
    with pytest.raises(ConfigError, match=r"b\.json"):
        look(first.cursor)
    write(folder, "b")
    assert states(look(first.cursor).asset_events) == {"b__json": True}


@pytest.mark.parametrize("file", [b"b (copy).json", "gr\u00f6\u00dfe.json".encode(), b"\xff.json"])
@pytest.mark.parametrize("is_good", [True, False])
def test_a_file_of_any_name_is_a_check_and_stops_no_other(folder: Path, file: bytes, is_good: bool) -> None:
    text = (folder / "b.json").read_bytes() if is_good else b"{"
    (folder / "b.json").unlink()
    (folder / os.fsdecode(file)).write_bytes(text)
    found = defs()
    dg.Definitions.validate_loadable(found)
    assert connectors(found) == (["a", "b", "c"] if is_good else ["a", "c"])
    first = look()
    with dg.DagsterInstance.ephemeral() as instance:
        for event in first.asset_events:
            instance.report_runless_asset_event(event)
    assert list(states(first.asset_events).values()).count(False) == (0 if is_good else 1)


def test_a_file_that_is_gone_is_not_said_to_load(folder: Path) -> None:
    running = defs()
    first = look(found=running)
    (folder / "a.json").unlink()
    assert states(look(first.cursor, running).asset_events) == {"a__json": False}
    [event] = look(first.cursor, running).asset_events
    assert "a.json is not there any more" in str(event.description)
    assert connectors(defs()) == ["b", "c"]


def test_files_in_conflict_are_red_and_the_others_are_defined(folder: Path) -> None:
    write(folder, "b", topics="topic-a")
    assert connectors(defs()) == ["c"]
    assert states(look().asset_events) == {"a__json": False, "b__json": False, "c__json": True}


def test_without_any_good_file_the_code_location_loads_and_is_red(folder: Path) -> None:
    (folder / "worker.properties").write_text("nonsense=1\n")
    found = defs()
    dg.Definitions.validate_loadable(found)
    assert connectors(found) == []
    first = look()
    assert set(states(first.asset_events).values()) == {False}
    assert str(first.skip_reason).count("worker.properties: 1 key refused") == 1


def test_a_file_that_breaks_while_a_code_server_runs_is_red_without_a_reload(folder: Path) -> None:
    running = defs()
    first = look(found=running)
    (folder / "new.json").write_text("{")
    with pytest.raises(ConfigError, match=r"new\.json"):
        look(first.cursor, running)
    (folder / "a.json").write_text("{")
    assert states(look(first.cursor, running).asset_events) == {"a__json": False}


def test_a_check_can_be_run_by_hand(folder: Path) -> None:
    found = defs()
    (folder / "b.json").write_text("{")
    job = found.get_repository_def().get_implicit_global_asset_job_def()
    keys = [dg.AssetCheckKey(FILES_KEY, f"{name}__json") for name in "ab"]
    subset = job.get_subset(asset_selection=frozenset(), asset_check_selection=frozenset(keys))
    result = subset.execute_in_process()
    assert states(result.get_asset_check_evaluations()) == {"a__json": True, "b__json": False}


def test_a_connector_that_cannot_be_defined_is_red_and_the_others_are_defined(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(topics: Sequence[TopicAssets]) -> dg.AssetsDefinition:
        if topics[0].config.name == "b":
            raise ValueError("a defect")
        return make_hourly_assets(topics)

    monkeypatch.setattr("kafka_s3_platform.definitions.make_hourly_assets", failing)
    assert connectors(defs()) == ["a", "c"]
    first = look()
    assert states(first.asset_events) == {"a__json": True, "b__json": False, "c__json": True}
    assert "connector b cannot be defined: ValueError: a defect" in str(first.skip_reason)


def test_a_pattern_whose_topics_cannot_be_found_stops_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"name": "r", "topics.regex": "r.*", "s3.bucket.name": "other"}
    (folder / "r.json").write_text(json.dumps(keys))

    def failing(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("kafka_s3_platform.core.status.discovery.look_for_topics", failing)
    found = defs()
    assert connectors(found) == ["a", "b", "c"]
    assert found.get_repository_def().has_sensor_def("topics__r")
