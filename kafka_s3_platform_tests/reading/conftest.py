"""What tests of reading share: a connector in a folder of its own, what is archived, and a session of Spark."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.reading.spark_source import KafkaArchive
from kafka_s3_platform_tests.cli.conftest import KafkaS3, kafka_s3_without_spark, write_reachable_connector  # noqa: F401
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "kafka_s3_platform.formats."
CONNECT = "io.confluent.connect.s3.format."
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
JSON = {
    "format.class": f"{CONNECT}json.JsonFormat",
    "value.converter": JSON_CONVERTER,
    "value.converter.schemas.enable": "false",
}


@pytest.fixture
def folder(kafka_s3_without_spark: KafkaS3, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A folder with `connectors/`, in which the test stands."""
    monkeypatch.chdir(kafka_s3_without_spark.folder)
    return kafka_s3_without_spark.folder


@pytest.fixture
def config(kafka_s3_without_spark: KafkaS3, folder: Path, lab: Lab) -> ConnectorConfig:  # noqa: F811
    """Connector `c`, whose topic has two kafka partitions and nothing archived."""
    lab.create_topic(2)
    return declare(kafka_s3_without_spark, lab.kafka, lab.store, lab.topic)


def declare(kafka_s3: KafkaS3, kafka: KafkaSettings, store: StoreSettings, topics: str, **more: str) -> ConnectorConfig:
    return write_reachable_connector(kafka_s3, kafka, store, topics, **more)


def fill(config: ConnectorConfig) -> None:
    """Archive an odd record at noon, and three hours of plain ones in both kafka partitions."""
    headers = (("trace", b"\x00"), ("trace", None), ("", b""))
    odd = [Sent(None, b"", NOON, headers), Sent(b"", None, NOON, ())]
    plain = [Sent(b"%d" % n, b"k", NOON + n * HOUR, (), p) for n in range(3) for p in (0, 1)]
    produce(config.kafka, config.topics[0], [*odd, *plain])
    archived(config)


def sort(table: pa.Table) -> pa.Table:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def list_places(dataset: ds.Dataset) -> list[tuple[int, int]]:
    found = dataset.to_table(columns=["partition", "offset"])
    return sorted(zip(*found.to_pydict().values(), strict=True))


def delete_all_but(config: ConnectorConfig, hour: datetime, kafka_partition: int) -> None:
    """Nothing that opens another object can be read then."""
    store = ObjectStore(config.store)
    for segment in snapshot(config).segments:
        if (segment.chunk_start, segment.kafka_partition) != (hour, kafka_partition):
            store.delete(segment.key, segment.etag)


@pytest.fixture
def session(spark: "SparkSession") -> "SparkSession":
    """Spark as an analyst has set it up."""
    spark.dataSource.register(KafkaArchive)
    return spark


def load(session: "SparkSession", schema: Any = None, **options: str) -> Any:
    reader = session.read.format("kafka_archive").options(connector="c", connectors=str(Path("connectors").absolute()))
    return (reader if schema is None else reader.schema(schema)).options(**options).load()


@pytest.fixture
def declared(kafka_s3_without_spark: KafkaS3, config: ConnectorConfig, lab: Lab) -> "Declared":  # noqa: F811
    return Declared(kafka_s3_without_spark, lab.kafka, lab.store, config.topics[0])


class Declared:
    """Connector `c` of the test's topic, whose file may be edited."""

    def __init__(self, kafka_s3: KafkaS3, kafka: KafkaSettings, store: StoreSettings, topic: str) -> None:
        self._kafka_s3 = kafka_s3
        self._kafka = kafka
        self._store = store
        self.topic = topic

    def __call__(self, keys: Mapping[str, str]) -> ConnectorConfig:
        return declare(self._kafka_s3, self._kafka, self._store, self.topic, **keys)


def query(archive: ds.Dataset, sql: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = duckdb.connect().register("archive", archive).execute(sql).fetchall()
    return found
