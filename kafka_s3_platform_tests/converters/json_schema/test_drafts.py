"""A schema is read by the draft that its `$schema` names, or refused. The oracle is the validator of that draft."""

from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema.validators import validator_for  # type: ignore[import-untyped] # it ships no types

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform_tests.converters.json_schema.test_objects import converted

OLD = ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#"]
SEVEN = "http://json-schema.org/draft-07/schema#"
NEW = ["https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema"]
DRAFTS = [*OLD, SEVEN, *NEW]
WHOLE = {"type": "integer"}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def read(draft: str, schema: Mapping[str, Any], value: Any) -> ConvertedPayload:
    """Read a value that fits by the draft's own validator."""
    whole = {"$schema": draft, **schema}
    assert validator_for(whole)(whole).is_valid(value)
    return converted(whole, value)


def value_of(draft: str, schema: Mapping[str, Any], value: Any) -> Any:
    done = read(draft, schema, value)
    assert [failure.message for failure in done.failures] == []
    return done.payload.objects[0]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("place", ["definitions", "$defs", "elsewhere"])
def test_a_reference_leads_to_any_place_of_the_schema(draft: str, place: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": f"#/{place}/x"}}, place: {"x": NAME}}
    assert value_of(draft, schema, {"a": {"name": "x"}}) == {"a": {"name": "x"}}


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_names_a_schema_is_id_in_draft_4_and_id_with_a_dollar_since(draft: str) -> None:
    own = "id" if draft == OLD[0] else "$id"
    inner = {own: "urn:other", **NAME}
    schema = {"type": "object", "properties": {"a": {"$ref": "urn:other"}}, "definitions": {"x": inner}}
    assert value_of(draft, schema, {"a": {"name": "x"}}) == {"a": {"name": "x"}}


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_property_named_id_is_a_property(draft: str) -> None:
    schema = {"type": "object", "properties": {"id": WHOLE, "$id": WHOLE, "a": {"$ref": "#/properties/id"}}}
    assert value_of(draft, schema, {"id": 1, "$id": 2, "a": 3}) == {"id": 1, "$id": 2, "a": 3}


@pytest.mark.parametrize("draft", NEW)
def test_an_anchor_is_a_place_since_2019(draft: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#x"}}, "$defs": {"y": {"$anchor": "x", **NAME}}}
    assert value_of(draft, schema, {"a": {"name": "x"}}) == {"a": {"name": "x"}}


def test_a_tuple_is_prefix_items_in_2020_and_an_array_of_items_before() -> None:
    tuples = {"type": "array", "items": [{"type": "string"}, {"type": "boolean"}]}
    for draft in DRAFTS[:-1]:
        assert value_of(draft, tuples, ["a", True, 2.5]) == ['"a"', "true", "2.5"]
    prefixed = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": WHOLE}
    assert value_of(NEW[1], prefixed, ["a", True, 2]) == ['"a"', "true", "2"]


@pytest.mark.parametrize("draft", [*OLD, SEVEN])
def test_what_stands_beside_a_reference_means_nothing_up_to_draft_7(draft: str) -> None:
    beside = {"$ref": "#/definitions/x", "properties": {"age": WHOLE}, "required": ["age"], "default": {"name": "y"}}
    schema = {"type": "object", "properties": {"a": beside}, "definitions": {"x": NAME}}
    assert value_of(draft, schema, {"a": {"name": "x"}}) == {"a": {"name": "x"}}
    assert value_of(draft, schema, {}) == {"a": None}


@pytest.mark.parametrize("draft", NEW)
def test_what_stands_beside_a_reference_adds_to_it_since_2019(draft: str) -> None:
    beside = {
        "$ref": "#/$defs/x",
        "properties": {"age": WHOLE},
        "required": ["age"],
        "default": {"name": "y", "age": 1},
    }
    schema = {"type": "object", "properties": {"a": beside}, "$defs": {"x": NAME}}
    assert value_of(draft, schema, {"a": {"name": "x", "age": 7}}) == {"a": {"name": "x", "age": 7}}
    assert value_of(draft, schema, {}) == {"a": {"name": "y", "age": 1}}
    [failure] = converted({"$schema": draft, **schema}, {"a": {"name": "x"}}).failures
    assert "lacks a.age, which is required" in failure.message


@pytest.mark.parametrize("draft", NEW)
def test_a_description_beside_a_reference_leaves_the_type_as_it_is(draft: str) -> None:
    tree = {"title": "Tree", "type": "object", "properties": {"next": {"$ref": "#", "description": "the next one"}}}
    done = read(draft, tree, {"next": {"next": {}}})
    assert done.payload.schemas[0].avro["fields"][0]["type"] == ["null", "Tree"]


@pytest.mark.parametrize("draft", NEW)
def test_limits_beside_a_reference_keep_its_type(draft: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x", "maximum": 9}}, "$defs": {"x": WHOLE}}
    assert value_of(draft, schema, {"a": 7}) == {"a": 7}
    tree = {"type": "object", "properties": {"n": WHOLE, "next": {"$ref": "#", "maxProperties": 2}}}
    assert value_of(draft, tree, {"n": 1, "next": {"n": 2, "next": {"n": 3}}})["next"]["next"]["n"] == 3


@pytest.mark.parametrize(("draft", "keyword"), [(NEW[0], "$recursiveRef"), (NEW[1], "$dynamicRef")])
def test_a_reference_that_depends_on_the_reader_is_refused_by_its_name(draft: str, keyword: str) -> None:
    schema = {"type": "object", "properties": {"a": {keyword: "#"}}}
    [failure] = read(draft, schema, {"a": {}}).failures
    assert f"cannot be used: it has a {keyword}, which is not read" in failure.message
    assert value_of(SEVEN, schema, {"a": 5}) == {"a": "5"}


@pytest.mark.parametrize("named", ["http://json-schema.org/draft-03/schema#", "https://example.com/own", 7])
def test_another_draft_or_vocabulary_is_refused(named: Any) -> None:
    [failure] = converted({"$schema": named, **NAME}, {"name": "x"}).failures
    assert f"its $schema '{named}' is none of the drafts 4, 6, 7, 2019-09 and 2020-12" in failure.message


@pytest.mark.parametrize(
    "draft", ["https://json-schema.org/draft-07/schema", "http://json-schema.org/draft/2020-12/schema#"]
)
def test_an_address_of_a_draft_may_begin_with_either_scheme(draft: str) -> None:
    assert converted({"$schema": draft, **NAME}, {"name": "x"}).payload.objects == [{"name": "x"}]


def test_each_schema_is_read_by_its_own_draft() -> None:
    other = {"$schema": NEW[1], "$ref": "#/$defs/x", "properties": {"age": WHOLE}, "$defs": {"x": NAME}}
    schema = {
        "$schema": SEVEN,
        "type": "object",
        "properties": {"a": {"$ref": "other.json", "properties": {"b": WHOLE}}},
    }
    value = {"a": {"name": "x", "age": 7}}
    assert converted(schema, value, other=other).payload.objects == [value]
