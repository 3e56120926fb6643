"""A number becomes the double that it is written for, or is refused; a key twice is refused."""

import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.converters import ConvertedPayload, new_converter
from kafka_s3_platform.model.schema import ArchivedSchema

NUMBER = '{"type":"object","properties":{"v":{"type":"number"}}}'
REGISTRY = RegistrySettings(url="http://gone", archived=(ArchivedSchema("http://gone", 1, "JSON", NUMBER, (), ()),))


def converted(kind: str, text: str) -> ConvertedPayload:
    """Read a number as Connect's `float` or `double`, or as the `number` of a JSON Schema."""
    if kind == "number":
        settings, row = ConverterSettings(format="JSON_SR", registry=REGISTRY), f'{{"v":{text}}}'
        raw = b"\0\0\0\0\1" + row.encode()
    else:
        settings = ConverterSettings(format="JSON", schemas_enable=True)
        fields = [{"field": "v", "type": kind}]
        schema = json.dumps({"type": "struct", "fields": fields})
        raw = f'{{"schema":{schema},"payload":{{"v":{text}}}}}'.encode()
    return new_converter(settings, "t", is_key=False).convert(pa.array([raw]), np.arange(1))


def number(kind: str, text: str) -> Any:
    [value] = converted(kind, text).payload.objects
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
    [failure] = converted(kind, text).failures
    assert "v is not a number that a float of 64 bits is written as" in failure.message


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([repr, "{:.16e}".format, "{:.17g}".format]))
def test_each_double_is_read_from_the_shortest_text_and_from_17_digits(value: float, write: Any) -> None:
    assert number("double", write(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([np.float32, "{:.8e}".format]))
def test_each_float_is_read_from_the_shortest_text_and_from_9_digits(value: float, write: Any) -> None:
    assert number("float", str(write(value))) == value


@given(st.decimals(allow_nan=False, allow_infinity=False).map(str))
def test_a_decimal_becomes_a_double_of_its_digits_or_is_refused(text: str) -> None:
    done = converted("double", text)
    if done.payload.objects:
        [value] = done.payload.objects
        assert value["v"] == float(text)
    else:
        assert Decimal(repr(float(text))) != Decimal(text)


def test_a_float_of_32_bits_holds_fewer_numbers() -> None:
    assert number("double", "0.12345678901") == 0.12345678901
    [failure] = converted("float", "0.12345678901").failures
    assert "v is not a number that a float of 32 bits is written as" in failure.message


@pytest.mark.parametrize("text", ['1,"v":2', '1,"\\u0076":1', '1,"w":{"a":1,"b":2,"a":1}'])
@pytest.mark.parametrize("kind", ["double", "number"])
def test_a_key_twice_in_one_object_is_refused(kind: str, text: str) -> None:
    [failure] = converted(kind, text).failures
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
    settings = ConverterSettings(format="JSON", schemas_enable=True)
    raw = f'{{"schema":{schema},"payload":{{}}}}'.encode()
    [value] = new_converter(settings, "t", is_key=False).convert(pa.array([raw]), np.arange(1)).payload.objects
    assert int.from_bytes(value["v"], "big") == 12345678901234567891
