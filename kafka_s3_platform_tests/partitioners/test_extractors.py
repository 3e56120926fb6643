"""Extractors tell a record's time, or why it has none.

The logical type of a field, by the Avro schema of its record.
"""

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.avro.times import MIXED_TYPES, find_logical_type
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform.core.partitioners.extractors import new_extractor
from kafka_s3_platform_tests.partitioners.batches import batch_of, ms, schema_of

NOON = ms("2019-03-12T12:00:01.003+00:00")
SECONDS = NOON // 1000


def times(batch: ConnectBatch, **settings: Any) -> list[int | None]:
    layout = LayoutSettings(**{"timestamp_extractor": "RecordField", "timestamp_field": "at", **settings})
    found: list[int | None] = new_extractor(layout).extract(batch).times.to_pylist()
    return found


def reasons(batch: ConnectBatch, **settings: Any) -> dict[int, str]:
    layout = LayoutSettings(**{"timestamp_extractor": "RecordField", "timestamp_field": "at", **settings})
    return dict(new_extractor(layout).extract(batch).reasons)


def test_record_is_the_timestamp_of_the_kafka_record() -> None:
    assert times(batch_of([None, {}], timestamps=[NOON, -1]), timestamp_extractor="Record") == [NOON, -1]


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (NOON, NOON),
        (SECONDS, SECONDS * 1000),
        (99_999_999_999, 99_999_999_999_000),
        (100_000_000_000, 100_000_000_000),
        (0, 0),
        (-1, -1000),
        (1552392001.003, NOON),
        (float(NOON) + 0.5, NOON),
        (str(NOON), NOON),
        (str(SECONDS), SECONDS * 1000),
        ("2019-03-12T12:00:01.003Z", NOON),
        ("2019-03-12T13:00:01.003+01:00", NOON),
        ("2019-03-12T12:00:01.003", NOON),
        ("2019-03-12", ms("2019-03-12T00:00:00+00:00")),
    ],
)
def test_a_field_without_logical_type_is_seconds_milliseconds_or_iso_8601(value: Any, time: int) -> None:
    assert times(batch_of([{"at": value}])) == [time]


def test_a_field_may_be_nested() -> None:
    assert times(batch_of([{"meta": {"at": NOON}}]), timestamp_field="meta.at") == [NOON]


@pytest.mark.parametrize(
    ("field", "value", "time"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, 1),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], 1, 1),
        ({"type": "long", "logicalType": "timestamp-micros"}, NOON * 1000 + 999, NOON),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1, -1),
        ({"type": "long", "logicalType": "timestamp-nanos"}, NOON * 1_000_000, NOON),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, NOON, NOON - 3_600_000),
        ({"type": "int", "logicalType": "date"}, 17967, ms("2019-03-12T00:00:00+01:00")),
        ({"type": "long", "connect.name": "other"}, SECONDS, SECONDS * 1000),
        ("string", "2019-03-12T13:00:01.003", NOON),
        ("string", "2019-03-12T12:00:01.003Z", NOON),
        ("string", "2019-03-12", ms("2019-03-12T00:00:00+01:00")),
    ],
)
def test_dates_and_timestamps_are_told_by_their_schema_and_local_times_are_of_the_timezone(
    field: Any, value: Any, time: int
) -> None:
    assert times(batch_of([{"at": value}], [schema_of(at=field)]), timezone="Europe/Paris") == [time]


def test_a_nested_field_s_logical_type_is_found_through_unions_maps_and_names() -> None:
    inner = {**schema_of(at={"type": "int", "logicalType": "date"}), "name": "inner", "namespace": "n"}
    for field in (inner, ["null", inner], {"type": "map", "values": inner}):
        schema = schema_of(first=inner, outer="n.inner") if field is inner else schema_of(outer=field)
        value = {"outer": {"at": 1, "k": {"at": 1}}, "first": {"at": 5}}
        path = "outer.k.at" if isinstance(field, dict) and field["type"] == "map" else "outer.at"
        assert times(batch_of([value], [schema]), timestamp_field=path) == [86_400_000]


