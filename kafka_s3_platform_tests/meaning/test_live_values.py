"""Drawn values on a real Kafka, a real registry and a real S3: archived, and restored with a field more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from hypothesis import HealthCheck, given, settings

from kafka_s3_platform.connect.avro.walk import Datum
from kafka_s3_platform.connect.restore.outgoing.keys import parse_outgoing
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings, SourceSettings
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform_tests.archive.values import avro
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.meaning.agreement import AvroAgreement
from kafka_s3_platform_tests.meaning.avro_reference import Types
from kafka_s3_platform_tests.meaning.avro_schemas import schemas_and_values
from kafka_s3_platform_tests.meaning.harness import INSERT, INSERTED, framed
from kafka_s3_platform_tests.meaning.test_avro_values import build_pairs, check_refusals
from kafka_s3_platform_tests.restore.foreign import restored as restored_from_objects
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, connector, produce, snapshot, tried

pytestmark = [pytest.mark.integration, pytest.mark.long]

LAYOUTS: dict[str, dict[str, Any]] = {
    "envelope.parquet": {},
    "avro": {"format": "avro", "codec": "null"},
    "parquet": {"format": "parquet", "codec": "snappy"},
}


def check_live(lab: Lab, registry: RegistrySettings, output: str, schema: Any, values: Sequence[Any]) -> None:
    """Archive values and restore them, and compare what a consumer reads with what was produced."""
    topic = lab.create(f"{lab.topic}-{uuid4().hex[:6]}")
    types = Types.of(schema)
    with SchemaRegistryClient({"url": registry.url}) as client:
        schema_id = client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))
        produce(lab.kafka, topic, [Sent(framed(schema_id, types.encoded(v)), b"k", NOON) for v in values])
        config = connector(lab.kafka, lab.store, topic, layout=LAYOUTS[output], records=avro(registry))
        tried(config, [NOON])
        unresolved = snapshot(config).state.unresolved
        check_refusals({u.start_offset: u.message for u in unresolved})
        left_out = {offset for u in unresolved for offset in range(u.start_offset, u.end_offset)}
        kept = [value for offset, value in enumerate(values) if offset not in left_out]
        sent = restored(config, topic, registry) if kept else []
        for body, value in zip(sent, kept, strict=True):
            read = Types.of(json.loads(str(client.get_schema(int.from_bytes(body[1:5], "big")).schema_str)))
            agreement = AvroAgreement(types, read, inserted=INSERTED, renews_decimals=output == "parquet")
            agreement.check(value, read.decoded(body[5:]))


def restored(config: ConnectorConfig, topic: str, registry: RegistrySettings) -> list[bytes]:
    """Restore a topic with a field more, and read it."""
    keys: Mapping[str, str] = {
        **INSERT,
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry.url,
    }
    outgoing = parse_outgoing(keys)
    to_topic = f"{topic}-copy"
    if config.layout.is_envelope:
        request = RestoreRequest(config, topic, to_topic, topic, "run", outgoing=outgoing, create_topic=True)
        report = restore(ArchiveSource(request), InProcessRunner())
    else:
        source = config.model_copy(update={"topics": (topic,), "source": SourceSettings()})
        report = restored_from_objects(source, rename={topic: to_topic}, outgoing=outgoing, target_kafka_partitions=1)
    assert report.verified
    return list(records_of(config.kafka, to_topic, 0).column("value").to_pylist())


@pytest.mark.parametrize("output", LAYOUTS)
def test_unions_of_every_type_are_restored_with_their_branches(
    lab: Lab, registry: RegistrySettings, output: str
) -> None:
    for first in ("int", "enum", "record"):
        check_live(lab, registry, output, *build_pairs(first))


@pytest.mark.parametrize("output", LAYOUTS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas_and_values().filter(lambda drawn: can_be_changed(drawn[0])))
def test_drawn_values_are_restored_with_their_branches(
    lab: Lab, registry: RegistrySettings, output: str, drawn: Any
) -> None:
    check_live(lab, registry, output, drawn[0], drawn[2])


def can_be_changed(schema: Any) -> bool:
    """Whether a field can be inserted: into records that do not hold themselves."""
    return isinstance(schema, dict) and schema["type"] == "record" and not Datum(schema).is_recursive
