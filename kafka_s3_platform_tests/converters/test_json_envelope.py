"""JSON with its schema, against lines that Kafka's own JsonConverter wrote (golden/JsonEnvelopes.java).

Null and absent are two things. The oracle is Kafka's own JsonConverter (`golden/JsonNulls.java`).

A number becomes the double that it is written for, or is refused; a key twice is refused.
"""

import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys.converters import read_converter
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.base import check_walkable
from kafka_s3_platform.connect.converters.connect_json import ADDED
from kafka_s3_platform.connect.converters.encoding import Encoded, new_encoder
from kafka_s3_platform.connect.converters.json_schema.encode import compile_json_schema
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Payload, Schema
from kafka_s3_platform_tests.converters.values import ENVELOPE, archived, convert_rows, framed, of_archive

DATA = "org.apache.kafka.connect.data."
ORDER = {
    "type": "struct",
    "name": "shop.Order",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "small", "type": "int8", "optional": True},
        {"field": "price", "type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}, "optional": True},
        {"field": "at", "type": "int64", "name": DATA + "Timestamp", "optional": False, "default": 7},
        {"field": "counts", "type": "map", "keys": {"type": "string"}, "values": {"type": "int32", "optional": True}},
        {"field": "names", "type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}, "optional": True},
        {"field": "lines", "type": "array", "items": {"type": "struct", "fields": [{"field": "x", "type": "double"}]}},
    ],
}


def converted(*values: Any) -> ConvertedPayload:
    rows = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return convert_rows(ENVELOPE, rows)


def order(**payload: Any) -> dict[str, Any]:
    return {"schema": ORDER, "payload": {"id": 1, "counts": {}, "lines": [], **payload}}


def test_a_schema_beside_the_value_becomes_avro() -> None:
    [schema] = converted(order()).payload.schemas
    fastavro.parse_schema(schema.avro)
    assert schema.avro["name"] == "Order"
    assert schema.avro["namespace"] == "shop"
    assert {field["name"]: field["type"] for field in schema.avro["fields"]} == {
        "id": "long",
        "small": ["null", {"type": "int", "connect.type": "int8"}],
        "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}],
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "counts": {"type": "map", "values": ["null", "int"]},
        "names": [
            "null",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "MapEntry",
                    "namespace": "io.confluent.connect.avro",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}],
                },
            },
        ],
        "lines": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "ConnectDefault",
                "namespace": "io.confluent.connect.avro",
                "fields": [{"name": "x", "type": "double"}],
            },
        },
    }


def test_values_are_in_physical_form() -> None:
    value = order(price="AfQ=", at=5, counts={"a": None}, names=[[2, "b"]], lines=[{"x": 1}], small=-128)
    [found] = converted(value).payload.objects
    assert found == {
        "id": 1,
        "small": -128,
        "price": b"\x01\xf4",
        "at": 5,
        "counts": {"a": None},
        "names": [{"key": 2, "value": "b"}],
        "lines": [{"x": 1.0}],
    }


@pytest.mark.parametrize(("number", "unscaled"), [(12.34, 1234), (-0.01, -1), (1, 100), (0, 0)])
def test_a_decimal_may_be_a_number(number: float, unscaled: int) -> None:
    [found] = converted(order(price=number)).payload.objects
    assert int.from_bytes(found["price"], "big", signed=True) == unscaled


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"id": "x"}, "id is not an integer of 64 bits but 'x'"),
        ({"id": 1 << 63}, "id is not an integer of 64 bits"),
        ({"id": True}, "id is not an integer of 64 bits"),
        ({"id": None}, "has null for id, which is required"),
        ({"at": None}, "has null for at, which is required"),
        ({"small": 128}, "small is not an integer of 8 bits"),
        ({"price": 0.001}, "more than 2 digits after the point"),
        ({"price": "*"}, "price is not bytes in base64"),
        ({"lines": [{"x": "1"}]}, "an item of lines.x is not a number"),
        ({"counts": {"a": 1.5}}, "a value of counts is not an integer of 32 bits"),
        ({"names": [[1]]}, "names is not a pair of key and value"),
    ],
)
def test_what_does_not_fit_the_schema_fails_by_the_name_of_its_field(payload: dict[str, Any], said: str) -> None:
    result = converted(order(), order(**payload))
    assert [failure.offset for failure in result.failures] == [1]
    assert said in result.failures[0].message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"nope", "is no JSON object"),
        (b'{"a":1}', "is no JSON object"),
        (b'{"schema":{"type":"int32"},"payload":1,"more":2}', "is no JSON object"),
        (b'{"schema":{"type":"int33"},"payload":1}', "unknown type 'int33'"),
        (b'{"schema":{"type":"array"},"payload":[]}', "schema of type array without 'items'"),
        (b'{"schema":[],"payload":1}', "a schema without a type"),
    ],
)
def test_what_is_no_envelope_fails(row: bytes, said: str) -> None:
    [failure] = converted(row).failures
    assert said in failure.message


