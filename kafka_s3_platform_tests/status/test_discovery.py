"""Topics by pattern: found at Kafka, remembered, recalled when definitions load, noticed when they are new."""

import json
import time
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka.admin import AdminClient
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._utils.test.definitions import scoped_definitions_load_context

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import BrokerUnavailableError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.status import discovery
from kafka_s3_platform.core.status.discovery import (
    FIRST_LOOK_SECONDS,
    FoundTopics,
    find_gone_topics,
    find_topics_folder,
    give_topics,
    look_for_topics,
    recall_topics,
    resolve_from_memory,
    resolve_now,
)
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.support import NOON, connector

NOWHERE = KafkaSettings(bootstrap_servers="127.0.0.1:31699")


def pattern(kafka: KafkaSettings, store: StoreSettings, name: str) -> ConnectorConfig:
    """A connector of every topic whose name begins with `name`."""
    config = connector(kafka, store, "none", start_hour=NOON)
    return config.model_copy(update={"topics": (), "topics_regex": f"{name}.*"})


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    return pattern(lab.kafka, lab.store, lab.topic)


@pytest.fixture
def unreachable() -> ConnectorConfig:
    return pattern(NOWHERE, StoreSettings(bucket="bucket"), "t")


def remember(config: ConnectorConfig, folder: Path, *topics: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "c.json").write_text(json.dumps({"topics": topics, "gone": [], "letters": []}))


def delete(config: ConnectorConfig, topic: str) -> None:
    client = AdminClient({**config.kafka.properties("admin")})
    client.delete_topics([topic])[topic].result(30)
    with ClusterAdmin(config.kafka) as admin:
        until(lambda: topic not in admin.list_topics())


def test_topics_that_match_are_found_and_remembered(config: ConnectorConfig, lab: Lab, tmp_path: Path) -> None:
    assert look_for_topics(config, tmp_path) == FoundTopics(())
    lab.create_topic()
    lab.create(f"{lab.topic}.b")
    lab.create(f"not-{lab.topic}")
    assert look_for_topics(config, tmp_path).topics == (lab.topic, f"{lab.topic}.b")
    assert recall_topics(config, tmp_path) == look_for_topics(config, tmp_path)
    assert resolve_from_memory([config], tmp_path)[0].topics == (lab.topic, f"{lab.topic}.b")


def test_a_topic_that_is_gone_stays(config: ConnectorConfig, lab: Lab, tmp_path: Path) -> None:
    lab.create_topic()
    lab.create(f"{lab.topic}.b")
    look_for_topics(config, tmp_path)
    delete(config, lab.topic)
    assert look_for_topics(config, tmp_path) == FoundTopics((lab.topic, f"{lab.topic}.b"), (lab.topic,))
    assert find_gone_topics(config, tmp_path) == {lab.topic}
    lab.create_topic()
    assert look_for_topics(config, tmp_path).gone == ()


def test_a_topic_that_is_gone_and_forgotten_is_known_by_its_archive(
    config: ConnectorConfig, topic_name: str, tmp_path: Path
) -> None:
    for topic in (topic_name, "another"):
        TopicIndex.of(config, topic).open().commit(Change((Scan(0, 0, 1, 1, None, 1),)))
    assert look_for_topics(config, tmp_path) == FoundTopics((topic_name,), (topic_name,))


def test_what_is_remembered_is_recalled_without_kafka(
    unreachable: ConnectorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(unreachable, tmp_path, "t1", "t2", "another")
    asked: list[ConnectorConfig] = []
    monkeypatch.setattr(discovery, "look_for_topics", lambda config, _: asked.append(config))
    [found] = resolve_from_memory([unreachable], tmp_path)
    assert asked == []
    assert found.topics == ("t1", "t2"), "a topic that the pattern of now does not match is left out"


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"topics": 1}'])
def test_a_memory_that_cannot_be_read_is_as_none(unreachable: ConnectorConfig, tmp_path: Path, broken: str) -> None:
    (tmp_path / "c.json").write_text(broken)
    assert recall_topics(unreachable, tmp_path) == FoundTopics(())


def test_the_very_first_look_holds_up_loading_for_a_moment_only(unreachable: ConnectorConfig, tmp_path: Path) -> None:
    others = [unreachable.model_copy(update={"name": f"c{n}"}) for n in range(10)]
    started = time.monotonic()
    found = resolve_from_memory(others, tmp_path)
    # one after the other they would take ten times as long, and a busy machine takes longer for all
    assert time.monotonic() - started < 8 * FIRST_LOOK_SECONDS
    assert [c.topics for c in found] == [()] * 10


def test_a_connector_that_names_its_topics_is_never_looked_up(unreachable: ConnectorConfig, tmp_path: Path) -> None:
    named = unreachable.model_copy(update={"topics_regex": None, "topics": ("t",)})
    assert resolve_from_memory([named], tmp_path) == (named,)
    assert resolve_now(named, tmp_path) == named
    assert find_gone_topics(named, tmp_path) == frozenset()


def test_a_command_uses_what_is_remembered_where_kafka_does_not_answer(
    unreachable: ConnectorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.status.discovery.BROKER_SECONDS", 1.0)
    with pytest.raises(BrokerUnavailableError):
        resolve_now(unreachable, tmp_path)
    remember(unreachable, tmp_path, "t1")
    assert resolve_now(unreachable, tmp_path).topics == ("t1",)


def test_topics_are_remembered_in_dagsters_home_or_beside_its_local_storage() -> None:
    assert find_topics_folder({"DAGSTER_HOME": "/d"}) == Path("/d/kafka_s3_topics")
    assert find_topics_folder({}) == Path(".dagster/kafka_s3_topics")


def test_a_connector_without_any_topic_yet_has_the_sensor_that_looks_for_some(unreachable: ConnectorConfig) -> None:
    definitions = build_definitions([unreachable], autostart=False)
    dg.Definitions.validate_loadable(definitions)
    [sensor] = definitions.get_repository_def().sensor_defs
    assert (sensor.name, sensor.default_status) == ("topics__c", dg.DefaultSensorStatus.RUNNING)


def test_another_topic_changes_nothing_of_how_runs_of_the_others_end(unreachable: ConnectorConfig) -> None:
    digests = {TopicAssets(give_topics(unreachable, t), "t1").config_digest for t in (["t1"], ["t1", "t2"])}
    assert len(digests) == 1


def test_a_runs_process_takes_the_topics_that_its_run_was_planned_with(
    unreachable: ConnectorConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "config": KEYS}))
    (tmp_path / "worker.properties").write_text("bootstrap.servers=127.0.0.1:31699\n")
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    remember(unreachable, find_topics_folder(), "t1")
    pointer = ModuleCodePointer("kafka_s3_platform.definitions", "defs", None)
    with scoped_definitions_load_context():
        planned = initialize_repository_def_from_pointer(pointer)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "lost"))
    with scoped_definitions_load_context():
        run = reconstruct_repository_def_from_pointer(pointer, planned.repository_load_data)
    assert dg.AssetKey(["c", "hourly", "t1"]) in run.asset_graph.get_all_asset_keys()


KEYS = {
    "connector.class": "S3SinkConnector",
    "topics.regex": "t.*",
    "s3.bucket.name": "bucket",
    "aws.access.key.id": "id",
    "aws.secret.access.key": "hidden",
}
