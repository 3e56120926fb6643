"""Schemas taken from one real registry to another, in which ids differ, and values that are read there.

What a registry has of a schema besides its text comes along, or the report says what does not.
"""

import base64
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from kafka_s3_platform.connect.avro.schema import strip_logical_types
from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform.connect.restore.outgoing.schemas import map_schemas
from kafka_s3_platform.connect.restore.outgoing.values import Rewritten, Values
from kafka_s3_platform.connect.segments.schema_ids import collect_wire_schema_ids, fetch_archived_schemas
from kafka_s3_platform.core.config.settings import ConverterSettings, RecordSettings, RegistrySettings
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.model.schema import ArchivedSchema, SubjectVersion
from kafka_s3_platform.core.model.schema import SchemaReference as ArchivedReference
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.restore.outgoing.sent import SchemaMapping, ValueSettings
from kafka_s3_platform.core.restore.preflight.checks import Target
from kafka_s3_platform.core.restore.preflight.goal import Goal
from kafka_s3_platform.core.restore.preflight.target import TargetConfigs
from kafka_s3_platform.core.restore.request import Outgoing, RestoreRequest
from kafka_s3_platform.core.restore.run import add_schema_ids
from kafka_s3_platform.core.restore.source.archive_plan import make_archive_target, make_plan
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_registry
from kafka_s3_platform_tests.archive.values import avro
from kafka_s3_platform_tests.conftest import Lab, own_stack
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.registries.importing_registry import ImportingRegistry
from kafka_s3_platform_tests.restore.example_schemas import AN_ORDER, ORDER_SCHEMA
from kafka_s3_platform_tests.restore.plans import plan, report, request
from kafka_s3_platform_tests.restore.records import applied, records
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived

USER = '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"name","type":"string"}]}'
USER_2 = (
    '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":"int","default":0}]}'
)
ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
    '{"name":"user","type":"shop.User"}]}'
)
MONEY = 'syntax = "proto3"; package shop.common; message Money { string currency = 1; int64 units = 2; }'
BILL = 'syntax = "proto3"; package shop; import "common.proto"; message Bill { shop.common.Money total = 1; }'
PERSON = '{"title":"Person","type":"object","properties":{"name":{"type":"string"}},"required":["name"]}'

_USERS: list[tuple[str, dict[str, Any]]] = [(USER, {"name": "a"}), (USER_2, {"name": "b", "age": 3})]

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


@pytest.fixture(scope="module")
def target(registry: RegistrySettings, stack_settings: StackSettings) -> Iterator[RegistrySettings]:
    """A second registry, whose ids are higher than any that these tests get from the first, which all tests share."""
    with own_stack(stack_settings) as own:
        start_registry(own)
        first_id = filled(registry.url, 1)
        assert filled(own.registry_url, first_id + 200) > first_id
        yield RegistrySettings(url=own.registry_url)


def filled(url: str, schemas: int) -> int:
    """Register that many schemas that nobody else does, and return the last one's id."""
    with SchemaRegistryClient({"url": url}) as client:
        texts = [f'{{"type":"fixed","name":"filler{at}","size":1}}' for at in range(schemas)]
        ids: list[int] = [client.register_schema("filler", Schema(text, "AVRO")) for text in texts]
        return ids[-1]


@dataclasses.dataclass
class Move:
    """A topic of the first registry, and where its records go."""

    source: RecordSettings
    target: RegistrySettings
    topic: str

    @property
    def to_topic(self) -> str:
        return f"copy_of_{self.topic}"

    def archived(self, ids: Sequence[int]) -> tuple[ArchivedSchema, ...]:
        fetched = fetch_archived_schemas(IndexState(), ids, self.source)
        assert (fetched.missing, fetched.problem) == ((), None)
        return fetched.rows

    def mapped(self, *ids: int) -> SchemaMapping:
        return map_schemas(self.target, self.archived(ids), self.source, self.topic, self.to_topic)

    def sent(self, rows: Sequence[bytes | None], outgoing: Outgoing | None = None) -> Rewritten:
        """What becomes of values, with the schemas that were archived of them."""
        ids = sorted(collect_wire_schema_ids(pa.array(rows, pa.binary())))
        mapping = None if outgoing else self.mapped(*ids)
        given = ValueSettings(
            outgoing or Outgoing(), self.source, self.topic, self.to_topic, mapping, self.archived(ids)
        )
        return applied(Values(given), records(rows))


