"""Partitioners name the folders as Connect's do, and never let a value out of its own."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner
from kafka_s3_platform_tests.partitioners.batches import batch_of, ms, schema_of, times_of

EXAMPLES = "kafka_s3_platform_tests.partitioners.examples."
DATE = {"type": "int", "logicalType": "date"}


def encode(batch: ConnectBatch, *times: str, **settings: Any) -> list[str]:
    """The encoded partition of each record, or why it has none."""
    at = times_of(*times) if times else np.zeros(batch.num_rows, np.int64)
    found = new_partitioner(LayoutSettings(**settings)).encode(batch, at)
    assert len(set(found.names)) == len(found.names)
    assert {f.stage for f in found.failures} <= {"TASK_PUT"}
    failed = {f.offset: f.message for f in found.failures}
    return [failed.get(int(o), found.names[c]) for o, c in zip(batch.offsets, found.codes, strict=True)]


def by_fields(batch: ConnectBatch, *fields: str, **settings: Any) -> list[str]:
    return encode(batch, partitioner="Field", partition_fields=fields, **settings)


def test_the_default_partitioner_is_the_kafka_partition() -> None:
    assert encode(batch_of([None, "a"], kafka_partition=7), partitioner="Default") == ["partition=7"] * 2


@pytest.mark.parametrize("partitioner", ["Hourly", "Daily", "TimeBased"])
def test_time_based_partitioners_take_the_times_that_they_are_given(partitioner: str) -> None:
    batch = batch_of([1, 2], timestamps=[0, 0])
    found = encode(batch, "2020-02-06T09:59:59+00:00", "2020-02-06T10:00:00+00:00", partitioner=partitioner)
    assert found == ["year=2020/month=02/day=06/hour=09", "year=2020/month=02/day=06/hour=10"]


@pytest.mark.parametrize(
    ("zone", "time", "hour"),
    [
        ("EST", "2020-07-06T09:30:00+00:00", "dt=2020-07-06/hr=04"),
        ("PST", "2020-07-06T09:30:00+00:00", "dt=2020-07-06/hr=02"),
        ("WET", "2020-07-06T09:30:00+00:00", "dt=2020-07-06/hr=10"),
        ("Europe/Paris", "2019-03-31T01:00:00+00:00", "dt=2019-03-31/hr=03"),
        ("Europe/Paris", "2019-10-27T00:30:00+00:00", "dt=2019-10-27/hr=02"),
        ("Europe/Paris", "2019-10-27T01:30:00+00:00", "dt=2019-10-27/hr=02"),
        ("America/Sao_Paulo", "2018-11-04T02:59:59+00:00", "dt=2018-11-03/hr=23"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00+00:00", "dt=2018-11-04/hr=01"),
        ("Australia/Lord_Howe", "2019-04-06T14:30:00+00:00", "dt=2019-04-07/hr=01"),
        ("Australia/Lord_Howe", "2019-04-06T15:00:00+00:00", "dt=2019-04-07/hr=01"),
        ("Australia/Lord_Howe", "2019-04-06T15:30:00+00:00", "dt=2019-04-07/hr=02"),
    ],
)
def test_folders_follow_the_clock_of_the_timezone(zone: str, time: str, hour: str) -> None:
    layout = {"timezone": values.parse_timezone(zone), "path_format": "'dt'=YYYY-MM-dd/'hr'=HH"}
    assert encode(batch_of([1]), time, **layout) == [hour]


def test_the_week_year_is_never_what_yyyy_means() -> None:
    assert encode(batch_of([1]), "2018-12-31T12:00:00+00:00", path_format="YYYY/MM/dd") == ["2018/12/31"]


def test_the_locale_names_months_and_days() -> None:
    layout = {"path_format": "YYYY/MMMM/EEE", "locale": "fr-FR"}
    assert encode(batch_of([1]), "2019-03-12T12:00:00+00:00", **layout) == ["2019/mars/mar."]


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("Paris", "f=Paris"),
        ("", "f="),
        ("..", "f=.."),
        ("50% off", "f=50% off"),
        ("é=ü", "f=é=ü"),
        (7, "f=7"),
        (-(2**63), "f=-9223372036854775808"),
        (True, "f=true"),
        (False, "f=false"),
        (None, "f=null"),
        ("null", "f=%6Eull"),
        ("a/../b", "f=a%2F..%2Fb"),
        ("\\..\\", "f=%5C..%5C"),
        ("a\uffffb\ufffe", "f=a%EF%BF%BFb%EF%BF%BE"),
        ("a\nb\x7f", "f=a%0Ab%7F"),
        ("%2F", "f=%252F"),
        ("\ud800", "f=%ED%A0%80"),
    ],
)
def test_a_field_is_written_as_connect_writes_it_unless_a_folder_cannot_hold_it(value: Any, folder: str) -> None:
    assert by_fields(batch_of([{"f": value}]), "f") == [folder]


def test_fields_may_be_several_and_nested() -> None:
    batch = batch_of([{"country": "FR", "user": {"vip": True}}, {"country": "DE", "user": {"vip": False}}])
    assert by_fields(batch, "country", "user.vip") == ["country=FR/user.vip=true", "country=DE/user.vip=false"]


def test_the_directory_delimiter_joins_fields_and_is_escaped_in_their_values() -> None:
    batch = batch_of([{"a": "x|b=y", "b": "z"}, {"a": "x", "b": "y|b=z"}])
    assert by_fields(batch, "a", "b", directory_delim="|") == ["a=x%7Cb=y|b=z", "a=x|b=y%7Cb=z"]


def test_a_date_is_its_day_and_other_logical_types_name_no_folder() -> None:
    schemas = [schema_of(f=["null", DATE]), schema_of(f={"type": "long", "logicalType": "timestamp-millis"})]
    batch = batch_of([{"f": 17967}, {"f": None}, {"f": 17967}, {"f": 2**40}], schemas, [0, 0, 1, 0])
    assert by_fields(batch, "f") == [
        "f=2019-03-12",
        "f=null",
        "the field f is of a type without folders: timestamp-millis",
        "the field f is a date outside of the years 1 to 9999",
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "the field f of partition.field.name is missing"),
        ("text", "the field f of partition.field.name is missing"),
        ({"f": 1.5}, "the field f is of a type without folders: float"),
        ({"f": b"1"}, "the field f is of a type without folders: bytes"),
        ({"f": [1]}, "the field f is of a type without folders: list"),
        ({"f": {}}, "the field f is of a type without folders: dict"),
    ],
)
def test_a_field_that_is_missing_or_of_another_type_is_the_failure_of_its_record_only(value: Any, reason: str) -> None:
    assert by_fields(batch_of([{"f": 1}, value, {"f": 1}]), "f") == ["f=1", reason, "f=1"]


def test_where_every_record_fails_nothing_else_does() -> None:
    assert by_fields(batch_of([{}, {}]), "f", "g") == ["the field f of partition.field.name is missing"] * 2


def test_tombstones_have_a_folder_of_their_own() -> None:
    batch = batch_of([None, {"f": 1}, None])
    assert by_fields(batch, "f", tombstone_partition="gone") == ["gone", "f=1", "gone"]


def test_a_value_that_no_key_has_room_for_is_refused_and_the_longest_one_fits() -> None:
    layout = LayoutSettings(partitioner="Field", partition_fields=("f",), topics_dir="topics")
    room = int(re.findall(r"the (\d+) bytes", by_fields(batch_of([{"f": "x" * 999}]), "f")[0])[0])
    longest = "x" * (room - len("f="))
    assert by_fields(batch_of([{"f": longest}, {"f": longest + "x"}]), "f")[0] == f"f={longest}"
    name = f"{'t' * 249}+{2**31 - 1}+{2**63 - 1}@{2**31 - 1}+{2**63 - 1}.headers.snappy.parquet"
    key = f"{layout.topics_dir}/{'t' * 249}/f={longest}/{name}"
    assert len(key) <= MAX_KEY_BYTES


FIELD_VALUES = st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=6) | st.sampled_from(
    ["%", "%2", "%2F", "/", "null", "NULL", "a/b=c", "|", "a|b=c", "..", "%25", "%6Eull", "\\", "%5C"]
)  # fmt: skip


@given(st.lists(st.tuples(FIELD_VALUES, FIELD_VALUES), max_size=6), st.sampled_from(["/", "|"]))
def test_different_values_never_share_a_folder_and_none_leaves_the_topic_s(
    pairs: list[tuple[Any, Any]], delim: str
) -> None:
    found = by_fields(batch_of([{"a": a, "b": b} for a, b in pairs]), "a", "b", directory_delim=delim)
    spelled = [tuple(_spelled(value) for value in pair) for pair in pairs]
    assert len(set(found)) == len(set(spelled))
    for folder in found:
        assert folder.count(delim) == 1
        assert not re.search(r"[\x00-\x1f\x7f]", folder)
        assert not set(re.split(r"[/\\]", folder)) & {"", ".", ".."}


def _spelled(value: Any) -> str | None:
    """Values are told apart by their text: 1 and "1" are one folder, null is no text."""
    return value if isinstance(value, str | None) else str(value).lower()


@given(st.lists(st.dictionaries(st.just("f"), FIELD_VALUES) | st.none(), max_size=8))
def test_a_record_s_folder_does_not_depend_on_its_batch(records: list[Any]) -> None:
    assert by_fields(batch_of(records), "f") == [by_fields(batch_of([record]), "f")[0] for record in records]


def test_the_field_partitioner_needs_a_field() -> None:
    with pytest.raises(ConfigError, match=r"partition\.field\.name"):
        new_partitioner(LayoutSettings(partitioner="Field"))


def test_a_partitioner_of_one_s_own_may_extend_ours() -> None:
    layout = {"partitioner": EXAMPLES + "FieldAndTimePartitioner", "partition_fields": ("country",)}
    batch = batch_of([{"country": "FR"}, {}, {"country": "FR"}])
    times = ["2019-03-12T12:00:00+00:00"] * 2 + ["2019-03-12T13:00:00+00:00"]
    assert encode(batch, *times, path_format="YYYY/HH", **layout) == [
        "country=FR/2019/12",
        "the field country of partition.field.name is missing",
        "country=FR/2019/13",
    ]


@pytest.mark.parametrize(
    ("folder", "refused"),
    [
        ("a", None),
        ("", "a folder that is empty"),
        ("a//b", "a folder that is empty"),
        ("/a", "a folder that is empty"),
        ("..", "a folder that is '.' or '..'"),
        ("a/../../b", "a folder that is '.' or '..'"),
        ("a/.", "a folder that is '.' or '..'"),
        ("a\\..\\..\\b", "a folder that is '.' or '..'"),
        ("a\\b", None),
        ("a\nb", "a control character"),
        ("\ud800", "a control character"),
        ("x" * 1024, "of room in an object key"),
    ],
)
def test_a_partitioner_of_one_s_own_cannot_leave_the_topic_s_folder(folder: str, refused: str | None) -> None:
    one, same, other = encode(batch_of([folder, folder, "b"]), partitioner=EXAMPLES + "FolderOfText")
    assert (one, other) == (same, "b")
    assert one == folder if refused is None else refused in one


def test_a_partitioner_of_one_s_own_has_to_place_every_record() -> None:
    with pytest.raises(ConfigError, match=r"TooFewCodes\.encode has to return"):
        encode(batch_of([1, 2]), partitioner=EXAMPLES + "TooFewCodes")


def test_an_empty_batch_has_no_failures() -> None:
    for partitioner in ("Default", "Field", "Hourly"):
        assert encode(batch_of([]), partitioner=partitioner, partition_fields=("f",)) == []


def test_a_time_of_no_calendar_year_is_out_of_range() -> None:
    found = new_partitioner(LayoutSettings()).encode(
        batch_of([1, 2]), np.array([2**62, ms("2020-01-01T00:00:00+00:00")])
    )
    assert [found.names[c] for c in found.codes] == ["__out_of_range__", "year=2020/month=01/day=01/hour=00"]
