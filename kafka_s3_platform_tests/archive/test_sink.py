"""What Connect's S3 sinks write, on a real Kafka and a real S3: keys, bytes, boundaries, bad records."""

import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.formats.block_gzip import read_from, read_index
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.errors import ForeignObjectError, UnresolvedOffsetsError
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.archive.values import F1, avro, framed, lines, objects
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    connector,
    produce,
    scanned,
    snapshot,
    tried,
)

MINUTE = timedelta(minutes=1)
JSON = {"value": {"format": "JSON"}}
TEXT = {"value": {"format": "STRING"}}
LINES = {"format": "bytes", "codec": "none", "bytes_extension": "txt"}


def at(start: datetime, every: timedelta, values: Iterable[bytes], kafka_partition: int = 0) -> list[Sent]:
    return [Sent(v, None, start + n * every, (), kafka_partition) for n, v in enumerate(values)]


def test_nine_avro_records_with_flush_size_3_give_the_three_objects_of_the_quickstart(
    lab: Lab, registry: RegistrySettings
) -> None:
    topic = lab.create("s3_topic")
    values = framed(registry, topic, F1, [{"f1": f"value{n}"} for n in range(1, 10)])
    produce(lab.kafka, topic, [Sent(v) for v in values])
    layout = {"format": "avro", "codec": "null", "partitioner": "Default", "flush_size": 3}
    config = connector(lab.kafka, lab.store, topic, layout=layout, records=avro(registry))
    archived(config)
    found = {key: list(fastavro.reader(io.BytesIO(body))) for key, body in objects(config).items()}
    assert found == {
        f"topics/s3_topic/partition=0/s3_topic+0+000000000{first}.avro": [
            {"f1": f"value{first + n}"} for n in (1, 2, 3)
        ]
        for first in (0, 3, 6)
    }


def test_json_by_the_hour_lands_where_confluent_cloud_says(lab: Lab) -> None:
    moment = datetime(2020, 2, 6, 9, 30, tzinfo=timezone.utc)
    layout = {
        "format": "json",
        "codec": "gzip",
        "topics_dir": "json_logs/hourly",
        "path_format": "'dt'=YYYY-MM-dd/'hr'=HH",
        "flush_size": 1000,
    }
    start_hour = datetime(2020, 1, 1, tzinfo=timezone.utc)
    sent = at(moment, MINUTE, [b'{"a": 1}', b'{\n "a":\t2}'])
    config = lab.archive(sent, layout=layout, records=JSON, start_hour=start_hour)
    folder = f"json_logs/hourly/{lab.topic}/dt=2020-02-06/hr=09"
    ((key, body),) = objects(config).items()
    assert key == f"{folder}/{lab.topic}+0+0000000000.json.gz"
    assert gzip.decompress(body) == b'{"a": 1}\n{"a":2}\n'


def sizes(config: ConnectorConfig) -> list[tuple[int, int, int]]:
    """(kafka partition, first offset, records) of each object."""
    return [(s.kafka_partition, s.start_offset, s.record_count) for s in snapshot(config).segments]


def test_objects_end_when_flush_size_is_reached_in_each_of_six_kafka_partitions(lab: Lab) -> None:
    """Confluent Cloud's first scenario: 1,000 is the flush size, more than that arrived in each."""
    layout = {**LINES, "flush_size": 1000}
    config = lab.archive(
        [r for p in range(6) for r in at(NOON, MINUTE / 60, [b"v"] * 1005, p)], 6, layout=layout, records=TEXT
    )
    assert sizes(config) == [(p, first, n) for p in range(6) for first, n in ((0, 1000), (1000, 5))]


def test_five_hundred_records_of_an_hour_are_there_when_the_next_one_begins(lab: Lab) -> None:
    """Confluent Cloud's second scenario: 500 from 2 to 3 pm, then 5 more."""
    two = NOON + 2 * HOUR
    layout = {**LINES, "flush_size": 1000}
    config = lab.fill(
        at(two, MINUTE / 10, [b"v"] * 500) + at(two + HOUR, MINUTE, [b"v"] * 5), layout=layout, records=TEXT
    )
    archived(config, [two])
    at_two = [s for s in snapshot(config).segments if s.chunk_start == two]
    assert [(s.start_offset, s.record_count) for s in at_two] == [(0, 500)]


