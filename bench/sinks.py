"""What the sink rows of the bench write: an input, a format and a codec each, with and without a key field."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from bench.workload import key, value
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings

AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "session", "type": "string"},
        {"name": "action", "type": {"type": "enum", "name": "Action", "symbols": ["view", "click", "cart", "buy"]}},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": "string"},
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "agent", "type": "string"},
        {"name": "ok", "type": "boolean"},
        {"name": "attempt", "type": "int"},
    ],
}

BY_FIELD = {"partitioner": "Field", "partition_fields": ("country",)}

SINKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "JSON to gzip JSON": ("JSON", {"format": "json", "codec": "gzip"}),
    "JSON to gzip JSON, by a field": ("JSON", {"format": "json", "codec": "gzip", **BY_FIELD}),
    "JSON to zstd JSON": ("JSON", {"format": "json", "codec": "zstd"}),
    "JSON to Block-GZIP": ("BYTES", {"format": "block_gzip", "codec": "gzip"}),
    "registry Avro to Avro": ("AVRO", {"format": "avro", "codec": "snappy"}),
    "registry Avro to Avro, uncompressed": ("AVRO", {"format": "avro", "codec": "null"}),
    "registry Avro to Avro, by a field": ("AVRO", {"format": "avro", "codec": "snappy", **BY_FIELD}),
    "registry Avro to Parquet": ("AVRO", {"format": "parquet", "codec": "snappy"}),
    "registry Avro to gzip JSON": ("AVRO", {"format": "json", "codec": "gzip"}),
}
"""Name -> converter of values and layout."""


def converter(name: str, registry_url: str) -> ConverterSettings:
    """Return the converter of a sink's values."""
    registry = RegistrySettings(url=registry_url) if name == "AVRO" else None
    return ConverterSettings(format=name, registry=registry)


def registered(registry_url: str, topic: str) -> int:
    """Register the Avro schema for the topic's values and return its id."""
    client = SchemaRegistryClient({"url": registry_url})
    return int(client.register_schema(f"{topic}-value", Schema(json.dumps(AVRO), "AVRO")))


def avro_values(schema_id: int, numbers: list[int]) -> list[tuple[bytes, bytes]]:
    """Keys and values of records, the values in the Registry's wire format."""
    parsed = fastavro.parse_schema(AVRO)
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    found = []
    for n in numbers:
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, json.loads(value(n)))
        found.append((key(n), prefix + body.getvalue()))
    return found
