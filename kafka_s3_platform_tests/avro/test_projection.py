import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.avro.projection import project_values
from kafka_s3_platform.errors import ProjectionError
from kafka_s3_platform.model.connect import Schema


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def projected(value: Any, source: Any, target: Any) -> Any:
    return project_values([value], Schema(json.dumps(source)), Schema(json.dumps(target)))[0]


INNER = record(field("x", "int"), field("y", "string"), name="Inner")
INNER_NEW = record(field("x", "long"), field("z", "int", default=9), name="Inner")

CASES: list[tuple[Any, Any, Any, Any]] = [
    ({"a": 1, "b": 2}, record(field("a", "int"), field("b", "int")), record(field("b", "int")), {"b": 2}),
    (
        {"a": 1},
        record(field("a", "int")),
        record(field("a", "int"), field("b", "string", default="d")),
        {"a": 1, "b": "d"},
    ),
    ({"a": 1}, record(field("a", "int")), record(field("a", "double")), {"a": 1.0}),
    ({"a": "é"}, record(field("a", "string")), record(field("a", "bytes")), {"a": "é".encode()}),
    ({"a": b"x"}, record(field("a", "bytes")), record(field("a", "string")), {"a": "x"}),
    ({"a": 1}, record(field("a", "int")), record(field("a", ["null", "long"])), {"a": 1}),
    ({"a": None}, record(field("a", ["null", "int"])), record(field("a", ["string", "null"])), {"a": None}),
    ({"a": 1}, record(field("a", ["null", "int"])), record(field("a", "int")), {"a": 1}),
    ({"old": 1}, record(field("old", "int")), record(field("new", "int", aliases=["old"])), {"new": 1}),
    ({"a": {"x": 1, "y": "q"}}, record(field("a", INNER)), record(field("a", INNER_NEW)), {"a": {"x": 1, "z": 9}}),
    ([{"x": 1, "y": ""}], {"type": "array", "items": INNER}, {"type": "array", "items": INNER_NEW}, [{"x": 1, "z": 9}]),
    ({"k": 1}, {"type": "map", "values": "int"}, {"type": "map", "values": "float"}, {"k": 1.0}),
    (
        "C",
        {"type": "enum", "name": "E", "symbols": ["A", "C"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B"},
        "B",
    ),
    ({"a": 1}, record(field("a", "int"), namespace="n"), record(field("a", "int"), namespace="m"), {"a": 1}),
    ({}, record(), record(field("n", ["null", "int"], default=None)), {"n": None}),
    (5, "int", {"type": "long", "logicalType": "timestamp-millis"}, 5),
]
BEYOND_FASTAVRO: list[tuple[Any, Any, Any, Any]] = [
    ({"a": 1}, record(field("a", "int"), name="Old"), record(field("a", "int"), aliases=["n.Old"]), {"a": 1}),
    ({}, record(), record(field("b", "bytes", default="\u00ff")), {"b": b"\xff"}),
    ({}, record(), record(field("i", INNER_NEW, default={"x": 3})), {"i": {"x": 3, "z": 9}}),
]


@pytest.mark.parametrize(("value", "source", "target", "expected"), CASES + BEYOND_FASTAVRO)
def test_values_are_projected_by_avro_s_rules(value: Any, source: Any, target: Any, expected: Any) -> None:
    assert projected(value, source, target) == expected


@pytest.mark.parametrize(("value", "source", "target", "expected"), CASES)
def test_fastavro_resolves_them_alike(value: Any, source: Any, target: Any, expected: Any) -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, source, value)
    body.seek(0)
    physical = json.loads(json.dumps(target).replace('"logicalType"', '"was"'))
    assert fastavro.schemaless_reader(body, source, physical) == expected


@pytest.mark.parametrize(
    ("value", "source", "target", "said"),
    [
        ({}, record(), record(field("b", "int")), "field b is in the target schema alone"),
        ({"a": "1"}, record(field("a", "string")), record(field("a", "int")), "field a is string .* into int"),
        ({"a": 1}, record(field("a", "long")), record(field("a", "int")), "field a is long .* into int"),
        (
            {"a": {"x": 1, "y": ""}},
            record(field("a", INNER)),
            record(field("a", record(field("x", "boolean"), name="Inner"))),
            r"field a\.x is int .* into boolean",
        ),
        ({"a": None}, record(field("a", ["null", "int"])), record(field("a", "int")), "field a is null"),
        ({"a": "x"}, record(field("a", ["int", "string"])), record(field("a", "int")), "field a is string"),
        ({"a": 1}, record(field("a", "int")), record(field("a", ["null", "string"])), "field a is int"),
        ({"a": 1}, record(field("a", "int")), record(field("a", "int"), name="S"), "record R .* record S"),
        (
            "C",
            {"type": "enum", "name": "E", "symbols": ["C"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "holds 'C', no symbol of enum E",
        ),
        ({"a": b"\xff"}, record(field("a", "bytes")), record(field("a", "string")), "field a .* not UTF-8"),
    ],
)
def test_what_is_impossible_names_the_field(value: Any, source: Any, target: Any, said: str) -> None:
    with pytest.raises(ProjectionError, match=said):
        projected(value, source, target)


def test_a_record_inside_itself_is_projected_to_its_depth() -> None:
    source = record(field("v", "int"), field("next", ["null", "R"]))
    target = record(field("v", "long"), field("more", "int", default=0), field("next", ["null", "R"]))
    value = {"v": 1, "next": {"v": 2, "next": None}}
    assert projected(value, source, target) == {"v": 1, "more": 0, "next": {"v": 2, "more": 0, "next": None}}


def test_a_type_named_after_its_definition_is_found() -> None:
    source = record(field("a", INNER), field("b", "Inner"))
    target = record(field("b", INNER_NEW), field("a", "Inner"))
    value = {"a": {"x": 1, "y": ""}, "b": {"x": 2, "y": ""}}
    assert projected(value, source, target) == {"b": {"x": 2, "z": 9}, "a": {"x": 1, "z": 9}}


def test_a_tombstone_stays_null() -> None:
    source, target = Schema(json.dumps(record())), Schema(json.dumps(record(field("a", "int", default=1))))
    assert project_values([None, {}], source, target) == [None, {"a": 1}]


@given(st.lists(st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9) | st.text(), "b": st.booleans()})))
def test_to_its_own_schema_everything_stays(values: list[Any]) -> None:
    schema = Schema(json.dumps(record(field("a", ["null", "long", "string"]), field("b", "boolean"))))
    assert project_values(values, schema, schema) == values
