"""Whole restores of what other sinks write: every layout, read back by a file and sent to a real topic."""

import base64
import gzip
import io
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, KafkaSettings, RegistrySettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter
from kafka_s3_platform_tests.archive.values import framed
from kafka_s3_platform_tests.config.test_seeds import QUICKSTART
from kafka_s3_platform_tests.kafka.topics import records_of, values
from kafka_s3_platform_tests.restore.foreign import BLOCK_GZIP, DEVIANT_CLASS, JSON, SOURCE_CLASS, SourceLab, restored
from kafka_s3_platform_tests.support import NOON, Sent, archived, watch_s3

SINK_CLASS = "io.confluent.connect.s3.S3SinkConnector"
AVRO = "value.converter=io.confluent.connect.avro.AvroConverter\nvalue.converter.schema.registry.url="
BESIDE = """\
key.converter=org.apache.kafka.connect.storage.StringConverter
store.kafka.keys=true
keys.format.class=io.confluent.connect.s3.format.json.JsonFormat
store.kafka.headers=true
headers.format.class=io.confluent.connect.s3.format.json.JsonFormat
behavior.on.null.values=write
"""
MINUTE = timedelta(minutes=1)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
ORDERS = [{"id": n, "note": None if n % 3 else f"né {n}"} for n in range(50)]


def sink_file(topic: str, *lines: str) -> str:
    """The quickstart of Confluent's sink, of another topic, with these lines in place of its own."""
    named = {line.partition("=")[0] for text in lines for line in text.splitlines()}
    kept = [line for line in QUICKSTART.splitlines() if line.partition("=")[0] not in named]
    return "\n".join([*kept, *(text.rstrip("\n") for text in lines), ""]).replace("s3_topic", topic)


def sunk(lab: SourceLab, text: str) -> ConnectorConfig:
    """The sink of the file has archived its topic; the very same file with its class changed, and nothing else."""
    archived(lab.load(text))
    source = lab.load(text.replace(SINK_CLASS, SOURCE_CLASS))
    assert source.source is not None
    return source


