"""Restores that change one field leave nulls of the others null, and absent ones absent or told."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.converters.connect_json import ADDED
from kafka_s3_platform_tests.restore.outgoing.test_sink_converters import JSON, MASK, SINK, config_of, sent, stream_of
from kafka_s3_platform_tests.restore.outgoing.test_values import records

ENVELOPE = {"value.converter": JSON["value.converter"]}
FIELDS = [
    {"field": "n", "type": "int64"},
    {"field": "city", "type": "string", "optional": True, "default": "Bern"},
    {"field": "rate", "type": "double", "optional": True, "default": 2.5},
]
NULLS = {"n": 7, "city": None, "rate": None}
STEPS: dict[str, dict[str, str]] = {
    "MaskField": {"fields": "n"},
    "ReplaceField": {"exclude": "n"},
    "Cast": {"spec": "n:string"},
    "InsertField": {"static.field": "s", "static.value": "v"},
    "TimestampConverter": {"field": "n", "target.type": "unix"},
    "SetSchemaMetadata": {"schema.name": "x.Y"},
}


def restored(folder: Path, text: bytes, converter: dict[str, str], step: str, **options: str) -> Any:
    keys = {"type": f"{step}$Value", **STEPS[step], **options}
    transforms = {"transforms": "m"} | {f"transforms.m.{name}": text for name, text in keys.items()}
    [value] = sent(config_of(folder, SINK | converter), text, converter | transforms)
    return json.loads(value)


@pytest.mark.parametrize("step", STEPS)
def test_a_null_stays_null_whatever_transform_changes_another_field(tmp_path: Path, step: str) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": NULLS}).encode()
    found = restored(tmp_path, text, ENVELOPE, step)["payload"]
    assert (found["city"], found["rate"]) == (None, None)


@pytest.mark.parametrize("step", STEPS)
def test_a_null_becomes_the_default_if_the_transform_says_so(tmp_path: Path, step: str) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": NULLS}).encode()
    found = restored(tmp_path, text, ENVELOPE, step, **{"replace.null.with.default": "true"})["payload"]
    assert (found["city"], found["rate"]) == ("Bern", 2.5)


@pytest.mark.parametrize("step", ["MaskField", "Cast", "TimestampConverter"])
@pytest.mark.parametrize("text", [b'{"a":null}', b"{}"], ids=["null", "absent"])
def test_without_a_schema_an_absent_field_stays_absent(tmp_path: Path, step: str, text: bytes) -> None:
    assert restored(tmp_path, text, JSON, step) == json.loads(text)


def test_absent_fields_and_unlisted_ones_are_told_in_the_report(tmp_path: Path) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": {"n": 7, "rate": 1, "x": 2}}).encode()
    stream = stream_of(config_of(tmp_path, SINK | ENVELOPE), ENVELOPE | MASK)
    stream.apply(records([text]))
    assert stream.notes == (
        "1 records lack fields that the schema beside their value does not list (the first one: 'x')",
        f"1 records lack a field that the schema beside their value lists: {ADDED} (the first one: city)",
    )
