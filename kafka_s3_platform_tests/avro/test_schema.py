import io
import json
from typing import Any

import numpy as np
import pytest

from kafka_s3_platform.connect.avro.schema import collect_definitions, strip_logical_types
from kafka_s3_platform.connect.avro.structs import EditableSchema
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.connect.converters.encoding import new_encoder
from kafka_s3_platform.connect.formats.avro import AvroReader
from kafka_s3_platform.core.config.settings import ConverterSettings, LayoutSettings, RegistrySettings
from kafka_s3_platform.core.model.connect import Payload, Schema
from kafka_s3_platform_tests.formats.connect import decoded, written


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def test_a_record_of_a_union_is_not_taken_for_one_whose_further_fields_have_defaults() -> None:
    wider = record("Wider", {"name": "x", "type": "int", "default": 1}, {"name": "y", "type": "int"})
    schema = Schema(json.dumps([wider, record("Narrow", {"name": "y", "type": "int"})]))
    settings = ConverterSettings(format="AVRO", registry=RegistrySettings(url="http://localhost:1"))
    encoder = new_encoder(settings, "t", is_key=False, registers=False)
    found = encoder.encode(Payload(None, np.zeros(1, np.int32), [schema], [("Narrow", {"y": 1})]))
    assert found.bad == {}
    assert found.column.to_pylist() == [b"\0\0\0\0\0" + b"\x02" + b"\x02"]


def test_defaults_of_bytes_are_decoded_wherever_they_are() -> None:
    items = {"type": "array", "items": "bytes"}
    inner = record("Inner", {"name": "raw", "type": {"type": "map", "values": "bytes"}, "default": {"k": "\x00"}})
    root = record(
        "Root",
        {"name": "items", "type": items, "default": ["\x01", "\xff"]},
        {"name": "inner", "type": inner, "default": {}},
        {"name": "optional", "type": ["bytes", "null"], "default": "\x02"},
    )
    expected = {"items": [b"\x01", b"\xff"], "inner": {"raw": {"k": b"\x00"}}, "optional": b"\x02"}
    structs = EditableSchema.of(Schema(json.dumps(root)))
    assert {field.name: field.default for field in structs.list_fields(structs.root, "a test")} == expected
    assert (
        AvroSchema(root).decode_default_of(
            "Root", json.loads(json.dumps({f["name"]: f["default"] for f in root["fields"]}))
        )
        == expected
    )


def test_a_default_of_a_union_is_of_the_first_branch_that_it_fits() -> None:
    narrow = record("Narrow", {"name": "a", "type": "bytes"})
    wider = record("Wider", {"name": "b", "type": "bytes"})
    fields: list[tuple[Any, Any, Any]] = [
        (["null", {"type": "array", "items": "bytes"}, "int"], 5, ("int", 5)),
        (["null", {"type": "map", "values": "bytes"}, "string"], "\x01", ("string", "\x01")),
        (["null", narrow, wider], {"b": "\x01"}, ("Wider", {"b": b"\x01"})),
        (["null", {"type": "enum", "name": "Kind", "symbols": ["A"]}, "bytes"], "B", ("bytes", b"B")),
        (["null", "int", "boolean"], True, ("boolean", True)),
        ({"type": "array", "items": "bytes"}, "no list", "no list"),
    ]
    root = record("Root", *({"name": f"f{i}", "type": t, "default": d} for i, (t, d, _) in enumerate(fields)))
    structs = EditableSchema.of(Schema(json.dumps(root)))
    assert [field.default for field in structs.list_fields(structs.root, "a test")] == [found for _, _, found in fields]


@pytest.mark.parametrize(
    ("odd", "value"),
    [
        ({"type": "string", "fields": "a,b"}, "x"),
        ({"type": "array", "items": "string", "fields": 3}, ["x"]),
        ({"type": "enum", "name": "Kind", "symbols": ["A"], "fields": ["A"]}, "A"),
    ],
    ids=lambda each: each["type"] if isinstance(each, dict) else "",
)
def test_an_attribute_fields_of_a_type_that_is_no_record_means_nothing(odd: dict[str, Any], value: Any) -> None:
    """Registries may hold such schemas: Avro's libraries ignore the attribute."""
    root = record("Root", {"name": "odd", "type": odd}, {"name": "n", "type": "int"})
    schema = Schema(json.dumps(root))
    assert strip_logical_types(root) == root
    structs = EditableSchema.of(schema)
    assert [field.name for field in structs.list_fields(structs.root, "a test")] == ["odd", "n"]
    assert structs.write_schema().avro == root
    body = written(
        LayoutSettings(format="avro", codec="null"), decoded([{"odd": value, "n": 1}], schema), schema=schema
    )
    (found,) = AvroReader(io.BytesIO(body), "o").batches()
    assert found.value.objects == [{"odd": value, "n": 1}]


def test_a_namespace_of_null_is_that_of_the_enclosing_type() -> None:
    """As in Apache Avro for Java, where null and no namespace are the same."""
    inner = {**record("Inner"), "namespace": None}
    outer = {**record("Outer", {"name": "inner", "type": inner}), "namespace": "a.b"}
    assert (
        set(collect_definitions(outer))
        == set(EditableSchema.of(Schema(json.dumps(outer))).names)
        == {"a.b.Outer", "a.b.Inner"}
    )