def test_a_byte_order_mark_before_the_text_is_passed_over_as_in_connect() -> None:
    assert converted(b'\xef\xbb\xbf{"schema":{"type":"int32"},"payload":1}').payload.objects == [1]


def test_nulls_and_payloads_without_a_schema() -> None:
    optional = {"type": "string", "optional": True}
    result = converted(
        None,
        {"schema": None, "payload": {"a": 1.5}},
        {"schema": None, "payload": None},
        {"schema": optional, "payload": None},
        {"schema": optional, "payload": "x"},
    )
    assert result.payload.objects == [None, {"a": 1.5}, None, None, "x"]
    assert result.payload.codes.tolist() == [NO_SCHEMA] * 4 + [0]
    assert result.payload.schemas[0].avro == "string"
    assert not result.failures


def test_records_with_two_schemas_are_told_apart() -> None:
    result = converted(order(), {"schema": {"type": "int32"}, "payload": 1}, order(id=2))
    assert result.payload.codes.tolist() == [0, 1, 0]


def test_a_large_schema_of_many_records_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counted(avro: str) -> str:
        compiled.append(avro)
        return check_walkable(avro)

    monkeypatch.setattr("kafka_s3_platform.connect.converters.json_envelope.check_walkable", counted)
    fields = [{"field": f"f{i}", "type": "int32", "optional": True} for i in range(2_000)]
    found = converted(*({"schema": {"type": "struct", "fields": fields}, "payload": {"f7": n}} for n in range(3)))
    assert [record["f7"] for record in found.payload.objects] == [0, 1, 2]
    assert len(compiled) == 1


def test_fields_that_the_schema_does_not_list_are_left_out_and_told() -> None:
    """They were left out without a word."""
    done = converted(order(), order(more=1, counts={"more": 2}), {"schema": None, "payload": {"more": 1}})
    assert (
        "1 records lack fields that the schema beside their value does not list (the first one: 'more')"
        in done.notes.sentences
    )


def test_two_fields_of_one_name_refuse_the_schema() -> None:
    fields = [{"field": "a", "type": "int32"}, {"field": "a", "type": "string", "optional": True}]
    done = converted({"schema": {"type": "struct", "name": "x.S", "fields": fields}, "payload": {"a": 1}})
    assert "x.S has two fields named 'a'" in done.failures[0].message


GOLDEN = Path(__file__).parents[1] / "golden" / "json_envelopes.jsonl"
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
ENCODED_ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
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
        (0, ENCODED_ORDER, VALUE, "BASE64"),
        (1, ENCODED_ORDER, VALUE, "NUMERIC"),
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
    done = convert_rows(ENVELOPE, encoded(ENCODED_ORDER, value).column.to_pylist())
    assert not done.failures
    assert done.payload.objects[0] == value | {"either": {"int": None, "string": "s"}}


def test_json_without_a_schema_goes_into_its_envelope_byte_for_byte() -> None:
    payload = convert_rows(ConverterSettings(format="JSON"), [b'{"a":  1.10}', None]).payload
    done = new_encoder(ENVELOPE, "copy", is_key=False).encode(payload)
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
    came = converted({"schema": {"type": "struct", "fields": fields}, "payload": payload}).payload
    [sent] = new_encoder(ENVELOPE, "t", is_key=False).encode(came).column.to_pylist()
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


GOLDEN_NULLS = Path(__file__).parents[1] / "golden" / "json_nulls.jsonl"
CASES = [json.loads(line) for line in GOLDEN_NULLS.read_text().splitlines()]
STRUCT = {"type": "struct", "optional": True, "default": {"n": 5}, "fields": [{"field": "n", "type": "int32"}]}


def converted_nulls(text: str, replaces: str | None, *, is_key: bool = False) -> ConvertedPayload:
    options = {} if replaces is None else {"replace.null.with.default": replaces}
    settings, _ = read_converter("JSON", options, schemas_enable=True)
    return convert_rows(settings, [text.encode()], is_key=is_key)


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
    done = converted_nulls(case["text"], case["replace"], is_key=is_key)
    assert values(done) == ([] if case["fails"] else [{"f": case["value"]}])


@pytest.mark.parametrize("case", [case for case in CASES if differs_from_kafka(case)], ids=lambda c: c["text"])
def test_an_absent_field_has_the_default_also_where_nulls_stay_and_is_told(case: dict[str, Any]) -> None:
    done = converted_nulls(case["text"], "false")
    assert values(done) == [{"f": json.loads(case["text"])["schema"]["fields"][0]["default"]}]
    assert done.notes.sentences == [
        f"1 records lack a field that the schema beside their value lists: {ADDED} (the first one: f)"
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case["replace"] == "false"], ids=lambda c: c["text"])
def test_without_the_option_nulls_stay(case: dict[str, Any]) -> None:
    unset, false = (converted_nulls(case["text"], option) for option in (None, "false"))
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
    found = {name: values(converted_nulls(text, replaces)) for name, text in places.items()}
    assert found == {"record": [{"f": expected}], "item": [[expected]], "value": [{"f": expected}]}
    assert converted_nulls(envelope(STRUCT, None), replaces).payload.objects == [expected]


