"""Cast. The expected results are those of Apache Kafka 4.3.1's own class.

TimestampConverter. The expected results are those of Apache Kafka 4.3.1's own class.
"""

import math
import time
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
    schema_of,
    values,
)


def cast(value: Any, type_: str) -> Any:
    done = apply(batch(payload([value])), a={"type": "Cast$Value", "spec": type_})
    assert done.failures == ()
    return values(done)[0]


@pytest.mark.parametrize(
    ("value", "type_", "result"),
    [
        (300, "int8", 44),
        (-129, "int8", 127),
        (5_000_000_000, "int32", 705_032_704),
        (1.9, "int32", 1),
        (-1.9, "int32", -1),
        (1e20, "int32", 2_147_483_647),
        (1e20, "int8", -1),
        (1e20, "int64", 9_223_372_036_854_775_807),
        (True, "int64", 1),
        ("-7", "int8", -7),
        (0.1, "float32", 0.10000000149011612),
        (7, "float64", 7.0),
        ("1e3", "float64", 1000.0),
        ("Infinity", "float32", math.inf),
        (0.5, "boolean", False),
        (2, "boolean", True),
        ("TRUE", "boolean", True),
        ("yes", "boolean", False),
        (12, "string", "12"),
        (2**64, "string", "18446744073709551616"),
        (True, "string", "true"),
        (1.0, "string", "1.0"),
        (1e7, "string", "1.0E7"),
        (12345678.9, "string", "1.23456789E7"),
        (0.0001, "string", "1.0E-4"),
        (b"\x01\xff", "string", "Af8="),
        (None, "int8", None),
    ],
)
def test_values_without_a_schema_are_cast_as_java_casts_them(value: Any, type_: str, result: Any) -> None:
    assert cast(value, type_) == result


@pytest.mark.parametrize(
    ("value", "type_", "said"),
    [
        ("128", "int8", "Value (128) was out of range for requested data type"),
        (2**63, "int64", "9223372036854775808 has more than 64 bits"),
        (-(2**63) - 1, "int8", "-9223372036854775809 has more than 64 bits"),
        ("1.5", "int32", "Value (1.5) was out of range for requested data type"),
        (" 5 ", "int64", "Value ( 5 ) was out of range for requested data type"),
        ("x", "float64", "Value (x) was out of range for requested data type"),
        (b"x", "int8", "Unexpected type in Cast transformation: bytes"),
        ([1], "string", "Cast transformation does not support casting from ARRAY; supported types are [INT8,"),
        ({"a": 1}, "string", "Cast transformation does not support casting from MAP; supported types are [INT8,"),
    ],
)
def test_what_cannot_be_cast_is_a_failure(value: Any, type_: str, said: str) -> None:
    (message,) = messages(apply(batch(payload([value])), a={"type": "Cast$Value", "spec": type_}))
    assert message.startswith(said)


def test_fields_are_cast_and_their_schemas_with_them() -> None:
    record = schema("R", ("a", "int"), optional("b", "int", 5), ("c", "string"), ("d", "string"))
    done = apply(
        batch(payload([{"a": 1, "b": None, "c": "2", "d": "x"}], record)),
        a={"type": "Cast$Value", "spec": "a:string, b:string, c:int8", "replace.null.with.default": "true"},
    )
    assert values(done) == [{"a": "1", "b": "5", "c": 2, "d": "x"}]
    assert fields_of(done.batch.value) == {
        "a": "string",
        "b": ["string", "null"],
        "c": {"type": "int", "connect.type": "int8"},
        "d": "string",
    }
    assert schema_of(done.batch.value)["fields"][1]["default"] == "5"


def test_a_missing_field_stays_missing_without_a_schema() -> None:
    done = apply(batch(payload([{"a": 1}])), a={"type": "Cast$Value", "spec": "b:int8"})
    assert values(done) == [{"a": 1}]


