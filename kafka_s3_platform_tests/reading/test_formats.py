"""`kafka_s3_platform.read` over objects that are not Parquet: other envelopes, values alone, what other sinks wrote."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafka_s3_platform import read
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT
from kafka_s3_platform.operate.reading.dataset import find_objects
from kafka_s3_platform_tests.cli.conftest import KafkaS3
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.reading.conftest import (
    CONNECT,
    JSON,
    JSON_CONVERTER,
    OURS,
    Declared,
    declare,
    delete_all_but,
    fill,
    list_places,
    load,
    query,
    sort,
)
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOURCE = "io.confluent.connect.s3.source.S3SourceConnector"
HOURLY = {"partitioner.class": "HourlyPartitioner", "locale": "en", "timezone": "UTC"}


def test_whole_records_of_every_format_come_back_as_they_were_and_once(
    declared: Declared, kafka_settings: KafkaSettings
) -> None:
    fill(declared({}))
    for name in ("EnvelopeJsonFormat", "EnvelopeAvroFormat"):
        file = declared({"format.class": f"{OURS}{name}"})
        headers = (("trace", b"\x00"), ("trace", None), ("", b""))
        odd = [Sent(None, b"", NOON, headers), Sent(b"", None, NOON, ())]
        produce(kafka_settings, declared.topic, [*odd, Sent(name.encode(), b"k", NOON + HOUR, (), 1)])
        archived(file)
    assert {s.format for s in snapshot(file).segments} == {"envelope.parquet", "envelope.json", "envelope.avro"}
    archive = read("c")
    wanted = sort(pa.concat_tables([records_of(kafka_settings, declared.topic, p) for p in (0, 1)]))
    assert archive.schema.equals(RECORD_SCHEMA)
    assert sort(archive.to_table()).equals(wanted)
    [counted] = query(archive, 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM archive')
    assert counted == (wanted.num_rows, wanted.num_rows) == (14, 14)
    assert archive.count_rows() == 14
    found = pl.scan_pyarrow_dataset(archive).filter(pl.col("partition") == 1, pl.col("offset") > 2).select("value")
    assert sorted(found.collect()["value"].to_list()) == [b"EnvelopeAvroFormat", b"EnvelopeJsonFormat"]
    assert archive.head(2, columns=["offset"]).num_rows == 2
    assert list_places(read("c", start=NOON + HOUR, end=NOON + 2 * HOUR, kafka_partitions=[1])) == [
        (1, 1),
        (1, 3),
        (1, 4),
    ]
    with pytest.raises(TypeError):
        ds.write_dataset(archive, "folder", format="parquet")
    delete_all_but(file, NOON, 0)
    assert archive.to_table(filter=(ds.field("partition") == 0) & (ds.field("offset") > 4)).num_rows == 4
    segment = next(s for s in snapshot(file).segments if s.format == "envelope.json" and s.kafka_partition == 0)
    store = ObjectStore(file.store)
    store.replace(segment.key, store.get(segment.key)[:-1], segment.etag)
    with pytest.raises(IntegrityError, match=r"it was replaced or damaged"):
        read("c", end=NOON + HOUR, kafka_partitions=[0]).to_table()


SCHEMA = {"type": "struct", "name": "Order", "fields": [{"field": "n", "type": "int64"}]}


@pytest.mark.parametrize(
    ("keys", "value", "found"),
    [
        (JSON, b'{"n": 1}', b'{"n": 1}'),
        ({"format.class": f"{CONNECT}bytearray.ByteArrayFormat"}, b"\x00\xff", b"\x00\xff"),
        (
            {
                "format.class": f"{OURS}BlockGzipFormat",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            },
            b"a line",
            b"a line",
        ),
        *(
            (
                {"format.class": f"{CONNECT}{name}", "value.converter": JSON_CONVERTER},
                json.dumps({"schema": SCHEMA, "payload": {"n": 1}}).encode(),
                b'{"n":1}',
            )
            for name in ("avro.AvroFormat", "parquet.ParquetFormat")
        ),
    ],
    ids=["json", "bytes", "block_gzip", "avro", "parquet"],
)
def test_values_alone_have_their_offsets_and_what_no_object_holds_is_null(
    declared: Declared,
    kafka_settings: KafkaSettings,
    request: pytest.FixtureRequest,
    keys: Mapping[str, str],
    value: bytes,
    found: bytes,
) -> None:
    has_keys = "BlockGzip" not in keys["format.class"]
    beside = {
        "store.kafka.keys": "true",
        "keys.format.class": f"{CONNECT}bytearray.ByteArrayFormat",
        "store.kafka.headers": "true",
        "headers.format.class": f"{CONNECT}json.JsonFormat",
    }
    file = declared({**keys, **HOURLY, **(beside if has_keys else {})})
    headers = (("trace", b"t"),)
    produce(kafka_settings, declared.topic, [Sent(value, b"k", NOON + n * HOUR, headers) for n in range(3)])
    archived(file)
    assert read("c").to_table().to_pylist() == [
        {
            "key": b"k" if has_keys else None,
            "value": found,
            "headers": [{"key": "trace", "value": b"t"}] if has_keys else None,
            "topic": declared.topic,
            "partition": 0,
            "offset": offset,
            "timestamp": None,
            "timestampType": None,
        }
        for offset in range(3)
    ]
    assert list_places(read("c", start=NOON + HOUR, end=NOON + HOUR + timedelta(seconds=1))) == [(0, 1)]
    for side, wanted in (("key", b"k" if has_keys else None), ("value", found)):
        assert read("c").to_table(columns=[side]).to_pydict() == {side: [wanted] * 3}
    if b"schema" in value:
        values = read("c", decode=True).to_table(columns=["value"]).column("value")
        assert values.to_pylist() == [{"n": 1}] * 3
        # Spark takes seconds: one format is enough to show that it reads what others read
        if "AvroFormat" in keys["format.class"]:
            frame = load(request.getfixturevalue("session"), decode="true")
            assert dict(frame.dtypes)["value"] == "struct<n:bigint>"
            assert [row.offset for row in frame.where("value.n = 1 and offset < 2").orderBy("offset").collect()] == [
                0,
                1,
            ]
    else:
        with pytest.raises(ConfigError, match="values have no schema, so they have no columns"):
            read("c", decode=True)
    declared({})
    with pytest.raises(ConfigError, match=r"does not say how they are read back. Leave it out by start and end"):
        read("c")
    assert list_places(read("c", start=NOON + 9 * HOUR)) == []


def test_a_large_block_gzip_object_is_split_at_its_blocks_and_each_record_is_in_one_task(
    declared: Declared, kafka_settings: KafkaSettings
) -> None:
    keys = {
        **HOURLY,
        "format.class": f"{OURS}BlockGzipFormat",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "compressed_block_size": "100",
    }
    values = [b"line %d" % n for n in range(200)]
    produce(kafka_settings, declared.topic, [Sent(value) for value in values])
    archived(declared(keys))
    of_index = find_objects("c", None, EVERY_SEGMENT)
    declared({**keys, "connector.class": SOURCE})
    for found in (of_index, find_objects("c", None, EVERY_SEGMENT)):
        assert len(list(found.split(1_000_000))) == 1
        tasks = [task.open().to_table(columns=["offset", "value"]) for task in found.split(300)]
        assert len(tasks) > 3
        assert max(task.num_rows for task in tasks) < 100
        assert sorted(row["offset"] for task in tasks for row in task.to_pylist()) == list(range(200))
        assert pa.concat_tables(tasks).sort_by("offset").column("value").to_pylist() == values


def test_what_another_sink_wrote_is_read_by_the_file_of_a_source_and_chosen_by_its_folders(
    kafka_s3_without_spark: KafkaS3, lab: Lab, folder: Path, session: "SparkSession"
) -> None:
    file = declare(kafka_s3_without_spark, lab.kafka, lab.store, "", **JSON, **HOURLY, **{"connector.class": SOURCE})
    with pytest.raises(ConfigError, match=r"there is no object to read: .*was looked for below"):
        read("c", lab.topic)
    store = ObjectStore(file.store)
    for p, n in ((0, 0), (0, 2), (1, 0)):
        hour = NOON + n * HOUR
        key = f"topics/{lab.topic}/{hour:year=%Y/month=%m/day=%d/hour=%H}/{lab.topic}+{p}+{n:010}.json"
        store.put_new(key, b'{"n":%d}\n{"n":%d}\n' % (n, n + 1))
    found = query(read("c"), 'SELECT "partition", "offset", value FROM archive ORDER BY ALL')
    rows = [(p, n, b'{"n":%d}' % n) for p, count in ((0, 4), (1, 2)) for n in range(count)]
    assert found == rows
    late = read("c", start=NOON + HOUR, kafka_partitions=[0])
    assert list_places(late) == [(0, 2), (0, 3)]
    assert list_places(read("c", kafka_partitions=[1])) == [(1, 0), (1, 1)]
    assert [
        tuple(row)
        for row in load(session).select("partition", "offset", "value").orderBy("value", "partition").collect()
    ] == [*sorted(rows, key=lambda row: (row[2], row[0]))]
    since = str(round((NOON + HOUR).timestamp() * 1000))
    assert load(session, "offset BIGINT", startingTimestamp=since).count() == 2
    store.put_new(f"topics/{lab.topic}/elsewhere/{lab.topic}+0+0000000009.json", b"{}\n")
    with pytest.raises(IntegrityError, match="elsewhere"):
        read("c")