@dataclasses.dataclass
class Registries:
    """Two registries, by clients of them, and a topic that is to be taken from the first to the second."""

    registry: RegistrySettings
    target: RegistrySettings
    here: SchemaRegistryClient
    there: SchemaRegistryClient
    topic: str

    def register(self, subject: str, text: str, kind: str = "AVRO", *references: tuple[str, str, int]) -> int:
        return self.here.register_schema(subject, Schema(text, kind, [SchemaReference(*r) for r in references]))

    def move(self, kind: str = "AVRO") -> Move:
        value = ConverterSettings.model_validate({"format": kind, "registry": self.registry})
        return Move(RecordSettings(value=value), self.target, self.topic)


@pytest.fixture
def both(registry: RegistrySettings, target: RegistrySettings, topic_name: str) -> Iterator[Registries]:
    with SchemaRegistryClient({"url": registry.url}) as here, SchemaRegistryClient({"url": target.url}) as there:
        yield Registries(registry, target, here, there, topic_name)


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_a_schema_gets_another_id_under_the_renamed_subject_once(both: Registries) -> None:
    old = both.register(f"{both.topic}-value", USER)
    found = both.move().mapped(old)
    assert found.value_ids is not None
    assert found.value_ids[old] != old
    assert found.key_ids is None
    assert both.there.get_schema(found.value_ids[old]).schema_str == USER
    assert both.move().mapped(old).value_ids == found.value_ids
    assert both.there.get_versions(f"copy_of_{both.topic}-value") == [1]


@pytest.mark.parametrize("mode", ["FULL_TRANSITIVE", "FORWARD", "NONE"])
def test_the_compatibility_mode_comes_along(both: Registries, mode: str) -> None:
    old = both.register(f"{both.topic}-value", USER)
    both.here.set_compatibility(f"{both.topic}-value", mode)
    subject = f"copy_of_{both.topic}-value"
    both.move().mapped(old)
    assert both.there.get_compatibility(subject) == mode


def test_versions_that_their_mode_would_refuse_today_are_registered_in_their_order(both: Registries) -> None:
    subject = f"{both.topic}-value"
    ids = [both.register(subject, f'"{kind}"') for kind in ("string", "boolean", "bytes")]
    both.here.set_compatibility(subject, "FULL")
    both.move().mapped(*reversed(ids))
    found = [both.there.get_version(f"copy_of_{subject}", version).schema.schema_str for version in (1, 2, 3)]
    assert found == [f'"{kind}"' for kind in ("string", "boolean", "bytes")]
    assert both.there.get_compatibility(f"copy_of_{subject}") == "FULL"


def test_references_are_registered_first_and_by_the_names_that_they_have(both: Registries) -> None:
    both.register(f"user-of-{both.topic}", USER)
    both.register(f"user-of-{both.topic}", USER_2)
    old = both.register(f"{both.topic}-value", ORDER, "AVRO", ("shop.User", f"user-of-{both.topic}", 2))
    found = both.move().mapped(old)
    assert found.value_ids is not None
    schema = both.there.get_schema(found.value_ids[old])
    [reference] = schema.references or []
    # version 2 alone was referred to, so it is the first both.there
    assert (reference.name, reference.subject, reference.version) == ("shop.User", f"user-of-{both.topic}", 1)
    assert both.there.get_version(f"user-of-{both.topic}", 1).schema.schema_str == USER_2


def test_rules_that_the_target_s_registry_does_not_take_are_told(both: Registries) -> None:
    given = both.move()
    rows = given.archived([both.register(f"{both.topic}-value", USER)])
    ruled = [dataclasses.replace(row, other_fields='{"metadata": {"properties": {"owner": "hr"}}}') for row in rows]
    found = map_schemas(given.target, ruled, given.source, given.topic, given.to_topic)
    assert both.there.get_versions(f"copy_of_{both.topic}-value") == [1]
    assert f"copy_of_{both.topic}-value) in the target's registry differs" in found.notes[0]
    assert "in metadata: that registry did not take them" in found.notes[0]


