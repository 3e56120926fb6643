"""Restores that choose, rewrite and deal out records, from the archive to what a consumer reads.

A topic that moved its schema ids from prefixes to headers, from Kafka to objects, to readers and back to Kafka.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pydantic import SecretStr

from kafka_s3_platform.core.config.formats import NATIVE_FORMAT
from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    KafkaSettings,
    RegistrySettings,
    TransformSettings,
)
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, judge_report
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.operate.reading.dataset import ArchivedObjects
from kafka_s3_platform.operate.reading.parts import EnvelopePart
from kafka_s3_platform_tests.archive.values import avro, framed, lines
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.converters.header_records import Confluent, Record
from kafka_s3_platform_tests.converters.small_registry import SmallRegistry
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.own import Archive, restored
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, snapshot

KINDS = ("AVRO", "JSON_SR", "PROTOBUF")
TRIPS = [{"from": f"stop {at}", "metres": 40 + at} for at in range(4)]
MASKED = TransformSettings.model_validate({"alias": "m", "type": "MaskField$Value", "options": {"fields": "from"}})


def rows_in(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = records_of(kafka, topic, kafka_partition).to_pylist()
    return found


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """An archive of 40 records with 8 keys in 2 kafka partitions."""
    records = [
        Sent(b"v%d" % n, b"k%d" % (n % 8), NOON + timedelta(seconds=n), (("h", b"x"),), n % 2) for n in range(40)
    ]
    return shared_archive(records, 2)


def test_records_are_chosen_by_key_and_by_a_condition(config: ConnectorConfig, topic_name: str) -> None:
    chosen = RecordFilter(keys=(b"k0", b"k2"), sql='"offset" >= 4')
    report = restored(config, to_topic=f"{topic_name}-copy", records=chosen)
    rows = rows_in(config.kafka, f"{topic_name}-copy")
    assert [r["value"] for r in rows] == [b"v%d" % n for n in range(8, 40, 2) if n % 8 in {0, 2}]
    assert (report.record_count, report.verified) == (len(rows), True)


def test_the_latest_record_of_each_key_is_a_compacted_snapshot(config: ConnectorConfig, topic_name: str) -> None:
    report = restored(config, to_topic=f"{topic_name}-copy", records=RecordFilter(latest_per_key=True))
    rows = [r for p in range(2) for r in rows_in(config.kafka, f"{topic_name}-copy", p)]
    assert sorted(r["value"] for r in rows) == [b"v%d" % n for n in range(32, 40)]
    assert report.verified


def test_keys_decide_where_the_target_has_other_kafka_partitions(config: ConnectorConfig, topic_name: str) -> None:
    to_topic = f"{topic_name}-copy"
    report = restored(config, to_topic=to_topic, outgoing=Outgoing(partitioning="murmur2"), target_kafka_partitions=5)
    places: dict[bytes, set[int]] = defaultdict(set)
    values: list[bytes] = []
    for p in range(5):
        for row in rows_in(config.kafka, to_topic, p):
            places[row["key"]].add(p)
            values.append(row["value"])
    assert sorted(values) == sorted(b"v%d" % n for n in range(40))
    assert all(len(found) == 1 for found in places.values())
    assert (report.record_count, report.verified) == (40, True)


class SkippingRunner(InProcessRunner):
    """Sends only the first stream."""

    def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
        return super().run(function, tasks[:1] if function is replay_streams else tasks, max_concurrent)


def test_equal_records_of_two_kafka_partitions_do_not_stand_for_each_other(lab: Lab) -> None:
    config = lab.archive([Sent(b"v", b"k", kafka_partition=p) for p in (0, 1)], 2)
    by_key: dict[str, Any] = {"outgoing": Outgoing(partitioning="murmur2"), "restore_id": "one"}
    with pytest.raises(IntegrityError, match=rf"source offset 0 of {lab.topic}-. 1 times less often"):
        restored(config, SkippingRunner(), to_topic=f"{lab.topic}-copy", **by_key)
    report = restored(config, to_topic=f"{lab.topic}-copy", **by_key)
    assert (report.sent_count, report.record_count, report.verified) == (1, 2, True)


def test_first_and_last_offsets_are_of_the_source_wherever_its_records_went(
    config: ConnectorConfig, topic_name: str
) -> None:
    by_key = Outgoing(partitioning="murmur2")
    report = restored(config, to_topic=f"{topic_name}-copy", outgoing=by_key, target_kafka_partitions=5)
    assert [(p.first_source_offset, p.last_source_offset) for p in report.kafka_partitions] == [(0, 19), (0, 19)]


def test_transforms_and_provenance_headers_are_applied_and_verified(config: ConnectorConfig, topic_name: str) -> None:
    mask = TransformSettings(alias="d", type="DropHeaders", options={"headers": SecretStr("h")})
    outgoing = Outgoing(transforms=(mask,), provenance_headers=True)
    report = restored(config, to_topic=f"{topic_name}-copy", outgoing=outgoing)
    (first, *_) = rows_in(config.kafka, f"{topic_name}-copy", 1)
    assert [h["key"] for h in first["headers"]] == [
        f"kafka_s3.source.{n}" for n in ("offset", "partition", "timestamp")
    ]
    assert [h["value"] for h in first["headers"]][:2] == [b"0", b"1"]
    assert report.verified


def test_a_dry_run_that_counts_says_how_many_records_pass_the_filter(config: ConnectorConfig, topic_name: str) -> None:
    chosen = RecordFilter(key_prefixes=(b"k1",))
    report = restored(config, to_topic=f"{topic_name}-copy", records=chosen, dry_run=True, exact=True)
    assert (report.record_count, report.exact, report.sent_count) == (5, True, 0)


def test_schema_ids_are_those_of_the_targets_registry(lab: Lab, registry: RegistrySettings) -> None:
    """Source and target share a registry here, under other subjects: ids are mapped onto what is registered there."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": "string"}]}
    [value] = framed(registry, lab.topic, schema, [{"f": "x"}])
    schema_id = int.from_bytes(value[1:5], "big")
    config = lab.archive([Sent(value)], records=avro(registry))
    assert [s.schema_id for s in snapshot(config).state.schemas] == [schema_id]
    outgoing = Outgoing(map_schema_ids=True, target_registry=registry)
    report = restored(config, to_topic=f"{lab.topic}-copy", outgoing=outgoing)
    with SchemaRegistryClient({"url": registry.url}) as client:
        there = client.get_latest_version(f"{lab.topic}-copy-value")
    (row,) = rows_in(config.kafka, f"{lab.topic}-copy")
    assert report.gaps == ()
    assert int.from_bytes(row["value"][1:5], "big") == there.schema_id
    assert report.schema_ids == ((schema_id, there.schema_id),)


