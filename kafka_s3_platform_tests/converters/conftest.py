"""A topic whose schemas are in the real registry."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform_tests.converters.values import convert_rows


@dataclass(frozen=True)
class Registered:
    """A topic, and the registry with a client."""

    registry: RegistrySettings
    client: SchemaRegistryClient
    topic: str

    def register(self, text: str, kind: str = "AVRO", subject: str = "value", **references: str) -> int:
        """Register a schema and return its id. References: subject of the topic -> name."""
        named = [SchemaReference(name, f"{self.topic}-{of}", 1) for of, name in references.items()]
        return self.client.register_schema(f"{self.topic}-{subject}", Schema(text, kind, named))

    def convert(self, kind: str, rows: Sequence[bytes | None], topic: str = "", **options: str) -> ConvertedPayload:
        """Convert values of the topic, with a converter of its own. Options by their names, dots as underscores."""
        given = {name.replace("_", "."): value for name, value in options.items()}
        settings = ConverterSettings.model_validate({"format": kind, "registry": self.registry, "options": given})
        return convert_rows(settings, rows, topic or self.topic)


@pytest.fixture(scope="module")
def client(registry: RegistrySettings) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def registered(registry: RegistrySettings, client: SchemaRegistryClient, topic_name: str) -> Registered:
    return Registered(registry, client, topic_name)
