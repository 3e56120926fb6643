"""A topic of Debezium's tables and of event types: archived by its registry, and restored from the sink's objects."""

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kafka_s3_platform.config.settings import RegistrySettings
from kafka_s3_platform_tests.archive.test_event_topics import BY_ID, FEED, UNION, Event, events
from kafka_s3_platform_tests.archive.test_sink import avro
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.foreign import restored, values
from kafka_s3_platform_tests.sources.test_round_trip import source_of
from kafka_s3_platform_tests.support import Sent

pytestmark = pytest.mark.integration

TOPIC = [event for event in (*events("customers", "orders"), *FEED, *UNION) if event.schema]


@pytest.fixture(scope="module")
def ids(registry: RegistrySettings) -> dict[int, int]:
    """The id of each schema in the registry, once it is registered there, its references first."""
    found = {}
    with SchemaRegistryClient({"url": registry.url}) as client:
        for schema in sorted(BY_ID.values(), key=lambda schema: (len(schema.references), schema.version)):
            named = [SchemaReference(r.name, r.subject, r.version) for r in schema.references]
            found[schema.schema_id] = client.register_schema(schema.subject, Schema(schema.text, "AVRO", named))
    return found


def framed(event: Event, ids: dict[int, int]) -> bytes:
    assert event.schema is not None
    assert event.raw is not None
    return b"\0" + ids[event.schema.schema_id].to_bytes(4, "big") + event.raw[5:]


@pytest.mark.parametrize("format_name", ["avro", "parquet"])
def test_each_event_comes_back_in_its_place_with_its_bytes_and_its_type(
    lab: Lab, registry: RegistrySettings, ids: dict[int, int], format_name: str
) -> None:
    layout = {"format": format_name, "codec": "snappy", "partitioner": "Default"}
    config = lab.archive([Sent(framed(event, ids)) for event in TOPIC], layout=layout, records=avro(registry))
    restored(source_of(config), (), f"{lab.topic}-copy")
    back = values(lab.kafka, f"{lab.topic}-copy")
    assert [value[5:] for value in back] == [(event.raw or b"")[5:] for event in TOPIC]
    with SchemaRegistryClient({"url": registry.url}) as client:
        texts = [client.get_schema(int.from_bytes(value[1:5], "big")).schema_str or "" for value in back]
    assert len(set(texts)) == len({event.schema for event in TOPIC})
