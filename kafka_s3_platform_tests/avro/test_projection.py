import io
import json
import re
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro.projection import ProjectionError, list_lacking_fields, project_values
from kafka_s3_platform.core.model.connect import Schema


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def projected(value: Any, source: Any, target: Any) -> Any:
    (found,) = project_values([value], Schema(json.dumps(source)), Schema(json.dumps(target)))
    return found


def fixed(name: str) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": 2}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def nameless(number: int | str, *fields: dict[str, Any]) -> dict[str, Any]:
    return record(*fields, name=f"ConnectDefault{number}", namespace="io.confluent.connect.avro")


DEBEZIUM = "io.debezium.time"

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
    ({}, record(), record(field("n", ["null", "int"], default=None)), {"n": None}),
    (5, {"type": "int", "logicalType": "x"}, {"type": "long", "logicalType": "x"}, 5),
    (1 << 53, "long", "double", float(1 << 53)),
]
BEYOND_FASTAVRO: list[tuple[Any, Any, Any, Any]] = [
    ({"a": 1}, record(field("a", "int"), name="Old"), record(field("a", "int"), aliases=["Old"]), {"a": 1}),
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
    assert fastavro.schemaless_reader(body, source, target) == expected


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
        ({"a": ("string", "x")}, record(field("a", ["int", "string"])), record(field("a", "int")), "field a is string"),
        (
            {"a": "x"},
            record(field("a", ["int", "string"])),
            record(field("a", "int")),
            "field a names none of int, str",
        ),
        ({"a": 1}, record(field("a", "int")), record(field("a", ["null", "string"])), "field a is int"),
        ({"a": 1}, record(field("a", "int")), record(field("a", "int"), name="S"), "record R .* record S"),
        ({}, record(namespace="shop"), record(namespace="bank"), r"record shop\.R .* record bank\.R"),
        (
            "C",
            {"type": "enum", "name": "E", "symbols": ["C"]},
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            "holds 'C', no symbol of enum E",
        ),
        ({"a": b"\xff"}, record(field("a", "bytes")), record(field("a", "string")), "field a .* not UTF-8"),
        (b"ab", fixed("A"), fixed("B"), "fixed A .* into fixed B"),
    ],
)
def test_what_is_impossible_names_the_field(value: Any, source: Any, target: Any, said: str) -> None:
    assert_refused(projected(value, source, target), said)


def assert_refused(found: Any, said: str) -> None:
    assert isinstance(found, ProjectionError), found
    assert re.search(said, str(found)), found


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (decimal(10, 2), decimal(12, 4), "bytes .*decimal, precision 10, scale 2.* into bytes .*scale 4"),
        (decimal(10, 2), decimal(12, 2), "precision 10.* into .*precision 12"),
        (decimal(10, 2), "bytes", "decimal.* into bytes"),
        ("bytes", decimal(10, 2), "bytes and cannot be made into bytes .*decimal"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), "millis.* into .*micros"),
        ("long", logical("long", "timestamp-millis"), "long and cannot be made into long .*millis"),
        (logical("int", "date"), logical("long", "timestamp-millis"), r"int \(logicalType date\).* into long"),
        (logical("int", "date"), "long", "date.* into long"),
        (logical("long", "timestamp-millis"), ["null", "string", "double"], "any type of the union there"),
        (["null", logical("long", "timestamp-millis")], ["null", "long"], "timestamp-millis.* into long|any type"),
        ({"type": "long", "connect.name": DEBEZIUM}, {"type": "long", "connect.name": f"{DEBEZIUM}.Micro"}, "Micro"),
        ({"type": "array", "items": decimal(4, 1)}, {"type": "array", "items": decimal(4, 2)}, r"field a\[\] is bytes"),
    ],
)
def test_what_would_mean_something_else_is_refused(source: Any, target: Any, said: str) -> None:
    value: Any = [b"\x0c"] if isinstance(source, dict) and source["type"] == "array" else 5
    assert_refused(projected({"a": value}, record(field("a", source)), record(field("a", target))), said)


