"""The way of a value through the product, without servers: archived, read by others, restored.

Everything on the way is the product's own: connector files are parsed, converters get their schemas as a restore does
whose registry is gone, and objects are written and read in a bucket in memory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.restore.outgoing.keys import parse_outgoing
from kafka_s3_platform.connect.restore.outgoing.values import Values
from kafka_s3_platform.connect.restore.source.foreign_stream import ForeignStreamTask, WantedRecords, type_strings
from kafka_s3_platform.connect.sources.objects import group_objects
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.archive.failures import BadRecords
from kafka_s3_platform.core.archive.pipeline import Pipeline
from kafka_s3_platform.core.archive.task import ScanTask
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.formats.kept_offsets import METADATA, KeptOffsets
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.schema import ArchivedSchema, SubjectVersion
from kafka_s3_platform.core.restore.outgoing.sent import ValueSettings
from kafka_s3_platform.core.segments.writers import ClosedSegments, SegmentUploads, SegmentWriters
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.sources.memory import MemoryStore

URL = "http://registry.gone:8081"
CONVERTERS = {
    "AVRO": {"value.converter": "io.confluent.connect.avro.AvroConverter", "value.converter.schema.registry.url": URL},
    "JSON_SR": {
        "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
        "value.converter.schema.registry.url": URL,
    },
    "JSON": {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    },
    "PLAIN_JSON": {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    },
}
_CLASSES = {
    "avro": ("io.confluent.connect.s3.format.avro.AvroFormat", {}),
    "json": ("io.confluent.connect.s3.format.json.JsonFormat", {}),
    "parquet": ("io.confluent.connect.s3.format.parquet.ParquetFormat", {}),
    "bytes": ("io.confluent.connect.s3.format.bytearray.ByteArrayFormat", {"format.bytearray.separator": "length"}),
    "block_gzip": ("kafka_s3_platform.formats.BlockGzipFormat", {}),
    "envelope.parquet": ("kafka_s3_platform.formats.EnvelopeParquetFormat", {}),
    "envelope.avro": ("kafka_s3_platform.formats.EnvelopeAvroFormat", {}),
    "envelope.json": ("kafka_s3_platform.formats.EnvelopeJsonFormat", {}),
}
INSERTED = "zz_inserted"
INSERT = {
    "transforms": "i",
    "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.i.static.field": INSERTED,
    "transforms.i.static.value": "x",
}
"""A transform that adds a field, so that values are written anew."""
NOON_MS = 1_767_268_800_000


class Bucket(MemoryStore):
    """A bucket that can be written to."""

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> str:
        assert key not in self.objects
        self.objects[key], self.metadata[key] = body, metadata or {}
        return self._info(key).etag

    def refuses(self, key: str, control: str) -> str | None:  # noqa: ARG002
        return None


@lru_cache
def read_connector(format_name: str, converter: str, keys: tuple[tuple[str, str], ...] = ()) -> ConnectorConfig:
    """The settings of a sink's file."""
    class_name, own = _CLASSES[format_name]
    base = {"name": "events", "topics": "t", "s3.bucket.name": "bucket", "format.class": class_name, **own}
    base |= {"connector.class": "io.confluent.connect.s3.S3SinkConnector", "flush.size": "1000"}
    if format_name not in ("parquet", "envelope.parquet", "block_gzip"):
        codec = "avro.codec" if format_name.endswith("avro") else "s3.compression.type"
        base[codec] = "null" if codec == "avro.codec" else "none"
    with TemporaryDirectory() as folder:
        file, worker = Path(folder, "events.json"), Path(folder, "worker.properties")
        file.write_text(json.dumps(base | CONVERTERS[converter] | dict(keys)))
        worker.write_text("bootstrap.servers=none:9092\n")
        return load_connector(file, worker, {})


@dataclass(frozen=True)
class Archived:
    """What an archive run left: the bucket, why records are not in it (offset -> reason), and what it told."""

    config: ConnectorConfig
    schemas: tuple[ArchivedSchema, ...]
    bucket: Bucket
    refused: Mapping[int, str]
    told: Sequence[str]

    def objects(self) -> list[tuple[list[int], bytes]]:
        """Each object with the offsets of its records."""
        found = []
        for key, body in self.bucket.objects.items():
            if METADATA in self.bucket.metadata[key]:
                kept = KeptOffsets.parse(self.bucket.metadata[key][METADATA], 1 << 20)
                found.append((kept.of(0, kept.count).tolist(), body))
        return found

    def decoded(self) -> list[ConnectBatch]:
        """The records as a restore reads them, decoded."""
        source = self.config.model_copy(update={"topics": (), "source": SourceSettings()})
        groups = group_objects(SourceListing(source, store=self.bucket))
        wanted = [batch for g in groups for batch in WantedRecords(ForeignStreamTask(source, g), self.bucket)]
        if not self.config.layout.is_envelope:
            return [type_strings(batch, self.config.records) for batch in wanted]
        values = Values(ValueSettings(parse_outgoing({}), self.config.records, "t", "copy", schemas=self.schemas))
        moved = [values.decode(batch.records, everything=True) for batch in wanted]
        # An envelope holds any bytes: some have no value by their schema.
        reasons = [failure.message for outcome in moved for failure in outcome.failures]
        assert all("does not fit its schema" in reason or "which is required" in reason for reason in reasons)
        return [outcome.batch for outcome in moved]


