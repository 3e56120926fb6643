"""JSON that plain objects do not hold goes through transforms as its text says it, or fails with the reason."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.converters.json_text import JsonConverter
from kafka_s3_platform_tests.transforms.batches import apply, batch, messages, payload, values

BIG = [{"a": Decimal("1e400"), "b": Decimal("12345678901234567890.5")}]
STEPS = [
    {"type": "ReplaceField$Value", "exclude": "x"},
    {"type": "ExtractField$Value", "field": "a"},
    {"type": "Flatten$Value"},
    {"type": "ExtractTopic$Value", "field": "a", "skip.missing.or.null": "true"},
    {"type": "ValueToKey", "fields": "a"},
    {"type": "HeaderFrom$Value", "fields": "a", "headers": "h", "operation": "copy"},
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["type"])
def test_a_key_twice_in_one_object_fails_with_the_reason(step: dict[str, str]) -> None:
    twice = JsonConverter("t", is_key=False).convert(pa.array([b'{"a":"x","b":1,"b":2}']), np.arange(1)).payload
    [message] = messages(apply(batch(twice), a=step))
    assert message.endswith("an object has the key 'b' more than once")


def test_numbers_beyond_doubles_are_masked_and_cast_as_numbers() -> None:
    masked = apply(batch(payload(BIG)), a={"type": "MaskField$Value", "fields": "a"})
    assert values(masked) == [{"a": 0.0, "b": Decimal("12345678901234567890.5")}]
    cast = apply(batch(payload(BIG)), a={"type": "Cast$Value", "spec": "b:string"})
    assert values(cast)[0]["b"] == "12345678901234567890.5"


def test_a_header_holds_such_a_number_alone_and_never_as_a_text_in_a_map() -> None:
    step = {"type": "HeaderFrom$Value", "fields": "b", "headers": "h", "operation": "copy"}
    done = apply(batch(payload(BIG)), a=step)
    assert done.batch.records.column("headers").to_pylist() == [[{"key": "h", "value": b"12345678901234567890.5"}]]
    [message] = messages(apply(batch(payload([{"b": BIG[0]}])), a=step))
    assert "holds the number 1E+400, which no double is" in message