def test_scheduled_rotation_gives_two_objects_of_five_hundred(lab: Lab) -> None:
    """Confluent Cloud's third scenario: every ten minutes; 500 records from 12:01 to 12:10, 500 from 12:11 to 12:20."""
    lab.create_topic()
    first, second = (at(NOON + m * MINUTE, 9 * MINUTE / 501, [b"v"] * 500) for m in (1, 11))
    lab.produce(first + second)
    layout = {**LINES, "flush_size": 1000, "rotate_schedule_interval_ms": 600_000}
    config = lab.connector(layout=layout, records=TEXT)
    archived(config)
    assert sizes(config) == [(0, 0, 500), (0, 500, 500)]


def test_the_rotation_interval_spans_from_the_first_record_of_an_object(lab: Lab) -> None:
    minutes = [5, 6, 14, 15, 3, 16, 24, 25]
    layout = {**LINES, "rotate_interval_ms": 600_000}
    config = lab.archive([Sent(b"%d" % m, None, NOON + m * MINUTE) for m in minutes], layout=layout, records=TEXT)
    assert list(lines(config).values()) == [[b"5", b"6", b"14"], [b"15", b"3", b"16", b"24"], [b"25"]]


@pytest.mark.parametrize(
    ("layout", "records"),
    [
        ({"format": "json", "codec": "gzip", "flush_size": 7}, JSON),
        ({"format": "json", "codec": "zstd", "partitioner": "Field", "partition_fields": ("n",)}, JSON),
        ({"format": "block_gzip", "codec": "gzip", "block_size": 100, "rotate_interval_ms": 60_000}, {}),
        ({"format": "envelope.avro", "codec": "zstd"}, {}),
        ({"format": "envelope.json", "codec": "gzip", "rotate_schedule_interval_ms": 600_000}, {}),
    ],
)
def test_the_same_offsets_give_the_same_bytes_however_they_are_archived(
    lab: Lab, layout: dict[str, Any], records: dict[str, Any]
) -> None:
    lab.create_topic()
    sent = [Sent(b'{"n":%d}' % (n % 3), None, NOON + n * 2 * MINUTE) for n in range(100)]
    lab.produce(sent)
    found = []
    for name, task_size in (("one", 1_000_000), ("other", 10)):
        settings = {**layout, "topics_dir": name}
        config = lab.connector(layout=settings, records=records, task_size=task_size).model_copy(update={"name": name})
        hours = [NOON + h * HOUR for h in range(4)]
        for wanted in [hours] if name == "one" else [[h] for h in hours]:
            archived(config, wanted)
        found.append({key.removeprefix(name): body for key, body in objects(config).items()})
    assert found[0] == found[1]
    assert len(found[0]) > 3


def test_keys_and_headers_are_objects_beside_the_values(lab: Lab) -> None:
    layout = {"format": "json", "codec": "none", "keys_format": "json", "headers_format": "json"}
    records = {**JSON, "key": {"format": "STRING"}}
    config = lab.archive(
        [Sent(b'{"v":1}', b"k1", NOON, (("h", b"x"),)), Sent(b'{"v":2}', b"k2")], layout=layout, records=records
    )
    found = {key.rpartition("+")[2]: body for key, body in objects(config).items()}
    assert found["0000000000.json"] == b'{"v":1}\n{"v":2}\n'
    assert found["0000000000.keys.json"] == b'"k1"\n"k2"\n'
    assert [json.loads(line) for line in found["0000000000.headers.json"].splitlines()] == [
        {"headers": [{"key": "h", "value": "x"}]},
        {"headers": []},
    ]


def test_tombstones_go_where_behavior_on_null_values_says(lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"{}", b"a"), Sent(None, b"b"), Sent(b"{}", b"c")])
    layout = {"format": "json", "codec": "none", "keys_format": "json"}
    records = {**JSON, "key": {"format": "STRING"}}
    found = {}
    for choice in ("write", "ignore"):
        settings = {**layout, "null_values": choice, "topics_dir": choice}
        config = lab.connector(layout=settings, records=records)
        config = config.model_copy(update={"name": choice})
        report = archived(config)
        found[choice] = (report.record_count, report.filtered_count, lines(config))
    hour = "year=2026/month=01/day=01/hour=12"
    name = f"{lab.topic}+0+000000000"
    assert found["ignore"] == (
        2,
        1,
        {
            f"ignore/{lab.topic}/{hour}/{name}0.json": [b"{}", b"{}"],
            f"ignore/{lab.topic}/{hour}/{name}0.keys.json": [b'"a"', b'"c"'],
        },
    )
    assert found["write"] == (
        3,
        0,
        {
            f"write/{lab.topic}/{hour}/{name}0.json": [b"{}", b"{}"],
            f"write/{lab.topic}/{hour}/{name}0.keys.json": [b'"a"', b'"c"'],
            f"write/{lab.topic}/tombstone/{name}1.keys.json": [b'"b"'],
        },
    )
    config = lab.connector(layout={**layout, "null_values": "fail"}, records=records)
    with pytest.raises(UnresolvedOffsetsError, match=rf"{lab.topic}-0 \[1, 2\): .*value is null"):
        archived(config)


