import io
import json
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, RegistryUnavailableError
from kafka_s3_platform.core.model.connect import MISSING, NO_SCHEMA
from kafka_s3_platform_tests.conftest import free_ports, present
from kafka_s3_platform_tests.converters.conftest import Registered
from kafka_s3_platform_tests.converters.refusing import USER, gate
from kafka_s3_platform_tests.converters.values import convert_rows, framed

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "customer",
            "type": ["null", {"type": "record", "name": "C", "fields": [{"name": "city", "type": "string"}]}],
        },
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "other", "type": ["null", "C"]},
    ],
}
VALUE = {"id": 1, "at": 5, "customer": {"city": "Bern"}, "price": b"\x01\xf4", "other": None}
FAST = {"max.retries": "1", "retries.wait.ms": "1", "retries.max.wait.ms": "5"}


def avro(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return body.getvalue()


def test_values_come_back_in_physical_form_and_their_bytes_are_kept(registered: Registered) -> None:
    schema_id = registered.register(json.dumps(ORDER))
    row = framed(schema_id, avro(json.loads(json.dumps(ORDER).replace("logicalType", "was")), VALUE))
    result = registered.convert("AVRO", [row, None, row])
    assert not result.failures
    assert present(result.payload.raw).to_pylist() == [row, None, row]
    assert result.payload.objects == [VALUE, None, VALUE]
    assert result.payload.codes.tolist() == [0, NO_SCHEMA, 0]
    [schema] = result.payload.schemas
    assert (schema.schema_id, schema.subject, schema.version) == (schema_id, f"{registered.topic}-value", 1)
    assert schema.avro == ORDER


def test_what_confluent_s_serializer_writes_is_read(registered: Registered) -> None:
    schema = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "string"}]}
    serialize = AvroSerializer(registered.client, json.dumps(schema), conf={"subject.name.strategy.type": "TOPIC"})
    row = serialize({"a": "x"}, SerializationContext(registered.topic, MessageField.VALUE))
    assert registered.convert("AVRO", [row]).payload.objects == [{"a": "x"}]


def test_fields_are_found_with_and_without_decoding_the_rest(registered: Registered) -> None:
    schema_id = registered.register(json.dumps(ORDER))
    plain = json.loads(json.dumps(ORDER).replace("logicalType", "was"))
    rows = [
        framed(schema_id, avro(plain, value))
        for value in (VALUE, {**VALUE, "customer": None, "other": {"city": "Chur"}})
    ]
    payload = registered.convert("AVRO", [*rows, None]).payload
    paths = [["customer", "city"], ["other", "city"], ["customer"], ["id"], ["at"], ["nope"], ["id", "nope"]]
    found = [payload.field(path) for path in paths]
    assert "objects" not in payload.__dict__
    assert payload.objects[0] == VALUE
    assert found == [payload.field(path) for path in paths]
    assert found[:2] == [["Bern", MISSING, MISSING], [MISSING, "Chur", MISSING]]


def test_a_field_behind_several_types_or_in_a_map_is_found(registered: Registered) -> None:
    a = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
    b = {"type": "record", "name": "B", "fields": [{"name": "y", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "u", "type": [a, b]}, {"name": "m", "type": {"type": "map", "values": "int"}}],
    }
    schema_id = registered.register(json.dumps(schema))
    values = [{"u": {"x": 1}, "m": {"k": 2}}, {"u": {"y": 1}, "m": {}}]
    payload = registered.convert("AVRO", [framed(schema_id, avro(schema, value)) for value in values]).payload
    assert payload.field(["u", "x"]) == [1, MISSING]
    assert payload.field(["m", "k"]) == [2, MISSING]


def test_references_are_part_of_the_schema(registered: Registered) -> None:
    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
    home = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "geo.City"}]}
    both = {
        "type": "record",
        "name": "Person",
        "namespace": "people",
        "fields": [{"name": "home", "type": "Home"}, {"name": "work", "type": ["null", "geo.City"]}],
    }
    registered.register(json.dumps(city), subject="city")
    registered.register(json.dumps(home), subject="home", city="geo.City")
    schema_id = registered.register(json.dumps(both), home="Home", city="geo.City")
    value = {"home": {"city": {"name": "Bern"}}, "work": {"name": "Chur"}}
    row = framed(schema_id, b"\x08Bern\x02\x08Chur")
    result = registered.convert("AVRO", [row])
    assert result.payload.objects == [value]
    assert result.payload.field(["work", "name"]) == ["Chur"]
    fastavro.parse_schema(result.payload.schemas[0].avro)


