"""The batch data source `kafka_archive` of Spark, with the columns of Spark's Kafka source.

Conditions on `partition`, `offset` and `timestamp` are compared with the index: no object is opened that cannot meet
them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: TID253
from pyspark.sql.types import StructType  # noqa: TID253

from kafka_s3_platform.config.files import FOLDER_VARIABLE
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.model.times import EPOCH, ONE_MS
from kafka_s3_platform.reading.dataset import FIRST_NUMBER, LAST_NUMBER, ArchivedObjects, ceil_ms, find_objects
from kafka_s3_platform.reading.values import ValueDecoder
from kafka_s3_platform.store.row_filter import SegmentFilter

TASK_BYTES = 134_217_728
"""Most bytes of objects that one task of Spark reads, as `spark.sql.files.maxPartitionBytes` by default."""

LEAST_TASK_BYTES = 4_194_304
"""Fewer bytes are not worth a task of their own, as `spark.sql.files.openCostInBytes` by default."""

BATCH_RECORDS = 10_000
"""Records of a batch that goes to the JVM, as `spark.sql.execution.arrow.maxRecordsPerBatch` by default."""

OPTIONS = (
    "connector",
    "topic",
    "connectors",
    "startingTimestamp",
    "endingTimestamp",
    "decode",
    "schemaId",
    "minPartitions",
)


class KafkaArchive(DataSource):
    """`spark.dataSource.register(KafkaArchive)`, then `spark.read.format("kafka_archive").option("connector", "c")`.

    The option `topic` may be left out if the connector has one topic alone. `connectors` names the folder of connector
    files. `startingTimestamp` and `endingTimestamp` are bounds [from, to) in epoch ms; they keep records whose time no
    object tells. `decode`, `true`, makes `value` a typed column, as `kafka_s3_platform.read` does; `schemaId` names the
    schema. `minPartitions` is how many tasks are wanted at least: without it as many as this machine has cores. With
    `.schema("offset BIGINT, value BINARY")`, no other columns are read. Each record is read once.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka_archive"

    def schema(self) -> StructType:
        return self._find_schema(_Options(self.options).find_decoder())

    def reader(self, schema: StructType) -> "KafkaArchiveReader":
        options = _Options(self.options)
        decoder = options.find_decoder()
        whole = self._find_schema(decoder)
        known = {column.name: column.dataType.simpleString() for column in whole}
        for column in schema:
            kind = column.dataType.simpleString()
            if known.get(column.name) != kind:
                there = ", ".join(f"{name} {each}" for name, each in known.items())
                raise ConfigError(f"kafka_archive: no column is {column.name} {kind}; there are {there}")
        return KafkaArchiveReader(options, to_arrow_schema(schema, timezone="UTC"), decoder)

    def _find_schema(self, decoder: ValueDecoder | None) -> StructType:
        """Return the columns of Spark's Kafka source, with what `decoder` makes of values."""
        value = pa.binary() if decoder is None else decoder.type
        fields = [pa.field(each.name, value if each.name == "value" else each.type) for each in RECORD_SCHEMA]
        return from_arrow_schema(pa.schema(fields))


class _Options:
    """What `.option` said. Raises ConfigError for what it cannot be."""

    def __init__(self, given: Mapping[str, str]) -> None:
        if unknown := sorted(set(given) - set(map(str.lower, OPTIONS))):
            raise ConfigError(f"kafka_archive: option {unknown[0]} is unknown; there are {', '.join(OPTIONS)}")
        if "connector" not in given:
            raise ConfigError('kafka_archive: no connector is named; do so by .option("connector", NAME)')
        self._given = given
        self.times = self._read_times()

    def find_objects(self, wanted: SegmentFilter) -> ArchivedObjects:
        """Find the objects of the topic."""
        folder = self._given.get("connectors")
        env = {**os.environ, FOLDER_VARIABLE: folder} if folder else os.environ
        return find_objects(self._given["connector"], self._given.get("topic"), wanted, env)

    def find_decoder(self) -> ValueDecoder | None:
        """Find what decodes values: conditions of a query do not change it."""
        schema_id = self._read_number("schemaId")
        decode = self._given.get("decode", "false").lower()
        if decode not in {"true", "false"}:
            raise ConfigError(f"kafka_archive: decode is true or false, not {decode}")
        if decode == "false" and schema_id is None:
            return None
        return self.find_objects(SegmentFilter(timestamps=self.times)).decoded(schema_id).decoder

    def choose_task_bytes(self, size: int) -> int:
        """Choose how many bytes a task reads of so many, so that each core gets a task, as Spark's file sources do."""
        least = self._read_number("minPartitions") or os.cpu_count() or 1
        return min(TASK_BYTES, max(LEAST_TASK_BYTES, size // least))

    def _read_times(self) -> tuple[int, int] | None:
        low, high = self._read_number("startingTimestamp"), self._read_number("endingTimestamp")
        if low is high is None:
            return None
        return FIRST_NUMBER if low is None else low, LAST_NUMBER if high is None else high

    def _read_number(self, name: str) -> int | None:
        text = self._given.get(name)
        try:
            return None if text is None else int(text)
        except ValueError as err:
            raise ConfigError(f"kafka_archive: {name} is a whole number, not {text!r}") from err


@dataclass
class ObjectsOfTask(InputPartition):
    """What one task of Spark reads."""

    objects: ArchivedObjects


class KafkaArchiveReader(DataSourceReader):
    """Finds the objects once, when Spark plans, and reads them in its tasks."""

    def __init__(self, options: _Options, schema: pa.Schema, decoder: ValueDecoder | None) -> None:
        self._options = options
        self._schema = schema
        self._decoder = decoder
        self._bounds: dict[str, tuple[int, int]] = {}
        self._kafka_partitions: frozenset[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take what the index knows from the conditions. Spark applies all of them to the records."""
        for condition in filters:
            self._narrow(condition)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        bounds = [each for each in (self._bounds.get("timestamp"), self._options.times) if each is not None]
        wanted = SegmentFilter(
            timestamps=(max(low for low, _ in bounds), min(high for _, high in bounds)) if bounds else None,
            offsets=self._bounds.get("offset"),
            kafka_partitions=self._kafka_partitions,
        )
        found = replace(self._options.find_objects(wanted), decoder=self._decoder)
        return [ObjectsOfTask(objects) for objects in found.split(self._options.choose_task_bytes(found.size))]

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
            low, high = self._bounds.get(name, (FIRST_NUMBER, LAST_NUMBER))
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
