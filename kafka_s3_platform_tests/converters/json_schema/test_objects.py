"""Objects of JSON Schemas, nullable, repeated, recursive and referenced, against Confluent's own deserializer."""

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.converters.connect_json import Readers
from kafka_s3_platform.converters.json_schema.decode import read_json_schema
from kafka_s3_platform_tests.converters.conftest import Convert, Register
from kafka_s3_platform_tests.converters.json_schema.test_decode import Framed

Schema = dict[str, Any]

FRAME = b"\0" + (1).to_bytes(4, "big")
DEFINITIONS = ("first", "second")
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-5, 5),
    "string": st.text("xy", max_size=3),
    "boolean": st.booleans(),
}


def places() -> st.SearchStrategy[Schema]:
    """Schemas of a value: few names, so that objects have the same and other fields, and many objects."""
    leaves = st.sampled_from([{"type": kind} for kind in (*LEAVES, ["string", "null"], ["integer", "string"])])
    references = st.sampled_from([{"$ref": f"#/definitions/{name}"} for name in DEFINITIONS])
    return st.recursive(
        leaves | references,
        lambda inner: (
            objects(inner)
            | st.builds(lambda items: {"type": "array", "items": items}, inner)
            | st.builds(lambda branch: {"oneOf": [{"type": "null"}, branch]}, objects(inner, nullable=False))
        ),
        max_leaves=8,
    )


def objects(inner: st.SearchStrategy[Schema], *, nullable: bool = True) -> st.SearchStrategy[Schema]:
    kinds: list[Any] = ["object", ["object", "null"], ["null", "object"]] if nullable else ["object"]
    return st.fixed_dictionaries(
        {
            "type": st.sampled_from(kinds),
            "properties": st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
        }
    )


def whole_schemas() -> st.SearchStrategy[Schema]:
    definitions = st.fixed_dictionaries({name: objects(places()) for name in DEFINITIONS})
    return st.builds(lambda root, named: {**root, "definitions": named}, objects(places(), nullable=False), definitions)


def draw_value(data: st.DataObject, root: Schema, schema: Schema, depth: int = 0) -> Any:
    """A value that fits. Deep objects are empty: no field is required."""
    if "$ref" in schema:
        return draw_value(data, root, root["definitions"][schema["$ref"].rpartition("/")[2]], depth)
    if "oneOf" in schema:
        return draw_value(data, root, data.draw(st.sampled_from(schema["oneOf"])), depth)
    kind = schema["type"]
    kind = kind if isinstance(kind, str) else data.draw(st.sampled_from(kind))
    if kind == "null":
        return None
    if kind == "array":
        count = data.draw(st.integers(0, 2)) if depth < 4 else 0
        return [draw_value(data, root, schema["items"], depth + 1) for _ in range(count)]
    if kind == "object":
        names = [name for name in schema["properties"] if depth < 4 and data.draw(st.booleans())]
        return {name: draw_value(data, root, schema["properties"][name], depth + 1) for name in names}
    return data.draw(LEAVES[kind])


def fill_in(root: Schema, schema: Schema, value: Any) -> Any:
    """The value with None for each field of its objects that it lacks."""
    if "$ref" in schema:
        return fill_in(root, root["definitions"][schema["$ref"].rpartition("/")[2]], value)
    if isinstance(value, list):
        return [fill_in(root, schema["items"], item) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties = (schema["oneOf"][1] if "oneOf" in schema else schema)["properties"]
    return {name: fill_in(root, inner, value.get(name)) for name, inner in properties.items()}


@settings(max_examples=50)
@given(st.data())
def test_each_field_of_each_object_is_what_confluents_deserializer_reads(data: st.DataObject) -> None:
    schema = data.draw(whole_schemas())
    body = json.dumps(draw_value(data, schema, schema)).encode()
    theirs = JSONDeserializer(json.dumps(schema))(FRAME + body, SerializationContext("t", MessageField.VALUE))
    ours = Readers().record(read_json_schema(json.dumps(schema), {}))(json.loads(body), len(body))
    assert ours == fill_in(schema, schema, theirs)


def test_each_nullable_object_keeps_its_own_fields(
    convert: Convert, register: Register, framed: Framed, topic_name: str
) -> None:
    home = {"type": ["object", "null"], "properties": {"street": {"type": "string"}}}
    work = {"type": ["object", "null"], "properties": {"company": {"type": "string"}, "salary": {"type": "integer"}}}
    schema = {"type": "object", "title": "Person", "properties": {"home": home, "work": work}}
    schema_id = register(f"{topic_name}-value", json.dumps(schema), "JSON")
    sent = {"home": {"street": "A"}, "work": {"company": "ACME", "salary": 5}}
    found = convert("JSON_SR", topic_name, [framed(schema_id, json.dumps(sent).encode())])
    assert not found.failures
    assert found.payload.objects == [sent]
