"""Values that are written anew and lack something of what was archived: counted, for the verdict."""

import json
from typing import Any

from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConverterSettings, RecordSettings, TransformSettings
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.outgoing.values import ValueSettings, new_values
from kafka_s3_platform.restore.request import Outgoing
from kafka_s3_platform_tests.converters.protobuf.archived import archived, framed, settings
from kafka_s3_platform_tests.restore.outgoing.test_values import records

SEAL = archived('syntax = "proto3"; message Seal { string name = 1; int32 age = 2; }')
PROTOBUF = settings(SEAL)
JSON = ConverterSettings(format="JSON")
KNOWN, MORE, LESS = (framed(b"\0" + body) for body in (b"\x0a\x01a\x10\x04", b"\x10\x05\x18\x01", b"\x20\x07"))
SAID = "lack in their value what schema 1 does not list (the first one: field 3 of Seal)"


def step(kind: str, **options: str) -> TransformSettings:
    given = {name.replace("_", "."): SecretStr(value) for name, value in options.items()}
    return TransformSettings(alias=kind, type=kind, options=given)


def sent(values: list[bytes], *, source: ConverterSettings = PROTOBUF, **outgoing: Any) -> OutgoingStream:
    how = Outgoing(**outgoing)
    made = new_values(ValueSettings(how, RecordSettings(value=source), "t", "copy", schemas=(SEAL,), registers=False))
    stream = OutgoingStream(how, "t", 3, 4, "copy", values=made)
    stream.apply(records(values))
    return stream


def test_values_that_lose_what_their_schema_does_not_list_are_counted() -> None:
    stream = sent([KNOWN, MORE, LESS], transforms=(step("MaskField$Value", fields="name"),))
    assert (stream.incomplete_count, stream.notes) == (2, (f"2 records {SAID}",))


def test_values_whose_bytes_are_sent_as_they_are_lose_nothing() -> None:
    header = step("InsertHeader", header="a", value_literal="b")
    assert sent([MORE], transforms=(header,)).notes == ()
    named = framed(b"\0\x0a\x04copy\x18\x01")
    assert sent([named], transforms=(step("ExtractTopic$Value", field="name"),)).incomplete_count == 0


def test_another_converter_loses_them_too_but_not_that_of_bytes() -> None:
    assert sent([MORE, KNOWN], value=JSON).incomplete_count == 1
    assert sent([MORE, KNOWN], value=ConverterSettings(format="BYTES")).incomplete_count == 0


def test_records_that_a_transform_drops_are_not_counted() -> None:
    drops = TransformSettings(alias="f", type="Filter")
    assert sent([MORE, LESS], transforms=(drops,), value=JSON).incomplete_count == 0


def test_json_that_carries_its_schema_is_counted_as_well() -> None:
    fields = '[{"type":"int32","field":"age"},{"type":"string","field":"name"}]'
    row = f'{{"schema":{{"type":"struct","fields":{fields}}},"payload":{{"age":3,"name":"x","fur":"grey"}}}}'
    source = ConverterSettings(format="JSON", schemas_enable=True)
    stream = sent([row.encode()], source=source, transforms=(step("MaskField$Value", fields="age"),))
    assert stream.incomplete_count == 1
    assert "'fur'" in stream.notes[0]


def test_keys_are_told_of_as_well_as_values() -> None:
    how = Outgoing(key=JSON, value=JSON)
    source = RecordSettings(key=PROTOBUF, value=PROTOBUF)
    made = new_values(ValueSettings(how, source, "t", "copy", schemas=(SEAL,)))
    batch = records([MORE, KNOWN, KNOWN], [MORE, LESS, KNOWN])
    done = made.encode(made.decode(batch).batch)
    assert [(offset, *notes.kinds) for offset, notes in done.losses] == [
        (10, "lack in their key what schema 1 does not list"),
        (11, "lack in their key what schema 1 does not list"),
        (10, "lack in their value what schema 1 does not list"),
    ]


def test_null_lists_that_protobuf_makes_empty_are_counted() -> None:
    lists = {"type": "array", "optional": True, "field": "a", "items": {"type": "string"}}
    maps = lists | {"type": "map", "field": "m", "keys": {"type": "string"}, "values": {"type": "int32"}}
    schema = {"type": "struct", "name": "Bag", "fields": [lists, maps]}
    rows = [{"a": ["x"], "m": {}}, {"a": None, "m": {}}, {"a": [], "m": None}, {"a": None, "m": None}]
    values = [json.dumps({"schema": schema, "payload": row}).encode() for row in rows]
    stream = sent(values, source=ConverterSettings(format="JSON", schemas_enable=True), value=PROTOBUF)
    assert (stream.incomplete_count, stream.notes) == (
        3,
        ("3 records have empty lists or maps where they had a null, which Protobuf has not (the first one: a)",),
    )
