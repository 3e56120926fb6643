"""Nullable, repeated, recursive and referenced objects hold what an independent reader reads."""

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Thread
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator  # type: ignore[import-untyped] # it ships no types

from kafka_s3_platform.connect.avro.connect_schema import ConnectType, Slot
from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.connect_json import ADDED, Readers
from kafka_s3_platform.connect.converters.json_schema.encode import compile_json_schema
from kafka_s3_platform.core.model.schema import SchemaReference
from kafka_s3_platform_tests.converters.values import archived, convert_rows, of_archive

DRAFT = "http://json-schema.org/draft-07/schema#"
PREFIX = b"\0\0\0\0\1"
TEXT: Any = {"type": "string"}
WHOLE: Any = {"type": "integer"}


def converted(schema: Any, *values: Any, **referred: Any) -> ConvertedPayload:
    """Convert values of a schema that comes from an archive instead of a registry, as those that it refers to do.

    A name with a dot is an option.
    """
    options = {name: referred.pop(name) for name in [*referred] if "." in name}
    named = [SchemaReference(f"{name}.json", name, 1, at) for at, name in enumerate(referred, 2)]
    texts = [json.dumps({"$schema": DRAFT, **each}) for each in (schema, *referred.values())]
    first, *others = (archived("JSON", text, at) for at, text in enumerate(texts, 1))
    how = of_archive("JSON_SR", replace(first, schema_references=tuple(named)), *others, **options)
    return convert_rows(how, [PREFIX + json.dumps(value).encode() for value in values])


def check_values(schema: Any, *values: Any) -> None:
    """Compare what is converted, and what a reader of Avro reads of it, with what Confluent's deserializer reads."""
    done = converted(schema, *values)
    assert [failure.message for failure in done.failures] == []
    text = json.dumps({"$schema": DRAFT, **schema})
    deserializer = JSONDeserializer(Schema(text, "JSON"), conf={"validate": True})
    avro = fastavro.parse_schema(json.loads(done.payload.schemas[0].text))
    objects = AvroObjects(done.payload.schemas[0].avro)
    for value, found in zip(values, done.payload.objects, strict=True):
        read = deserializer(PREFIX + json.dumps(value).encode(), SerializationContext("t", MessageField.VALUE))
        check_value(without_branches(found), read, "")
        body = io.BytesIO()
        objects.write(body, found)
        body.seek(0)
        assert fastavro.schemaless_reader(body, avro, None) == without_branches(found)