def test_a_bad_record_whose_letter_is_too_large_is_unresolved_and_all_others_are_archived(lab: Lab) -> None:
    """A record that just fits its topic does not fit with the headers of a letter."""
    good = [Sent(b'{"n":1}') for _ in range(10)]
    bad = [Sent(b"{" + os.urandom(1_048_300)), Sent(b"{")]
    kafkas_default = {"max_message_bytes": 1_048_588}
    lab.create_topic(**kafkas_default)
    lab.produce([*good, *bad, *good])
    dead_letters = lab.create(f"{lab.topic}-dlq", **kafkas_default)
    errors = {"tolerance": "all", "dead_letter_topic": dead_letters, "dead_letter_headers": True}
    layout = {"format": "json", "codec": "none"}
    records = {**JSON, "errors": errors}
    config = lab.connector(layout=layout, records=records)
    report = tried(config)
    with pytest.raises(
        UnresolvedOffsetsError, match=rf"(?s){lab.topic}-0 \[10, 11\): DEAD_LETTER.*too large.*config of"
    ):
        report.raise_failure()
    assert (report.record_count, report.dead_letter_count) == (20, 1)
    assert sum(map(len, lines(config).values())) == 20
    assert scanned(config) == (OffsetRange(0, 10), OffsetRange(11, 22))

    created = {"dead_letter_topic": f"{lab.topic}-new", "dead_letter_replication_factor": 1}
    records = {**JSON, "errors": errors | created}
    again = archived(lab.connector(layout=layout, records=records))
    assert (again.record_count, again.dead_letter_count) == (0, 1)
    assert scanned(config) == (OffsetRange(0, 22),)


@pytest.mark.parametrize(
    ("layout", "value"),
    [
        ({"format": "json", "codec": "none", "partitioner": "Field", "partition_fields": ("country",)}, b'{"n":1}'),
        ({"format": "json", "codec": "none", "partitioner": "Field", "partition_fields": ("n",)}, b'{"n":{}}'),
        (
            {"format": "json", "codec": "none", "timestamp_extractor": "RecordField", "timestamp_field": "ts"},
            b'{"ts":"yesterday"}',
        ),
        (LINES, b"two\nlines"),
    ],
)
def test_records_that_cannot_be_placed_or_separated_are_bad_records(
    lab: Lab, layout: dict[str, Any], value: bytes
) -> None:
    lab.create_topic()
    good = b'{"n":"x","country":"DE","ts":"2026-01-01T12:00:00Z"}'
    lab.produce([Sent(good), Sent(value), Sent(good)])
    for tolerance in ("none", "all"):
        records = {**(JSON if layout["format"] == "json" else TEXT), "errors": {"tolerance": tolerance}}
        config = lab.connector(layout=layout, records=records)
        if tolerance == "none":
            with pytest.raises(UnresolvedOffsetsError, match=rf"{lab.topic}-0 \[1, 2\): "):
                archived(config)
        else:
            report = archived(config)
            assert (report.record_count, report.dead_letter_count) == (0, 1)
            assert [line for found in lines(config).values() for line in found] == [good, good]


V2: dict[str, Any] = {**F1, "fields": [*F1["fields"], {"name": "f2", "type": "string", "default": "?"}]}


