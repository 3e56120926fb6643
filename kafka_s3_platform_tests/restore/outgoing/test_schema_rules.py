"""What a registry has of a schema besides its text comes along, or the report says what does not."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kafka_s3_platform.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.restore.outgoing.schemas import SchemaMapping, map_schemas
from kafka_s3_platform.segments.schema_ids import fetch_archived_schemas
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.store.http_proxy import running

CARD = '{"type":"record","name":"Card","fields":[{"name":"number","type":"string"},{"name":"year","type":"int"}]}'
METADATA = {"tags": {"Card.number": ["SECRET"]}, "properties": {"owner": "payments"}, "sensitive": ["owner"]}
RULES: dict[str, Any] = {
    "domainRules": [
        {
            "name": "hideNumbers",
            "kind": "TRANSFORM",
            "mode": "WRITEREAD",
            "type": "ENCRYPT",
            "tags": ["SECRET"],
            "params": {"encrypt.kek.name": "cards", "encrypt.kms.type": "local-kms"},
            "onFailure": "ERROR,NONE",
        },
        {"name": "adult", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "message.year > 1999"},
    ],
    "migrationRules": [{"name": "split", "kind": "TRANSFORM", "mode": "UPGRADE", "type": "JSONATA", "expr": "$"}],
}
OF_TOMORROW: dict[str, Any] = {"retentionRules": [{"kind": "FORGET", "days": 30}]}


@pytest.fixture
def source() -> Iterator[SmallRegistry]:
    with running(SmallRegistry()) as server:
        yield server


@pytest.fixture
def target() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=100)) as server:
        yield server


def records_of(source: SmallRegistry) -> RecordSettings:
    return RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=source.url)))


def archived_of(source: SmallRegistry, *ids: int) -> tuple[ArchivedSchema, ...]:
    fetched = fetch_archived_schemas(IndexState(), ids, records_of(source))
    assert (fetched.missing, fetched.problem) == ((), None)
    return fetched.rows


def moved(source: SmallRegistry, target: SmallRegistry, *ids: int) -> SchemaMapping:
    rows = archived_of(source, *ids)
    return map_schemas(RegistrySettings(url=target.url), rows, records_of(source), "cards", "copy")


def test_metadata_rules_and_what_nobody_knows_yet_are_registered_as_they_were(
    source: SmallRegistry, target: SmallRegistry
) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES, **OF_TOMORROW)
    found = moved(source, target, old)
    assert found.value_ids == {old: 101}
    assert target.schemas[101] == source.schemas[old]
    assert found.notes == ()


def test_confluent_s_client_finds_the_rules_at_the_target(source: SmallRegistry, target: SmallRegistry) -> None:
    moved(source, target, source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES))
    with SchemaRegistryClient({"url": target.url}) as client:
        latest = client.get_latest_version("copy-value").schema
    assert [rule.name for rule in latest.rule_set.domain_rules] == ["hideNumbers", "adult"]
    assert latest.metadata.tags.tags == {"Card.number": ["SECRET"]}


def test_a_schema_of_the_same_text_without_the_rules_is_another_one(
    source: SmallRegistry, target: SmallRegistry
) -> None:
    bare = target.register("copy-value", CARD)
    old = source.register("cards-value", CARD, ruleSet=RULES)
    found = moved(source, target, old)
    assert found.value_ids is not None
    assert found.value_ids[old] != bare
    assert target.schemas[found.value_ids[old]]["ruleSet"] == RULES


def test_versions_that_differ_in_rules_alone_stay_two(source: SmallRegistry, target: SmallRegistry) -> None:
    ids = [source.register("cards-value", CARD), source.register("cards-value", CARD, ruleSet=RULES)]
    found = moved(source, target, *ids)
    assert found.value_ids == {ids[0]: 101, ids[1]: 102}
    assert target.subjects["copy-value"] == [101, 102]


def test_registering_again_finds_the_rules(source: SmallRegistry, target: SmallRegistry) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES)
    assert moved(source, target, old) == moved(source, target, old)
    assert target.subjects["copy-value"] == [101]


def test_a_registry_that_ignores_rules_is_named(source: SmallRegistry) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES)
    with running(SmallRegistry(last_id=7, lacks=("ruleSet", "metadata"))) as target:
        found = moved(source, target, old)
    assert found.value_ids == {old: 8}
    assert f"schema 8 (version 1 of copy-value) in the target's registry differs from schema {old}" in found.notes[0]
    assert "in metadata and ruleSet: that registry did not take them" in found.notes[0]


def test_all_settings_of_a_subject_come_along(source: SmallRegistry, target: SmallRegistry) -> None:
    others = {"normalize": True, "compatibilityGroup": "major", "overrideRuleSet": RULES, "alias": ""}
    source.configs["cards-value"] = {"compatibilityLevel": "FORWARD", **others}
    found = moved(source, target, source.register("cards-value", CARD))
    assert target.configs["copy-value"] == source.configs["cards-value"]
    assert found.notes == ()


def test_a_subject_with_schemas_of_its_own_keeps_its_settings_and_that_is_told(
    source: SmallRegistry, target: SmallRegistry
) -> None:
    source.configs["cards-value"] = {"compatibilityLevel": "BACKWARD", "normalize": True}
    target.register("copy-value", '"long"')
    found = moved(source, target, source.register("cards-value", CARD))
    assert "copy-value" not in target.configs
    assert "keeps its compatibility mode BACKWARD and other settings {}, since it has" in found.notes[0]
    assert 'cards-value had BACKWARD and {"normalize": true}' in found.notes[0]
