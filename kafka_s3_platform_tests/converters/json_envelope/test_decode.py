import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.converters import ConvertedPayload, new_converter
from kafka_s3_platform.converters.base import check_walkable
from kafka_s3_platform.model.connect import NO_SCHEMA

DATA = "org.apache.kafka.connect.data."
ORDER = {
    "type": "struct",
    "name": "shop.Order",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "small", "type": "int8", "optional": True},
        {"field": "price", "type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}, "optional": True},
        {"field": "at", "type": "int64", "name": DATA + "Timestamp", "optional": False, "default": 7},
        {"field": "counts", "type": "map", "keys": {"type": "string"}, "values": {"type": "int32", "optional": True}},
        {"field": "names", "type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}, "optional": True},
        {"field": "lines", "type": "array", "items": {"type": "struct", "fields": [{"field": "x", "type": "double"}]}},
    ],
}


def converted(*values: Any) -> ConvertedPayload:
    converter = new_converter(ConverterSettings(format="JSON", schemas_enable=True), "t", is_key=False)
    rows = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return converter.convert(pa.array(rows, pa.binary()), np.arange(len(rows)))


def order(**payload: Any) -> dict[str, Any]:
    return {"schema": ORDER, "payload": {"id": 1, "counts": {}, "lines": [], **payload}}


def test_a_schema_beside_the_value_becomes_avro() -> None:
    [schema] = converted(order()).payload.schemas
    fastavro.parse_schema(schema.avro)
    assert schema.avro["name"] == "Order"
    assert schema.avro["namespace"] == "shop"
    assert {field["name"]: field["type"] for field in schema.avro["fields"]} == {
        "id": "long",
        "small": ["null", {"type": "int", "connect.type": "int8"}],
        "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}],
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "counts": {"type": "map", "values": ["null", "int"]},
        "names": [
            "null",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "MapEntry",
                    "namespace": "io.confluent.connect.avro",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}],
                },
            },
        ],
        "lines": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "ConnectDefault",
                "namespace": "io.confluent.connect.avro",
                "fields": [{"name": "x", "type": "double"}],
            },
        },
    }


def test_values_are_in_physical_form() -> None:
    value = order(price="AfQ=", at=5, counts={"a": None}, names=[[2, "b"]], lines=[{"x": 1}], small=-128)
    [found] = converted(value).payload.objects
    assert found == {
        "id": 1,
        "small": -128,
        "price": b"\x01\xf4",
        "at": 5,
        "counts": {"a": None},
        "names": [{"key": 2, "value": "b"}],
        "lines": [{"x": 1.0}],
    }


@pytest.mark.parametrize(("number", "unscaled"), [(12.34, 1234), (-0.01, -1), (1, 100), (0, 0)])
def test_a_decimal_may_be_a_number(number: float, unscaled: int) -> None:
    [found] = converted(order(price=number)).payload.objects
    assert int.from_bytes(found["price"], "big", signed=True) == unscaled


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"id": "x"}, "id is not an integer of 64 bits but 'x'"),
        ({"id": 1 << 63}, "id is not an integer of 64 bits"),
        ({"id": True}, "id is not an integer of 64 bits"),
        ({"id": None}, "has null for id, which is required"),
        ({"at": None}, "has null for at, which is required"),
        ({"small": 128}, "small is not an integer of 8 bits"),
        ({"price": 0.001}, "more than 2 digits after the point"),
        ({"price": "*"}, "price is not bytes in base64"),
        ({"lines": [{"x": "1"}]}, "an item of lines.x is not a number"),
        ({"counts": {"a": 1.5}}, "a value of counts is not an integer of 32 bits"),
        ({"names": [[1]]}, "names is not a pair of key and value"),
    ],
)
def test_what_does_not_fit_the_schema_fails_by_the_name_of_its_field(payload: dict[str, Any], said: str) -> None:
    result = converted(order(), order(**payload))
    assert [failure.offset for failure in result.failures] == [1]
    assert said in result.failures[0].message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"nope", "is no JSON object"),
        (b'{"a":1}', "is no JSON object"),
        (b'{"schema":{"type":"int32"},"payload":1,"more":2}', "is no JSON object"),
        (b'{"schema":{"type":"int33"},"payload":1}', "unknown type 'int33'"),
        (b'{"schema":{"type":"array"},"payload":[]}', "schema of type array without 'items'"),
        (b'{"schema":[],"payload":1}', "a schema without a type"),
    ],
)
def test_what_is_no_envelope_fails(row: bytes, said: str) -> None:
    [failure] = converted(row).failures
    assert said in failure.message


def test_a_byte_order_mark_before_the_text_is_passed_over_as_in_connect() -> None:
    assert converted(b'\xef\xbb\xbf{"schema":{"type":"int32"},"payload":1}').payload.objects == [1]


def test_nulls_and_payloads_without_a_schema() -> None:
    optional = {"type": "string", "optional": True}
    result = converted(
        None,
        {"schema": None, "payload": {"a": 1.5}},
        {"schema": None, "payload": None},
        {"schema": optional, "payload": None},
        {"schema": optional, "payload": "x"},
    )
    assert result.payload.objects == [None, {"a": 1.5}, None, None, "x"]
    assert result.payload.codes.tolist() == [NO_SCHEMA] * 4 + [0]
    assert result.payload.schemas[0].avro == "string"
    assert not result.failures


def test_records_with_two_schemas_are_told_apart() -> None:
    result = converted(order(), {"schema": {"type": "int32"}, "payload": 1}, order(id=2))
    assert result.payload.codes.tolist() == [0, 1, 0]


def test_a_large_schema_of_many_records_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counted(avro: str) -> str:
        compiled.append(avro)
        return check_walkable(avro)

    monkeypatch.setattr("kafka_s3_platform.converters.json_envelope.check_walkable", counted)
    fields = [{"field": f"f{i}", "type": "int32", "optional": True} for i in range(2_000)]
    found = converted(*({"schema": {"type": "struct", "fields": fields}, "payload": {"f7": n}} for n in range(3)))
    assert [record["f7"] for record in found.payload.objects] == [0, 1, 2]
    assert len(compiled) == 1


def test_fields_that_the_schema_does_not_list_are_left_out_and_told() -> None:
    """They were left out without a word."""
    done = converted(order(), order(more=1, counts={"more": 2}), {"schema": None, "payload": {"more": 1}})
    assert (
        "1 records lack fields that the schema beside their value does not list (the first one: 'more')"
        in done.notes.sentences
    )


def test_two_fields_of_one_name_refuse_the_schema() -> None:
    fields = [{"field": "a", "type": "int32"}, {"field": "a", "type": "string", "optional": True}]
    done = converted({"schema": {"type": "struct", "name": "x.S", "fields": fields}, "payload": {"a": 1}})
    assert "x.S has two fields named 'a'" in done.failures[0].message