def test_a_reference_that_was_not_archived_is_refused(both: Registries) -> None:
    both.register(f"user-of-{both.topic}", USER)
    old = both.register(f"{both.topic}-value", ORDER, "AVRO", ("shop.User", f"user-of-{both.topic}", 1))
    given = both.move()
    rows = [s for s in given.archived([old]) if s.schema_id == old]
    with pytest.raises(IntegrityError, match=f"refers to shop.User .*user-of-{both.topic}"):
        map_schemas(given.target, rows, given.source, given.topic, given.to_topic)


def of_context(*references: ArchivedReference) -> tuple[RecordSettings, list[ArchivedSchema]]:
    """An order and a user as a registry's context `.x` gives them: with full names, and references as sent to it."""
    url = "http://127.0.0.1:1/contexts/.x"
    user = ArchivedSchema(url, 1, "AVRO", USER, (SubjectVersion(":.x:user", 1, None),))
    order = ArchivedSchema(url, 2, "AVRO", ORDER, (SubjectVersion(":.x:orders-value", 1, None),), references)
    return RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=url))), [user, order]


@pytest.mark.parametrize("subject", ["user", ":.x:user"])
def test_subjects_of_a_context_go_to_the_context_that_the_target_s_url_names(subject: str) -> None:
    source, archived_schemas = of_context(ArchivedReference("shop.User", subject, 1, 1))
    with running(ImportingRegistry()) as registry:
        target = RegistrySettings(url=registry.endpoint)
        found = map_schemas(target, archived_schemas, source, "orders", "copy")
        assert registry.versions.keys() == {("user", 1), ("copy-value", 1)}
        ids = {1: registry.versions["user", 1]["id"], 2: registry.versions["copy-value", 1]["id"]}
        assert found.value_ids == ids


def test_a_reference_to_another_context_is_refused_before_anything_is_registered() -> None:
    source, archived_schemas = of_context(ArchivedReference("shop.User", ":.shared:user", 1, 1))
    with running(ImportingRegistry()) as registry:
        with pytest.raises(PreflightError, match=r"refers to shop.User .*:.shared:user\), which .* another context"):
            map_schemas(RegistrySettings(url=registry.endpoint), archived_schemas, source, "orders", "copy")
        assert registry.writes == []


def test_a_subject_with_schemas_keeps_its_mode_and_refuses_what_does_not_fit(both: Registries) -> None:
    subject = f"copy_of_{both.topic}-value"
    both.there.register_schema(subject, Schema(USER_2, "AVRO"))
    both.there.set_compatibility(subject, "BACKWARD")
    fits, strange = both.register(f"{both.topic}-value", USER), both.register(f"{both.topic}-key", '"bytes"')
    both.here.set_compatibility(f"{both.topic}-value", "FULL")
    found = both.move().mapped(fits)
    assert both.there.get_compatibility(subject) == "BACKWARD"
    assert f"subject {subject} keeps its compatibility mode BACKWARD" in found.notes[0]
    both.there.register_schema(f"copy_of_{both.topic}-key", Schema('"int"', "AVRO"))
    both.there.set_compatibility(f"copy_of_{both.topic}-key", "FULL")
    with pytest.raises(PreflightError, match=f"copy_of_{both.topic}-key .* does not allow"):
        both.move().mapped(strange)


def test_a_schema_of_several_topics_is_registered_for_this_one(both: Registries) -> None:
    text = USER.replace("User", f"U{both.topic[6:]}")
    old = both.register(f"{both.topic}-value", text)
    both.register(f"{both.topic}-eu-value", text)
    both.move().mapped(old)
    assert both.there.get_versions(f"copy_of_{both.topic}-value") == [1]
    assert f"{both.topic}-eu-value" not in both.there.get_subjects()


def test_avro_is_read_with_the_target_s_registry(both: Registries) -> None:
    rows = [AvroSerializer(both.here, text)(value, value_of(both.topic)) for text, value in _USERS]
    sent = both.move().sent([*rows, None, b"no wire format"]).batch.column("value").to_pylist()
    assert sent[2:] == [None, b"no wire format"]
    assert all(new[:5] != old[:5] and new[5:] == old[5:] for new, old in zip(sent, rows, strict=False))
    read = [AvroDeserializer(both.there)(row, value_of(f"copy_of_{both.topic}")) for row in sent[:2]]
    assert read == [value for _, value in _USERS]


