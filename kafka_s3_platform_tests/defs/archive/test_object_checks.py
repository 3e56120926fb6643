"""The check of objects, of many topics in one run."""

from datetime import timedelta

import dagster as dg
import pytest

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive import object_checks
from kafka_s3_platform.core.defs.topic import list_topic_assets
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, connector, produce, snapshot


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of three topics: two with two archived hours each, and one of which nothing is archived."""
    topics = tuple(f"{lab.topic}-{n}" for n in range(3))
    made = connector(lab.kafka, lab.store, topics[0]).model_copy(update={"topics": topics})
    for topic in topics[:2]:
        lab.create(topic)
        produce(lab.kafka, topic, [Sent(timestamp=NOON + n * HOUR) for n in range(2)])
        archived(of(made, topic))
    return made


def of(config: ConnectorConfig, topic: str) -> ConnectorConfig:
    """The same connector; helpers look at its first topic."""
    return config.model_copy(update={"topics": (topic,)})


def check(
    config: ConnectorConfig, instance: dg.DagsterInstance, *topics: str, job_name: str = "verify__c", hour: str = ""
) -> dict[str, dg.AssetCheckEvaluation]:
    """Check the topics in one run. Return what was found of each."""
    keys = [topic.key("hourly") for topic in list_topic_assets([config]) if topic.topic in topics]
    job = definitions(config).resolve_job_def(job_name)
    picked = frozenset(dg.AssetCheckKey(key, "objects") for key in keys)
    found = job.get_subset(asset_selection=frozenset(), asset_check_selection=picked).execute_in_process(
        instance=instance, tags={"dagster/partition": hour} if hour else {}
    )
    assert [e.step_key for e in found.all_events if e.is_step_start] == ["check__objects__c"]
    return {e.asset_key.path[2]: e for e in found.get_asset_check_evaluations()}


def delete_first(config: ConnectorConfig, topic: str) -> str:
    """Delete the object of the first hour. Return its key."""
    key = snapshot(of(config, topic)).segments[0].key
    store = ObjectStore(config.store)
    info = store.head(key)
    assert info is not None
    store.delete(key, info.etag)
    return key


def test_sound_topics_and_one_without_an_archive_pass(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    found = check(config, instance, *config.topics)
    assert {topic: e.passed for topic, e in found.items()} == dict.fromkeys(config.topics, True)
    assert {e.description for e in found.values()} == {None}


def test_a_missing_object_is_an_error_of_its_topic_alone(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    sound, bad, _ = config.topics
    key = delete_first(config, bad)
    found = check(config, instance, sound, bad)
    assert {topic: e.passed for topic, e in found.items()} == {sound: True, bad: False}
    assert found[bad].severity == dg.AssetCheckSeverity.ERROR
    assert found[bad].description == "Not as the index records them: 1 object."
    [row] = convert_metadata(found[bad].metadata)["damaged_objects"]
    assert row["key"] == key


@pytest.mark.parametrize(("hour", "passed"), [(0, False), (1, True)])
def test_after_a_run_only_the_objects_of_its_hours_are_checked(
    config: ConnectorConfig, instance: dg.DagsterInstance, hour: int, *, passed: bool
) -> None:
    bad = config.topics[1]
    delete_first(config, bad)
    [topic] = list_topic_assets([of(config, bad)])
    found = check(config, instance, bad, hour=topic.hours.key(NOON + hour * HOUR))
    assert found[bad].passed is passed


def test_an_orphan_is_a_warning(
    config: ConnectorConfig, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = config.topics[0]
    index = snapshot(of(config, topic))
    about = index.state.topic
    assert about is not None
    who = Provenance("c", topic, about.topic_id, index.index_id, "closed", 0, 1, config.archive.index_dir)
    key = f"topics/{topic}/year=2026/month=01/day=01/hour=12/{topic}+0+0000000099.parquet"
    ObjectStore(config.store).put_new(key, b"data", who.metadata(key))
    assert check(config, instance, topic)[topic].passed, "it is not a day old"
    monkeypatch.setattr(object_checks, "ORPHAN_AGE", timedelta())
    found = check(config, instance, topic)[topic]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert convert_metadata(found.metadata)["found_orphans"] == [{"key": key}]
    assert found.metadata["orphan_bytes"].value == 4