def test_connect_s_own_words_for_a_logical_type_of_avro_change_nothing() -> None:
    said = {"connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}
    assert projected(b"\x04\xd2", {**decimal(10, 2), **said}, decimal(10, 2)) == b"\x04\xd2"


@pytest.mark.parametrize(("kind", "wanted", "value"), [("long", "double", (1 << 53) + 1), ("int", "float", 16777217)])
def test_a_number_that_would_lose_digits_is_refused(kind: str, wanted: str, value: int) -> None:
    assert_refused(projected(value, kind, wanted), f"holds {value}, which a {wanted} cannot hold exactly")


def test_a_record_that_is_refused_once_is_refused_wherever_it_is_used() -> None:
    """Its fields before the refused one were kept as a projection of the whole, so the others were lost."""
    inner = record(field("x", "int"), field("y", "string"), name="Inner")
    other = record(field("x", "int"), field("y", "int"), name="Inner")
    source = record(field("a", ["null", inner]), field("b", "Inner"))
    target = record(field("a", ["null", other, "string"]), field("b", "Inner"))
    assert_refused(projected({"a": None, "b": {"x": 1, "y": "q"}}, source, target), r"y is string .* into int")


def test_a_record_without_a_name_of_its_own_is_known_by_its_place() -> None:
    source = record(field("customer", nameless(2, field("name", "string"))))
    zip_code = field("address", ["null", nameless(2, field("zip", "string"))], default=None)
    target = record(zip_code, field("customer", nameless(3, field("name", "string"))))
    assert projected({"customer": {"name": "Eva"}}, source, target) == {"address": None, "customer": {"name": "Eva"}}


A = nameless("", field("a", ["null", "int"], default=None))
B = nameless(2, field("b", ["null", "int"], default=None))
B_NOW = nameless(3, *B["fields"], field("c", ["null", "int"], default=None))
B_NAME = f"{B['namespace']}.{B['name']}"
OTHER = nameless(2, field("z", ["null", "int"], default=None))


def test_of_several_nameless_records_of_a_union_the_fields_tell_which_it_is() -> None:
    source, target = record(field("u", [A, B])), record(field("u", [A, OTHER, B_NOW]))
    value, written = (B_NAME, {"b": 1}), (f"{B_NOW['namespace']}.{B_NOW['name']}", {"b": 1, "c": None})
    assert projected({"u": value}, source, target) == {"u": written}


@pytest.mark.parametrize("target", [A, [A, OTHER], ["null", A]])
def test_one_of_several_nameless_records_is_never_taken_for_another(target: Any) -> None:
    value = {"u": (B_NAME, {"b": 1})}
    assert_refused(projected(value, record(field("u", [A, B])), record(field("u", target))), "field u is rec")


def test_a_value_of_a_union_is_projected_as_the_branch_that_it_names() -> None:
    union = ["int", logical("long", "timestamp-millis")]
    changed = ["null", "int", logical("long", "timestamp-micros")]
    assert projected(("int", 5), union, changed) == ("int", 5)
    assert_refused(projected(("long", 5), union, changed), "is long")
    assert projected(("int", 5), union, "double") == 5.0


def test_a_value_that_comes_into_a_union_names_its_branch_there() -> None:
    assert projected(5, "int", ["null", "string", "long"]) == ("long", 5)
    assert projected(None, ["null", "int"], ["null", "string", "long"]) is None


@pytest.mark.parametrize("turned", [False, True])
def test_records_of_one_short_name_are_two_types(turned: bool) -> None:
    here, there = (record(field("id", "string"), name="Created", namespace=space) for space in ("order", "payment"))
    target = [there, here] if turned else [here, there]
    assert projected(("payment.Created", {"id": "7"}), [here, there], target) == ("payment.Created", {"id": "7"})
    assert_refused(projected(("payment.Created", {"id": "7"}), [here, there], ["null", here]), "payment.Created")


def test_fields_that_the_target_lacks_are_listed_with_the_records_around_them() -> None:
    inner = record(field("x", "int"), name="Inner")
    source, target = record(field("a", INNER), field("gone", "int")), record(field("a", ["null", inner]))
    assert list_lacking_fields(*(Schema(json.dumps(each)) for each in (source, target))) == ["a.y", "gone"]


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
    assert [*project_values([None, {}], source, target)] == [None, {"a": 1}]


EITHER = st.tuples(st.just("long"), st.integers(-9, 9)) | st.tuples(st.just("string"), st.text())


@given(st.lists(st.fixed_dictionaries({"a": st.none() | EITHER, "b": st.booleans()})))
def test_to_its_own_schema_everything_stays(values: list[Any]) -> None:
    schema = Schema(json.dumps(record(field("a", ["null", "long", "string"]), field("b", "boolean"))))
    assert [*project_values(values, schema, schema)] == values
