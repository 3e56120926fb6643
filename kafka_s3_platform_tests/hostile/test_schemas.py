"""Schemas of strangers: what is deep, refers to itself or is named like a step of a path fails as one record."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.converters.registry import NewSchema, open_registry
from kafka_s3_platform.connect.restore.outgoing.schemas import map_schemas
from kafka_s3_platform.connect.segments.schema_ids import fetch_archived_schemas
from kafka_s3_platform.core.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.model.schema import MAX_REFERENCES_DEEP, ArchivedSchema, SubjectVersion
from kafka_s3_platform.core.model.schema import SchemaReference as ArchivedReference
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform_tests.hostile.measure import measured

DEEPER = 5_000
MEGABYTES, SECONDS = 300, 10
STRING = '{"type":"string"}'


def titled(title: str) -> str:
    return json.dumps({"title": title, "type": "object", "properties": {"a": {"type": "string"}}})


@pytest.fixture(scope="module")
def client(registry: RegistrySettings) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def archived(schema_id: int, text: str, kind: str, *refers_to: int, subject: str = "") -> ArchivedSchema:
    references = tuple(ArchivedReference(f"n{i}", f"s{i}", 1, i) for i in refers_to)
    return ArchivedSchema(
        "http://old", schema_id, kind, text, (SubjectVersion(subject or f"s{schema_id}", 1, None),), references
    )


def failure(kind: str, registry: RegistrySettings, schema_id: int, *schemas: ArchivedSchema) -> str:
    """Why the one record of schema `schema_id` was not converted."""
    settings = ConverterSettings.model_validate(
        {"format": kind, "registry": registry.model_copy(update={"archived": schemas})}
    )
    row = b"\0" + schema_id.to_bytes(4, "big") + b'"x"'
    done = new_converter(settings, "t", is_key=False).convert(pa.array([row], pa.binary()), np.arange(1))
    assert len(done.positions) == 0
    return done.failures[0].message


def deep(text: str, inner: str, outer: str) -> str:
    return text * DEEPER + inner + outer * DEEPER


@pytest.mark.parametrize(
    ("kind", "schema_type", "text"),
    [
        ("JSON_SR", "JSON", '{"$ref":"#"}'),
        ("JSON_SR", "JSON", '{"allOf":[{"$ref":"#"}]}'),
        ("JSON_SR", "JSON", deep('{"type":"array","items":', STRING, "}")),
        ("JSON_SR", "JSON", '{"type":"object","properties":[1]}'),
        ("JSON_SR", "JSON", '{"type":"object","properties":{"a":{"$id":5}}}'),
        ("JSON_SR", "JSON", '{"oneOf":5}'),
        ("JSON_SR", "JSON", '{"$ref":5}'),
        ("JSON_SR", "JSON", "[" * DEEPER),
        ("AVRO", "AVRO", deep('{"type":"array","items":', '"string"', "}")),
        ("AVRO", "AVRO", "[" * DEEPER),
        ("PROTOBUF", "PROTOBUF", 'syntax = "proto3";' + deep("message M {", "", "}")),
    ],
)
def test_a_schema_that_nothing_can_be_made_of_is_its_record_s_failure(
    registry: RegistrySettings, kind: str, schema_type: str, text: str
) -> None:
    """An error of Python's own would end the run, and each one after it."""
    assert "has schema 7" in failure(kind, registry, 7, archived(7, text, schema_type)).replace("Avro ", "").replace(
        "Protobuf ", ""
    )


@pytest.mark.parametrize(("kind", "schema_type"), [("JSON_SR", "JSON"), ("AVRO", "AVRO"), ("PROTOBUF", "PROTOBUF")])
def test_archived_schemas_that_refer_to_each_other_in_a_circle_fail_their_records(
    registry: RegistrySettings, kind: str, schema_type: str
) -> None:
    one, other = archived(1, STRING, schema_type, 2), archived(2, STRING, schema_type, 1)
    assert "refers to itself in the end" in failure(kind, registry, 1, one, other)


def test_a_long_row_of_references_fails_its_records_and_is_not_archived(
    registry: RegistrySettings, client: SchemaRegistryClient, topic_name: str
) -> None:
    """Each of them is a schema that whoever may register can register. The first ones are usable."""
    ids: list[int] = []
    for at in range(MAX_REFERENCES_DEEP + 10):
        before = [SchemaReference(f"r{at - 1}", f"{topic_name}-{at - 1}", 1)] if at else []
        text = titled(f"{topic_name}-{at}")
        ids.append(client.register_schema(f"{topic_name}-{at}", Schema(text, "JSON", before)))
    assert f"more than {MAX_REFERENCES_DEEP} deep" in failure("JSON_SR", registry, ids[-1])

    records = RecordSettings(value=ConverterSettings(format="JSON_SR", registry=registry))
    found = fetch_archived_schemas(IndexState(), [ids[5], ids[-1]], records)
    assert (found.missing, sorted(s.schema_id for s in found.rows)) == ((ids[-1],), sorted(ids[:6]))
    assert f"schema {ids[-1]} refers to schemas that refer to others, more than" in (found.problem or "")