@pytest.mark.parametrize(
    ("compatibility", "expected"),
    [("NONE", {1: 50_000, 2: 50_000}), ("BACKWARD", {1: 1, 2: 99_999}), ("FORWARD", {1: 100_000})],
)
def test_two_versions_that_take_turns_give_few_objects(
    lab: Lab, registry: RegistrySettings, compatibility: str, expected: dict[int, int]
) -> None:
    lab.create_topic()
    (one,) = framed(registry, lab.topic, F1, [{"f1": "a"}])
    (two,) = framed(registry, lab.topic, V2, [{"f1": "a", "f2": "b"}])
    lab.produce([Sent(two if n % 2 else one) for n in range(100_000)])
    layout = {"format": "avro", "codec": "null", "schema_compatibility": compatibility}
    config = lab.connector(layout=layout, records=avro(registry))
    archived(config)
    found: Counter[int] = Counter()
    for body in objects(config).values():
        read = fastavro.reader(io.BytesIO(body))
        schema: Any = read.writer_schema
        found[len(schema["fields"])] += sum(1 for _ in read)
    assert found == expected
    assert len(snapshot(config).segments) == len(expected)


def test_registry_avro_becomes_parquet_columns(lab: Lab, registry: RegistrySettings) -> None:
    lab.create_topic()
    values = framed(registry, lab.topic, V2, [{"f1": f"{n}", "f2": "x"} for n in range(10)])
    lab.produce([Sent(v) for v in values])
    layout = {"format": "parquet", "codec": "snappy", "partitioner": "Field", "partition_fields": ("f2",)}
    config = lab.connector(layout=layout, records=avro(registry))
    archived(config)
    ((key, body),) = objects(config).items()
    assert key == f"topics/{lab.topic}/f2=x/{lab.topic}+0+0000000000.snappy.parquet"
    assert pq.read_table(io.BytesIO(body)).to_pydict() == {"f1": [str(n) for n in range(10)], "f2": ["x"] * 10}


def test_a_truncated_avro_value_and_an_unknown_schema_id_are_bad_records(lab: Lab, registry: RegistrySettings) -> None:
    lab.create_topic()
    (value,) = framed(registry, lab.topic, F1, [{"f1": "value"}])
    lab.produce([Sent(value), Sent(value[:-1]), Sent(b"\0\x7f\xff\xff\xff\x02a"), Sent(value)])
    records = {**avro(registry), "errors": {"tolerance": "all"}}
    layout = {"format": "avro", "codec": "null"}
    config = lab.connector(layout=layout, records=records)
    report = archived(config)
    assert (report.record_count, report.dead_letter_count) == (2, 2)


def test_block_gzip_is_written_and_read_by_offset_as_deviantart_has_it(lab: Lab) -> None:
    topic = lab.create("system-test", 2)
    produce(lab.kafka, topic, [Sent(b"line %03d" % n, None, NOON, (), n % 2) for n in range(400)])
    layout = {
        "format": "block_gzip",
        "codec": "gzip",
        "key_layout": "block_gzip",
        "partitioner": "Daily",
        "path_format": "YYYY-MM-dd",
        "partition_duration_ms": 86_400_000,
        "topics_dir": "systest",
        "flush_size": 100,
        "block_size": 300,
    }
    config = connector(lab.kafka, lab.store, topic, layout=layout)
    archived(config)
    found = objects(config)
    assert sorted(found) == sorted(
        f"systest/2026-01-01/system-test-{p:05d}-{first:012d}{suffix}"
        for p in (0, 1)
        for first in (0, 100)
        for suffix in (".gz", ".index.json")
    )
    body = found["systest/2026-01-01/system-test-00001-000000000100.gz"]
    index_key = "systest/2026-01-01/system-test-00001-000000000100.index.json"
    blocks = read_index(found[index_key], index_key)
    assert gzip.decompress(body).splitlines() == [b"line %03d" % n for n in range(201, 400, 2)]
    ranged = list(read_from(lambda at, length: body[at : at + length], blocks, 150, 200, index_key))
    assert ranged == [b"line %03d" % n for n in range(301, 400, 2)]


