"""What our own sink wrote, on a real Kafka and a real S3, read back by its keys alone: no index is looked at.

What each format of values alone cannot keep: timestamps (all but the envelopes); offsets behind a hole; of `block_gzip`
a line break at a value's end; of `json` text the quotes around it, unless the converter says STRING; where tombstones
lay between the values of one object.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_s3_platform.connect.sources.objects import group_objects
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform_tests.archive.values import avro, framed
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.formats.records import rows_of
from kafka_s3_platform_tests.sources.memory import source_of
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, connector, snapshot

F1: dict[str, Any] = {
    "type": "record",
    "name": "myrecord",
    "fields": [{"name": "f1", "type": "string"}, {"name": "n", "type": ["null", "long"], "default": None}],
}
TEXT = {"key": {"format": "STRING"}, "value": {"format": "STRING"}}
JSON = {"key": {"format": "STRING"}, "value": {"format": "JSON"}}
BESIDE = {"keys_format": "bytes", "headers_format": "json", "keys_codec": "none", "headers_codec": "none"}

Values = Callable[[random.Random, int], bytes]


def a_line(rng: random.Random, n: int) -> bytes:
    return f"{n}-{'x' * rng.randrange(30)}é".encode()


def some_json(rng: random.Random, n: int) -> bytes:
    return b'{"n":%d,"country":"%s"}' % (n, rng.choice([b"DE", b"FR"]))


def any_bytes(rng: random.Random, n: int) -> bytes:
    return n.to_bytes(4, "big") + rng.randbytes(rng.randrange(40))


def sent(seed: int, values: Values, kafka_partitions: int = 2, count: int = 120) -> list[Sent]:
    rng = random.Random(seed)
    return [
        Sent(
            values(rng, n),
            b"k%d" % rng.randrange(20),
            NOON + rng.randrange(3 * 3600) * timedelta(seconds=1),
            tuple((f"h{i}", rng.choice([b"v%d" % n, b"\xe9%d" % n, b"", None])) for i in range(rng.randrange(3))),
            rng.randrange(kafka_partitions),
        )
        for n in range(count)
    ]


def restored(config: ConnectorConfig, **own: Any) -> list[dict[str, Any]]:
    source = source_of(config, **own)
    return [
        row
        for g in group_objects(SourceListing(source))
        for batch in ForeignStream(source, g)
        for row in rows_of(batch)
    ]


def written_as(layout: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """What of a record comes back."""
    has_siblings = "keys_format" in layout

    def kept(row: dict[str, Any]) -> Any:
        return (row["partition"], row["value"], *((row["key"], str(row["headers"])) if has_siblings else ()))

    return kept


def row_of(record: Sent) -> dict[str, Any]:
    headers = [{"key": key, "value": value} for key, value in record.headers] or None
    return {"partition": record.kafka_partition, "value": record.value, "key": record.key, "headers": headers}


@pytest.mark.parametrize(
    ("layout", "records", "values"),
    [
        ({"format": "json", "codec": "gzip", "partitioner": "Default", "flush_size": 7, **BESIDE}, JSON, some_json),
        ({"format": "json", "codec": "zstd", **BESIDE}, JSON, some_json),
        (
            {"format": "json", "codec": "none", "partitioner": "Field", "partition_fields": ("country",)},
            JSON,
            some_json,
        ),
        ({"format": "json", "codec": "bzip2", "directory_delim": "|", "file_delim": "~"}, TEXT, a_line),
        ({"format": "bytes", "codec": "gzip", "flush_size": 11}, TEXT, a_line),
        ({"format": "bytes", "codec": "none", "bytes_separator": "length", **BESIDE}, {}, any_bytes),
        ({"format": "bytes", "codec": "zstd", "key_layout": "zooz", "extension": "log.zst"}, TEXT, a_line),
        (
            {
                "format": "bytes",
                "codec": "none",
                "key_layout": "template",
                "file_name_template": "{{topic}}/{{timestamp:unit=HH}}/{{partition}}-{{start_offset:padding=true}}",
                "extension": "txt",
            },
            TEXT,
            a_line,
        ),
        ({"format": "block_gzip", "codec": "gzip", "block_size": 100, "key_layout": "block_gzip"}, TEXT, a_line),
    ],
)
def test_values_keys_and_headers_come_back_whatever_the_format_and_the_layout(
    lab: Lab, layout: dict[str, Any], records: dict[str, Any], values: Values
) -> None:
    """In their order, too, although hours and folders take turns: it is kept with the objects."""
    lab.create_topic(2)
    produced = sent(1, values)
    lab.produce(produced)
    config = lab.connector(layout=layout, records=records)
    archived(config)
    keep = written_as(layout)
    if layout.get("key_layout") == "zooz":
        source = source_of(config).model_copy(update={"topics": (lab.topic,)})
        found = [r for g in group_objects(SourceListing(source)) for b in ForeignStream(source, g) for r in rows_of(b)]
    else:
        found = restored(config)
    wanted = list(map(row_of, produced))
    assert {row["topic"] for row in found} == {lab.topic}
    for p in (0, 1):
        rows, records_of_it = ([r for r in one if r["partition"] == p] for one in (found, wanted))
        assert [row["offset"] for row in rows] == list(range(len(records_of_it)))
        assert list(map(keep, rows)) == list(map(keep, records_of_it))


def test_offsets_that_metadata_has_no_room_for_are_kept_beside_their_object(lab: Lab) -> None:
    lab.create_topic()
    rng = random.Random(5)
    produced = [Sent(some_json(rng, n), None, NOON) for n in range(20_000)]
    lab.produce(produced)
    layout = {"format": "json", "codec": "zstd", "partitioner": "Field", "partition_fields": ("country",)}
    config = lab.connector(layout=layout, records=JSON)
    archived(config)
    listed = [o["Key"] for o in lab.s3.list_objects_v2(Bucket=lab.store.bucket, Prefix="topics/")["Contents"]]
    beside = [key for key in listed if key.endswith(".offsets")]
    assert [key.rpartition("/")[2][: len(lab.topic) + 4] for key in beside] == [f"_{lab.topic}+0+"] * 2
    (group,) = group_objects(SourceListing(source_of(config)))
    stream = ForeignStream(source_of(config), group, start_offset=700, end_offset=17_000, by_offset=True)
    found = [value for batch in stream for value in batch.column("value").to_pylist()]
    assert found == [record.value for record in produced[700:17_000]]
    assert stream.report.position_count == 0
    # They belong to the segments, of which nothing is an orphan; one whose index knows nothing of it is one of ours.
    report = vacuum_topic(config, lab.topic, "vacuum", timedelta(0), dry_run=True)
    assert (report.removed, report.foreign) == ((), ())
    assert all(len(segment.siblings) == 1 for segment in snapshot(config).segments)


def test_an_object_of_several_parts_keeps_its_offsets_beside_it_too(lab: Lab) -> None:
    """Its metadata were fixed before the first of its records was read."""
    lab.create_topic()
    lab.produce([Sent(b"x" * 900_000) for _ in range(7)])
    store = lab.store.model_copy(update={"part_size": 5_242_880})
    layout = {"format": "bytes", "codec": "none", "bytes_separator": "length"}
    config = connector(lab.kafka, store, lab.topic, layout=layout)
    archived(config)
    [segment] = snapshot(config).segments
    [beside] = segment.siblings
    assert (ObjectStore(store).get(beside.key), segment.size > 5_242_880) == (b"0+7", True)
    (group,) = group_objects(SourceListing(source_of(config)))
    stream = ForeignStream(source_of(config), group)
    assert (sum(batch.num_rows for batch in stream), stream.report.position_count) == (7, 0)


@pytest.mark.parametrize("layout", [{"format": "avro", "codec": "snappy"}, {"format": "parquet", "codec": "snappy"}])
@pytest.mark.parametrize("partitioner", ["Default", "Hourly"])
def test_values_with_a_schema_come_back_as_the_data_that_they_were(
    lab: Lab, registry: RegistrySettings, layout: dict[str, Any], partitioner: str
) -> None:
    lab.create_topic()
    objects = [{"f1": f"value{n}", "n": n if n % 3 else None} for n in range(50)]
    produced = framed(registry, lab.topic, F1, objects)
    lab.produce([Sent(v, None, NOON + n * HOUR / 20) for n, v in enumerate(produced)])
    settings = {**layout, "partitioner": partitioner, "flush_size": 9}
    config = lab.connector(layout=settings, records=avro(registry))
    archived(config)
    source = source_of(config)
    (group,) = group_objects(SourceListing(source))
    stream = ForeignStream(source, group)
    batches = list(stream.batches())
    assert [o for b in batches for o in b.value.objects] == objects
    assert [v for b in batches for v in b.records.column("value").to_pylist()] == [v[5:] for v in produced]
    assert [o for b in batches for o in b.offsets.tolist()] == list(range(50))
    assert stream.report.position_count == 0
    assert stream.report.timeless_count == 50


@pytest.mark.parametrize("format_name", ["envelope.parquet", "envelope.avro", "envelope.json"])
def test_envelopes_come_back_as_the_records_that_they_were(lab: Lab, format_name: str) -> None:
    lab.create_topic(2)
    produced = sent(3, any_bytes)
    produced[7] = Sent(None, b"tombstone", produced[7].timestamp, (), 0)
    lab.produce(produced)
    codec = "gzip" if format_name == "envelope.json" else "zstd"
    config = lab.connector(layout={"format": format_name, "codec": codec})
    archived(config)
    found = restored(config)
    for p in (0, 1):
        wanted = [r for r in produced if r.kafka_partition == p]
        rows = [row for row in found if row["partition"] == p]
        assert [row["offset"] for row in rows] == list(range(len(wanted)))
        assert [{k: row[k] for k in row_of(r)} for row, r in zip(rows, wanted, strict=True)] == list(
            map(row_of, wanted)
        )
        assert [row["timestamp"] for row in rows] == [round(r.timestamp.timestamp() * 1000) for r in wanted]


@pytest.mark.parametrize("fault", ["corrupted", "truncated", "replaced", "missing"])
@pytest.mark.parametrize("behavior", ["fail", "ignore"])
def test_an_object_that_was_damaged_in_the_bucket_is_named_and_never_passed_on(
    lab: Lab, fault: str, behavior: str
) -> None:
    layout = {"format": "json", "codec": "gzip", "partitioner": "Default", "flush_size": 3}
    config = lab.archive([Sent(b'{"n":%d}' % n) for n in range(9)], layout=layout, records=JSON)
    source = source_of(config, behavior_on_error=behavior)
    if fault in {"replaced", "missing"}:
        (group,) = group_objects(SourceListing(source))
    key = f"topics/{lab.topic}/partition=0/{lab.topic}+0+0000000003.json.gz"
    body = lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read()
    damaged = {"corrupted": body[:-12] + b"\0" * 12, "truncated": body[:-3], "replaced": body + body}
    if fault == "missing":
        lab.s3.delete_object(Bucket=lab.store.bucket, Key=key)
    else:
        lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=damaged[fault])
    if fault in {"corrupted", "truncated"}:
        (group,) = group_objects(SourceListing(source))
    stream, found = ForeignStream(source, group), list[int]()
    if behavior == "fail":
        with pytest.raises(IntegrityError, match=key.replace("+", r"\+")):
            found.extend(o for batch in stream for o in batch.column("offset").to_pylist())
        assert found == [0, 1, 2]
    else:
        found.extend(o for batch in stream for o in batch.column("offset").to_pylist())
        assert found == [0, 1, 2, 6, 7, 8]
        assert len(stream.report.skipped_objects) == 1
        assert key in stream.report.skipped_objects[0]
