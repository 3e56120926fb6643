"""`kafka_s3_platform.read(..., decode=True)` by the schemas that the archive keeps: no registry is asked."""

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafka_s3_platform import read
from kafka_s3_platform.config.settings import KafkaSettings, RegistrySettings
from kafka_s3_platform.errors import ConfigError, RecordError
from kafka_s3_platform_tests.archive.test_sink import framed
from kafka_s3_platform_tests.cli.conftest import kafka_s3_without_spark  # noqa: F401
from kafka_s3_platform_tests.reading.test_formats import JSON, Declared, declared, query  # noqa: F401
from kafka_s3_platform_tests.reading.test_read import config, folder  # noqa: F401
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce

pytestmark = pytest.mark.integration

FIRST: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "tag", "type": "string", "default": "none"}]}
OTHER = {**FIRST, "name": "Other"}


def sent_at(hour: int, values: list[bytes]) -> list[Sent]:
    return [Sent(value, b"k", NOON + hour * HOUR) for value in values]


def test_values_come_to_the_newest_archived_schema_or_to_the_one_asked_for(
    declared: Declared,  # noqa: F811
    kafka_settings: KafkaSettings,
    registry: RegistrySettings,
) -> None:
    topic = declared.topic
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    here = {**avro, "value.converter.schema.registry.url": registry.url}
    old = framed(registry, topic, FIRST, [{"n": 1}, {"n": 2}])
    produce(kafka_settings, topic, sent_at(0, old))
    archived(declared(here))
    parquet_only = read("c", decode=True)
    new = framed(registry, topic, SECOND, [{"n": 3, "tag": "x"}])
    produce(kafka_settings, topic, [*sent_at(1, [*new, old[0]]), Sent(None, b"k", NOON + HOUR)])
    archived(declared({**here, "format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat"}))
    declared({**here, "value.converter.schema.registry.url": "http://127.0.0.1:1"})

    archive = read("c", decode=True)
    assert [(each.name, each.type) for each in archive.schema.field("value").type] == [
        ("n", pa.int64()),
        ("tag", pa.string()),
    ]
    found = archive.to_table(columns=["offset", "value"]).sort_by("offset").column("value").to_pylist()
    assert found == [*({"n": n, "tag": "none"} for n in (1, 2)), {"n": 3, "tag": "x"}, {"n": 1, "tag": "none"}, None]
    assert query(archive, "SELECT sum(value.n), count(*) FROM archive WHERE value.tag = 'none'") == [(4, 3)]
    assert archive.to_table(filter=ds.field("value", "n") > 1, columns=["offset"]).num_rows == 2
    assert parquet_only.to_table().column("value").to_pylist() == [{"n": 1}, {"n": 2}]
    assert read("c", end=NOON + HOUR, decode=True).schema.equals(parquet_only.schema)
    assert read("c", start=NOON + 99 * HOUR, decode=True).to_table().equals(archive.schema.empty_table())
    first_id = int.from_bytes(old[0][1:5], "big")
    assert [v and v["n"] for v in read("c", schema_id=first_id).to_table().column("value").to_pylist()].count(1) == 2

    declared(here)
    with pytest.raises(ConfigError, match=r"schema 987654321 cannot be read"):
        read("c", schema_id=987654321)
    declared({})
    with pytest.raises(ConfigError, match=r"its file does not say how values are decoded: it has no value.converter"):
        read("c", decode=True)
    declared({key: value for key, value in JSON.items() if key.startswith("value.")})
    with pytest.raises(RecordError, match=rf"{topic}-0: the value of the record at offset 2 of topic {topic} "):
        read("c", decode=True)

    produce(kafka_settings, topic, sent_at(2, framed(registry, f"{topic}-of-others", OTHER, [{"n": 1}])))
    archived(declared(here))
    with pytest.raises(RecordError, match=rf"{topic}-0, offset 5: the value does not fit: .*Other"):
        read("c", decode=True).to_table()
    produce(kafka_settings, topic, sent_at(3, [b"plain"]))
    archived(declared(here))
    with pytest.raises(RecordError, match=r"offset 6 .*begins with the byte 0x70"):
        read("c", start=NOON + 3 * HOUR, schema_id=first_id).to_table()
