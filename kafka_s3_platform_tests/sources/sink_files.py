"""Connector files of other sinks, and the keys of their objects."""

import json
from collections.abc import Mapping
from pathlib import Path

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.config.settings import ConnectorConfig

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
ALL = "key,value,offset,timestamp,headers"


Keys = dict[str, str]

FORMATS = {"avro": "AvroFormat", "json": "JsonFormat", "parquet": "ParquetFormat", "bytes": "ByteArrayFormat"}


def aiven(kind: str, key: str, value: str, headers: str = BYTES, **more: str) -> Keys:
    return {
        "connector.class": "io.aiven.kafka.connect.s3.source.S3SourceConnector",
        "aws.s3.bucket.name": "bucket",
        "file.name.template": "topics/{{topic}}-{{partition}}-{{start_offset}}",
        "file.compression.type": "none",
        "format.output.type": kind,
        "format.output.fields": ALL,
        **_converters(key, value, headers),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def confluent(kind: str, key: str, value: str, header_converter: str = BYTES, **beside: str) -> Keys:
    """`beside` are the formats of keys and headers."""
    stored = {f"store.kafka.{part}": "true" for part in beside}
    formats = {f"{part}.format.class": FORMATS[name] for part, name in beside.items()}
    return {
        "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
        "s3.bucket.name": "bucket",
        "format.class": FORMATS[kind],
        **_converters(key, value, header_converter),
        **stored,
        **formats,
    }


def _converters(key: str, value: str, headers: str) -> Keys:
    found = {"key.converter": key, "value.converter": value, "header.converter": headers}
    if value == JSON:
        found["value.converter.schemas.enable"] = "false"
    if value == AVRO:
        found["value.converter.schema.registry.url"] = "http://registry:8081"
    return found


def config_of(folder: Path, keys: Mapping[str, str]) -> ConnectorConfig:
    (folder / "worker.properties").write_text("bootstrap.servers=broker:9092\n")
    path = folder / "sink.json"
    path.write_text(json.dumps({"name": "sink", "topics": "t", **keys}))
    return load_connector(path, folder / "worker.properties", {})
