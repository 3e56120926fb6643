"""What is said of the cluster around the target, without one."""

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from kafka_s3_platform.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    ErrorSettings,
    KafkaSettings,
    RecordSettings,
    RegistrySettings,
    SourceSettings,
)
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.kafka.admin import ClusterDescription, TopicDescription
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.restore.archive_source import check_archive
from kafka_s3_platform.restore.preflight.checks import OTHER_CLUSTER_SECONDS, Target, inspect_target
from kafka_s3_platform.restore.preflight.target import TargetConfigs
from kafka_s3_platform.restore.request import Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan, make_archive_target
from kafka_s3_platform.restore.source.base import TargetStart
from kafka_s3_platform_tests.restore.plans import CONFIG, plan, request
from kafka_s3_platform_tests.support import InProcessRunner

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
CLUSTER = ClusterDescription("cluster-1", 2, None)


def target(**changes: Any) -> Target:
    description = TopicDescription("u", "id-of-u", (0,), {}, **changes)
    return Target(description, TargetConfigs("u", {}, NOW), {}, CLUSTER)


def without_objects(**changes: Any) -> ArchivePlan:
    return replace(plan(), objects=(), **changes)


def told(asked: RestoreRequest, given: ArchivePlan, of: Target | None = None) -> list[tuple[bool, str]]:
    there = of or target()
    goes = make_archive_target(asked, given)
    size = there.kafka_partition_count(asked, goes)
    found = [*inspect_target(asked, goes, there), *check_archive(asked, given, size, [], InProcessRunner())]
    return [(f.refuses, f.text) for f in found if "holds no record in the window" not in f.text]


def named(name: str, servers: str = "127.0.0.1:1", **changes: Any) -> ConnectorConfig:
    kafka = KafkaSettings(bootstrap_servers=servers)
    return CONFIG.model_copy(update={"name": name, "kafka": kafka, "topics": ("x",)} | changes)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (named("by-name", topics=("u",)), "u is archived by connector by-name too"),
        (named("by-regex", topics=(), topics_regex="[tu]"), "u is archived by connector by-regex too"),
        (named("by-list", "other:9,127.0.0.1:1", topics=("u",)), "u is archived by connector by-list too"),
        (named("of-another-topic"), None),
        (named("of-another-regex", topics_regex="u.+"), None),
        (
            named(
                "of-its-dead-letters",
                topics_regex=".*",
                records=RecordSettings(errors=ErrorSettings(dead_letter_topic="u")),
            ),
            None,
        ),
    ],
)
def test_a_connector_that_archives_the_target_is_named(other: ConnectorConfig, said: str | None) -> None:
    found = told(request(connectors=(other,)), without_objects())
    assert [text.split(":")[0] for _, text in found] == ([said] if said else [])


def test_a_sink_that_is_restored_by_its_own_file_as_a_sources_still_archives() -> None:
    sink = CONFIG.model_copy(update={"topics": ("t", "u")})
    reader = sink.model_copy(update={"source": SourceSettings()})
    asked = replace(request(connectors=(sink,)), config=reader)
    assert any("u is archived by connector" in text for _, text in told(asked, without_objects()))


def test_a_connector_of_a_cluster_that_does_not_answer_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kafka_s3_platform.restore.preflight.checks.OTHER_CLUSTER_SECONDS", min(OTHER_CLUSTER_SECONDS, 0.5)
    )
    other = named("far", "127.0.0.1:2", topics=("u",))
    [(refuses, text)] = told(request(connectors=(other,)), without_objects())
    assert (refuses, "connector far archives a topic named u of a cluster that does not answer" in text) == (
        False,
        True,
    )


def test_the_source_topic_is_refused_unless_it_is_meant() -> None:
    same = target()
    source = replace(plan().source, topic_id="id-of-u")
    assert [r for r, _ in told(request(), without_objects(source=source), same)] == [True]
    assert [r for r, _ in told(request(allow_source_topic=True), without_objects(source=source), same)] == [False]


def test_missing_rights_on_the_target_are_a_refusal() -> None:
    found = told(request(), without_objects(), target(operations=frozenset({"READ", "DESCRIBE"})))
    assert [r for r, _ in found] == [True]
    assert "lack WRITE on u" in found[0][1]


def test_an_absent_target_is_refused_unless_creation_is_asked_and_then_checked_against_the_brokers() -> None:
    absent = replace(target(), description=None)
    [(refuses, text)] = told(request(), without_objects(), absent)
    assert (refuses, "Create it with 1 kafka partition," in text) == (True, True)
    assert told(request(create_topic=True), without_objects(), absent) == []
    [(refuses, text)] = told(request(create_topic=True, replication_factor=3), without_objects(), absent)
    assert (refuses, "its cluster has 2 brokers" in text) == (True, True)


def test_what_a_restore_has_sent_itself_is_no_finding_when_it_goes_on() -> None:
    log = Frontier(
        0, log_start_offset=2, last_stable_offset=100, high_watermark=100, leader_epoch=None, observed_at=NOW
    )
    found = replace(target(), frontiers={0: log})
    [(_, text)] = told(request(), without_objects(), found)
    assert "is not empty: up to 98 records" in text
    [(_, text)] = told(request(), without_objects(target=TargetStart("id-of-u", ((0, 7),))), found)
    assert "is not empty: up to 5 records" in text
    assert told(request(), without_objects(target=TargetStart("id-of-u", ((0, 2),))), found) == []


REGISTRY = RegistrySettings(url="http://127.0.0.1:1")


def test_schema_ids_are_mapped_only_where_schemas_were_archived_and_a_registry_is_named() -> None:
    mapped = Outgoing(map_schema_ids=True, target_registry=REGISTRY)
    [(refuses, text)] = told(request(outgoing=mapped), without_objects())
    assert (refuses, "the file of connector c names no registry" in text) == (True, True)
    avro = RecordSettings(value=ConverterSettings(format="AVRO", registry=REGISTRY))
    own = CONFIG.model_copy(update={"records": avro})
    assert told(replace(request(outgoing=mapped), config=own), without_objects()) == []
    [(refuses, text)] = told(replace(request(outgoing=Outgoing(map_schema_ids=True)), config=own), without_objects())
    assert (refuses, "name it (schema.registry.url)" in text) == (True, True)


def test_where_keys_decide_kafka_partitions_only_exactly_once_can_be_resumed() -> None:
    hashed = request(outgoing=Outgoing(partitioning="murmur2"))
    assert told(hashed, without_objects()) == []
    [(refuses, text)] = told(replace(hashed, delivery="at_least_once"), without_objects())
    assert (refuses, "delivery=at_least_once keeps kafka partition numbers" in text) == (True, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"records": RecordFilter(sql="no such thing")}, "--sql"),
        ({"records": RecordFilter(key_regex="(")}, "--key-regex"),
        ({"outgoing": Outgoing(partitioning="nearby")}, "--partitioning"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_looked_at(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        told(request(**changes), without_objects())
