"""Topics as Debezium and event buses write them come to objects, and back, with every value as it was."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest

from kafka_s3_platform.connect.converters.encoding import new_encoder
from kafka_s3_platform.connect.segments.schema_targets import SchemaTargets
from kafka_s3_platform.core.config.settings import Compatibility, ConverterSettings, LayoutSettings, RegistrySettings
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform_tests.archive.event_types import (
    BY_ID,
    CUSTOMERS,
    FEED,
    GOLDEN,
    SCHEMAS,
    UNION,
    URL,
    Event,
    events,
)
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.formats.connect import came, written
from kafka_s3_platform_tests.sources import memory as reading
from kafka_s3_platform_tests.sources.memory import MemoryStore, source

MODES: tuple[Compatibility, ...] = get_args(Compatibility)
FORMATS = ("avro", "parquet", "json")


def registry() -> RegistrySettings:
    return RegistrySettings(url=URL, archived=tuple(schema.archived for schema in BY_ID.values()))


def avro() -> ConverterSettings:
    return ConverterSettings(format="AVRO", registry=registry())


def decoded(topic: Sequence[Event], settings: ConverterSettings) -> Payload:
    """What the converter makes of the values of a topic. Each is taken."""
    done = convert_rows(settings, [event.raw for event in topic], "dbserver1.all")
    assert done.failures == ()
    return done.payload


@dataclass(frozen=True)
class Object:
    """The rows of a topic that one object holds, with its schema and its bytes."""

    rows: list[int]
    schema: Schema
    key: str
    body: bytes
    layout: dict[str, Any]

    def read(self) -> Iterator[Payload]:
        """What a source connector reads of it."""
        records = {"value": {"format": "JSON" if self.layout["format"] == "json" else "AVRO"}}
        for batch in reading.stream(source(self.layout, records=records), MemoryStore({self.key: self.body})).batches():
            yield batch.value


def objects(values: Payload, format_name: str) -> list[Object]:
    """The objects of a topic: one for each schema that values are written with."""
    layout = {"format": format_name, "codec": "null" if format_name == "avro" else "none"}
    raw = came([b""] * len(values))
    whole = ConnectBatch(raw.records, raw.key, values)
    found = []
    for code, schema in enumerate(values.schemas):
        rows = np.flatnonzero(values.codes == code)
        if len(rows):
            body = written(LayoutSettings.model_validate(layout), whole.take(rows), schema=schema)
            key = f"{reading.FOLDER}{rows[0]:010d}.{format_name}"
            found.append(Object(rows.tolist(), schema, key, body, layout))
    return found


def held(found: Object) -> list[Any]:
    """The values of an object in plain JSON, however it is written."""
    if found.layout["format"] == "json":
        return [json.loads(line) for line in found.body.splitlines()]
    return [as_plain(value) for payload in found.read() for value in payload.objects]


def as_plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: as_plain(item) for name, item in value.items()}
    return value


def with_phone(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event as version 2 has it: with a phone, which is null where there was none."""
    sides = {side: event[side] and {"phone": None, **event[side]} for side in ("before", "after")}
    return {**event, **sides}


def without_phone(event: Mapping[str, Any]) -> dict[str, Any]:
    sides = {
        side: event[side] and {n: v for n, v in event[side].items() if n != "phone"} for side in ("before", "after")
    }
    return {**event, **sides}


@pytest.mark.parametrize("format_name", FORMATS)
def test_change_events_of_two_tables_are_held_as_they_were_each_with_its_own_schema(format_name: str) -> None:
    topic = events("customers", "orders")
    found = objects(decoded(topic, avro()), format_name)
    assert {one.schema.text for one in found} == {schema.text for schema in SCHEMAS.values()}
    for one in found:
        assert held(one) == [topic[row].plain for row in one.rows]
    assert sorted(row for one in found for row in one.rows) == [at for at, e in enumerate(topic) if e.schema]


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_a_table_with_a_new_column_is_projected_by_its_own_versions_alone(
    mode: Compatibility, format_name: str
) -> None:
    topic = events("customers", "orders")
    notes = Notes()
    values = SchemaTargets(mode, notes).project(decoded(topic, avro()))
    reached = False
    for row, event in enumerate(topic):
        if event.schema is None:
            continue
        reached |= event.schema.version == 2
        expected = event.plain
        if event.schema.subject == CUSTOMERS and mode != "NONE":
            expected = without_phone(expected) if mode == "FORWARD" else with_phone(expected) if reached else expected
        (one,) = [one for one in objects(values, format_name) if row in one.rows]
        assert held(one)[one.rows.index(row)] == expected


