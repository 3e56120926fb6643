"""Values as a schema registry's clients write them, and the lines of their objects."""

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.support import snapshot

F1: dict[str, Any] = {"type": "record", "name": "myrecord", "fields": [{"name": "f1", "type": "string"}]}


def avro(registry: RegistrySettings) -> dict[str, Any]:
    return {"value": {"format": "AVRO", "registry": registry}}


def framed(
    registry: RegistrySettings, topic: str, schema: Any, values: Iterable[Any], kind: str = "AVRO"
) -> list[bytes]:
    """Values in the Registry's wire format."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        schema_id = client.register_schema(f"{topic}-value", Schema(json.dumps(schema), kind.removesuffix("_SR")))
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    if kind == "JSON_SR":
        return [prefix + json.dumps(value).encode() for value in values]
    found = []
    for value in values:
        body = io.BytesIO(prefix)
        body.seek(5)
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        found.append(body.getvalue())
    return found


def objects(config: ConnectorConfig) -> dict[str, bytes]:
    """Key -> bytes of every object that the index holds."""
    store = ObjectStore(config.store)
    return {key: store.get(key) for segment in snapshot(config).segments for key in segment.keys}


def lines(config: ConnectorConfig) -> dict[str, list[bytes]]:
    return {key: body.splitlines() for key, body in objects(config).items()}
