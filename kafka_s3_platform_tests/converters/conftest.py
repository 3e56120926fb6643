"""A client of the real registry, and values as its serializers write them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.converters import ConvertedPayload, new_converter


class Register(Protocol):
    """Registers a schema and gives its id. References: (name, subject, version)."""

    def __call__(self, subject: str, text: str, kind: str = "AVRO", references: Sequence[Any] = ()) -> int: ...


class Convert(Protocol):
    """Converts values of a topic, with a converter of its own."""

    def __call__(self, kind: str, topic: str, rows: Sequence[bytes | None], **options: str) -> ConvertedPayload: ...


@pytest.fixture(scope="module")
def client(registry: RegistrySettings) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def register(client: SchemaRegistryClient) -> Register:
    def new(subject: str, text: str, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        named = [SchemaReference(*reference) for reference in references]
        return client.register_schema(subject, Schema(text, kind, named))

    return new


@pytest.fixture
def convert(registry: RegistrySettings) -> Convert:
    def converted(kind: str, topic: str, rows: Sequence[bytes | None], **options: str) -> ConvertedPayload:
        given = {name.replace("_", "."): value for name, value in options.items()}
        settings = ConverterSettings.model_validate({"format": kind, "registry": registry, "options": given})
        return new_converter(settings, topic, is_key=False).convert(pa.array(rows, pa.binary()), np.arange(len(rows)))

    return converted


@pytest.fixture
def framed() -> Callable[[int, bytes], bytes]:
    """The wire format: a magic byte, the schema's id, the data."""
    return lambda schema_id, body: b"\0" + schema_id.to_bytes(4, "big") + body