@pytest.mark.parametrize("format_name", ["avro", "parquet"])
def test_change_events_come_back_from_objects_byte_for_byte(format_name: str) -> None:
    topic = events("customers", "orders")
    encoder = new_encoder(avro(), "copy", is_key=False, registers=False)
    for one in objects(decoded(topic, avro()), format_name):
        back = [row for payload in one.read() for row in encoder.encode(payload).column.to_pylist()]
        raw = [topic[row].raw or b"" for row in one.rows]
        assert [value[5:] for value in back] == [value[5:] for value in raw]


def test_a_tombstone_stays_a_record_without_a_value() -> None:
    values = decoded(events("customers"), avro())
    assert values.codes.tolist()[-1] == NO_SCHEMA
    assert values.is_null.tolist() == [False] * 5 + [True]


def enveloped(event: Event) -> bytes:
    schema = json.loads((GOLDEN / "customers-envelope.json").read_text())
    return json.dumps({"schema": schema, "payload": event.plain}).encode()


OF_ONE_VERSION = [event for event in events("customers") if event.schema is SCHEMAS["customers-1"]]
JSON_EVENTS = [Event(event.schema, event.plain, enveloped(event)) for event in OF_ONE_VERSION]


@pytest.mark.parametrize("format_name", FORMATS)
def test_change_events_of_json_with_schemas_are_held_as_they_were(format_name: str) -> None:
    (one,) = objects(decoded(JSON_EVENTS, ConverterSettings(format="JSON", schemas_enable=True)), format_name)
    assert held(one) == [event.plain for event in JSON_EVENTS]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "NONE"])
def test_change_events_of_json_tell_no_version_by_which_a_mode_could_order_them(mode: Compatibility) -> None:
    values = decoded(JSON_EVENTS, ConverterSettings(format="JSON", schemas_enable=True))
    assert SchemaTargets(mode).find_versionless(values).all()


def test_change_events_of_json_with_schemas_come_back_with_schema_and_payload() -> None:
    settings = ConverterSettings(format="JSON", schemas_enable=True)
    back = new_encoder(settings, "copy", is_key=False).encode(decoded(JSON_EVENTS, settings)).column.to_pylist()
    for event, value in zip(JSON_EVENTS, back, strict=True):
        assert json.loads(value)["payload"] == event.plain
        assert shape(json.loads(value)["schema"]) == shape(json.loads(event.raw or b"")["schema"])


def shape(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Names, types and what is optional, of a Connect schema."""
    known = {name: schema.get(name) for name in ("type", "optional", "name", "field")}
    return {**known, "fields": [shape(field) for field in schema.get("fields", ())]}


BACKWARD = [{"id": "o1"}, {"id": "p1", "card": "c", "iban": "i"}, {"id": "o2", "customer": "ann"}]
PROJECTED: dict[Compatibility, list[dict[str, str]]] = {
    "NONE": [event.plain for event in FEED],
    "BACKWARD": [*BACKWARD, {"id": "p2", "card": "d", "iban": ""}, {"id": "o3", "customer": ""}],
    "FULL": [*BACKWARD, {"id": "p2", "card": "d", "iban": ""}, {"id": "o3", "customer": ""}],
    "FORWARD": [{"id": "o1"}, FEED[1].plain, {"id": "o2"}, {"id": "p2", "card": "d"}, {"id": "o3"}],
}


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_an_event_type_is_projected_by_its_own_versions_alone(mode: Compatibility, format_name: str) -> None:
    values = SchemaTargets(mode, Notes()).project(decoded(FEED, avro()))
    assert not values.is_null.any()
    for one in objects(values, format_name):
        assert {one.schema.subject} == {
            event.schema and event.schema.subject for event in map(FEED.__getitem__, one.rows)
        }
        assert held(one) == [PROJECTED[mode][row] for row in one.rows]


def test_a_union_of_event_types_has_a_member_in_json_for_each() -> None:
    (one,) = objects(decoded(UNION, avro()), "json")
    assert held(one) == [event.plain for event in UNION]


@pytest.mark.parametrize("format_name", ["avro", "parquet"])
@pytest.mark.parametrize("mode", MODES)
def test_a_union_of_event_types_comes_back_byte_for_byte(mode: Compatibility, format_name: str) -> None:
    encoder = new_encoder(avro(), "copy", is_key=False, registers=False)
    (one,) = objects(SchemaTargets(mode, Notes()).project(decoded(UNION, avro())), format_name)
    back = [row for payload in one.read() for row in encoder.encode(payload).column.to_pylist()]
    assert [value[5:] for value in back] == [(event.raw or b"")[5:] for event in UNION]