def test_schemas_that_were_not_archived_are_told_before_the_first_record(lab: Lab, registry: RegistrySettings) -> None:
    config = lab.archive([Sent(b"\0\x77\0\0\1x"), Sent(b"plain")], records=avro(registry))
    mapped: dict[str, Any] = {"outgoing": Outgoing(map_schema_ids=True, target_registry=registry), "dry_run": True}
    assert [
        f"schemas [{0x77000001}] were not archived" in gap.text for gap in restored(config, to_topic="x", **mapped).gaps
    ] == [True]


def test_fields_that_a_protobuf_schema_does_not_list_are_counted_as_doubts(
    lab: Lab, registry: RegistrySettings
) -> None:
    """They were lost, and the restore said "verified"."""
    text = 'syntax = "proto3"; message Parcel { string code = 1; int32 grams = 2; }'
    with SchemaRegistryClient({"url": registry.url}) as client:
        prefix = b"\0" + client.register_schema(f"{lab.topic}-value", Schema(text, "PROTOBUF")).to_bytes(4, "big")
    values = [prefix + b"\0" + body for body in (b"\x0a\x01p\x10\x09", b"\x10\x08\x1a\x04soft", b"\x28\x01")]
    config = lab.archive(map(Sent, values), records={"value": {"format": "PROTOBUF", "registry": registry}})
    mask = TransformSettings(alias="m", type="MaskField$Value", options={"fields": SecretStr("code")})
    report = restored(
        config, to_topic=f"{lab.topic}-copy", outgoing=Outgoing(transforms=(mask,), target_registry=registry)
    )
    assert judge_report(report).text == ("verified, but not everything could be restored: 2 records sent in part")
    assert "2 records lack in their value what schema" in report.notes[-1]
    again = restored(config, to_topic=f"{lab.topic}-same", restore_id="same")
    assert (judge_report(again).kind, [r["value"] for r in rows_in(config.kafka, f"{lab.topic}-same")]) == (
        "good",
        values,
    )


@pytest.fixture
def small_target() -> Iterator[SmallRegistry]:
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
    rows = rows_in(lab.kafka, f"{lab.topic}-copy")
    return [Record(row["value"], tuple((h["key"], h["value"]) for h in row["headers"] or ())) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_a_restored_topic_see_the_values_of_the_first(
    lab: Lab, small_target: SmallRegistry, kind: str
) -> None:
    config = archived_topic(lab, kind)
    [schema] = snapshot(config).state.schemas
    [segment] = snapshot(config).segments
    assert set(segment.schema_ids) == {schema.schema_id, schema.schema_guid}
    mapped = Outgoing(map_schema_ids=True, target_registry=RegistrySettings(url=small_target.url))
    report = restored(config, to_topic=f"{lab.topic}-copy", outgoing=mapped)
    *rows, tombstone = records_in(lab)
    reader = Confluent(small_target.url, f"{lab.topic}-copy", kind)
    assert [reader.read(row) for row in rows] == TRIPS
    assert (tombstone, report.verified) == (Record(None), True)
    assert any("2 records named their schema in the header __value_schema_id, which" in note for note in report.notes)


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
    table = found.decode_values(None).open().to_table(columns=["value"])
    assert table.column("value").to_pylist() == [*TRIPS, None]
