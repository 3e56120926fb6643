"""Whole restores of folders of hostile objects and good ones: each is named and left out, the good ones come back."""

import base64
import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.envelope.avro import EnvelopeAvroWriter
from kafka_s3_platform.core.formats.envelope.json import new_json_writer
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeWriter
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform_tests.hostile.attacks import ATTACKS, Attack
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.foreign import (
    BLOCK_GZIP,
    DEVIANT_CLASS,
    JSON,
    LINES,
    SOURCE_CLASS,
    SourceLab,
    asked,
    restored,
)
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFLUENT = "io.confluent.connect.s3.format"
BYTES = "value.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n"
IN_ONE_FOLDER = "partitioner.class=io.confluent.connect.storage.partitioner.DefaultPartitioner\n"
_AIVEN = """\
name=aiven
connector.class=io.aiven.kafka.connect.s3.source.S3SourceConnector
aws.s3.bucket.name=confluent-kafka-connect-s3-testing
aws.s3.prefix=topics/
file.name.template={{topic}}/{{partition}}-{{start_offset}}
file.compression.type=none
format.output.fields=value
format.output.fields.value.encoding=none
"""
TOPIC, AT = "hostile", 1_700_000_000_000
AVRO_N = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}


def _lines(first: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(first, first + 3))


def _avro(first: int) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, AVRO_N, [{"n": n} for n in range(first, first + 3)], "zstandard")
    return sink.getvalue()


def _parquet(first: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": list(range(first, first + 3))}), sink)
    return sink.getvalue()


def _elements(first: int) -> bytes:
    return b"[" + b",".join(b'{"value":%b}' % line for line in _lines(first).splitlines()) + b"]"


def _csv(offset: int, value: bytes) -> bytes:
    return b",%b,%d,2023-11-14T22:13:20Z,\n" % (base64.b64encode(value), offset)


def _envelope(writer: Callable[[Any], Any]) -> Callable[[int], bytes]:
    def good(first: int) -> bytes:
        sink = io.BytesIO()
        row = {"key": None, "headers": None, "topic": TOPIC, "partition": 0, "timestamp": AT, "timestampType": 0}
        rows = [{**row, "value": b'{"n":%d}' % n, "offset": n} for n in range(first, first + 3)]
        made = writer(sink)
        made.write(ConnectBatch.of(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)))
        made.close({})
        return sink.getvalue()

    return good


@dataclass(frozen=True)
class Kind:
    """A format: the file that reads it, how its objects are named, and a good one that begins at an offset."""

    file: str
    key: str
    good: Callable[[int], bytes]


def _confluent(format_class: str, suffix: str, good: Callable[[int], bytes], more: str = JSON) -> Kind:
    file = LINES.replace(f"{CONFLUENT}.json.JsonFormat", f"{CONFLUENT}.{format_class}") + more
    return Kind(file, "topics/{topic}/partition=0/{topic}+0+{offset:010d}" + suffix, good)


def _own(format_class: str, suffix: str, writer: Callable[[Any], Any]) -> Kind:
    file = LINES.replace(f"{CONFLUENT}.json.JsonFormat", format_class) + IN_ONE_FOLDER
    return Kind(file, "topics/{topic}/partition=0/{topic}+0+{offset:010d}" + suffix, _envelope(writer))


def _compressed(compress: Callable[[bytes], bytes]) -> Callable[[int], bytes]:
    return lambda first: compress(_lines(first))


KINDS: Mapping[str, Kind] = {
    "avro": _confluent("avro.AvroFormat", ".avro", _avro),
    "parquet": _confluent("parquet.ParquetFormat", ".snappy.parquet", _parquet),
    "json": _confluent("json.JsonFormat", ".json", _lines),
    "json.gz": _confluent("json.JsonFormat", ".json.gz", _compressed(gzip.compress)),
    "json.bz2": _confluent("json.JsonFormat", ".json.bz2", _compressed(bz2.compress)),
    "json.zst": _confluent("json.JsonFormat", ".json.zst", _compressed(zstandard.compress)),
    "json.xz": _confluent("json.JsonFormat", ".json.xz", _compressed(lzma.compress)),
    "json.lz4": _confluent(
        "json.JsonFormat", ".json.lz4", _compressed(lambda plain: bytes(cramjam.lz4.compress(plain)))
    ),
    "json.snappy": _confluent(
        "json.JsonFormat", ".json.snappy", _compressed(lambda plain: bytes(cramjam.snappy.compress(plain)))
    ),
    "bytes.gz": _confluent("bytearray.ByteArrayFormat", ".bin.gz", _compressed(gzip.compress), BYTES),
    "aiven.json": Kind(f"{_AIVEN}format.output.type=json\n{JSON}", "topics/{topic}/0-{offset}", _elements),
    "aiven.csv": Kind(
        _AIVEN.replace("fields=value", "fields=key,value,offset,timestamp,headers").replace(
            "encoding=none", "encoding=base64"
        )
        + f"format.output.type=csv\n{BYTES}",
        "topics/{topic}/0-{offset}",
        lambda first: b"".join(_csv(first + n, line) for n, line in enumerate(_lines(first).splitlines())),
    ),
    "aiven.jsonl": Kind(
        f"{_AIVEN}format.output.type=jsonl\n{JSON}",
        "topics/{topic}/0-{offset}",
        lambda first: b"".join(b'{"value":%b}\n' % line for line in _lines(first).splitlines()),
    ),
    "envelope.parquet": _own("EnvelopeParquetFormat", ".parquet", EnvelopeWriter),
    "envelope.avro": _own("EnvelopeAvroFormat", ".avro", partial(EnvelopeAvroWriter, codec="zstd")),
    "envelope.json": _own("EnvelopeJsonFormat", ".json", partial(new_json_writer, codec="zstd")),
}