def test_json_schema_is_read_with_the_target_s_registry(both: Registries) -> None:
    row = JSONSerializer(PERSON, both.here)({"name": "a"}, value_of(both.topic))
    [sent] = both.move("JSON_SR").sent([row]).batch.column("value").to_pylist()
    read = JSONDeserializer(None, schema_registry_client=both.there)
    assert read(sent, value_of(f"copy_of_{both.topic}")) == {"name": "a"}


@pytest.mark.parametrize("is_text", [True, False])
def test_protobuf_with_an_import_is_read_with_the_target_s_registry(both: Registries, is_text: bool) -> None:
    money, file = compile_file(MONEY, {}), compile_file(BILL, {"common.proto": MONEY})
    both.register(f"common-of-{both.topic}", MONEY if is_text else _serialized(money), "PROTOBUF")
    reference = ("common.proto", f"common-of-{both.topic}", 1)
    old = both.register(f"{both.topic}-value", BILL if is_text else _serialized(file), "PROTOBUF", reference)
    bill = GetMessageClass(file.message_types_by_name["Bill"])()
    bill.total.currency, bill.total.units = "CHF", 5
    given = both.move("PROTOBUF")
    row = b"\0" + old.to_bytes(4, "big") + b"\0" + bill.SerializeToString()
    [sent] = given.sent([row]).batch.column("value").to_pylist()
    reader = Move(
        RecordSettings(value=ConverterSettings(format="PROTOBUF", registry=both.target)), both.target, given.to_topic
    )
    again = reader.sent([sent], Outgoing(value=ConverterSettings(format="JSON"))).batch.column("value").to_pylist()
    assert again == [b'{"total":{"currency":"CHF","units":5}}']
    if not is_text:
        # Confluent's Python client reads serialized files alone, which Apicurio does not make of text
        read = ProtobufDeserializer(type(bill), {"use.deprecated.format": False}, both.there)
        assert read(sent, value_of(given.to_topic)) == bill


def _serialized(file: Any) -> str:
    return base64.standard_b64encode(file.serialized_pb).decode()


def test_protobuf_of_python_s_serializer_is_mapped_too(both: Registries) -> None:
    money = GetMessageClass(compile_file(MONEY, {}).message_types_by_name["Money"])
    message = money(currency="CHF", units=7)
    row = ProtobufSerializer(money, both.here, {"use.deprecated.format": False})(message, value_of(both.topic))
    given = both.move("PROTOBUF")
    [sent] = given.sent([row]).batch.column("value").to_pylist()
    assert sent[:5] != row[:5]
    read = ProtobufDeserializer(money, {"use.deprecated.format": False}, both.there)
    assert read(sent, value_of(given.to_topic)) == message


