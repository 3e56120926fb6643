"""Avro data as plain objects and back. Bytes and branches are those of fastavro, which is told the branch."""

import io
import json
from typing import Any

import fastavro
import pytest

from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.converters.encoding import new_encoder
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.connect import ConnectBatch, get_field
from kafka_s3_platform_tests.converters.values import archived, convert_rows, framed, of_archive
from kafka_s3_platform_tests.formats.connect import came, written

ACCOUNT = {"type": "record", "name": "bank.Opened", "fields": [{"name": "id", "type": "string"}]}
CARD = {"type": "record", "name": "card.Opened", "fields": [{"name": "id", "type": "string"}]}
STATES = {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}
HASH = {"type": "fixed", "name": "Hash", "size": 2}
ANYTHING: list[Any] = [
    *("int", "null", "long", "float", "double", "string", "bytes", "boolean"),
    *(ACCOUNT, CARD, STATES, HASH),
    {"type": "array", "items": ["int", "card.Opened"]},
    {"type": "map", "values": ["null", "State", "string"]},
]
VALUES: list[Any] = [
    None,
    *(("int", 1), ("long", 1), ("float", 0.5), ("double", 0.5), ("boolean", True)),
    *(("string", "ON"), ("State", "ON"), ("bytes", b"ab"), ("Hash", b"ab")),
    *(("bank.Opened", {"id": "7"}), ("card.Opened", {"id": "7"})),
    ("array", [("int", 1), ("card.Opened", {"id": "7"})]),
    ("map", {"id": ("string", "ON"), "state": ("State", "ON"), "none": None}),
]


def encode(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    AvroObjects(schema).write(body, value)
    return body.getvalue()


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_a_union_has_the_branch_that_its_bytes_name(value: Any) -> None:
    data = encode(ANYTHING, value)
    names = ["int", "null", "long", "float", "double", "string", "bytes", "boolean"]
    names += ["bank.Opened", "card.Opened", "State", "Hash", "array", "map"]
    assert data[0] == 2 * names.index("null" if value is None else value[0])
    assert AvroObjects(ANYTHING).read(b"frame" + data, 5) == value


def test_fastavro_reads_the_same_values() -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "v", "type": {"type": "array", "items": ANYTHING}}]}
    data = encode(record, {"v": VALUES[:12]})
    read: Any = fastavro.schemaless_reader(io.BytesIO(data), record, None)
    assert read["v"] == [value and value[1] for value in VALUES[:12]]


def test_a_type_that_holds_itself_in_a_union_is_followed() -> None:
    node = {"type": "record", "name": "n.Node", "fields": [{"name": "next", "type": ["null", "Node", "int", "long"]}]}
    value = {"next": ("n.Node", {"next": ("n.Node", {"next": ("long", 3)})})}
    assert AvroObjects(node).read(encode(node, value)) == value


def test_a_union_of_one_type_and_null_has_bare_values() -> None:
    assert AvroObjects(["null", ACCOUNT]).read(encode(["null", ACCOUNT], {"id": "7"})) == {"id": "7"}


@pytest.mark.parametrize("value", [1, "ON", {"id": "7"}, {}, [], b"ab", 0.5])
def test_a_value_that_names_no_branch_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="names none of its branches"):
        encode(ANYTHING, value)


@pytest.mark.parametrize("value", [("Opened", {"id": "7"}), ("int", "x"), ("int", 2**31)])
def test_a_value_that_is_not_of_its_branch_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)):
        encode(ANYTHING, value)


@pytest.mark.parametrize("field", [{"other": 1}, {}])
def test_a_record_with_other_fields_is_refused(field: Any) -> None:
    with pytest.raises(ValueError, match=r"id|other"):
        encode(ACCOUNT, field)


def test_a_union_that_lists_a_type_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="lists one type twice, of long, long"):
        AvroObjects(["long", {"type": "long", "logicalType": "timestamp-millis"}])


# From the bytes of a topic to objects, and back

EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "at", "type": "long"}, {"name": "what", "type": ANYTHING}],
}
AVRO = of_archive("AVRO", archived("AVRO", json.dumps(EVENT), 9))
ROWS = [b"\0\0\0\0\x09" + encode(EVENT, {"at": at, "what": value}) for at, value in enumerate(VALUES)]


def batch() -> ConnectBatch:
    records = came(ROWS)
    done = new_converter(AVRO, "t", is_key=False).convert(records.records.column("value"), records.offsets)
    return ConnectBatch(records.records, records.key, done.payload)


def test_json_names_the_branch_by_its_member() -> None:
    lines = written(LayoutSettings(format="json", codec="none"), batch(), schema=batch().value.schemas[0]).splitlines()
    for line, value in zip(lines, VALUES, strict=True):
        members = json.loads(line)["what"]
        named = None if members is None else [name for name, each in members.items() if each is not None]
        assert named == (value and [value[0]])


def test_decoded_values_are_encoded_to_the_bytes_that_they_came_from() -> None:
    value = batch().value
    copy = type(value)(value.raw, value.codes, value.schemas, list(value.objects))
    copy.raw = None
    encoder = new_encoder(AVRO, "t", is_key=False, registers=False)
    assert [row[5:] for row in encoder.encode(copy).column.to_pylist()] == [row[5:] for row in ROWS]


def test_a_field_is_found_in_whichever_type_the_union_has() -> None:
    found = batch().value.field(["what", "id"])
    assert [each for each in found if isinstance(each, str)] == ["7", "7", "ON"]
    assert get_field({"what": ("long", 5)}, ["what"]) == 5
    assert batch().value.field(["what"])[1:3] == [1, 1]


def test_a_field_alone_is_decoded_with_its_branch() -> None:
    inner = {
        "type": "record",
        "name": "In",
        "fields": [{"name": "a", "type": ["int", "long"]}, {"name": "b", "type": "int"}],
    }
    outer = {"type": "record", "name": "Out", "fields": [{"name": "in", "type": inner}, {"name": "c", "type": "int"}]}
    narrow = {**outer, "fields": [{"name": "in", "type": {**inner, "fields": inner["fields"][:1]}}]}
    data = encode(outer, {"in": {"a": ("long", 3), "b": 4}, "c": 5})
    assert AvroObjects(outer, narrow).read(data) == {"in": {"a": ("long", 3)}}


def test_a_null_that_is_avro_data_is_told_of_since_decoded_it_is_a_tombstone() -> None:
    rows = [framed(1, encode(["string", "null"], value)) for value in ("x", None)]
    done = convert_rows(of_archive("AVRO", archived("AVRO", '["string","null"]')), [*rows, None])
    assert [*done.losses] == [1]
    [said] = done.notes.sentences
    assert said.startswith("1 records hold a null that is Avro data")
