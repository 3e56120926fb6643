import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.converters.encoding import Encoded, new_encoder
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Payload, Schema
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.restore.example_schemas import ORDER_SCHEMA


def payload(schema: str | Schema | None, *objects: Any) -> Payload:
    found = Schema(json.dumps(schema)) if isinstance(schema, str) else schema
    code = NO_SCHEMA if found is None else 0
    codes = np.array([NO_SCHEMA if o is None else code for o in objects], np.int32)
    return Payload(None, codes, (found,) if found else (), objects)


def encoded(kind: str, given: Payload) -> Encoded:
    settings = ConverterSettings.model_validate({"format": kind})
    return new_encoder(settings, "copy", is_key=False).encode(given)


def converted(kind: str, rows: Sequence[bytes | None]) -> Payload:
    settings = ConverterSettings.model_validate({"format": kind})
    done = convert_rows(settings, rows)
    assert not done.failures
    return done.payload


@pytest.mark.parametrize("kind", ["BYTES", "STRING", "JSON"])
def test_what_came_in_a_format_goes_out_in_it_byte_for_byte(kind: str) -> None:
    rows = [b'{"a":  1.10}', None, b'""']
    assert encoded(kind, converted(kind, rows)).column.to_pylist() == rows


def test_json_is_that_of_connect_s_json_converter() -> None:
    bytes_decimal = Schema('{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}')
    assert encoded("JSON", payload(bytes_decimal, b"\x01", None)).column.to_pylist() == [b'"AQ=="', None]
    assert encoded("JSON", payload("double", float("nan"))).column.to_pylist() == [b'"NaN"']
    assert encoded("JSON", payload(None, {"a": [1, None]})).column.to_pylist() == [b'{"a":[1,null]}']
    order = {"id": "x", "state": "NEW"}
    assert encoded("JSON", payload(Schema(ORDER_SCHEMA.text), order)).bad.keys() == {0}


def test_strings_are_text_and_what_is_none_is_told() -> None:
    assert encoded("STRING", payload("string", "é", None)).column.to_pylist() == ["é".encode(), None]
    assert encoded("STRING", payload("long", 5)).column.to_pylist() == [b"5"]
    assert encoded("STRING", payload("boolean", True)).column.to_pylist() == [b"true"]
    done = encoded("STRING", payload(None, {"a": 1}, "fine"))
    assert done.column.to_pylist() == [None, b"fine"]
    assert done.bad == {0: "cannot be written as STRING: TypeError: a value of type dict is no string"}


def test_bytes_are_bytes_and_what_is_none_is_told() -> None:
    done = encoded("BYTES", payload("bytes", b"a", None))
    assert done.column.to_pylist() == [b"a", None]
    assert encoded("BYTES", payload("string", "a")).bad.keys() == {0}


@pytest.mark.parametrize("kind", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_a_format_with_a_registry_needs_one(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"values of {kind} for topic copy need the registry of the target"):
        new_encoder(ConverterSettings.model_validate({"format": kind}), "copy", is_key=False)
    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url"):
        new_converter(ConverterSettings.model_validate({"format": kind}), "t", is_key=False)


def test_bytes_are_read_as_what_they_are() -> None:
    converted = convert_rows(ConverterSettings(format="BYTES"), [b"\xff\n", b"", None], is_key=True)
    assert converted.payload.raw == pa.array([b"\xff\n", b"", None])
    assert converted.payload.objects == [b"\xff\n", b"", None]
    assert converted.payload.codes.tolist() == [0, 0, NO_SCHEMA]
    assert converted.payload.schemas[0].avro == "bytes"


def test_strings_are_utf_8() -> None:
    rows = ["é\n".encode(), b"\xff", None, b""]
    converted = convert_rows(ConverterSettings(format="STRING"), rows, is_key=True)
    assert converted.payload.objects == ["é\n", None, ""]
    assert converted.payload.codes.tolist() == [0, NO_SCHEMA, 0]
    assert converted.payload.schemas[0].avro == "string"
    [failure] = converted.failures
    assert (failure.offset, failure.stage) == (1, "KEY_CONVERTER")
    assert failure.executing_class == "org.apache.kafka.connect.storage.StringConverter"
    assert "the key of the record at offset 1 of topic t is not UTF-8" in failure.message