@pytest.mark.parametrize("kind", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_avro_written_anew_is_read_with_confluent_s_deserializers(both: Registries, kind: str) -> None:
    rows = [AvroSerializer(both.here, text)(value, value_of(both.topic)) for text, value in _USERS]
    outgoing = Outgoing(value=ConverterSettings.model_validate({"format": kind, "registry": both.target}))
    given = both.move()
    done, again = given.sent([*rows, None], outgoing), given.sent([*rows, None], outgoing)
    assert done.failures == ()
    assert done.batch.equals(again.batch)
    sent = done.batch.column("value").to_pylist()
    assert sent[2] is None
    assert [_read(kind, both.there, row, given.to_topic) for row in sent[:2]] == [value for _, value in _USERS]
    assert both.there.get_versions(f"{given.to_topic}-value") == [1, 2]


@pytest.mark.parametrize("kind", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_every_type_written_anew_comes_back_through_the_target_s_registry(both: Registries, kind: str) -> None:
    old = both.register(f"{both.topic}-value", ORDER_SCHEMA.text)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, strip_logical_types(ORDER_SCHEMA.avro), AN_ORDER)
    there = ConverterSettings.model_validate({"format": kind, "registry": both.target})
    given = both.move()
    done = given.sent([b"\0" + old.to_bytes(4, "big") + body.getvalue()], Outgoing(value=there))
    assert done.failures == ()
    converter = new_converter(there, given.to_topic, is_key=False)
    found = converter.convert(done.batch.column("value"), np.array([0]))
    assert found.payload.objects == [AN_ORDER]
    assert {s.subject for s in found.payload.schemas} == {f"{given.to_topic}-value"}


def _read(kind: str, there: SchemaRegistryClient, row: bytes, topic: str) -> Any:
    if kind == "AVRO":
        return AvroDeserializer(there)(row, value_of(topic))
    if kind == "JSON_SR":
        return JSONDeserializer(None, schema_registry_client=there)(row, value_of(topic))
    text = there.get_schema(int.from_bytes(row[1:5], "big")).schema_str or ""
    user = GetMessageClass(compile_file(text, {}).message_types_by_name["User"])
    found: Any = ProtobufDeserializer(user, {"use.deprecated.format": False}, there)(row, value_of(topic))
    return {f.name: getattr(found, f.name) for f in user.DESCRIPTOR.fields}


def test_schemas_are_archived_with_what_they_refer_to_and_once(both: Registries) -> None:
    user = both.register(f"user-of-{both.topic}", USER)
    old = both.register(f"{both.topic}-value", ORDER, "AVRO", ("shop.User", f"user-of-{both.topic}", 1))
    both.here.set_compatibility(f"{both.topic}-value", "FORWARD")
    given = both.move()
    rows = given.archived([old])
    assert [r.schema_id for r in rows] == [user, old]
    assert {s.subject: s.compatibility for s in rows[1].subjects}[f"{both.topic}-value"] == "FORWARD"
    [reference] = rows[1].schema_references
    assert (reference.name, reference.version, reference.schema_id) == ("shop.User", 1, user)
    fetched = fetch_archived_schemas(IndexState(schemas=rows), [old, user], given.source)
    assert (fetched.rows, fetched.missing) == ((), ())


def test_an_id_that_two_registries_have_given_is_not_guessed(both: Registries, lab: Lab) -> None:
    lab.create_topic()
    schema_id = both.register(f"{lab.topic}-value", USER)
    framed = b"\0" + schema_id.to_bytes(4, "big")
    for hour, (used, body) in enumerate(((both.registry, b"\x02a"), (both.target, b"x"))):
        lab.produce([Sent(framed + body, timestamp=NOON + hour * HOUR)])
        config = lab.connector(records=avro(used))
        archived(config)
    asked = RestoreRequest(config, lab.topic, f"{lab.topic}-copy", restore_id="r", run_id="x")
    assert len(make_plan(asked).objects) == 2
    mapped = Outgoing(map_schema_ids=True, target_registry=both.target)
    anew = Outgoing(value=ConverterSettings(format="JSON"))
    for outgoing in (mapped, anew):
        with pytest.raises(
            PreflightError, match=rf"{schema_id} is a different schema in each of .*{both.registry.url}"
        ):
            make_plan(dataclasses.replace(asked, outgoing=outgoing))


def test_an_id_that_the_registry_does_not_know_is_told(both: Registries) -> None:
    fetched = fetch_archived_schemas(IndexState(), [2_000_000_000], both.move().source)
    assert fetched.missing == (2_000_000_000,)
    assert fetched.problem is not None
    assert "by no schema of their registry" in fetched.problem


@pytest.fixture
def source() -> Iterator[SmallRegistry]:
    with running(SmallRegistry()) as server:
        yield server


@pytest.fixture
def small_target() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=100)) as server:
        yield server


def records_of(source: SmallRegistry) -> RecordSettings:
    return RecordSettings(value=ConverterSettings(format="AVRO", registry=RegistrySettings(url=source.url)))


def archived_of(source: SmallRegistry, *ids: int) -> tuple[ArchivedSchema, ...]:
    fetched = fetch_archived_schemas(IndexState(), ids, records_of(source))
    assert (fetched.missing, fetched.problem) == ((), None)
    return fetched.rows


def moved(source: SmallRegistry, small_target: SmallRegistry, *ids: int) -> SchemaMapping:
    rows = archived_of(source, *ids)
    return map_schemas(RegistrySettings(url=small_target.url), rows, records_of(source), "cards", "copy")


def test_metadata_rules_and_what_nobody_knows_yet_are_registered_as_they_were(
    source: SmallRegistry, small_target: SmallRegistry
) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES, **OF_TOMORROW)
    found = moved(source, small_target, old)
    assert found.value_ids == {old: 101}
    assert small_target.schemas[101] == source.schemas[old]
    assert found.notes == ()


