"""Null and absent are two things. The oracle is Kafka's own JsonConverter (`golden/JsonNulls.java`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.config.keys.converters import read_converter
from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.converters import ConvertedPayload, new_converter
from kafka_s3_platform.converters.connect_json import ADDED
from kafka_s3_platform.converters.encoding import new_encoder

GOLDEN = Path(__file__).parents[2] / "golden" / "json_nulls.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
STRUCT = {"type": "struct", "optional": True, "default": {"n": 5}, "fields": [{"field": "n", "type": "int32"}]}


def converted(text: str, replaces: str | None, *, is_key: bool = False) -> ConvertedPayload:
    options = {} if replaces is None else {"replace.null.with.default": replaces}
    settings, _ = read_converter("JSON", options, schemas_enable=True)
    return new_converter(settings, "t", is_key).convert(pa.array([text.encode()]), np.arange(1))


def values(done: ConvertedPayload) -> list[Any]:
    """Return the values in plain JSON, with decimals as numbers."""
    encoder = new_encoder(ConverterSettings(format="JSON", options={"decimal.format": "NUMERIC"}), "t", is_key=False)
    return [json.loads(row) for row in encoder.encode(done.payload).column.to_pylist()]


def envelope(schema: dict[str, Any], payload: Any) -> str:
    return json.dumps({"schema": schema, "payload": payload})


def differs_from_kafka(case: dict[str, Any]) -> bool:
    """An absent field with a default. Kafka takes it for null, so that `false` forbids the default."""
    text = json.loads(case["text"])
    return case["replace"] == "false" and not text["payload"] and "default" in text["schema"]["fields"][0]


@pytest.mark.parametrize("case", [case for case in CASES if not differs_from_kafka(case)], ids=lambda c: c["text"])
@pytest.mark.parametrize("is_key", [False, True], ids=["value", "key"])
def test_a_field_is_read_as_kafka_reads_it(case: dict[str, Any], is_key: bool) -> None:
    done = converted(case["text"], case["replace"], is_key=is_key)
    assert values(done) == ([] if case["fails"] else [{"f": case["value"]}])


@pytest.mark.parametrize("case", [case for case in CASES if differs_from_kafka(case)], ids=lambda c: c["text"])
def test_an_absent_field_has_the_default_also_where_nulls_stay_and_is_told(case: dict[str, Any]) -> None:
    done = converted(case["text"], "false")
    assert values(done) == [{"f": json.loads(case["text"])["schema"]["fields"][0]["default"]}]
    assert done.notes.sentences == [
        f"1 records lack a field that the schema beside their value lists: {ADDED} (the first one: f)"
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case["replace"] == "false"], ids=lambda c: c["text"])
def test_without_the_option_nulls_stay(case: dict[str, Any]) -> None:
    unset, false = (converted(case["text"], option) for option in (None, "false"))
    assert (unset.payload.objects, unset.notes) == (false.payload.objects, false.notes)


@pytest.mark.parametrize(("replaces", "expected"), [(None, None), ("true", {"n": 5})])
def test_a_null_is_the_same_as_a_record_an_item_a_map_s_value_and_the_whole(
    replaces: str | None, expected: Any
) -> None:
    places = {
        "record": envelope({"type": "struct", "fields": [STRUCT | {"field": "f"}]}, {"f": None}),
        "item": envelope({"type": "array", "items": STRUCT}, [None]),
        "value": envelope({"type": "map", "keys": {"type": "string"}, "values": STRUCT}, {"f": None}),
    }
    found = {name: values(converted(text, replaces)) for name, text in places.items()}
    assert found == {"record": [{"f": expected}], "item": [[expected]], "value": [{"f": expected}]}
    assert converted(envelope(STRUCT, None), replaces).payload.objects == [expected]


@pytest.mark.parametrize("format_name", ["AVRO", "JSON_SR", "PROTOBUF", "STRING"])
def test_the_option_of_another_converter_has_no_meaning(format_name: str) -> None:
    options = {"replace.null.with.default": "true", "schema.registry.url": "http://r"}
    settings, outcome = read_converter(format_name, options, schemas_enable=True)
    assert "replace.null.with.default" in outcome.without_meaning
    assert not settings.options


def test_the_option_against_defaults_is_known() -> None:
    _, outcome = read_converter("JSON_SR", {"ignore.default.for.nullables": "true"}, schemas_enable=True)
    assert outcome.without_meaning["ignore.default.for.nullables"] == "A null stays null, as with `true`."
