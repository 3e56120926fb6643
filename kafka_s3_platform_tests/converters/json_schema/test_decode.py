import json
from typing import Any

import fastavro
import pytest

from kafka_s3_platform_tests.converters.conftest import Registered
from kafka_s3_platform_tests.converters.values import framed

DATA = "org.apache.kafka.connect.data."

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "shop.Order",
    "required": ["id", "customer"],
    "properties": {
        "id": {"type": "integer", "connect.index": 1},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 0},
        "small": {"type": "integer", "connect.type": "int8"},
        "at": {"type": "integer", "title": DATA + "Timestamp", "connect.type": "int64"},
        "price": {
            "type": "number",
            "title": DATA + "Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2"},
        },
        "state": {"type": "string", "enum": ["NEW", "DONE"], "default": "NEW"},
        "size": {"type": ["number", "null"]},
        "either": {"oneOf": [{"type": "integer"}, {"$ref": "#/definitions/city"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "customer": {"$ref": "customer.json"},
        "next": {"$ref": "#"},
        "anything": {},
    },
    "definitions": {"city": {"type": "object", "title": "City", "properties": {"name": {"type": "string"}}}},
}
CUSTOMER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "Customer",
    "allOf": [
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        {"type": "object", "properties": {"age": {"type": "integer"}}},
    ],
}


@pytest.fixture
def order_id(registered: Registered) -> int:
    registered.register(json.dumps(CUSTOMER), "JSON", subject="customer")
    return registered.register(json.dumps(ORDER), "JSON", customer="customer.json")


def order(**values: Any) -> bytes:
    return json.dumps({"id": 1, "customer": {"name": "Eva"}, **values}).encode()


def test_a_json_schema_becomes_avro(registered: Registered, order_id: int) -> None:
    [schema] = registered.convert("JSON_SR", [framed(order_id, order())]).payload.schemas
    fastavro.parse_schema(schema.avro)
    assert (schema.schema_id, schema.subject, schema.version) == (order_id, f"{registered.topic}-value", 1)
    assert (schema.avro["namespace"], schema.avro["name"]) == ("shop", "Order")
    fields = {field["name"]: field for field in schema.avro["fields"]}
    assert list(fields)[:2] == ["note", "id"]
    types = {name: field["type"] for name, field in fields.items()}
    assert types["customer"]["fields"] == [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "long"], "default": None},
    ]
    name = {"name": "name", "type": ["null", "string"], "default": None}
    city = {"type": "record", "name": "City", "connect.name": "City", "fields": [name]}
    del types["customer"]
    assert types == {
        "note": ["null", "string"],
        "id": "long",
        "small": ["null", {"type": "int", "connect.type": "int8"}],
        "at": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
        "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}],
        "state": ["string", "null"],
        "size": ["null", "double"],
        "either": ["null", "long", city, "string"],
        "tags": ["null", {"type": "array", "items": "string"}],
        "labels": ["null", {"type": "map", "values": "long"}],
        "next": ["null", "shop.Order"],
        "anything": ["null", {"type": "string", "connect.name": "io.confluent.connect.json.Json"}],
    }
    assert fields["state"]["default"] == "NEW"


def test_values_are_in_physical_form(registered: Registered, order_id: int) -> None:
    row = order(
        note=None, at=5, price=12.34, size=2, either={"name": "Bern"}, tags=["a"], labels={"x": 1},
        anything={"b": [1.50]},
        next={"id": 2, "customer": {"name": "Al", "age": 3}, "either": "x"}, unknown=1,
    )  # fmt: skip
    result = registered.convert("JSON_SR", [framed(order_id, row), None])
    assert not result.failures
    nothing = dict.fromkeys(("note", "small", "at", "price", "size", "either", "tags", "labels", "next", "anything"))
    nested = {**nothing, "id": 2, "customer": {"name": "Al", "age": 3}, "either": ("string", "x"), "state": "NEW"}
    assert result.payload.objects == [
        {
            **nothing,
            "id": 1,
            "customer": {"name": "Eva", "age": None},
            "state": "NEW",
            "at": 5,
            "price": b"\x04\xd2",
            "size": 2.0,
            "either": ("shop.City", {"name": "Bern"}),
            "tags": ["a"],
            "labels": {"x": 1},
            "anything": '{"b":[1.5]}',
            "next": nested,
        },
        None,
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"id":1', "is no JSON behind its schema's id"),
        (b"[]", "it is not an object"),
        (b'{"customer":{"name":"x"}}', "lacks id, which is required"),
        (order(id="1"), "id is not an integer of 64 bits but '1'"),
        (order(customer={}), "lacks customer.name"),
        (order(small=200), "small is not an integer of 8 bits"),
        (order(tags=[1]), "an item of tags is not a string"),
        (order(either=[1]), "either is not of any of its types"),
        (order(next={"id": 1}), "lacks customer, which is required"),
    ],
)
def test_what_does_not_fit_the_schema_fails(registered: Registered, order_id: int, row: bytes, said: str) -> None:
    result = registered.convert("JSON_SR", [framed(order_id, order()), framed(order_id, row)])
    [failure] = result.failures
    assert failure.offset == 1
    assert said in failure.message


def test_a_schema_that_refers_to_an_address_is_not_followed(registered: Registered) -> None:
    text = json.dumps(
        {"$schema": ORDER["$schema"], "type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/a.json"}}}
    )
    schema_id = registered.register(text, "JSON")
    [failure] = registered.convert("JSON_SR", [framed(schema_id, b"{}")]).failures
    assert f"has schema {schema_id}, which cannot be used" in failure.message
    assert "http://127.0.0.1:1/a.json" in failure.message