def test_confluent_s_client_finds_the_rules_at_the_target(source: SmallRegistry, small_target: SmallRegistry) -> None:
    moved(source, small_target, source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES))
    with SchemaRegistryClient({"url": small_target.url}) as client:
        latest = client.get_latest_version("copy-value").schema
    assert [rule.name for rule in latest.rule_set.domain_rules] == ["hideNumbers", "adult"]
    assert latest.metadata.tags.tags == {"Card.number": ["SECRET"]}


def test_a_schema_of_the_same_text_without_the_rules_is_another_one(
    source: SmallRegistry, small_target: SmallRegistry
) -> None:
    bare = small_target.register("copy-value", CARD)
    old = source.register("cards-value", CARD, ruleSet=RULES)
    found = moved(source, small_target, old)
    assert found.value_ids is not None
    assert found.value_ids[old] != bare
    assert small_target.schemas[found.value_ids[old]]["ruleSet"] == RULES


def test_versions_that_differ_in_rules_alone_stay_two(source: SmallRegistry, small_target: SmallRegistry) -> None:
    ids = [source.register("cards-value", CARD), source.register("cards-value", CARD, ruleSet=RULES)]
    found = moved(source, small_target, *ids)
    assert found.value_ids == {ids[0]: 101, ids[1]: 102}
    assert small_target.subjects["copy-value"] == [101, 102]


def test_registering_again_finds_the_rules(source: SmallRegistry, small_target: SmallRegistry) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES)
    assert moved(source, small_target, old) == moved(source, small_target, old)
    assert small_target.subjects["copy-value"] == [101]


def test_a_registry_that_ignores_rules_is_named(source: SmallRegistry) -> None:
    old = source.register("cards-value", CARD, metadata=METADATA, ruleSet=RULES)
    with running(SmallRegistry(last_id=7, lacks=("ruleSet", "metadata"))) as small_target:
        found = moved(source, small_target, old)
    assert found.value_ids == {old: 8}
    assert f"schema 8 (version 1 of copy-value) in the target's registry differs from schema {old}" in found.notes[0]
    assert "in metadata and ruleSet: that registry did not take them" in found.notes[0]


def test_all_settings_of_a_subject_come_along(source: SmallRegistry, small_target: SmallRegistry) -> None:
    others = {"normalize": True, "compatibilityGroup": "major", "overrideRuleSet": RULES, "alias": ""}
    source.configs["cards-value"] = {"compatibilityLevel": "FORWARD", **others}
    found = moved(source, small_target, source.register("cards-value", CARD))
    assert small_target.configs["copy-value"] == source.configs["cards-value"]
    assert found.notes == ()


def test_a_subject_with_schemas_of_its_own_keeps_its_settings_and_that_is_told(
    source: SmallRegistry, small_target: SmallRegistry
) -> None:
    source.configs["cards-value"] = {"compatibilityLevel": "BACKWARD", "normalize": True}
    small_target.register("copy-value", '"long"')
    found = moved(source, small_target, source.register("cards-value", CARD))
    assert "copy-value" not in small_target.configs
    assert "keeps its compatibility mode BACKWARD and other settings {}, since it has" in found.notes[0]
    assert 'cards-value had BACKWARD and {"normalize": true}' in found.notes[0]


def test_a_topic_of_several_has_the_notes_and_ids_of_its_own_schemas() -> None:
    mappings = {"a": SchemaMapping({}, {1: 101}, ("of a",)), "b": SchemaMapping({}, {2: 102}, ("of b",))}
    target = make_archive_target(request(), plan())
    goals, values = [], {}
    for topic, mapping in mappings.items():
        there = Target(None, TargetConfigs(topic, {}, NOON), {})
        of_topic = dataclasses.replace(target, topics=(topic,), request=request(to_topic=f"{topic}-copy"))
        goals.append(Goal(of_topic, there, is_alone=False))
        values[topic, f"{topic}-copy"] = ValueSettings(Outgoing(), RecordSettings(), topic, f"{topic}-copy", mapping)
    whole = add_schema_ids(report(parts=(report(topic="a"), report(topic="b"))), goals, values)
    assert (whole.notes, whole.schema_ids) == (("of a", "of b"), ((1, 101), (2, 102)))
    assert [(part.notes, part.schema_ids) for part in whole.parts] == [
        (("of a",), ((1, 101),)),
        (("of b",), ((2, 102),)),
    ]