def without_branches(value: Any) -> Any:
    """Leave out the names of unions' branches, which other readers do not tell."""
    if isinstance(value, Mapping):
        return {name: without_branches(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_branches(each) for each in value]
    return without_branches(value[1]) if isinstance(value, tuple) else value


def check_value(found: Any, read: Any, where: str) -> None:
    """Compare field by field. A field that the value lacks is null."""
    if isinstance(read, Mapping):
        assert isinstance(found, Mapping), where
        assert read.keys() <= found.keys(), where
        for name, each in found.items():
            check_value(each, read.get(name), f"{where}.{name}")
    elif isinstance(read, list):
        assert isinstance(found, list), where
        for at, (each, other) in enumerate(zip(found, read, strict=True)):
            check_value(each, other, f"{where}[{at}]")
    else:
        assert (type(found), found) == (type(read), read), where


def record(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


def nullable(**properties: Any) -> Any:
    return {"type": ["object", "null"], "properties": properties}


def test_two_nullable_objects_keep_their_own_fields() -> None:
    """The second one was archived with the fields of the first, and without an error."""
    schema = record(home=nullable(street=TEXT), work=nullable(company=TEXT, salary=WHOLE))
    value = {"home": {"street": "A"}, "work": {"company": "ACME", "salary": 5}}
    assert converted(schema, value).payload.objects == [value]


def test_hundreds_of_nullable_objects_keep_their_own_fields() -> None:
    inner = {f"o{n}": nullable(**{f"f{n}": WHOLE, "again": nullable(**{f"g{n}": TEXT})}) for n in range(300)}
    value = {f"o{n}": {f"f{n}": n, "again": {f"g{n}": str(n)}} for n in range(300)}
    check_values(record(**inner), value)


def test_a_nullable_object_may_hold_itself() -> None:
    """Its type was made anew at each visit, so its schema could not be used."""
    node = nullable(v=WHOLE, next={"$ref": "#/definitions/node"})
    value = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
    check_values({**nullable(v=WHOLE, next={"$ref": "#"})}, value)
    check_values(
        {**record(one=node, other={"$ref": "#/definitions/node"}), "definitions": {"node": node}},
        {"one": value, "other": value},
    )


def test_a_type_that_is_listed_beside_object_takes_its_own_values() -> None:
    """They were refused: an object with properties was taken for the only type."""
    either = {**nullable(b=TEXT), "type": ["string", "object", "array", "null"], "items": WHOLE, "default": "x"}
    check_values(record(a=either), {"a": "x"}, {"a": {"b": "y"}}, {"a": [1, 2]})


@pytest.mark.parametrize(("default", "first"), [(5, "long"), ("x", "string"), (True, "boolean")])
def test_a_default_is_of_the_first_type_of_a_union(default: Any, first: str) -> None:
    """Readers of Avro up to 1.11 refuse a schema in which it is of another one."""
    either = {"type": ["string", "integer", "boolean", "null"], "default": default}
    done = converted(record(a=either, b=either), {"b": "y"})
    assert done.payload.objects == [{"a": (first, default), "b": ("string", "y")}]
    assert [field["type"][0] for field in done.payload.schemas[0].avro["fields"]] == [first, first]


@pytest.mark.parametrize("title", ["string", "null", "Place"])
def test_an_object_that_is_used_again_is_the_same_whatever_its_title(title: str) -> None:
    """A name in Avro that is a type's own means that type: the second use of an object `null` was nothing."""
    place = {"type": "object", "title": title, "properties": {"a": TEXT}, "required": ["a"]}
    again = {"$ref": "#/definitions/place"}
    schema = {**record(either={"anyOf": [again, again, TEXT]}, one=again, two=again), "definitions": {"place": place}}
    check_values(schema, {"one": {"a": "x"}, "two": {"a": "y"}, "either": {"a": "z"}}, {"either": "x"})
    either = converted(schema, {}).payload.schemas[0].avro["fields"][0]["type"]
    assert len(either) == 3


def part(**properties: Any) -> Any:
    return {"properties": properties}


BASE = {
    "base": {**record(a=TEXT), "required": ["a"]},
    "middle": {"allOf": [{"$ref": "#/definitions/base"}, part(b=TEXT)]},
}
COMBINED: dict[str, tuple[Any, list[Any]]] = {
    "properties beside allOf": ({**record(a=TEXT), "allOf": [part(b=WHOLE)]}, [{"a": "x", "b": 1}]),
    "allOf inside allOf": (
        {"allOf": [{"$ref": "#/definitions/middle"}, part(c=WHOLE)], "definitions": BASE},
        [{"a": "x", "b": "y", "c": 1}],
    ),
    "the same base twice": (
        {
            "allOf": [{"$ref": "#/definitions/middle"}, {"$ref": "#/definitions/base"}, part(c=WHOLE)],
            "definitions": BASE,
        },
        [{"a": "x", "b": "y", "c": 1}],
    ),
    "properties beside anyOf": (
        {**record(a=TEXT), "anyOf": [part(b=WHOLE, d=TEXT), {"allOf": [part(c=TEXT, b=TEXT)]}]},
        [{"a": "x", "b": 1, "d": "y"}, {"a": "x", "b": "z", "c": "y"}],
    ),
    "properties beside what anyOf requires of them": (
        {**record(a=TEXT, b=WHOLE), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": "x"}, {"b": 1}],
    ),
    "anyOf inside allOf": (
        {"allOf": [part(a=TEXT), {"anyOf": [part(b=WHOLE), part(c=WHOLE)]}]},
        [{"a": "x", "b": 1}, {"c": 2}],
    ),
    "a default of another part": (
        {**record(a=TEXT), "oneOf": [part(b={**WHOLE, "default": 5}), {"type": "string"}]},
        [{"a": "x"}],
    ),
    "nothing but null": (
        {
            **record(
                a={**nullable(x=TEXT), "allOf": [part(y=TEXT)]},
                b={"anyOf": [{"type": "null"}, {"type": "object"}], **part(z=TEXT)},
            ),
            "required": ["a", "b"],
        },
        [{"a": None, "b": None}, {"a": {"x": "1", "y": "2"}, "b": {"z": "3"}}],
    ),
    "a type beside allOf": (record(a={"type": "string", "allOf": [{"minLength": 1}]}), [{"a": "x"}]),
}


@pytest.mark.parametrize("name", COMBINED)
def test_an_object_of_several_parts_has_the_fields_of_all(name: str) -> None:
    """Those beside allOf, of an allOf inside another, or beside anyOf were left out, without an error."""
    schema, values = COMBINED[name]
    check_values(schema, *values)


def test_an_object_may_be_one_of_several_that_are_combined_of_it() -> None:
    """A reader that checks values by such a schema does not end."""
    shape = {"$ref": "#/definitions/shape"}
    kinds = [{"$ref": "#/definitions/circle"}, {"$ref": "#/definitions/square"}]
    definitions = {
        "shape": {**record(kind=TEXT), "anyOf": kinds},
        "circle": {"allOf": [shape, part(radius=WHOLE)]},
        "square": {"allOf": [shape, part(side=WHOLE, inner=shape)]},
    }
    value = {"shape": {"kind": "s", "side": 1, "inner": {"kind": "c", "radius": 2}}}
    done = converted({**record(shape=shape), "definitions": definitions}, value)
    check_value(done.payload.objects[0], value, "")


PLACE = {**part(city={"$ref": "#/definitions/text"}), "definitions": {"text": TEXT}}


@pytest.mark.parametrize("own", ["http://x/order.json", "order.json", "schemas/order.json", "http://x/a/b/order.json#"])
def test_references_are_found_beside_an_id(own: str) -> None:
    """Such a schema could not be used if its $id named a folder, or if it referred to a subject's schema."""
    inner = {"$id": "inner/place.json", "type": "object", **PLACE}
    inside = record(
        one=inner,
        two={"$ref": "inner/place.json"},
        three={"$ref": "#/definitions/text"},
        four={"$ref": "place.json"},
        five={"allOf": [{"$ref": "place.json#/definitions/text"}]},
    )
    schema = {"$id": own, **inside, "definitions": {"text": TEXT}}
    value = {"one": {"city": "a"}, "two": {"city": "b"}, "three": "c", "four": {"city": "d"}, "five": "e"}
    for place in (
        {**record(), **PLACE},
        {"$id": "http://y/place.json", **record(), **PLACE},
        {"$id": "y/place.json", **record(), **PLACE},
    ):
        done = converted(schema, value, place=place)
        assert ([failure.message for failure in done.failures], done.payload.objects) == ([], [value])


SECONDS = 5.0
"""Of a processor: other work does not count."""

MANY = range(1_500)
INSIDE = {"properties": {"a": {"$ref": "#/definitions/text"}}, "definitions": {"text": TEXT}}
CHAIN = {f"c{n}": {"$ref": f"#/definitions/c{n + 1}"} for n in range(95)} | {"c95": TEXT}
DOUBLED = {f"a{n}": {"oneOf": 2 * [{"$ref": f"#/definitions/a{n + 1}"}]} for n in range(13)} | {
    "a13": {"$ref": "#/definitions/c0"}
}
REFERENCES: dict[str, tuple[Any, Any]] = {
    "to names": (
        {
            **record(**{f"f{n}": {"$ref": f"#d{n}"} for n in MANY}),
            "definitions": {f"d{n}": {"$id": f"#d{n}", **TEXT} for n in MANY},
        },
        {"f7": "x"},
    ),
    "to addresses": (
        {
            **record(**{f"f{n}": {"$ref": f"d{n}.json"} for n in MANY}),
            "definitions": {f"d{n}": {"$id": f"d{n}.json", **TEXT} for n in MANY},
        },
        {"f7": "x"},
    ),
    "below addresses": (
        record(**{f"f{n}": {"$id": f"d{n}.json", "type": "object", **INSIDE} for n in MANY}),
        {"f7": {"a": "x"}},
    ),
    "over others, each used often": (
        {**record(f={"$ref": "#/definitions/a0"}), "definitions": CHAIN | DOUBLED},
        {"f": "x"},
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_many_references_take_seconds(name: str) -> None:
    """A schema of 220 kB took minutes: each reference read the whole schema again."""
    schema, value = REFERENCES[name]
    start = time.process_time()
    [found] = converted(schema, value).payload.objects
    assert time.process_time() - start < SECONDS
    assert {field: each for field, each in found.items() if each is not None} == value


def test_a_part_that_is_no_schema_is_only_a_fault_where_it_is_needed() -> None:
    schema = record(f={"$ref": "#/definitions/text"})
    assert converted({**schema, "definitions": {"text": TEXT, "note": "x"}}, {"f": "x"}).payload.objects == [{"f": "x"}]


FIELDS = ("a", "b", "c", "d")
NAMES = ("one", "two", "three")
SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=5),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
}
LISTED = (["object"], ["object", "null"], ["null", "object"], ["string", "object"], ["object", "array", "null"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    """An object whose type may be listed beside others. What may be absent for ever is not required."""
    properties = draw(st.dictionaries(st.sampled_from(FIELDS), inner, min_size=1))
    kind = draw(st.sampled_from(["object", *LISTED]))
    simple = [name for name, each in properties.items() if each.get("type") in list(SCALARS)]
    required = [name for name in simple if draw(st.booleans())]
    title = draw(st.sampled_from([{}, {"title": "A"}, {"title": "string"}, {"title": "null"}]))
    return {
        **title,
        "type": kind,
        "properties": properties,
        "required": required,
        "items": WHOLE,
    }


def or_null(inner: Any) -> Any:
    return {"anyOf": [{"type": "null"}, inner]}


def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        objects(inner),
        inner.map(or_null),
        st.builds(
            lambda each, kind: {"type": kind, "items": each}, inner, st.sampled_from(["array", ["array", "null"]])
        ),
        inner.map(lambda each: {"type": "object", "additionalProperties": each}),
    )


LEAVES = st.one_of(
    st.sampled_from([{"type": kind} for kind in SCALARS]),
    st.sampled_from([{"$ref": ref} for name in NAMES for ref in (f"#/definitions/{name}", f"#{name}")]),
)
SCHEMAS = st.recursive(LEAVES, extend, max_leaves=12)
DOCUMENTS = st.fixed_dictionaries({name: objects(SCHEMAS) for name in NAMES})


class Values:
    """Draws values of a schema."""

    def __init__(self, draw: st.DrawFn, definitions: Mapping[str, Any]) -> None:
        self._draw = draw
        self._definitions = definitions

    def of(self, schema: Any, depth: int = 0) -> Any:
        if "$ref" in schema:
            return self.of(self._definitions[schema["$ref"].rpartition("#")[2].rpartition("/")[2]], depth + 1)
        if "anyOf" in schema:
            return None if self._ends(depth) else self.of(schema["anyOf"][1], depth + 1)
        kinds: Sequence[str] = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        return self._of_kind(self._draw(st.sampled_from(kinds)), schema, depth)

    def _of_kind(self, kind: str, schema: Any, depth: int) -> Any:
        if kind == "null":
            return None
        if kind in SCALARS:
            return self._draw(SCALARS[kind])
        if kind == "array":
            return [self.of(schema["items"], depth + 1) for _ in range(0 if self._ends(depth) else 2)]
        if "properties" not in schema:
            return {} if self._ends(depth) else {"key": self.of(schema["additionalProperties"], depth + 1)}
        wanted = schema["required"] if self._ends(depth) else schema["properties"]
        return {name: self.of(schema["properties"][name], depth + 1) for name in wanted}

    def _ends(self, depth: int) -> bool:
        return depth > 6 or self._draw(st.integers(0, 9)) == 0


@st.composite
def documents_with_values(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    made = draw(DOCUMENTS)
    definitions = {name: {"$id": f"#{name}", **each} for name, each in made.items()}
    values = Values(draw, definitions)
    root = record(**{name: {"$ref": f"#{name}"} for name in NAMES}, more=draw(SCHEMAS))
    return {**root, "definitions": definitions}, [{name: values.of(each) for name, each in root["properties"].items()}]


@settings(max_examples=40)
@given(documents_with_values())
def test_values_of_any_schema_of_objects_are_those_of_an_independent_reader(drawn: tuple[Any, list[Any]]) -> None:
    schema, values = drawn
    check_values(schema, *values)


OPEN = record(id=WHOLE, place=record(city=TEXT))
EXTRA = {"id": 1, "email": "a@b.c", "place": {"city": "Bern", "zip": 3000.50}}
KEPT = "preserve.additional.properties"
FIELD = "__connect_additional_properties__"


def test_properties_that_the_schema_does_not_list_are_left_out_and_told() -> None:
    """They were left out without a word."""
    done = converted(OPEN, {"id": 1}, EXTRA, {"id": 2, "place": {"city": "Thun", "x": None}})
    assert done.payload.objects[1] == {"id": 1, "place": {"city": "Bern"}}
    [said] = [sentence for sentence in done.notes.sentences if "does not list" in sentence]
    assert said == (
        "2 records lack properties in their value that schema 1 does not list;"
        f" value.converter.{KEPT}=true keeps them (the first one: 'email')"
    )


@pytest.mark.parametrize("allowed", [{}, {"additionalProperties": True}, {"additionalProperties": TEXT}])
def test_properties_that_the_schema_does_not_list_are_kept_if_asked_for(allowed: Any) -> None:
    [value] = converted({**OPEN, **allowed}, EXTRA, **{KEPT: "true"}).payload.objects
    assert value == {"id": 1, "place": {"city": "Bern", FIELD: {"zip": "3000.5"}}, FIELD: {"email": '"a@b.c"'}}


def test_kept_properties_are_restored_where_they_were() -> None:
    done = converted(record(any={}, **OPEN["properties"]), {**EXTRA, "any": [1.5]}, **{KEPT: "true"})
    made = compile_json_schema(done.payload.schemas[0].avro)
    assert json.loads(made.body(done.payload.objects[0])) == {**EXTRA, "any": [1.5]}
    assert FIELD not in made.text
    Draft7Validator(json.loads(made.text)).validate({**EXTRA, "any": None})


@pytest.mark.parametrize(
    "schema",
    [
        {**record(id=WHOLE), "additionalProperties": False},
        {"allOf": [{**part(id=WHOLE), "unevaluatedProperties": False}]},
        {"type": "object", "additionalProperties": False},
    ],
)
def test_a_property_that_the_schema_forbids_is_the_records_fault(schema: Any) -> None:
    [failure] = converted(schema, {}, {"email": "a@b.c"}, **{KEPT: "true"}).failures
    assert "'email', and may have no property that the schema does not list" in failure.message


def test_a_value_of_a_union_is_of_the_object_that_allows_its_properties() -> None:
    closed = {**record(a=TEXT), "additionalProperties": False}
    value = {"v": {"a": "x", "b": "y"}}
    done = converted(record(v={"oneOf": [closed, {**record(a=TEXT, b=TEXT), "required": ["b"]}]}), value)
    assert ([*map(without_branches, done.payload.objects)], done.notes.sentences) == ([value], [])


def test_a_union_whose_types_avro_cannot_tell_apart_holds_anything() -> None:
    """Items of the second array were read as those of the first."""
    lists = {"oneOf": [{"type": "array", "items": WHOLE}, {"type": "array", "items": TEXT}]}
    done = converted(record(v=lists), {"v": ["a"]}, {"v": [1]})
    assert [value["v"] for value in done.payload.objects] == ['["a"]', "[1]"]


def test_texts_of_several_titles_are_texts() -> None:
    named = {"anyOf": [{"type": "string", "title": "Iso"}, {"type": "string", "title": "Name"}, WHOLE]}
    done = converted(record(v=named), {"v": "CH"}, {"v": 7})
    assert [value["v"] for value in done.payload.objects] == [("string", "CH"), ("long", 7)]


@pytest.mark.parametrize(("schema", "value"), [(record(**{FIELD: TEXT}), {}), (record(a=TEXT), {FIELD: {}})])
def test_the_name_of_the_field_of_other_properties_is_taken(schema: Any, value: Any) -> None:
    [failure] = converted(schema, value, **{KEPT: "true"}).failures
    assert FIELD in failure.message


def test_a_null_stays_null_whatever_the_default() -> None:
    schema = record(a={**nullable(b=TEXT), "default": {"b": "x"}}, n={**WHOLE, "default": 7})
    done = converted(schema, {"a": None, "n": None}, {})
    assert [(each["a"], each["n"]) for each in done.payload.objects] == [(None, None), ({"b": "x"}, 7)]


def test_a_property_that_a_record_lacks_is_told_unless_a_null_is_there() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {**WHOLE, "default": 7}}}
    done = converted(schema, {"a": None, "b": 1}, {"b": 2}, {"a": "x"})
    assert done.notes.sentences == [
        f"2 records lack a property in their value that schema 1 lists: {ADDED} (the first one: a)"
    ]


def test_a_null_of_what_is_required_and_never_null_is_refused() -> None:
    schema = {"type": "object", "properties": {"b": {**WHOLE, "default": 7}}, "required": ["b"]}
    [failure] = converted(schema, {"b": None}).failures
    assert "has null for b, which is required" in failure.message


def test_what_one_thread_reads_is_not_told_of_the_other_thread_s_record() -> None:
    readers = Readers()
    slot = Slot(ConnectType("struct", fields=[Slot(ConnectType("string"), optional=True, name="a")]))
    read = readers.compile_record(slot)
    read({"a": "x", "more": 1}, 1)
    other = Thread(target=read, args=({"a": "y"}, 1))
    other.start()
    other.join()
    assert readers.left_out == "'more'"
