import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator  # type: ignore[import-untyped] # it ships no types

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.base import Serializer
from kafka_s3_platform.connect.converters.json_schema.encode import compile_json_schema
from kafka_s3_platform_tests.converters.values import archived, convert_rows, framed, of_archive
from kafka_s3_platform_tests.restore.example_schemas import ORDER, ORDERS

DATA = "org.apache.kafka.connect.data."


def read_back(made: Serializer, *bodies: bytes) -> ConvertedPayload:
    """As Connect's converter reads them, with the schema from the archive instead of a registry."""
    settings = of_archive("JSON_SR", archived("JSON", made.text))
    return convert_rows(settings, [framed(1, body) for body in bodies])


def schema_of(avro: Any) -> Any:
    return json.loads(compile_json_schema(avro).text)


def field_of(avro: Any) -> Any:
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": avro}]}
    return schema_of(record)["properties"]["f"]


@settings(deadline=None)
@given(ORDERS)
def test_values_come_back_as_they_were_and_are_valid(order: dict[str, Any]) -> None:
    made = compile_json_schema(ORDER)
    body = made.body(order)
    Draft7Validator(json.loads(made.text)).validate(json.loads(body))
    done = read_back(made, body)
    assert done.failures == ()
    assert done.payload.objects == [order]


def test_the_schema_and_the_bytes_are_always_the_same() -> None:
    assert compile_json_schema(ORDER).text == compile_json_schema(json.loads(json.dumps(ORDER))).text


def test_types_are_confluent_s() -> None:
    assert field_of("int") == {"type": "integer", "connect.type": "int32", "connect.index": 0}
    assert field_of("bytes") == {"type": "string", "connect.type": "bytes", "connect.index": 0}
    assert field_of(["null", "string"]) == {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 0}
    assert field_of({"type": "map", "values": "double"}) == {
        "type": "object",
        "connect.type": "map",
        "additionalProperties": {"type": "number", "connect.type": "float64"},
        "connect.index": 0,
    }
    pair = [{"name": "key", "type": "int"}, {"name": "value", "type": "int"}]
    entry = {"type": "record", "name": "Renamed", "connect.internal.type": "MapEntry", "fields": pair}
    assert field_of({"type": "array", "items": entry})["connect.type"] == "map"


@pytest.mark.parametrize(
    ("avro", "name", "kind"),
    [
        ({"type": "int", "logicalType": "date"}, "Date", "int32"),
        ({"type": "int", "logicalType": "time-millis"}, "Time", "int32"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "Timestamp", "int64"),
    ],
)
def test_logical_types_keep_connect_s_names(avro: Any, name: str, kind: str) -> None:
    expected = {"type": "integer", "title": DATA + name, "connect.version": 1, "connect.type": kind, "connect.index": 0}
    assert field_of(avro) == expected


@pytest.mark.parametrize("logical", ["date", "time-millis"])
def test_a_logical_type_that_does_not_fit_its_type_has_no_name(logical: str) -> None:
    found = field_of({"type": "long", "logicalType": logical})
    assert found == {"type": "integer", "connect.type": "int64", "connect.index": 0}


def test_a_decimal_is_a_number_with_its_scale() -> None:
    avro = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    assert field_of(avro) == {
        "type": "number",
        "title": DATA + "Decimal",
        "connect.version": 1,
        "connect.type": "bytes",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
        "connect.index": 0,
    }
    assert compile_json_schema(avro).body((-1).to_bytes(1, "big", signed=True)) == b"-0.01"


def test_what_is_never_null_is_required_and_a_default_stands_only_there() -> None:
    fields = [
        {"name": "a", "type": "int", "default": 3},
        {"name": "b", "type": ["int", "null"], "default": 3},
        {"name": "c", "type": "bytes", "default": "\u00ff"},
    ]
    made = schema_of({"type": "record", "name": "R", "fields": fields})
    assert made["required"] == ["a", "c"]
    assert [made["properties"][name].get("default") for name in "abc"] == [3, None, "/w=="]


def test_a_union_whose_types_json_cannot_tell_apart_is_any_of_them() -> None:
    assert "oneOf" in field_of(["int", "string"])
    assert "anyOf" in field_of(["int", "double"])
    assert "anyOf" in field_of(["null", "bytes", "string"])


def test_a_logical_type_of_another_type_than_its_own_has_no_meaning() -> None:
    """As the Avro specification has it: readers ignore such a logical type."""
    assert "title" not in field_of({"type": "long", "logicalType": "date"})
    assert "title" in field_of({"type": "int", "logicalType": "date"})


def test_a_record_inside_itself_is_a_reference() -> None:
    node = {"type": "record", "name": "a.Node", "fields": [{"name": "next", "type": ["null", "a.Node"]}]}
    made = schema_of(node)
    assert made["$ref"] == "#/definitions/a.Node"
    reference = made["definitions"]["a.Node"]["properties"]["next"]["oneOf"][1]
    assert reference == {"$ref": "#/definitions/a.Node"}


@pytest.mark.parametrize(
    ("avro", "value"), [("double", float("nan")), ("float", float("inf")), ("int", "1"), ("string", 1)]
)
def test_a_value_that_json_or_the_schema_cannot_have_is_refused(avro: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="is"):
        compile_json_schema(avro).body(value)


def test_a_float_is_written_as_the_shortest_number_that_is_the_same() -> None:
    assert compile_json_schema("float").body(float(np.float32(0.1))) == b"0.1"


def test_a_schema_that_doubles_with_each_type_is_refused() -> None:
    """Named types are written out: a schema of three kilobytes took all memory."""
    known: Any = "int"
    for level in range(40):
        again = known if isinstance(known, str) else known["name"]
        fields = [{"name": "x", "type": ["null", known]}, {"name": "y", "type": ["null", again]}]
        known = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(ValueError, match="its JSON Schema comes to more than 100,000 parts"):
        compile_json_schema(known)