def attacks_of(formats: Collection[str]) -> list[Any]:
    """By name; all but the first of each format are `long`: what each costs, `test_attacks` shows without servers."""
    found: list[Any] = []
    seen: set[str] = set()
    for name, attack in ATTACKS.items():
        if attack.format in formats:
            found.append(pytest.param(name, marks=pytest.mark.long if attack.format in seen else ()))
            seen.add(attack.format)
    return found


def test_every_format_that_others_write_is_here() -> None:
    # An index of Block-GZIP is an object of its own; nobody else writes a value behind its length; names of Lenses'
    # objects tell their last offset, which hostile ones have not.
    assert {attack.format for attack in ATTACKS.values()} - {"length", "block_gzip", "lenses.json"} == set(KINDS)


def filled(s3: Any, bucket: str, kind: Kind, attacks: Mapping[str, Attack]) -> dict[str, str]:
    """Good objects of three records with a hostile one after each: the keys of those, by the names of the attacks."""
    keys = {}
    for at, (name, attack) in enumerate(attacks.items()):
        key = kind.key.format(topic=TOPIC, offset=1000 * at)
        s3.put_object(Bucket=bucket, Key=key, Body=kind.good(1000 * at))
        keys[name] = kind.key.format(topic=TOPIC, offset=1000 * at + 500)
        s3.put_object(Bucket=bucket, Key=keys[name], Body=attack.build())
    last = 1000 * len(attacks)
    s3.put_object(Bucket=bucket, Key=kind.key.format(topic=TOPIC, offset=last), Body=kind.good(last))
    return keys


def good_values(count: int) -> list[bytes]:
    return [b'{"n":%d}' % (1000 * at + n) for at in range(count + 1) for n in range(3)]


@pytest.mark.parametrize("name", attacks_of(KINDS))
def test_a_hostile_object_ends_a_restore_by_name_or_is_left_out_alone(lab: SourceLab, name: str) -> None:
    kind, attack = KINDS[ATTACKS[name].format], ATTACKS[name]
    [key] = filled(lab.s3, lab.store.bucket, kind, {name: attack}).values()
    config, failed = lab.load(kind.file), f"{lab.topic}-failed"
    with pytest.raises(IntegrityError) as failure:
        restored(config, (), {TOPIC: failed})
    report = restored(config, (), {TOPIC: lab.topic}, behavior_on_error="ignore")
    assert set(values(lab.kafka, failed)) <= set(good_values(0))
    assert values(lab.kafka, lab.topic) == good_values(1)
    assert (report.record_count, report.verified) == (6, True)
    for told in (str(failure.value), "\n".join(report.skipped)):
        assert key in told
        assert attack.fault in told


def test_sparks_workers_survive_them(lab: SourceLab, spark: "SparkSession") -> None:
    """Recursion, a container that is nearly endless, and much that comes of little."""
    kind = KINDS["avro"]
    attacks = {name: ATTACKS[name] for name in ("avro-deep", "avro-nested-schema", "avro-metadata", "avro-zstd")}
    keys = filled(lab.s3, lab.store.bucket, kind, attacks)
    request = asked(lab.load(kind.file), (), {TOPIC: lab.topic}, behavior_on_error="ignore")
    report = restore(request, SparkRunner(lambda: spark))
    assert values(lab.kafka, lab.topic) == good_values(len(attacks))
    assert all(key in "\n".join(report.skipped) for key in keys.values())
    assert json.loads(report.to_json())["verified"] is True


@pytest.mark.parametrize("name", attacks_of(["block_gzip"]))
def test_so_is_an_object_of_block_gzip_with_such_an_index(lab: SourceLab, name: str) -> None:
    lab.create_topic()
    lab.produce([Sent(b"%d" % n, None, NOON + n * HOUR) for n in range(3)])
    text = BLOCK_GZIP.replace("system-test", lab.topic)
    archived(lab.load(text))
    source = lab.load(
        f"{text.replace(DEVIANT_CLASS, SOURCE_CLASS)}format.class=BlockGzipFormat\narchive.key.layout=block_gzip\n"
    )
    objects = lab.s3.list_objects_v2(Bucket=source.store.bucket, Prefix="systest/")["Contents"]
    key = sorted(o["Key"] for o in objects if o["Key"].endswith(".gz"))[1]
    index, _, body = ATTACKS[name].build().partition(b"\n")
    lab.s3.put_object(Bucket=source.store.bucket, Key=f"{key.removesuffix('.gz')}.index.json", Body=index)
    lab.s3.put_object(Bucket=source.store.bucket, Key=key, Body=body or b"\x1f\x8b")
    with pytest.raises(IntegrityError, match=key.removesuffix(".gz")):
        restored(source, (), "{topic}-copy")
    report = restored(source, (), "{topic}-others", behavior_on_error="ignore")
    assert values(lab.kafka, f"{lab.topic}-others") == [b"0", b"2"]
    (line,) = report.skipped
    assert key.removesuffix(".gz") in line
    assert ATTACKS[name].fault in line