def rows(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[tuple[Any, ...]]:
    """Key, value and headers of each record."""
    found = records_of(kafka, topic, kafka_partition)
    headers = [None if h is None else [(e["key"], e["value"]) for e in h] for h in found.column("headers").to_pylist()]
    return list(zip(found.column("key").to_pylist(), found.column("value").to_pylist(), headers, strict=True))


def decoded(kafka: KafkaSettings, topic: str, registry: RegistrySettings, format_name: Any) -> list[Any]:
    """The values of a topic as their consumers decode them with its registry."""
    converter = new_converter(ConverterSettings(format=format_name, registry=registry), topic, is_key=False)
    column = records_of(kafka, topic, 0).column("value").combine_chunks()
    done = converter.convert(column, pa.array(range(len(column))).to_numpy())
    assert done.failures == ()
    return list(done.payload.objects)


@pytest.mark.parametrize("format_class", ["avro.AvroFormat", "parquet.ParquetFormat"])
@pytest.mark.parametrize("partitioner", ["DefaultPartitioner", "HourlyPartitioner"])
def test_a_sinks_file_with_another_class_brings_back_what_that_sink_archived(
    lab: SourceLab, registry: RegistrySettings, format_class: str, partitioner: str
) -> None:
    lab.create_topic(2)
    sent = framed(registry, lab.topic, ORDER, ORDERS)
    lab.produce([Sent(v, None, NOON + n * MINUTE, (), n % 2) for n, v in enumerate(sent)])
    text = sink_file(
        lab.topic,
        f"format.class=io.confluent.connect.s3.format.{format_class}",
        f"partitioner.class=io.confluent.connect.storage.partitioner.{partitioner}",
        "locale=en\ntimezone=UTC",
        f"{AVRO}{registry.url}",
    )
    report = restored(sunk(lab, text), (), "{topic}-copy")
    assert (report.topic, report.record_count, report.verified) == (lab.topic, 50, True)
    with SchemaRegistryClient({"url": registry.url}) as client:
        there = client.get_latest_version(f"{lab.topic}-copy-value")
    schema = fastavro.parse_schema(json.loads((there.schema and there.schema.schema_str) or ""))
    for p in (0, 1):
        found = values(lab.kafka, f"{lab.topic}-copy", p)
        assert [fastavro.schemaless_reader(io.BytesIO(v[5:]), schema, None) for v in found] == ORDERS[p::2]
        assert {v[:5] for v in found} == {b"\0" + (there.schema_id or 0).to_bytes(4, "big")}


CONVERTERS: dict[str, Any] = {
    "json.JsonSchemaConverter": "JSON_SR",
    "protobuf.ProtobufConverter": "PROTOBUF",
    "avro.AvroConverter": "AVRO",
}


def test_objects_of_avro_become_what_the_restores_converter_writes(lab: SourceLab, registry: RegistrySettings) -> None:
    lab.create_topic()
    lab.produce([Sent(v) for v in framed(registry, lab.topic, ORDER, ORDERS)])
    text = sink_file(lab.topic, f"{AVRO}{registry.url}")
    source = sunk(lab, text)
    for converter, format_name in CONVERTERS.items():
        own = lab.load(text.replace(SINK_CLASS, SOURCE_CLASS).replace("avro.AvroConverter", converter))
        asked_for = Outgoing(value=ConverterSettings(format=format_name), target_registry=registry)
        for name, config, outgoing in (("file", own, Outgoing()), ("request", source, asked_for)):
            target = f"{lab.topic}-{name}-{format_name}"
            report = restored(config, (), target, outgoing=outgoing)
            assert (report.record_count, report.verified) == (50, True)
            assert decoded(lab.kafka, target, registry, format_name) == ORDERS
            with SchemaRegistryClient({"url": registry.url}) as client:
                schema = client.get_latest_version(f"{target}-value").schema
            assert schema is not None
            assert schema.schema_type == {"JSON_SR": "JSON"}.get(format_name, format_name)


@pytest.mark.parametrize("schema", [ORDER, ["null", ORDER]], ids=["record", "union"])
def test_avro_data_are_sent_as_they_are_behind_the_schemas_id(
    lab: SourceLab, registry: RegistrySettings, schema: Any
) -> None:
    wanted = [o if isinstance(schema, dict) or n % 7 else None for n, o in enumerate(ORDERS)]
    body = io.BytesIO()
    fastavro.writer(body, fastavro.parse_schema(schema), wanted, codec="deflate")
    key = f"topics/{lab.topic}/partition=0/{lab.topic}+0+0000000000.avro"
    lab.put_object(key, body.getvalue())
    text = sink_file(lab.topic, f"{AVRO}{registry.url}").replace(SINK_CLASS, SOURCE_CLASS)
    assert restored(lab.load(text), (), "{topic}-copy").verified
    found = values(lab.kafka, f"{lab.topic}-copy")
    with SchemaRegistryClient({"url": registry.url}) as client:
        there = client.get_latest_version(f"{lab.topic}-copy-value")
    assert found == [None if o is None else wire(there.schema_id or 0, schema, o) for o in wanted]


def wire(schema_id: int, schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def test_gzipped_json_comes_back_with_its_keys_headers_and_tombstones(lab: SourceLab) -> None:
    lab.create_topic()
    sent = [
        Sent(b'{"n":%d}' % n if n % 4 else None, b"k%d" % (n % 5), NOON + n * MINUTE, (("h", b"%d" % n),) * (n % 3))
        for n in range(40)
    ]
    lab.produce(sent)
    gz = "format.class=io.confluent.connect.s3.format.json.JsonFormat\ns3.compression.type=gzip"
    source = sunk(lab, sink_file(lab.topic, gz, JSON, BESIDE))
    report = restored(source, (), "{topic}-copy")
    assert (report.record_count, report.verified) == (40, True)
    wanted = [(s.key, s.value, list(s.headers) or None) for s in sent]
    found = rows(lab.kafka, f"{lab.topic}-copy")
    assert found == wanted
    assert not any("position" in note or "a folder of their own" in note for note in report.notes)


def test_two_schema_versions_in_turn_come_back_in_their_order_and_by_their_offsets(
    lab: SourceLab, registry: RegistrySettings
) -> None:
    lab.create_topic()
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int", "default": 0}]}
    one = framed(registry, lab.topic, ORDER, ORDERS[:6])
    two = framed(registry, lab.topic, newer, [{**order, "more": 1} for order in ORDERS[:6]])
    turns = [one[0], one[1], two[2], one[3], two[4], one[5]]
    lab.produce([Sent(v, None, NOON) for v in turns])
    source = sunk(lab, sink_file(lab.topic, f"{AVRO}{registry.url}\nflush.size=100"))
    report = restored(source, (), "{topic}-copy")
    found = decoded(lab.kafka, f"{lab.topic}-copy", registry, "AVRO")
    assert [(row["id"], row.get("more")) for row in found] == [
        (0, None),
        (1, None),
        (2, 1),
        (3, None),
        (4, 1),
        (5, None),
    ]
    assert (report.object_count, report.gaps) == (2, ())
    assert not any("position" in note or "order" in note for note in report.notes)
    restored(source, (), "{topic}-part", from_offset=2, to_offset=3)
    assert [row["id"] for row in decoded(lab.kafka, f"{lab.topic}-part", registry, "AVRO")] == [2]


def test_of_each_key_the_latest_is_sent_and_a_tombstone_is_the_latest_of_its_key(lab: SourceLab) -> None:
    lab.create_topic()
    # Three objects of values, and of tombstones one that begins after all of them.
    sent = [Sent(b'{"n":%d}' % n, b"k%d" % (n % 4)) for n in range(9)] + [Sent(None, b"k1"), Sent(None, b"gone")]
    lab.produce(sent)
    plain = "format.class=io.confluent.connect.s3.format.json.JsonFormat"
    source = sunk(lab, sink_file(lab.topic, plain, JSON, BESIDE))
    report = restored(source, (), "{topic}-copy", records=RecordFilter(latest_per_key=True))
    assert [r[:2] for r in rows(lab.kafka, f"{lab.topic}-copy")] == [
        (b"k2", b'{"n":6}'),
        (b"k3", b'{"n":7}'),
        (b"k0", b'{"n":8}'),
        (b"k1", None),
        (b"gone", None),
    ]
    assert (report.record_count, report.verified) == (5, True)


AIVEN = """\
name=aiven
connector.class=io.aiven.kafka.connect.s3.source.S3SourceConnector
aws.s3.bucket.name=confluent-kafka-connect-s3-testing
aws.s3.prefix=aiven/
file.name.template={{topic}}/{{partition}}-{{start_offset}}.gz
file.compression.type=gzip
format.output.type=csv
format.output.fields=key,value,offset,timestamp,headers
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
"""


def b64(data: bytes | None) -> str:
    return "" if data is None else base64.b64encode(data).decode()


def aiven_csv(sent: Sequence[tuple[int, Sent]]) -> bytes:
    lines = (
        ",".join(
            [
                b64(s.key),
                b64(s.value),
                str(offset),
                str(round(s.timestamp.timestamp() * 1000)),
                "".join(f"{b64(k.encode())}:{b64(v)};" for k, v in s.headers),
            ]
        )
        for offset, s in sent
    )
    return gzip.compress("\n".join(lines).encode())


def test_aivens_records_come_back_with_their_timestamps_and_own_offsets(lab: SourceLab) -> None:
    # Every other offset: what lies between was compacted away.
    sent = [
        (10 + 2 * n, Sent(b"v,%d\n" % n, b"\xff%d" % n, NOON + n * MINUTE, (("h", b"x"), ("h", b"%d" % n))))
        for n in range(20)
    ]
    for some in (sent[:8], sent[8:]):
        key = f"aiven/{lab.topic}/0-{some[0][0]}.gz"
        lab.put_object(key, aiven_csv(some))
    report = restored(lab.load(AIVEN), (), "{topic}-copy")
    found = records_of(lab.kafka, f"{lab.topic}-copy", 0)
    assert rows(lab.kafka, f"{lab.topic}-copy") == [(s.key, s.value, list(s.headers)) for _, s in sent]
    assert [t.as_py() for t in found.column("timestamp")] == [s.timestamp for _, s in sent]
    [part] = report.kafka_partitions
    assert (part.first_source_offset, part.last_source_offset, part.altered_timestamps) == (10, 48, 0)
    assert report.verified

    forgotten = AIVEN.replace("=csv", "=jsonl").replace("key,value,offset,timestamp,headers", "value")
    bare = gzip.compress(b'{"n":1}\n{"n":2}')
    lab.put_object(f"aiven/{lab.topic}.bare/0-0.gz", bare)
    with pytest.raises(IntegrityError, match=r"format\.output\.envelope as the sink had them"):
        restored(lab.load(forgotten), (f"{lab.topic}.bare",), "{topic}-copy")
    assert rows(lab.kafka, f"{lab.topic}.bare-copy") == []

    window = {"from_time": NOON + 5 * MINUTE, "to_time": NOON + 15 * MINUTE, "to_offset": 36}
    counted = restored(lab.load(AIVEN), (lab.topic,), "{topic}-some", dry_run=True, exact=True, **window)
    assert (counted.record_count, counted.exact) == (8, True)
    in_window = restored(lab.load(AIVEN), (lab.topic,), "{topic}-some", **window)
    assert (in_window.record_count, in_window.verified) == (8, True)
    assert [r[1] for r in rows(lab.kafka, f"{lab.topic}-some")] == [s.value for _, s in sent[5:13]]


LENSES = """\
name=lenses
connector.class=io.lenses.streamreactor.connect.aws.s3.source.S3SourceConnector
connect.s3.kcql=INSERT INTO {target} SELECT * FROM confluent-kafka-connect-s3-testing:backups STOREAS `JSON` \\
  PROPERTIES('store.envelope'=true)
connect.s3.aws.auth.mode=Credentials
key.converter=org.apache.kafka.connect.storage.StringConverter
"""


def test_lenses_envelopes_come_back_by_their_offsets_to_the_topic_of_the_kcql(lab: SourceLab) -> None:
    # Every other offset; two folders of PARTITIONBY, so that records of one lay between those of the other.
    sent = [(2 * n, Sent(b'{"n":%d}' % n, b"k%d" % n, NOON + n * MINUTE, (("h", b"x%d" % n),))) for n in range(20)]
    named = lab.topic.encode()
    for folder, some in (("n=even", sent[::2]), ("n=odd", sent[1::2])):
        lines = [
            b'{"headers":{"h":"x%d"},"metadata":{"partition":0,"offset":%d,"topic":"%b","timestamp":%d},'
            b'"value":{"n":%d},"key":"k%d"}\n' % (at // 2, at, named, s.timestamp.timestamp() * 1000, at // 2, at // 2)
            for at, s in some
        ]
        key = f"backups/{folder}/{lab.topic}(0_{some[-1][0]:012d}).json"
        lab.put_object(key, b"".join(lines))
    source, copy = lab.load(LENSES.format(target=f"{lab.topic}-copy"), JSON), f"{lab.topic}-copy"
    report = restored(source)
    assert rows(lab.kafka, copy) == [(s.key, s.value, list(s.headers)) for _, s in sent]
    assert [t.as_py() for t in records_of(lab.kafka, copy, 0).column("timestamp")] == [s.timestamp for _, s in sent]
    assert (report.record_count, report.verified) == (20, True)
    assert any("Lenses' envelope keeps headers as a map" in note for note in report.notes)


LENSES_SINK = """\
name=lenses-sink
connector.class=io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector
topics=s3_topic
connect.s3.kcql=INSERT INTO confluent-kafka-connect-s3-testing:backups SELECT * FROM s3_topic STOREAS JSON \\
  PROPERTIES('flush.count'=5)
archive.start.hour=2013-01-01T00:00
"""


def test_a_file_of_lenses_sink_archives_its_topic_under_names_of_that_kind(lab: SourceLab) -> None:
    lab.create_topic()
    lab.produce([Sent(b'{"n":%d}' % n) for n in range(7)])
    archived(lab.load(LENSES_SINK.replace("s3_topic", lab.topic), JSON))
    listed = lab.s3.list_objects_v2(Bucket=lab.store.bucket, Prefix=f"backups/{lab.topic}/")["Contents"]
    assert [o["Key"] for o in listed] == [f"backups/{lab.topic}/0/{n:020d}.json" for n in (0, 5)]


Requests = list[tuple[str, str, str]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """S3's operations on objects from now on: each with the object's key and the range that is asked for."""
    made: Requests = []
    watch_s3(monkeypatch, lambda name, asked: made.append((name, asked.get("Key", ""), asked.get("Range", ""))))
    return made


def lines(numbers: range) -> list[bytes]:
    return [b"line %04d" % n for n in numbers]


def block_index(s3_client: Any, bucket: str, key: str) -> list[dict[str, int]]:
    body = s3_client.get_object(Bucket=bucket, Key=f"{key.removesuffix('.gz')}.index.json")["Body"].read()
    found: list[dict[str, int]] = json.loads(body)["chunks"]
    return found


def test_of_block_gzip_an_offset_window_reads_the_bytes_of_its_blocks_and_no_others(
    lab: SourceLab, requests: Requests
) -> None:
    lab.create_topic()
    sent = lines(range(90))
    lab.produce([Sent(v, None, NOON + n * 2 * MINUTE) for n, v in enumerate(sent)])
    text = BLOCK_GZIP.replace("system-test", lab.topic).replace("67108864", "100")
    archived(lab.load(text))
    found = lab.s3.list_objects_v2(Bucket=lab.store.bucket, Prefix="systest/")["Contents"]
    keys = [o["Key"] for o in found if o["Key"].endswith(".gz")]
    assert len(keys) == 3
    blocks = {
        (key, f"bytes={b['byte_offset']}-{b['byte_offset'] + b['byte_length'] - 1}"): b["first_record_offset"]
        for key in keys
        for b in block_index(lab.s3, lab.store.bucket, key)
    }
    source = lab.load(text.replace(DEVIANT_CLASS, SOURCE_CLASS))
    for start, end in ((0, 90), (25, 43), (30, 40), (77, 90)):
        requests.clear()
        target = f"{lab.topic}-from-{start}"
        report = restored(source, (), target, from_offset=start, to_offset=end)
        assert values(lab.kafka, target) == sent[start:end]
        assert (report.record_count, report.verified) == (end - start, True)
        read = {(key, asked_for) for name, key, asked_for in requests if name == "GetObject" and key.endswith(".gz")}
        assert read == {where for where, first in blocks.items() if first < end and first + 10 > start}