def test_logical_types_are_numbers_or_their_iso_text() -> None:
    record = schema(
        "R",
        ("date", {"type": "int", "logicalType": "date"}),
        ("time", {"type": "int", "logicalType": "time-millis"}),
        ("stamp", {"type": "long", "logicalType": "timestamp-millis"}),
        ("money", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    )
    value = {"date": 19_000, "time": 3_723_004, "stamp": 1_700_000_000_123, "money": b"\x30\x39"}
    text = {"type": "Cast$Value", "spec": "date:string,time:string,stamp:string,money:string"}
    assert values(apply(batch(payload([value], record)), a=text)) == [
        {"date": "2022-01-08", "time": "01:02:03.004Z", "stamp": "2023-11-14T22:13:20.123Z", "money": "123.45"}
    ]
    number = {"type": "Cast$Value", "spec": "date:int64,time:int64,stamp:int32,money:int32"}
    assert values(apply(batch(payload([value], record)), a=number)) == [
        {"date": 19_000, "time": 3_723_004, "stamp": -807_049_093, "money": 123}
    ]


@pytest.mark.parametrize(
    ("logical", "value", "text"),
    [
        ("int date", 0, "1970-01-01"),
        ("int date", -1, "1969-12-31"),
        ("int date", -719_162, "0001-01-01"),
        ("long timestamp-millis", 1, "1970-01-01T00:00:00.001Z"),
        ("long timestamp-millis", -86_400_000, "1969-12-31T00:00:00.000Z"),
        ("long timestamp-millis", 86_400_000, "1970-01-02"),
        ("int time-millis", 0, "00:00:00.000Z"),
    ],
)
def test_dates_and_timestamps_keep_their_day_also_before_1970(logical: str, value: int, text: str) -> None:
    """Kafka's class makes a time of each that is before 1970-01-02."""
    type_, name = logical.split()
    record = schema("R", ("a", {"type": type_, "logicalType": name}))
    done = apply(batch(payload([{"a": value}], record)), a={"type": "Cast$Value", "spec": "a:string"})
    assert values(done) == [{"a": text}]


def test_the_whole_value_is_cast_with_its_schema() -> None:
    text = schema("Unused", ("a", "int"))
    done = apply(
        batch(payload([{"a": 5}], text)),
        a={"type": "ExtractField$Value", "field": "a"},
        b={"type": "Cast$Value", "spec": "string"},
    )
    assert (values(done), schema_of(done.batch.value)) == (["5"], "string")


def test_a_long_text_that_is_almost_a_number_is_soon_told() -> None:
    """Ten thousand digits took eight seconds, a hundred thousand a quarter of an hour."""
    start = time.process_time()
    for text in ("1" * 300_000 + "x", "1" * 300_000 + "e" + "1" * 300_000 + "x", "." + "1" * 300_000 + "x"):
        done = apply(batch(payload([text])), a={"type": "Cast$Value", "spec": "float64"})
        assert len(done.failures) == 1
    assert time.process_time() - start < 10


def test_a_decimal_of_more_digits_than_are_read_fails_its_record_alone() -> None:
    number = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}
    objects = [{"n": b"\x7f" * size} for size in (1800, 4153, 4154)]
    done = apply(batch(payload(objects, schema("R", ("n", number)))), a={"type": "Cast$Value", "spec": "n:boolean"})
    assert values(done) == [{"n": True}, {"n": True}]
    assert messages(done) == ["a decimal of 4,154 bytes, read are 4,153"]


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


@pytest.mark.parametrize(("short", "unit"), [("micros", "microseconds"), ("nanos", "nanoseconds")])
@pytest.mark.parametrize("local", ["", "local-"])
def test_timestamps_of_another_unit_than_the_precision_are_a_failure(local: str, short: str, unit: str) -> None:
    """To Connect they are numbers, whose unit it takes from `unix.precision`."""
    record = schema("R", optional("f", {"type": "long", "logicalType": f"{local}timestamp-{short}"}))
    value = {"f": MS * {"micros": 1_000, "nanos": 1_000_000}[short]}
    step = {"type": "TimestampConverter$Value", "target.type": "Timestamp", "field": "f"}
    assert messages(apply(batch(payload([value], record)), a=step)) == [
        f"the field holds {unit}; set unix.precision={unit}"
    ]
    assert converted(value, "Timestamp", record, field="f", unix_precision=unit) == {"f": MS}


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


def test_a_reason_quotes_half_a_surrogate_pair_as_utf_8_can_hold_it() -> None:
    """A mapper may make one. The index and a dead letter, which have the reason, cannot hold it."""
    done = apply(batch(payload(["x\ud800"])), a={"type": "Cast$Value", "spec": "int32"})
    assert messages(done) == [r"Value (x\ud800) was out of range for requested data type"]
