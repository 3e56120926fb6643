"""A topic that moved its schema ids from prefixes to headers, from Kafka to objects, to readers and back to Kafka."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.config.formats import NATIVE_FORMAT
from kafka_s3_platform.config.settings import ConnectorConfig, ConverterSettings, RegistrySettings, TransformSettings
from kafka_s3_platform.reading.dataset import ArchivedObjects
from kafka_s3_platform.reading.parts import EnvelopePart
from kafka_s3_platform.restore.request import Outgoing
from kafka_s3_platform.store.row_filter import SegmentFilter
from kafka_s3_platform_tests.archive.test_sink import lines
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.converters.header_records import Confluent, Record
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.restore.outgoing.test_outgoing_restore import consumed, restored
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.support import NOON, Sent, snapshot

pytestmark = pytest.mark.integration

KINDS = ("AVRO", "JSON_SR", "PROTOBUF")
TRIPS = [{"from": f"stop {at}", "metres": 40 + at} for at in range(4)]
MASKED = TransformSettings.model_validate({"alias": "m", "type": "MaskField$Value", "options": {"fields": "from"}})


@pytest.fixture
def target() -> Iterator[SmallRegistry]:
    with running(SmallRegistry(last_id=80, salt="another digest")) as server:
        yield server


def archived_topic(lab: Lab, kind: str, **settings: Any) -> ConnectorConfig:
    """Two records with the id before the bytes, two with the GUID in a header, a tombstone. Then the registry ends."""
    with running(SmallRegistry(last_id=4)) as source:
        confluent = Confluent(source.url, lab.topic, kind)
        rows = [confluent.written(trip, in_header=at > 1) for at, trip in enumerate(TRIPS)]
        side = ConverterSettings.model_validate({"format": kind, "registry": RegistrySettings(url=source.url)})
        sent = [Sent(row.value, b"k", NOON, row.headers) for row in (*rows, Record(None))]
        return lab.archive(sent, records={"value": side}, **settings)


def records_in(lab: Lab) -> list[Record]:
    rows = consumed(lab.kafka, f"{lab.topic}-copy")
    return [Record(row["value"], tuple((h["key"], h["value"]) for h in row["headers"] or ())) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_a_restored_topic_see_the_values_of_the_first(lab: Lab, target: SmallRegistry, kind: str) -> None:
    config = archived_topic(lab, kind)
    [schema] = snapshot(config).state.schemas
    [segment] = snapshot(config).segments
    assert set(segment.schema_ids) == {schema.schema_id, schema.schema_guid}
    mapped = Outgoing(map_schema_ids=True, target_registry=RegistrySettings(url=target.url))
    report = restored(config, f"{lab.topic}-copy", outgoing=mapped)
    *rows, tombstone = records_in(lab)
    reader = Confluent(target.url, f"{lab.topic}-copy", kind)
    assert [reader.read(row) for row in rows] == TRIPS
    assert (tombstone, report.verified) == (Record(None), True)
    assert any("2 records named their schema in the header __value_schema_id, which" in note for note in report.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_a_restore_makes_anew_are_read_without_the_header(
    lab: Lab, target: SmallRegistry, kind: str
) -> None:
    config = archived_topic(lab, kind)
    anew = Outgoing(transforms=(MASKED,), target_registry=RegistrySettings(url=target.url))
    report = restored(config, f"{lab.topic}-copy", outgoing=anew, behavior_on_error="ignore")
    rows = records_in(lab)
    assert report.verified
    assert [row.headers for row in rows] == [()] * 4
    assert {(row.value or b"")[:5] for row in rows} == {b"\0\0\0\0\x51"}
    assert any("and come without it: the value was written anew" in note for note in report.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_values_hold_all_of_them(lab: Lab, kind: str) -> None:
    config = archived_topic(lab, kind, layout={"format": "json", "codec": "none", "null_values": "ignore"})
    [body] = lines(config).values()
    assert [json.loads(line) for line in body] == TRIPS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_name", ["envelope.parquet", "envelope.avro"])
def test_a_reader_of_the_archive_decodes_by_the_archived_schemas(lab: Lab, kind: str, format_name: str) -> None:
    config = archived_topic(lab, kind, layout={"format": format_name})
    snap = snapshot(config)
    found = ArchivedObjects(config, lab.topic, SegmentFilter(), archived=snap.state.schemas)
    if format_name == NATIVE_FORMAT:
        found = replace(found, segments=tuple(snap.segments))
    else:
        found = replace(found, parts=tuple(EnvelopePart(config.store, segment) for segment in snap.segments))
    table = found.decoded(None).open().to_table(columns=["value"])
    assert table.column("value").to_pylist() == [*TRIPS, None]
