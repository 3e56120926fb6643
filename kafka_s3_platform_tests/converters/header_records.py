"""Records as Confluent's own serializers write them, with the schema's GUID in a header, and what its readers read."""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA

Headers = tuple[tuple[str, bytes | None], ...]
TRIP = (
    '{"type":"record","name":"Trip","namespace":"bikes","fields":'
    '[{"name":"from","type":"string"},{"name":"metres","type":"int"}]}'
)
TRIP_JSON = (
    '{"title":"Trip","type":"object","required":["from","metres"],'
    '"properties":{"from":{"type":"string"},"metres":{"type":"integer"}}}'
)
TRIP_PROTO = (
    'syntax = "proto3"; package bikes; message Stop { string name = 1; } '
    "message Log { message Trip { string from = 1; int32 metres = 2; } }"
)
TRIP_MESSAGE: Any = GetMessageClass(
    compile_file(TRIP_PROTO, {}).message_types_by_name["Log"].nested_types_by_name["Trip"]
)


@dataclass(frozen=True)
class Record:
    """A record of one side alone."""

    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class Confluent:
    """Confluent's serializers and deserializers of one format, with a registry of the test's."""

    url: str
    topic: str
    kind: str = "AVRO"
    field: MessageField = MessageField.VALUE

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        client = SchemaRegistryClient({"url": self.url, "ssl.ca.location": False})
        weakref.finalize(self, client.close)
        return client

    def written(self, value: Any, *, in_header: bool = True) -> Record:
        """The record of a value, which is a dict."""
        conf: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
        headers: Any = []
        context = SerializationContext(self.topic, self.field, headers)
        if self.kind == "AVRO":
            done = AvroSerializer(self._client, TRIP, conf=conf)(value, context)
        elif self.kind == "JSON_SR":
            done = JSONSerializer(TRIP_JSON, self._client, conf=conf)(value, context)
        else:
            conf["use.deprecated.format"] = False
            given = {"from": value["from"], "metres": value["metres"]}
            done = ProtobufSerializer(TRIP_MESSAGE, self._client, conf)(TRIP_MESSAGE(**given), context)
        return Record(done, tuple(headers))

    def read(self, record: Record) -> Any:
        """The value that a reader sees, as a dict."""
        context = SerializationContext(self.topic, self.field, list(record.headers))
        if self.kind == "AVRO":
            return AvroDeserializer(self._client)(record.value, context)
        if self.kind == "JSON_SR":
            return JSONDeserializer(None, schema_registry_client=self._client)(record.value, context)
        found = ProtobufDeserializer(TRIP_MESSAGE, {"use.deprecated.format": False}, self._client)(
            record.value, context
        )
        return {"from": getattr(found, "from"), "metres": found.metres}


def batch_of(rows: Sequence[Record], side: str = "value") -> pa.RecordBatch:
    """The records as they are read from Kafka, from offset 10 on."""
    made = [
        {
            "key": b"k",
            "value": b"v",
            side: row.value,
            "headers": [{"key": name, "value": value} for name, value in row.headers] or None,
            "topic": "t",
            "partition": 3,
            "offset": 10 + at,
            "timestamp": at,
            "timestampType": 0,
        }
        for at, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(made, RECORD_SCHEMA)


def records_of(batch: pa.RecordBatch, side: str = "value") -> Iterable[Record]:
    """The records of a batch."""
    for row in batch.to_pylist():
        headers = row["headers"] or ()
        yield Record(row[side], tuple((each["key"], each["value"]) for each in headers))
