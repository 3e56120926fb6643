"""Values and schemas of strangers: each costs little, and fails alone, whatever libraries raise."""

import json
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.protobuf import files as protobuf_files
from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform_tests.converters.conftest import Registered
from kafka_s3_platform_tests.converters.values import ENVELOPE, convert_rows, framed

DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
SECONDS = 10.0
NUMBERS: dict[str, Any] = {
    "type": "number",
    "title": DECIMAL,
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2"},
}


def envelope(schema: Any, payload: str) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (json.dumps(schema).encode(), payload.encode())


def decimal(parameters: Any) -> dict[str, Any]:
    return {"type": "bytes", "name": DECIMAL, "parameters": parameters}


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


ENVELOPES = {
    "a decimal of a million digits": envelope(decimal({"scale": "0"}), "1e999990"),
    "a scale of a million": envelope(decimal({"scale": "999990"}), "1"),
    "a scale beyond the precision": envelope(decimal({"scale": "70"}), "1"),
    "a negative scale": envelope(decimal({"scale": "-5"}), "1"),
    "a scale that is no number": envelope(decimal({"scale": "x"}), '"AA=="'),
    "parameters that are a list": envelope(decimal([1]), '"AA=="'),
    "a whole number beyond 28 digits": envelope({"type": "int64"}, "1e30"),
    "a double beyond doubles": envelope({"type": "double"}, "1" + "0" * 400),
    "an exponent beyond decimals": envelope({"type": "double"}, "1e99999999999999999999999"),
    "such an exponent without a schema": envelope(None, "1e99999999999999999999999"),
    "fields that are a number": envelope({"type": "struct", "fields": 5}, "{}"),
    "fields that are texts": envelope({"type": "struct", "fields": ["a"]}, "{}"),
    "a name that is a number": envelope({"type": "struct", "name": 5, "fields": []}, "{}"),
    "base64 that is not ASCII": envelope({"type": "bytes"}, '"é"'),
    "types deeper than are read": envelope(nested(240), "[]"),
}


def told(found: ConvertedPayload, rows: Sequence[bytes]) -> list[str]:
    """The reasons of all rows but the last one, which converted."""
    assert found.positions.tolist() == [len(rows) - 1], [f.message for f in found.failures][-1]
    assert [failure.offset for failure in found.failures] == list(range(len(rows) - 1))
    return [failure.message for failure in found.failures]


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_of_a_stranger_is_one_bad_record(name: str) -> None:
    rows = [ENVELOPES[name], envelope({"type": "int64"}, "1")]
    start = time.process_time()
    told(convert_rows(ENVELOPE, rows), rows)
    assert time.process_time() - start < SECONDS