def test_schemas_and_types_may_change_within_a_batch() -> None:
    schemas = [schema_of(at={"type": "int", "logicalType": "date"}), schema_of(at="long")]
    values = [{"at": 1}, {"at": 1}, {"at": "1970-01-03"}, {"at": 2.5}, {"at": 1}]
    assert times(batch_of(values, schemas, [0, 1, -1, -1, 0])) == [86_400_000, 1000, 172_800_000, 2500, 86_400_000]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "timestamp.field at is missing"),
        ("text", "timestamp.field at is missing"),
        ({"at": None}, "timestamp.field at is null"),
        ({"at": True}, "timestamp.field at is no date or time but bool"),
        ({"at": b"1"}, "timestamp.field at is no date or time but bytes"),
        ({"at": {"a": 1}}, "timestamp.field at is no date or time but dict"),
        ({"at": "yesterday"}, "timestamp.field at is neither an ISO 8601 time nor a number"),
        ({"at": "2019-02-30T00:00:00Z"}, "timestamp.field at is neither an ISO 8601 time nor a number"),
        ({"at": "\ud800"}, "timestamp.field at is neither an ISO 8601 time nor a number"),
        ({"at": ""}, "timestamp.field at is neither an ISO 8601 time nor a number"),
        ({"at": 2**63}, "timestamp.field at is a number of more than 64 bits"),
        ({"at": float("nan")}, "timestamp.field at is a number out of range"),
        ({"at": float("inf")}, "timestamp.field at is a number out of range"),
    ],
)
def test_a_field_that_is_missing_or_of_another_type_is_no_time_and_says_why(value: Any, reason: str) -> None:
    batch = batch_of([{"at": NOON}, value, {"at": NOON}])
    assert times(batch) == [NOON, None, NOON]
    assert reasons(batch) == {1: reason}


def test_a_time_of_day_is_no_date() -> None:
    batch = batch_of([{"at": 1}], [schema_of(at={"type": "int", "logicalType": "time-millis"})])
    assert reasons(batch) == {0: "timestamp.field at is no date or time but time-millis"}


def test_a_tombstone_has_its_record_s_timestamp() -> None:
    assert times(batch_of([None, {"at": 2000}], timestamps=[NOON, 0])) == [NOON, 2_000_000]


@given(
    st.lists(
        st.integers(-(2**70), 2**70)
        | st.floats()
        | st.text(max_size=3)
        | st.none()
        | st.booleans()
        | st.datetimes().map(lambda t: t.isoformat())
        | st.datetimes(timezones=st.just(ZoneInfo("Asia/Kolkata"))).map(lambda t: t.isoformat()),
        max_size=8,
    )
)
def test_a_record_s_time_does_not_depend_on_its_batch(values: list[Any]) -> None:
    zone = {"timezone": "America/Sao_Paulo"}
    together = times(batch_of([{"at": value} for value in values]), **zone)
    assert together == [times(batch_of([{"at": value}]), **zone)[0] for value in values]


def test_record_field_needs_a_field() -> None:
    with pytest.raises(ConfigError, match=r"timestamp\.field has to name a field"):
        new_extractor(LayoutSettings(timestamp_extractor="RecordField"))


def test_an_extractor_that_cannot_be_loaded_is_a_fault_of_the_file() -> None:
    with pytest.raises(ConfigError, match=r"no\.such"):
        new_extractor(LayoutSettings(timestamp_extractor="no.such.Class"))


DATE = {"type": "int", "logicalType": "date"}


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def find(root: dict[str, Any], *path: str) -> str | None:
    return find_logical_type(Schema(json.dumps(root)), path)


def test_it_is_found_in_records_in_unions_in_maps_and_by_the_name_of_a_type() -> None:
    inner = record("Inner", ("day", ["null", DATE]))
    root = record("R", ("one", inner), ("two", "Inner"), ("by_key", {"type": "map", "values": inner["name"]}))

    assert find(root, "one", "day") == find(root, "two", "day") == find(root, "by_key", "any", "day") == "date"
    assert find(root, "one") is find(root, "one", "none") is find(root, "none") is None


def test_a_name_means_the_type_of_its_own_namespace() -> None:
    """The last type of the same short name was taken: a timestamp was a date, and its records lay in other folders."""
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    one, other = record("a.Item", ("at", moment)), record("b.Item", ("at", DATE))
    root = record("a.Order", ("one", one), ("other", other), ("again", "Item"))

    assert find(root, "again", "at") == find(root, "one", "at") == "timestamp-millis"
    assert find(root, "other", "at") == "date"


def test_numbers_of_several_logical_types_have_none_that_could_be_told() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    root = record("R", ("mixed", [DATE, moment]), ("text", ["null", "string", DATE]), ("plain", ["int", moment]))

    assert find(root, "mixed") == find(root, "plain") == MIXED_TYPES
    assert find(root, "text") == "date"


@pytest.mark.parametrize("name", ["fields", "items", "values"])
@pytest.mark.parametrize("value", ["a,b", [], {}, 7, None])
def test_attributes_that_mean_nothing_in_a_type_are_not_read(name: str, value: object) -> None:
    root = record("R", ("text", {"type": "string", name: value}), ("day", DATE))

    assert find(root, "day") == "date"
    assert find(root, "text") is find(root, "text", "a") is None