@pytest.mark.parametrize("format_name", ["AVRO", "JSON_SR", "PROTOBUF", "STRING"])
def test_the_option_of_another_converter_has_no_meaning(format_name: str) -> None:
    options = {"replace.null.with.default": "true", "schema.registry.url": "http://r"}
    settings, outcome = read_converter(format_name, options, schemas_enable=True)
    assert outcome.judgements["replace.null.with.default"][0] is Support.WITHOUT_MEANING
    assert not settings.options


def test_the_option_against_defaults_is_known() -> None:
    _, outcome = read_converter("JSON_SR", {"ignore.default.for.nullables": "true"}, schemas_enable=True)
    assert outcome.judgements["ignore.default.for.nullables"] == (
        Support.WITHOUT_MEANING,
        "A null stays null, as with `true`.",
    )


NUMBER = '{"type":"object","properties":{"v":{"type":"number"}}}'
OF_NUMBER = of_archive("JSON_SR", archived("JSON", NUMBER))


def converted_numbers(kind: str, text: str) -> ConvertedPayload:
    """Read a number as Connect's `float` or `double`, or as the `number` of a JSON Schema."""
    if kind == "number":
        return convert_rows(OF_NUMBER, [framed(1, f'{{"v":{text}}}'.encode())])
    schema = json.dumps({"type": "struct", "fields": [{"field": "v", "type": kind}]})
    return converted(f'{{"schema":{schema},"payload":{{"v":{text}}}}}'.encode())


def number(kind: str, text: str) -> Any:
    [value] = converted_numbers(kind, text).payload.objects
    return value["v"]


@pytest.mark.parametrize("kind", ["double", "number"])
@pytest.mark.parametrize(
    "text", ["0.3", "0.30000000000000004", "0.10000000000000001", "4.9E-324", "1e23", "9007199254740992", "3", "-0.0"]
)
def test_what_writers_of_doubles_write_is_the_double(kind: str, text: str) -> None:
    assert struct.pack("d", number(kind, text)) == struct.pack("d", float(text))


@pytest.mark.parametrize("kind", ["double", "number"])
@pytest.mark.parametrize(
    "text",
    [
        "3e999",
        "3e-999",
        "9007199254740993",
        "0.20000000000000001110223",
        "98765432109876543210.5",
        "1" * 400,
    ],
)
def test_a_number_that_no_double_is_written_as_is_refused(kind: str, text: str) -> None:
    [failure] = converted_numbers(kind, text).failures
    assert "v is not a number that a float of 64 bits is written as" in failure.message


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([repr, "{:.16e}".format, "{:.17g}".format]))
def test_each_double_is_read_from_the_shortest_text_and_from_17_digits(value: float, write: Any) -> None:
    assert number("double", write(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([np.float32, "{:.8e}".format]))
def test_each_float_is_read_from_the_shortest_text_and_from_9_digits(value: float, write: Any) -> None:
    assert number("float", str(write(value))) == value


@given(st.decimals(allow_nan=False, allow_infinity=False).map(str))
def test_a_decimal_becomes_a_double_of_its_digits_or_is_refused(text: str) -> None:
    done = converted_numbers("double", text)
    if done.payload.objects:
        [value] = done.payload.objects
        assert value["v"] == float(text)
    else:
        assert Decimal(repr(float(text))) != Decimal(text)


def test_a_float_of_32_bits_holds_fewer_numbers() -> None:
    assert number("double", "0.12345678901") == 0.12345678901
    [failure] = converted_numbers("float", "0.12345678901").failures
    assert "v is not a number that a float of 32 bits is written as" in failure.message


@pytest.mark.parametrize("text", ['1,"v":2', '1,"\\u0076":1', '1,"w":{"a":1,"b":2,"a":1}'])
@pytest.mark.parametrize("kind", ["double", "number"])
def test_a_key_twice_in_one_object_is_refused(kind: str, text: str) -> None:
    [failure] = converted_numbers(kind, text).failures
    assert "more than once" in failure.message


def test_a_default_keeps_the_digits_of_its_number() -> None:
    field = {
        "field": "v",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "20"},
        "default": "DEFAULT",
    }
    schema = json.dumps({"type": "struct", "fields": [field]}).replace('"DEFAULT"', "0.12345678901234567891")
    [value] = converted(f'{{"schema":{schema},"payload":{{}}}}'.encode()).payload.objects
    assert int.from_bytes(value["v"], "big") == 12345678901234567891
