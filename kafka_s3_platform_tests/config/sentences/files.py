"""Connector files of every kind, and what comes of them."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.clients import Scope
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.mapping import Resolution, resolve_connector
from kafka_s3_platform.connect.config.worker import Worker
from kafka_s3_platform.core.config.parse import ConnectorFile

Entries = Mapping[str, str]

REGISTRY = "http://registry:8081"
JSON_VALUES = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
JSON = {"format.class": "JsonFormat", **JSON_VALUES}
SCHEMA_VALUES = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": REGISTRY}
AVRO = {"format.class": "AvroFormat", **SCHEMA_VALUES}
CONNECT_SOURCE = {"connector.class": "io.confluent.connect.s3.source.S3SourceConnector"}
AIVEN = {
    "connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
    "format.output.type": "jsonl",
    "format.output.envelope": "false",
    "value.converter": "StringConverter",
}
AIVEN_SOURCE = {"connector.class": "io.aiven.kafka.connect.s3.source.S3SourceConnector", **JSON_VALUES}
LENSES = "io.lenses.streamreactor.connect.aws.s3"

FILES: dict[str, Entries] = {
    "envelope": {},
    "envelope with a converter": {"format.class": "EnvelopeAvroFormat", **SCHEMA_VALUES},
    "json": JSON,
    "json by the hour": {**JSON, "partitioner.class": "HourlyPartitioner"},
    "json by a field": {**JSON, "partitioner.class": "FieldPartitioner", "partition.field.name": "a"},
    "json by a field's time": {
        **JSON,
        "partitioner.class": "TimeBasedPartitioner",
        "path.format": "YYYY",
        "partition.duration.ms": "3600000",
        "timestamp.extractor": "RecordField",
    },
    "json of JSON Schema": {**JSON, **SCHEMA_VALUES, "value.converter": "JsonSchemaConverter"},
    "json with keys and headers": {
        **JSON,
        "store.kafka.keys": "true",
        "store.kafka.headers": "true",
        "key.converter": "StringConverter",
    },
    "avro": AVRO,
    "avro of protobuf": {**AVRO, "value.converter": "ProtobufConverter"},
    "parquet": {**AVRO, "format.class": "ParquetFormat"},
    "bytes": {"format.class": "ByteArrayFormat"},
    "block gzip": {"format.class": "BlockGzipFormat"},
    "cloud": {"connector.class": "S3_SINK", "input.data.format": "JSON", "output.data.format": "JSON"},
    "aiven": AIVEN,
    "lenses": {"connector.class": f"{LENSES}.sink.S3SinkConnector", "value.converter": "StringConverter"},
    "source": {**CONNECT_SOURCE, **JSON},
    "source by a template": {**CONNECT_SOURCE, **JSON, "archive.source.template": "{{topic}}/{{start_offset}}"},
    "aiven source": {**AIVEN_SOURCE, "input.format": "jsonl"},
    "cloud source": {"connector.class": "S3_SOURCE", "input.data.format": "JSON"},
    "lenses source": {"connector.class": f"{LENSES}.source.S3SourceConnector", "value.converter": "StringConverter"},
}
_PLACE = {"topics": "events", "s3.bucket.name": "archive"}
_KCQL = {
    "lenses": "INSERT INTO archive:p SELECT * FROM events STOREAS `JSON`",
    "lenses source": "INSERT INTO events SELECT * FROM archive:p STOREAS `JSON`",
}


def file_of(kind: str) -> dict[str, str]:
    """The whole file of a kind."""
    return {**FILES[kind], **({"connect.s3.kcql": _KCQL[kind]} if kind in _KCQL else _PLACE)}


SCOPES: tuple[Scope, ...] = ("common", "consumer", "producer", "admin")
WORKER = Worker(Path("worker.properties"), True, "broker:9092", {scope: {} for scope in SCOPES}, ())


def resolve(entries: Entries) -> Resolution:
    """What comes of a file beside a worker.properties that names a cluster, and nothing else."""
    secret = {name: SecretStr(value) for name, value in entries.items()}
    return resolve_connector(ConnectorFile(Path("events.json"), "events", secret), WORKER)


def without_meaning(found: Resolution) -> dict[str, str]:
    """What is said of each key without meaning."""
    return {f.key: f.effect for f in found.findings if f.support is Support.WITHOUT_MEANING}
