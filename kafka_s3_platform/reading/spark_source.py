"""The batch data source `kafka_archive` of Spark, with the columns of Spark's Kafka source.

Conditions on `partition`, `offset` and `timestamp` are compared with the index: no object is opened that cannot meet
them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (  # noqa: TID253 - whoever imports this module has Spark
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: TID253
from pyspark.sql.types import StructType  # noqa: TID253

from kafka_s3_platform.config.files import FOLDER_VARIABLE
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.times import EPOCH, ONE_MS
from kafka_s3_platform.reading.dataset import FIRST_NUMBER, LAST_NUMBER, ArchivedObjects, ceil_ms, find_objects
from kafka_s3_platform.store.row_filter import SegmentFilter

TASK_BYTES = 134_217_728
"""Bytes of objects that one task of Spark reads, as `spark.sql.files.maxPartitionBytes` by default."""

BATCH_RECORDS = 10_000
"""Records of a batch that goes to the JVM, as `spark.sql.execution.arrow.maxRecordsPerBatch` by default."""

OPTIONS = ("connector", "topic", "connectors", "startingTimestamp", "endingTimestamp")

_OPEN = (FIRST_NUMBER, LAST_NUMBER)

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The columns of Spark's Kafka source, with their types as Spark writes them."""


class KafkaArchive(DataSource):
    """`spark.dataSource.register(KafkaArchive)`, then `spark.read.format("kafka_archive").option("connector", "c")`.

    The option `topic` may be left out if the connector has one topic alone. `connectors` names the folder of connector
    files. `startingTimestamp` and `endingTimestamp` are bounds [from, to) in epoch ms; they keep records whose time no
    object tells. With `.schema("offset BIGINT, value BINARY")`, no other columns are read. Each record is read once.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka_archive"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> "KafkaArchiveReader":
        if unknown := sorted(set(self.options) - set(map(str.lower, OPTIONS))):
            raise ConfigError(f"kafka_archive: option {unknown[0]} is unknown; there are {', '.join(OPTIONS)}")
        for column in schema:
            kind = column.dataType.simpleString()
            if COLUMNS.get(column.name) != kind:
                raise ConfigError(f"kafka_archive: no column is {column.name} {kind}; there are {self.schema()}")
        if "connector" not in self.options:
            raise ConfigError('kafka_archive: no connector is named; do so by .option("connector", NAME)')
        return KafkaArchiveReader(self.options, to_arrow_schema(schema, timezone="UTC"))


@dataclass
class ObjectsOfTask(InputPartition):
    """What one task of Spark reads."""

    objects: ArchivedObjects


class KafkaArchiveReader(DataSourceReader):
    """Finds the objects once, when Spark plans, and reads them in its tasks."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._bounds: dict[str, tuple[int, int]] = {}
        self._kafka_partitions: frozenset[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take what the index knows from the conditions. Spark applies all of them to the records."""
        for condition in filters:
            self._narrow(condition)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        bounds = [each for each in (self._bounds.get("timestamp"), self._read_times()) if each is not None]
        wanted = SegmentFilter(
            timestamps=(max(low for low, _ in bounds), min(high for _, high in bounds)) if bounds else None,
            offsets=self._bounds.get("offset"),
            kafka_partitions=self._kafka_partitions,
        )
        folder = self._options.get("connectors")
        env = {**os.environ, FOLDER_VARIABLE: folder} if folder else os.environ
        found = find_objects(self._options["connector"], self._options.get("topic"), wanted, env)
        return [ObjectsOfTask(objects) for objects in found.split(TASK_BYTES)]

    def _read_times(self) -> tuple[int, int] | None:
        given = self._options.get("startingTimestamp"), self._options.get("endingTimestamp")
        if given == (None, None):
            return None
        try:
            low, high = (default if text is None else int(text) for text, default in zip(given, _OPEN, strict=True))
        except ValueError as err:
            raise ConfigError(f"kafka_archive: startingTimestamp and endingTimestamp are in epoch ms: {err}") from err
        return low, high

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ObjectsOfTask):
            return  # Spark's own, where there are no objects
        for batch in partition.objects.open().to_batches(columns=self._schema.names, batch_size=BATCH_RECORDS):
            columns = [batch.column(field.name).cast(field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _narrow(self, condition: Filter) -> None:
        found: Any = condition
        [name, *inner] = getattr(condition, "attribute", [""])
        if inner:
            return
        if name == "partition" and isinstance(condition, EqualTo | In):
            values = condition.value if isinstance(condition, In) else [condition.value]
            known = frozenset(value for value in values if value is not None)
            self._kafka_partitions = known if self._kafka_partitions is None else known & self._kafka_partitions
        if name in ("offset", "timestamp"):
            low, high = self._bounds.get(name, _OPEN)
            if isinstance(condition, EqualTo | GreaterThanOrEqual):
                low = max(low, _ceil(found.value))
            if isinstance(condition, GreaterThan):
                low = max(low, _floor(found.value) + 1)
            if isinstance(condition, EqualTo | LessThanOrEqual):
                high = min(high, _floor(found.value) + 1)
            if isinstance(condition, LessThan):
                high = min(high, _ceil(found.value))
            self._bounds[name] = (low, high)


def _ceil(value: int | datetime) -> int:
    """Return an offset, or the first epoch ms that is not before a moment, which Spark knows to the microsecond."""
    return ceil_ms(value) if isinstance(value, datetime) else value


def _floor(value: int | datetime) -> int:
    """Return an offset, or the epoch ms that a moment lies in."""
    return (value - EPOCH) // ONE_MS if isinstance(value, datetime) else value