TEXT_OR_NULL = ["null", "string"]
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize(
    ("kind", "schema", "values"),
    [
        ("AVRO", "string", ["one", "two", "ends\n", "", "n" * 5]),
        ("AVRO", TEXT_OR_NULL, ["one", "two"]),
        ("AVRO", "bytes", [b"one", b"\xff"]),
        ("JSON_SR", DRAFT | {"type": "string"}, ["one", "ü\n"]),
        ("JSON_SR", DRAFT | {"oneOf": [{"type": "null"}, {"type": "string"}]}, ["one"]),
    ],
)
def test_text_behind_a_schemas_id_is_the_line_of_block_gzip_without_its_frame(
    lab: Lab, registry: RegistrySettings, kind: str, schema: Any, values: list[Any]
) -> None:
    layout = {"format": "block_gzip", "codec": "gzip"}
    records = {"value": {"format": kind, "registry": registry}}
    config = lab.fill(
        [Sent(v) for v in framed(registry, lab.topic, schema, values, kind)], layout=layout, records=records
    )
    assert archived(config).record_count == len(values)
    found = objects(config)
    (body,) = (body for key, body in found.items() if key.endswith(".gz"))
    texts = [v.encode() if isinstance(v, str) else v for v in values]
    assert gzip.decompress(body) == b"".join(t.removesuffix(b"\n") + b"\n" for t in texts)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [("AVRO", "string"), ("AVRO", TEXT_OR_NULL), ("JSON_SR", DRAFT | {"type": "string"})],
)
def test_text_of_several_lines_behind_a_schemas_id_is_a_bad_record_of_block_gzip(
    lab: Lab, registry: RegistrySettings, kind: str, schema: Any
) -> None:
    lab.create_topic()
    values = framed(registry, lab.topic, schema, ["one", "a\nb", "two"], kind)
    lab.produce([Sent(v) for v in values])
    records = {"value": {"format": kind, "registry": registry}, "errors": {"tolerance": "all"}}
    layout = {"format": "block_gzip", "codec": "gzip"}
    config = lab.connector(layout=layout, records=records)
    report = archived(config)
    assert (report.record_count, report.dead_letter_count) == (2, 1)
    (body,) = (body for key, body in objects(config).items() if key.endswith(".gz"))
    assert gzip.decompress(body) == b"one\ntwo\n"


def test_zoozs_paths_hold_no_topic(lab: Lab) -> None:
    layout = {
        **LINES,
        "key_layout": "zooz",
        "topics_dir": "root/path",
        "path_format": "'date'=YYYY-MM-dd/'hour'=HH",
        "extension": "txt",
    }
    config = lab.archive([Sent(b"a"), Sent(b"b")], layout=layout, records=TEXT)
    assert lines(config) == {"root/path/date=2026-01-01/hour=12/0_0.txt": [b"a", b"b"]}


def test_a_renamed_topic_is_in_the_path_and_a_foreign_object_there_is_left_alone(lab: Lab) -> None:
    lab.create_topic()
    lab.create(f"{lab.topic}-2")
    rename = {"alias": "r", "type": "RegexRouter", "options": {"regex": "topic-.*", "replacement": "renamed"}}
    records = {**TEXT, "transforms": [rename]}
    for topic in (lab.topic, f"{lab.topic}-2"):
        produce(lab.kafka, topic, [Sent(b"a")])
    config = lab.connector(layout=LINES, records=records)
    archived(config)
    assert list(lines(config)) == ["topics/renamed/year=2026/month=01/day=01/hour=12/renamed+0+0000000000.txt"]
    other = connector(lab.kafka, lab.store, f"{lab.topic}-2", layout=LINES, records=records)
    with pytest.raises(ForeignObjectError, match=r"transforms gave .* the same name"):
        archived(other)


def test_however_many_places_records_go_to_few_objects_are_open_and_none_is_lost(lab: Lab) -> None:
    layout = {"format": "json", "codec": "none", "partitioner": "Field", "partition_fields": ("n",)}
    config = lab.archive([Sent(b'{"n":%d}' % (n % 300)) for n in range(3_000)], layout=layout, records=JSON)
    found = lines(config)
    assert Counter(json.loads(line)["n"] for body in found.values() for line in body) == dict.fromkeys(range(300), 10)
    assert all(f"/n={json.loads(body[0])['n']}/" in key for key, body in found.items())


def test_deep_verification_finds_a_changed_object_of_any_format(lab: Lab) -> None:
    layout = {"format": "json", "codec": "none", "keys_format": "json"}
    records = {**JSON, "key": {"format": "STRING"}}
    config = lab.archive([Sent(b'{"v":1}', b"k")], layout=layout, records=records)
    keys = next(key for key in objects(config) if ".keys." in key)
    lab.s3.put_object(Bucket=config.store.bucket, Key=keys, Body=b'"x"\n')
    report = verify_archive(config, lab.topic, deep=True, runner=InProcessRunner())
    assert {d.key for d in report.damages} == {keys}