@dataclass
class Restored:
    """The records that a restore sends: offset -> the bytes, and the schema that they name."""

    values: dict[int, tuple[bytes | None, Schema | None]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)


def records_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    rest = {"topic": "t", "partition": 3, "timestampType": 0, "timestamp": NOON_MS, "headers": None}
    rows = [{**rest, "offset": at, "key": b"k%d" % at, "value": value} for at, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def archive(
    config: ConnectorConfig, schemas: Sequence[ArchivedSchema], values: Sequence[bytes | None], cut: int = 0
) -> Archived:
    """Archive records as a scan does, in two batches if `cut` is not 0."""
    config = with_schemas(config, tuple(schemas))
    bucket = Bucket()
    task = _task(config, len(values))
    bad = BadRecords(3, datetime.now(timezone.utc))
    pipeline = Pipeline(task, None, 0, bad)
    records = records_of(values)
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(task.target(Attempt(0, 0)), bucket, closed, pipeline.refuse) as out:
            for batch in (records.slice(0, cut), records.slice(cut)) if cut else (records,):
                for part in pipeline.group_by_bucket(batch) if batch.num_rows else ():
                    out.write(part)
            out.close()
        closed.collect()
    counts = pipeline.counts
    assert (counts.read, counts.filtered, counts.dead_letters) == (len(values), 0, 0)
    assert counts.read == counts.output + counts.unresolved
    refused = {offset: row.message for row in bad.rows for offset in range(row.start_offset, row.end_offset)}
    return Archived(config, tuple(schemas), bucket, refused, pipeline.notes.sentences)


def restore(
    config: ConnectorConfig, schemas: Sequence[ArchivedSchema], batches: Sequence[ConnectBatch], keys: Mapping[str, str]
) -> Restored:
    """Send decoded records through the transforms and converters of `keys`. No schema is registered: the ids are 0."""
    outgoing = parse_outgoing(keys)
    values = Values(ValueSettings(outgoing, config.records, "t", "copy", schemas=tuple(schemas), registers=False))
    chain = new_chain(outgoing.transforms, "t")
    restored = Restored()
    for batch in batches:
        moved = chain.apply(batch)
        done = values.encode(moved.batch)
        restored.refused |= {f.offset: f.message for f in (*moved.failures, *done.failures)}
        by_offset = dict(zip(moved.batch.offsets.tolist(), _list_schemas(moved.batch.value), strict=True))
        columns = (done.batch.column(name).to_pylist() for name in ("offset", "value"))
        restored.values |= {offset: (value, by_offset[offset]) for offset, value in zip(*columns, strict=True)}
    return restored


def _list_schemas(payload: Payload) -> list[Schema | None]:
    return [None if code == NO_SCHEMA else payload.schemas[code] for code in payload.codes.tolist()]


def convert(config: ConnectorConfig, schemas: Sequence[ArchivedSchema], values: Sequence[bytes | None]) -> Any:
    """What the converter makes of values."""
    return convert_rows(with_schemas(config, tuple(schemas)).records.value, values)


def with_schemas(config: ConnectorConfig, schemas: tuple[ArchivedSchema, ...]) -> ConnectorConfig:
    """The settings with schemas that no registry is asked for."""
    converter = config.records.value
    if converter.registry is None:
        return config
    registry = converter.registry.model_copy(update={"archived": schemas})
    value = converter.model_copy(update={"registry": registry})
    return config.model_copy(update={"records": config.records.model_copy(update={"value": value})})


def _task(config: ConnectorConfig, count: int) -> ScanTask:
    return ScanTask(
        kafka=config.kafka,
        store=config.store,
        layout=config.layout,
        archive=config.archive,
        writer=Provenance("events", "t", "id", "index", "run", 1),
        kafka_partition=3,
        ranges=(OffsetRange(0, count),),
        epoch_marks=(None,),
        earliest_ms=0,
        latest_ms=2**52,
        watermark_ms=0,
        records=config.records,
    )


def registered(schema_id: int, schema: Any, subject: str = "t-value", version: int = 1, kind: str = "AVRO") -> Any:
    """A schema as the archive keeps it."""
    return ArchivedSchema(URL, schema_id, kind, json.dumps(schema), (SubjectVersion(subject, version, None),))


def parse_archived(schema: ArchivedSchema) -> Schema:
    """The schema as a converter has it."""
    place = schema.subjects[0]
    return Schema(schema.schema_text, schema.schema_id, place.subject, place.version)


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body
