"""JSON with its schema, against lines that Kafka's own JsonConverter wrote (golden/JsonEnvelopes.java)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.converters import new_converter
from kafka_s3_platform.converters.encoding import Encoded, new_encoder
from kafka_s3_platform.converters.json_schema.encode import compile_json_schema
from kafka_s3_platform.model.connect import NO_SCHEMA, Payload, Schema

GOLDEN = Path(__file__).parents[2] / "golden" / "json_envelopes.jsonl"
INNER = {
    "type": "record",
    "name": "Inner",
    "namespace": "shop",
    "connect.version": 3,
    "connect.doc": "told",
    "connect.parameters": {"a": "b"},
    "fields": [{"name": "n", "type": "int"}],
}
ENTRY = {
    "type": "record",
    "name": "MapEntry",
    "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}],
}
TYPES: dict[str, Any] = {
    "i8": {"type": "int", "connect.type": "int8"},
    "i16": {"type": "int", "connect.type": "int16"},
    "i32": "int",
    "i64": "long",
    "f32": "float",
    "f64": "double",
    "yes": "boolean",
    "text": "string",
    "raw": "bytes",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "int", "logicalType": "time-millis"},
    "when": {"type": "long", "logicalType": "timestamp-millis"},
    "many": {"type": "array", "items": ["null", "string"]},
    "named": {"type": "map", "values": "long"},
    "numbered": {"type": "array", "items": ENTRY},
    "inner": ["null", INNER],
    "none": ["null", "shop.Inner"],
    "state": {"type": "enum", "name": "State", "namespace": "shop", "symbols": ["NEW", "OLD"]},
    "nan": "double",
    "far": "float",
    "either": ["null", "int", "string"],
    "spare": "long",
    "bits": "bytes",
    "kept": ["null", {"type": "string", "connect.default": "x"}],
}
DEFAULTS = {"spare": 7, "bits": "\xff\x01"}
FIELDS = [{"name": n, "type": t} | ({"default": DEFAULTS[n]} if n in DEFAULTS else {}) for n, t in TYPES.items()]
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
VALUE: dict[str, Any] = {
    "i8": -8,
    "i16": 16,
    "i32": 32,
    "i64": 1 << 60,
    "f32": float(np.float32(0.1)),
    "f64": 0.25,
    "yes": True,
    "text": 'né " \\ \n',
    "raw": b"\x00\xff\x3e\x3f",
    "price": (-1234).to_bytes(2, "big", signed=True),
    "day": 18_322,
    "at": 45_296_789,
    "when": 1_583_064_000_123,
    "many": ["a", None],
    "named": {"one": 1},
    "numbered": [{"key": 1, "value": "one"}],
    "inner": {"n": 5},
    "none": None,
    "state": "NEW",
    "nan": float("nan"),
    "far": float("-inf"),
    "either": ("string", "s"),
    "spare": 8,
    "bits": b"\x01",
    "kept": None,
}


def encoded(schema: Any, *objects: Any, decimals: str = "BASE64", raw: pa.BinaryArray | None = None) -> Encoded:
    schemas = () if schema is None else (Schema(json.dumps(schema)),)
    codes = np.array([NO_SCHEMA if o is None or schema is None else 0 for o in objects], np.int32)
    options = {} if decimals == "BASE64" else {"decimal.format": decimals}
    settings = ConverterSettings(format="JSON", schemas_enable=True, options=options)
    return new_encoder(settings, "copy", is_key=False).encode(Payload(raw, codes, schemas, objects))


@pytest.mark.parametrize(
    ("line", "schema", "value", "decimals"),
    [
        (0, ORDER, VALUE, "BASE64"),
        (1, ORDER, VALUE, "NUMERIC"),
        (2, ["null", "string"], "a", "BASE64"),
        (3, None, b"\x01\x02", "BASE64"),
        (4, {"type": "array", "items": "float"}, [1.5], "BASE64"),
        (5, None, {"a": [1, "b"]}, "BASE64"),
    ],
)
def test_a_value_has_the_schema_and_the_payload_that_kafka_s_own_converter_writes(
    line: int, schema: Any, value: Any, decimals: str
) -> None:
    done = encoded(schema, value, decimals=decimals)
    assert done.bad == {}
    assert json.loads(done.column[0].as_py()) == json.loads(GOLDEN.read_text().split("\n")[line])


def test_a_null_stays_null_as_there() -> None:
    assert GOLDEN.read_text().split("\n")[6] == ""
    assert encoded(["null", "string"], None, "a").column.to_pylist()[0] is None


def test_what_is_written_is_read_again_as_it_was() -> None:
    value = VALUE | {"nan": 1.5, "far": -1.5, "kept": "y"}
    row = encoded(ORDER, value).column
    done = new_converter(ConverterSettings(format="JSON", schemas_enable=True), "t", False).convert(row, np.arange(1))
    assert not done.failures
    assert done.payload.objects[0] == value | {"either": {"int": None, "string": "s"}}


def test_json_without_a_schema_goes_into_its_envelope_byte_for_byte() -> None:
    given = new_converter(ConverterSettings(format="JSON"), "t", is_key=False)
    payload = given.convert(pa.array([b'{"a":  1.10}', None], pa.binary()), np.arange(2)).payload
    settings = ConverterSettings(format="JSON", schemas_enable=True)
    done = new_encoder(settings, "copy", is_key=False).encode(payload)
    assert done.column.to_pylist() == [b'{"schema":null,"payload":{"a":  1.10}}', None]


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ("null", 1, "Connect has no schema of null alone"),
        (
            {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
            {"next": None},
            "N holds itself, and JsonConverter's schema of it would have no end",
        ),
    ],
)
def test_a_schema_that_connect_cannot_have_is_the_fault_of_its_values(schema: Any, value: Any, told: str) -> None:
    assert told in encoded(schema, value).bad[0]


def written_anew(payload: dict[str, Any], *fields: dict[str, Any]) -> tuple[Payload, dict[str, Any]]:
    """A struct as it is decoded, and as it is sent."""
    settings = ConverterSettings(format="JSON", schemas_enable=True)
    schema = {"type": "struct", "fields": fields}
    raw = pa.array([json.dumps({"schema": schema, "payload": payload}).encode()])
    came = new_converter(settings, "t", is_key=False).convert(raw, np.arange(1)).payload
    [sent] = new_encoder(settings, "t", is_key=False).encode(came).column.to_pylist()
    return came, json.loads(sent)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32"])
def test_a_small_integer_is_one_when_its_value_is_written_anew(kind: str) -> None:
    """It became one of 32 bits, since Avro's schemas have no others."""
    came, sent = written_anew({"n": 5}, {"field": "n", "type": kind})
    assert sent["schema"]["fields"][0]["type"] == kind
    written = json.loads(compile_json_schema(came.schemas[0].avro).text)
    assert written["properties"]["n"]["connect.type"] == kind


@pytest.mark.parametrize("name", [{}, {"name": "shop.Counts"}], ids=["nameless", "named"])
def test_each_map_of_a_value_is_a_map_when_it_is_written_anew(name: dict[str, str]) -> None:
    """The second one, and one with a name, came as lists of records."""
    counts = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "boolean"}, **name}
    maps = {"a": [[1, True]], "b": [[2, False]]}
    _, sent = written_anew(maps, *({"field": field, **counts} for field in maps))
    assert sent["payload"] == maps
    assert [(f["type"], f.get("name")) for f in sent["schema"]["fields"]] == [("map", name.get("name"))] * 2
