"""A value of several types comes back as the JSON that it was, whichever type its reader takes, or is refused."""

import json
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped] # it ships no types

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.json_schema.encode import compile_json_schema
from kafka_s3_platform_tests.converters.values import archived, convert_rows, framed, of_archive

TYPES: dict[str, Any] = {
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "float": {"type": "number", "connect.type": "float32"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "enum": {"enum": ["cafe", "YQ=="]},
    "bytes": {"type": "string", "connect.type": "bytes"},
    "decimal": {
        "type": "number",
        "title": "org.apache.kafka.connect.data.Decimal",
        "connect.type": "bytes",
        "connect.parameters": {"scale": "2"},
    },
    "date": {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
    "array": {"type": "array", "items": {"type": "integer"}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "one": {"type": "object", "title": "One", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "two": {"type": "object", "title": "Two", "properties": {"a": {"type": "number"}, "b": {"type": "string"}}},
    "anything": {},
}
VALUES = [
    "5", "1.0", "2.5", "1e3", "-0.0", "12345678901234567", "0.1", "0.30000000000000004", "true", '"cafe"', '"YQ=="',
    '"YR=="', '"x"', "[]", "[7]", '["7"]', '{"a":7}', '{"a":7.5}', '{"a":7,"b":"x"}', "{}",
]  # fmt: skip


def converted(schema: Any, value: str) -> ConvertedPayload:
    settings = of_archive("JSON_SR", archived("JSON", json.dumps(schema)))
    return convert_rows(settings, [framed(1, f'{{"v":{value}}}'.encode())])


def parse(text: Any) -> Any:
    """Parse JSON. A property that is null stands for an absent one."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_drop_nulls)


def _drop_nulls(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


# A text that may be anything or a decimal is the decimal's base64, as Confluent's converter writes it by default.
PAIRS = [names for names in permutations(TYPES, 2) if names != ("decimal", "anything")]


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_the_json_is_the_same_or_refused_or_what_it_lacks_is_told(names: tuple[str, str]) -> None:
    schema = {"type": "object", "properties": {"v": {"anyOf": [TYPES[name] for name in names]}}}
    fitting = [value for value in VALUES if Draft7Validator(schema).is_valid({"v": json.loads(value)})]
    read = 0
    for value in fitting:
        done = converted(schema, value)
        told = [sentence for sentence in done.notes.sentences if "does not list" in sentence]
        for found in done.payload.objects:
            read += 1
            body = compile_json_schema(done.payload.schemas[0].avro).body(found)
            assert told or parse(body) == parse(f'{{"v":{value}}}'), (value, found)
    assert read


@pytest.mark.parametrize("other", ["decimal", "bytes"])
def test_a_text_is_a_text_where_it_may_also_be_base64(other: str) -> None:
    schema = {"type": "object", "properties": {"v": {"oneOf": [TYPES[other], TYPES["string"]]}}}
    assert converted(schema, '"cafe"').payload.objects == [{"v": ("string", "cafe")}]