@pytest.mark.parametrize(
    ("length", "is_circle"), [(1, True), (2, True), (MAX_REFERENCES_DEEP + 5, False), (DEEPER, True), (DEEPER, False)]
)
def test_no_archived_references_keep_a_restore_from_ending(
    registry: RegistrySettings, topic_name: str, length: int, is_circle: bool
) -> None:
    """Whoever writes to the index may have it say so."""
    ids = range(1, length + 1)
    schemas = [archived(i, STRING, "JSON", *([i + 1] if i < length else [1] if is_circle else [])) for i in ids]
    source = RecordSettings(value=ConverterSettings(format="JSON_SR", registry=RegistrySettings(url="http://old")))
    with pytest.raises(IntegrityError, match=r"(to itself in the end|more than \d+ deep): no registry accepts that"):
        map_schemas(registry, schemas, source, topic_name, topic_name)


@pytest.mark.parametrize("subject", [".", ".."])
def test_a_subject_that_is_a_step_of_a_path_reaches_no_other_place_of_the_registry(
    registry: RegistrySettings, topic_name: str, subject: str
) -> None:
    """The client encodes slashes, but not dots: `/subjects/../versions` is `/versions`."""
    asked = open_registry(registry)
    with pytest.raises(ConfigError, match="leads to another place of its API: nothing is registered in it"):
        asked.register(subject, NewSchema("JSON", STRING))
    assert (asked.find(subject, NewSchema("JSON", STRING)), asked.list_versions(subject)) == (None, [])
    assert asked.read_settings(subject) == replace(asked.read_settings("no such subject"), subject=subject)
    source = RecordSettings(value=ConverterSettings(format="JSON_SR", registry=RegistrySettings(url="http://old")))
    row = archived(3, titled(topic_name), "JSON", subject=subject)
    with pytest.raises(ConfigError, match="nothing is registered in it"):
        map_schemas(registry, [row], source, topic_name, topic_name)


LAUGHS = 30


def laughing(word: str) -> str:
    """A schema that, written out, would be 2^30 of the last one."""
    parts: dict[str, Any] = {}
    for at in range(LAUGHS):
        two = [{"$ref": f"#/definitions/A{at + 1}"}] * 2
        parts[f"A{at}"] = {word: two} if word else {"type": "object", "properties": dict(zip("ab", two, strict=True))}
    parts[f"A{LAUGHS}"] = {"type": "object", "properties": {"q": {"type": "string"}}}
    return json.dumps({"type": "object", "properties": {"x": {"$ref": "#/definitions/A0"}}, "definitions": parts})


BOMBS = {
    "properties": ("JSON_SR", "JSON", laughing(""), b'{"x":{}}', "more than 100,000"),
    "allOf": ("JSON_SR", "JSON", laughing("allOf"), b'{"x":{"q":"1"}}', ""),
    "oneOf": ("JSON_SR", "JSON", laughing("oneOf"), b'{"x":{"q":"1"}}', "more than 100,000"),
    "messages": (
        "PROTOBUF",
        "PROTOBUF",
        'syntax="proto3"; message A { M0 a=1; }'
        + "".join(f"message M{i} {{ M{i + 1} f=1; M{i + 1} g=2; }}" for i in range(LAUGHS))
        + f"message M{LAUGHS} {{}}",
        b"\0\x0a\0",
        "more than 100,000",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_schema_that_means_a_huge_one_costs_little(name: str) -> None:
    converter, kind, text, value, fault = BOMBS[name]
    case = {"converter": converter, "type": kind, "schema": text, "value": value.hex()}
    found = measured("schema", json.dumps(case).encode())
    assert fault in found.fault
    assert (found.records, bool(found.fault)) == ((0, True) if fault else (1, False))
    assert found.seconds < SECONDS, found
    assert found.megabytes < MEGABYTES, found


ODD_SUBJECTS = [
    "../../config", "a/../../b", "..\\..\\config", "%2e%2e", "%2e%2e%2fconfig", "a?deleted=true", "a#b", "a b",
    "é\u202e",
    "<script>alert(1)</script>", "'; drop table x; --", "a;rm -rf *", "$(touch x)", "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("subject", ODD_SUBJECTS)
def test_a_subject_of_any_other_name_is_itself(registry: RegistrySettings, topic_name: str, subject: str) -> None:
    name, asked = f"{subject}{topic_name}", open_registry(registry)
    before = listed(registry.url)
    schema = NewSchema("JSON", titled(topic_name))
    assert asked.register(name, schema).subject == name
    assert listed(registry.url) - before == {name}
    asked.write_settings(name, "NONE")
    assert (asked.read_settings(name).compatibility, asked.list_versions(name)) == ("NONE", [1])


def listed(url: str) -> set[str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}/subjects")
    found: Any = json.loads(connection.getresponse().read())
    connection.close()
    return set(found)
