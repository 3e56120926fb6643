"""TimestampConverter. The expected results are those of Apache Kafka 4.3.1's own class."""

from typing import Any

import pytest

from kafka_s3_platform_tests.transforms.batches import (
    apply,
    batch,
    fields_of,
    messages,
    optional,
    payload,
    schema,
    values,
)

MS = 1_700_000_000_123
DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}


def converted(value: Any, target: str, *schemas: Any, **options: str) -> Any:
    step = {"type": "TimestampConverter$Value", "target.type": target}
    step |= {name.replace("_", "."): each for name, each in options.items()}
    done = apply(batch(payload([value], *schemas)), a=step)
    assert done.failures == ()
    return values(done)[0]


@pytest.mark.parametrize(
    ("type_", "value", "target", "new_type", "result"),
    [
        (TIMESTAMP, MS, "unix", "long", MS),
        (TIMESTAMP, MS, "string", "string", "2023-11-14"),
        (TIMESTAMP, MS, "Date", DATE, 19_675),
        (TIMESTAMP, MS, "Time", TIME, 80_000_123),
        (TIMESTAMP, -1, "Date", DATE, -1),
        (DATE, 19_675, "Timestamp", TIMESTAMP, 1_699_920_000_000),
        (TIME, 5, "Timestamp", TIMESTAMP, 5),
        ("long", MS, "Timestamp", TIMESTAMP, MS),
        ("string", "2023-11-14", "unix", "long", 1_699_920_000_000),
    ],
)
def test_a_field_and_its_schema_are_converted(type_: Any, value: Any, target: str, new_type: Any, result: Any) -> None:
    for declared, expected in ((("f", type_), new_type), (optional("f", type_), ["null", new_type])):
        record = schema("R", declared, ("other", "string"))
        step = {"type": "TimestampConverter$Value", "target.type": target, "field": "f", "format": "yyyy-MM-dd"}
        done = apply(batch(payload([{"f": value, "other": "x"}], record)), a=step)
        assert values(done) == [{"f": result, "other": "x"}]
        assert fields_of(done.batch.value) == {"f": expected, "other": "string"}


@pytest.mark.parametrize(
    ("precision", "value", "ms", "back"),
    [
        ("seconds", 1_700_000_000, 1_700_000_000_000, 1_700_000_000),
        ("milliseconds", MS, MS, MS),
        ("microseconds", 1_700_000_000_123_999, MS, 1_700_000_000_123_000),
        ("nanoseconds", 1_700_000_000_123_999_999, MS, 1_700_000_000_123_000_000),
        ("microseconds", -1500, -1, -1000),
    ],
)
def test_unix_time_has_the_precision_asked_for_in_both_directions(
    precision: str, value: int, ms: int, back: int
) -> None:
    assert converted(value, "Timestamp", unix_precision=precision) == ms
    assert converted(value, "unix", unix_precision=precision) == back


def test_nulls_stay_and_a_missing_field_stays_missing_without_a_schema() -> None:
    assert converted(None, "unix") is None
    assert converted({"a": 1}, "unix", field="f") == {"a": 1}
    record = schema("R", optional("f", TIMESTAMP))
    assert converted({"f": None}, "unix", record, field="f") == {"f": None}


@pytest.mark.parametrize(
    ("value", "options", "said"),
    [
        ("x", {"format": "yyyy"}, "Could not parse timestamp: value (x) does not match pattern (yyyy)"),
        ("2020", {}, "TimestampConverter needs the option format to convert the text '2020'"),
        (1.5, {}, "TimestampConverter does not support float objects as timestamps"),
        (True, {}, "TimestampConverter does not support bool objects as timestamps"),
        ("20", {"format": "yy"}, "'yy' reads '20' with a two-digit year, whose century Java takes from today's date"),
        (5, {"field": "f"}, "Only Map objects supported in absence of schema for [converting timestamp formats]"),
    ],
)
def test_what_is_no_time_is_a_failure(value: Any, options: dict[str, str], said: str) -> None:
    step = {"type": "TimestampConverter$Value", "target.type": "unix", **options}
    (message,) = messages(apply(batch(payload([value])), a=step))
    assert message.startswith(said)


def test_a_field_of_a_type_that_holds_no_time_is_a_failure() -> None:
    step = {"type": "TimestampConverter$Value", "target.type": "unix", "field": "f"}
    assert messages(apply(batch(payload([{"f": 1}], schema("R", ("f", "int")))), a=step)) == [
        "Schema of type int32 does not correspond to a known timestamp type format"
    ]