def test_versions_order_the_schemas_of_a_topic(registered: Registered) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [*old["fields"], {"name": "b", "type": "int", "default": 0}]}
    registered.register(json.dumps(new), subject="other")
    old_id, new_id = (registered.register(json.dumps(schema)) for schema in (old, new))
    result = registered.convert("AVRO", [framed(new_id, b"\x02\x04"), framed(old_id, b"\x02")])
    versions = [result.payload.schemas[code].version for code in result.payload.codes]
    assert versions == [2, 1]
    assert result.payload.objects == [{"a": 1, "b": 2}, {"a": 1}]
    elsewhere = registered.convert("AVRO", [framed(old_id, b"\x02")], "unregistered").payload.schemas[0]
    assert (elsewhere.subject, elsewhere.version) == (f"{registered.topic}-value", 1)


def test_bad_records_fail_and_the_others_convert(registered: Registered) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    schema_id = registered.register(json.dumps(schema))
    good = framed(schema_id, b"\x04hi")
    rows = [good, good[:-1], good + b"x", b"", b"\0\0", b'{"a":1}', framed(999_999, b""), None, good]
    result = registered.convert("AVRO", rows)
    assert result.positions.tolist() == [0, 7, 8]
    assert result.payload.objects == [{"a": "hi"}, None, {"a": "hi"}]
    said = {failure.offset: failure.message for failure in result.failures}
    assert list(said) == [1, 2, 3, 4, 5, 6]
    assert all(f"offset {offset} of topic {registered.topic}" in message for offset, message in said.items())
    assert all("truncated, too long or damaged" in said[offset] for offset in (1, 2))
    assert "has 0 bytes" in said[3]
    assert "not with the magic byte 0" in said[5]
    assert "No content with ID '999999' was found" in said[6]


def test_a_schema_of_another_kind_is_a_failure(registered: Registered) -> None:
    text = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"})
    schema_id = registered.register(text, "JSON")
    [failure] = registered.convert("AVRO", [framed(schema_id, b"")]).failures
    assert "is not Avro but JSON" in failure.message


def convert_one(registry: RegistrySettings, schema_id: int = 1) -> None:
    convert_rows(ConverterSettings(format="AVRO", registry=registry), [framed(schema_id, b"")])


def settings(url: str, **more: str) -> RegistrySettings:
    return RegistrySettings.model_validate(
        {"url": url, "properties": FAST | {k.replace("_", "."): v for k, v in more.items()}}
    )


def test_a_registry_that_is_down_is_transient() -> None:
    with pytest.raises(
        RegistryUnavailableError, match=r"Schema Registry at http://127\.0\.0\.1:\d+ was asked for schema 1"
    ):
        convert_one(settings(f"http://127.0.0.1:{free_ports(1)[0]}"))


def test_a_registry_with_a_fault_of_its_own_is_transient(registry: RegistrySettings) -> None:
    with gate(registry.url) as server:
        server.status = 503
        with pytest.raises(RegistryUnavailableError, match="HTTP status 503"):
            convert_one(settings(server.url))


def test_refused_credentials_are_permanent_and_not_shown(registry: RegistrySettings) -> None:
    with gate(registry.url) as server:
        with pytest.raises(AuthorizationError, match=r"HTTP status 401\): check .*basic\.auth\.user\.info") as refused:
            convert_one(settings(server.url, basic_auth_user_info="archive:wrong-one"))
        assert "wrong-one" not in str(refused.value)
        with pytest.raises(AuthorizationError) as refused:
            convert_one(settings(server.url.replace("//", "//archive:wrong-one@")))
        assert "wrong-one" not in str(refused.value)


def test_with_the_password_each_schema_is_asked_for_once_in_a_process(
    registered: Registered, registry: RegistrySettings
) -> None:
    name = registered.topic.replace("-", "_")
    schema_id = registered.register(json.dumps({"type": "enum", "name": name, "symbols": ["A"]}))
    with gate(registry.url) as server:
        allowed = settings(server.url, basic_auth_user_info=USER)
        for _ in range(3):
            convert_one(allowed, schema_id)
        assert len(server.paths) == len(set(server.paths)) == 2


def test_an_address_that_is_no_registry_is_a_mistake_in_the_configuration(registry: RegistrySettings) -> None:
    with pytest.raises(ConfigError, match=r"check schema\.registry\.url"):
        convert_one(settings(f"{registry.url}/nowhere"))


def test_properties_that_the_client_does_not_know_are_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"no\.such"):
        convert_one(settings("http://127.0.0.1:1", no_such="x"))