def refers_to(*names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/definitions/{name}"} for name in names]


DOUBLED = {f"a{n}": {"anyOf": refers_to(f"a{n + 1}", f"a{n + 1}")} for n in range(40)} | {"a40": {"type": "string"}}
STRUCTS = {
    f"a{n}": {"type": "object", "title": f"T{n}", "properties": dict.fromkeys("xy", *refers_to(f"a{n + 1}"))}
    for n in range(40)
} | {"a40": {"type": "string"}}
JSON_SCHEMAS: dict[str, tuple[Any, bytes]] = {
    "decimals of a million digits": ({"type": "array", "items": NUMBERS}, b"[1e999990,1e999990]"),
    "a whole number beyond 28 digits": ({"type": "integer"}, b"1e30"),
    "a double beyond doubles": ({"type": "number"}, b"1" + b"0" * 400),
    "a scale beyond the precision": ({**NUMBERS, "connect.parameters": {"scale": "70"}}, b"1"),
    "an allOf that refers to itself": (
        {"allOf": refers_to("a"), "definitions": {"a": refers_to("a")[0]}},
        b"{}",
    ),
    "a reference to itself": ({"$ref": "#"}, b"{}"),
    "types doubled forty times": ({**refers_to("a0")[0], "definitions": DOUBLED}, b'"x"'),
    "records doubled forty times": ({**refers_to("a0")[0], "definitions": STRUCTS}, b"{}"),
    "a file": ({"$ref": "file:///etc/passwd"}, b"{}"),
    "an address": ({"$ref": "http://127.0.0.1:1/internal"}, b"{}"),
    "properties that are a list": ({"type": "object", "properties": ["a"]}, b"{}"),
}


@pytest.mark.parametrize("name", JSON_SCHEMAS)
def test_a_json_schema_of_a_stranger_is_bad_records(registered: Registered, name: str) -> None:
    schema, body = JSON_SCHEMAS[name]
    bad = registered.register(json.dumps({**DRAFT, **schema}), "JSON")
    good = registered.register(json.dumps({**DRAFT, "type": "integer"}), "JSON", subject="other")
    rows = [framed(bad, body), framed(bad, body), framed(good, b"1")]
    start = time.process_time()
    told(registered.convert("JSON_SR", rows), rows)
    assert time.process_time() - start < SECONDS


PROTO = 'syntax = "proto3";'
LENT = {
    "a Timestamp without seconds": (
        "package google.protobuf; message A { Timestamp t = 1; }",
        "Timestamp {int32 x=1;}",
    ),
    "a Timestamp of texts": (
        "package google.protobuf; message A { Timestamp t = 1; }",
        "Timestamp { string seconds = 1; string nanos = 2; }",
    ),
    "a Date without a month": ("package google.type; message A { Date t = 1; }", "Date { int32 year = 1; }"),
    "a Decimal of texts": (
        "package confluent.type; message A { Decimal t = 1; }",
        "Decimal { string value = 1; string scale = 2; }",
    ),
    "a wrapper of nothing": ("package google.protobuf; message A { StringValue t = 1; }", "StringValue {int32 x=1;}"),
    "a field HasField": ("message A { B t = 1; optional string HasField = 2; }", "B { int32 x = 1; }"),
}
MESSAGE = b"\0\x0a\x00"
"""The first message of a file, with an empty message as its first field."""


@pytest.mark.parametrize("name", LENT)
def test_a_protobuf_schema_that_borrows_a_known_name_is_bad_records(registered: Registered, name: str) -> None:
    user, lent = LENT[name]
    bad = registered.register(f"{PROTO} {user} message {lent}", "PROTOBUF")
    good = registered.register(f"{PROTO} message Good {{ int32 a = 1; }}", "PROTOBUF", subject="other")
    rows = [framed(bad, MESSAGE), framed(bad, MESSAGE), framed(good, b"\0")]
    told(registered.convert("PROTOBUF", rows, wrapper_for_nullables="true"), rows)


PRICED = f'{PROTO}\nimport "confluent/type/decimal.proto"; message A {{ confluent.type.Decimal t = 1; }}'


def priced(value: bytes, scale: int) -> bytes:
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2

    made: Any = decimal_pb2
    inner: bytes = made.Decimal(value=value, scale=scale).SerializeToString()
    return b"\0\x0a" + _varint(len(inner)) + inner


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


@pytest.mark.parametrize(
    ("value", "scale"), [(b"\1", -999_990), (b"\1", -(2**31)), (b"\1", 2**31 - 1), (b"\x7f" * 1_000_000, 0)]
)
def test_a_decimal_of_a_stranger_is_one_bad_record(registered: Registered, value: bytes, scale: int) -> None:
    """Twelve bytes took a minute, a megabyte more than three."""
    schema = registered.register(PRICED, "PROTOBUF")
    rows = [framed(schema, priced(value, scale)), framed(schema, priced(b"\1", 0))]
    start = time.process_time()
    told(registered.convert("PROTOBUF", rows), rows)
    assert time.process_time() - start < SECONDS


def test_a_decimal_of_many_digits_keeps_them(registered: Registered) -> None:
    """All behind the 28th became zeros."""
    schema = registered.register(PRICED, "PROTOBUF")
    value = (10**60 + 1).to_bytes(26, "big")
    [found] = registered.convert("PROTOBUF", [framed(schema, priced(value, 0))]).payload.objects
    assert int.from_bytes(found["t"], "big") == 10**60 + 1


def test_a_schema_that_cannot_be_used_is_tried_once_not_for_each_record(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling may take a minute: a thousand records of such a schema took a thousand."""
    compiled: list[Sequence[str]] = []
    run = protobuf_files._run_protoc  # noqa: SLF001 - spied on

    def counted(options: Sequence[str]) -> Any:
        compiled.append(options)
        return run(options)

    monkeypatch.setattr(protobuf_files, "_run_protoc", counted)
    bad = registered.register(f"{PROTO} message A {{ NoSuchType a = 1; }}", "PROTOBUF")
    found = registered.convert("PROTOBUF", [framed(bad, MESSAGE)] * 20)
    assert len(found.failures) == 20
    assert len(compiled) == 1


def test_a_reason_of_a_megabyte_is_cut_where_it_is_made_and_not_copied_for_each_record(registered: Registered) -> None:
    schema = {**DRAFT, "type": "integer", "connect.type": "x" * 900_000}
    bad = registered.register(json.dumps(schema), "JSON")
    tracemalloc.start()
    found = registered.convert("JSON_SR", [framed(bad, b"1")] * 1500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.failures) == 1500
    assert max(len(failure.message) for failure in found.failures) < 1200
    assert peak < 50_000_000


def test_what_this_machine_lacks_is_no_fault_of_a_record(
    registered: Registered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such records would be dead letters, and their schema refused as long as the process lasts."""
    schema = registered.register(f"{PROTO} message A {{ int32 a = 1; }}", "PROTOBUF")
    rows = [framed(schema, b"\0\x08\1")]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(TransientError, match="absent"):
        registered.convert("PROTOBUF", rows)
    monkeypatch.undo()
    assert registered.convert("PROTOBUF", rows).payload.objects == [{"a": 1}]
