"""Where Dagster's partitions begin: with the day of the earliest hour that was seen of the connector."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._utils.test.definitions import scoped_definitions_load_context

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.archive.first_hour import FIRST_HOURS, recall_first_hour
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.definitions import build_definitions, defs
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, asked_keys, connector_of_this_hour, topic_of
from kafka_s3_platform_tests.support import Sent, archived, connector, produce

MARCH = datetime(2026, 3, 1, 9, tzinfo=ZoneInfo("UTC"))


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of two topics."""
    found = connector_of_this_hour(lab.kafka, lab.store, lab.create_topic())
    return found.model_copy(update={"topics": (lab.topic, lab.create(f"{lab.topic}-2"))})


def begins(repository: dg.RepositoryDefinition) -> set[datetime]:
    """Where the partitions of all hourly and daily assets begin."""
    found = {node.partitions_def for node in repository.asset_graph.asset_nodes}
    return {each.start for each in found if isinstance(each, dg.TimeWindowPartitionsDefinition)}


def day_of(config: ConnectorConfig, hours: int) -> datetime:
    return ago(config, hours).astimezone(ZoneInfo("UTC")).replace(hour=0)


def tick(config: ConnectorConfig, folder: Path, instance: dg.DagsterInstance) -> list[tuple[str | None, str | None]]:
    """One tick of the lag sensor of definitions that were loaded just now; the hours that it asks for."""
    definitions = build_definitions([config], autostart=False, hours_folder=folder)
    sensor = definitions.get_repository_def().get_sensor_def("lag__c")
    with dg.build_sensor_context(instance=instance, definitions=definitions) as context:
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return [asked_keys(asked) for asked in found.run_requests or ()]


def offered(config: ConnectorConfig, folder: Path) -> set[datetime]:
    return begins(build_definitions([config], autostart=False, hours_folder=folder).get_repository_def())


def test_partitions_begin_with_the_earliest_hour_of_any_topic(
    config: ConnectorConfig, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    topic = topic_of(config)
    assert offered(config, tmp_path) == {day_of(config, 720)}, "archive.start.hour, until something is seen"
    produce(config.kafka, topic.topic, [Sent(timestamp=ago(config, 2))])
    produce(config.kafka, config.topics[1], [Sent(timestamp=ago(config, 50))])
    asked = tick(config, tmp_path, instance)
    assert topic.hours.key(ago(config, 50)) in {first for first, _ in asked}
    assert offered(config, tmp_path) == {day_of(config, 50)}

    produce(config.kafka, topic.topic, [Sent(timestamp=ago(config, 200))])
    archived(config)
    before = topic.hours.key(ago(config, 200))
    assert before not in {first for first, _ in tick(config, tmp_path, instance)}, "Dagster would refuse it yet"
    assert offered(config, tmp_path) == {day_of(config, 200)}
    assert before in {first for first, _ in tick(config, tmp_path, instance)}
    assert offered(config, tmp_path) == {day_of(config, 200)}


def test_an_hour_that_dagster_shows_stays_where_the_file_is_lost(
    config: ConnectorConfig, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """As on a new machine. That the other topic does not answer changes nothing."""
    [gone, there] = config.topics
    produce(config.kafka, there, [Sent(timestamp=ago(config, 2))])
    shown = topic_of(config).hours.key(ago(config, 300))
    instance.report_runless_asset_event(dg.AssetMaterialization(topic_of(config).key("hourly"), partition=shown))
    lost = config.model_copy(update={"topics": (gone, there, "not-there")})
    tick(lost, tmp_path, instance)
    assert offered(config, tmp_path) == {day_of(config, 300)}


def remember(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "c.json").write_text(text)


def test_the_files_start_hour_is_a_bound_another_index_or_file_tells_nothing(tmp_path: Path) -> None:
    store = StoreSettings(bucket="bucket")
    late, early = (
        connector(KafkaSettings(bootstrap_servers="-"), store, "t", start_hour=MARCH + timedelta(days=n))
        for n in (40, -40)
    )
    known = {"index": ["", TopicAssets(early, "t").index.uri], "first_hour": MARCH.isoformat()}
    remember(tmp_path, json.dumps(known))
    assert offered(early, tmp_path) == {MARCH.replace(hour=0)}
    assert offered(late, tmp_path) == {late.archive.start_hour.replace(hour=0)}
    for broken in (json.dumps({**known, "index": ["", "s3://another"]}), "{", "[]", '{"index": 1}'):
        remember(tmp_path, broken)
        assert recall_first_hour(early, tmp_path) is None


def test_a_runs_process_takes_the_hours_its_run_was_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Kubernetes a run has a file system of its own; elsewhere the hour may have moved since the run was planned."""
    keys = {"connector.class": "S3SinkConnector", "topics": "t", "s3.bucket.name": "bucket", "timezone": "UTC"}
    secret = {"aws.access.key.id": "id", "aws.secret.access.key": "hidden"}
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "config": {**keys, **secret}}))
    (tmp_path / "worker.properties").write_text("bootstrap.servers=127.0.0.1:31699\n")
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    remember(tmp_path / FIRST_HOURS, json.dumps({"index": INDEX, "first_hour": MARCH.isoformat()}))
    with scoped_definitions_load_context():
        planned = initialize_repository_def_from_pointer(DEFINITIONS)
    (tmp_path / FIRST_HOURS / "c.json").unlink()
    with scoped_definitions_load_context():
        run = reconstruct_repository_def_from_pointer(DEFINITIONS, planned.repository_load_data)
    assert begins(run) == begins(planned) == {MARCH.replace(hour=0)}
    assert begins(defs().get_repository_def()) == {datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))}


DEFINITIONS = ModuleCodePointer("kafka_s3_platform.definitions", "defs", None)
INDEX = ["", "s3://bucket/_index/connector=c"]
