"""Spark's batch data source `kafka_archive`, with the columns of Spark's Kafka source.

Options choose the objects, but conditions do not. Spark keeps a Python data source's plan for one query in a table
shared by all queries of the frame, so a plan narrowed by the condition of one would lose records of the next.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: TID253 - importers have Spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: TID253
from pyspark.sql.types import StructType  # noqa: TID253

from kafka_s3_platform.core.config.folder import FOLDER_VARIABLE
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.operate.reading.dataset import FIRST_NUMBER, LAST_NUMBER, ArchivedObjects, find_objects
from kafka_s3_platform.operate.reading.values import ValueDecoder

TASK_BYTES = 134_217_728
"""The most bytes of objects that one Spark task reads, like the default of `spark.sql.files.maxPartitionBytes`."""

LEAST_TASK_BYTES = 4_194_304
"""Fewer bytes are not worth a task of their own, like the default of `spark.sql.files.openCostInBytes`."""

BATCH_RECORDS = 10_000
"""The records of a batch for the JVM, like the default of `spark.sql.execution.arrow.maxRecordsPerBatch`."""

OPTIONS = (
    "connector",
    "topic",
    "connectors",
    "startingTimestamp",
    "endingTimestamp",
    "kafkaPartitions",
    "startingOffset",
    "endingOffset",
    "decode",
    "schemaId",
    "minPartitions",
)


class KafkaArchive(DataSource):
    """`spark.dataSource.register(KafkaArchive)`, then `spark.read.format("kafka_archive").option("connector", "c")`.

    The option `topic` may be left out if the connector has only one topic. `connectors` names the folder of connector
    files. `startingTimestamp` and `endingTimestamp` are bounds [from, to) in epoch ms; records without a time are
    always read. `kafkaPartitions` is a comma-separated list of numbers. `startingOffset` and `endingOffset` are bounds
    [start, end) of the offsets in each kafka partition. Objects that hold no such records are not opened. If `decode`
    is `true`, `value` becomes a typed column, as in `kafka_s3_platform.read`, and `schemaId` names the schema.
    `minPartitions` is the minimum number of tasks, by default the number of this machine's cores. With `.schema("offset
    BIGINT, value BINARY")`, only these columns are read. Each record is read once.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka_archive"

    def schema(self) -> StructType:
        return self._find_schema(_Options(self.options).find_decoder())

    def reader(self, schema: StructType) -> "KafkaArchiveReader":
        """Return the reader of the columns Spark asks for. Raise ConfigError if there are no such columns."""
        options = _Options(self.options)
        if not schema:
            raise ConfigError("kafka_archive: .schema() names no column, so its records could not be counted")
        decoder = options.find_decoder()
        available = self._find_schema(decoder)
        types = {column.name: column.dataType.simpleString() for column in available}
        for column in schema:
            column_type = column.dataType.simpleString()
            if types.get(column.name) != column_type:
                columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
                raise ConfigError(f"kafka_archive: no column is {column.name} {column_type}; there are {columns}")
        return KafkaArchiveReader(options, to_arrow_schema(schema, timezone="UTC"), decoder)

    def _find_schema(self, decoder: ValueDecoder | None) -> StructType:
        """Return the columns of Spark's Kafka source, with the decoder's type for values."""
        value = pa.binary() if decoder is None else decoder.type
        fields = [pa.field(column.name, value if column.name == "value" else column.type) for column in RECORD_SCHEMA]
        return from_arrow_schema(pa.schema(fields))


class _Options:
    """The options set with Spark's `.option`. Raises ConfigError if one is invalid."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if unknown := sorted(set(options) - set(map(str.lower, OPTIONS))):
            raise ConfigError(f"kafka_archive: option {unknown[0]} is unknown; there are {', '.join(OPTIONS)}")
        if "connector" not in options:
            raise ConfigError('kafka_archive: no connector is named; do so by .option("connector", NAME)')
        self._options = options
        self._selection = SegmentFilter(
            timestamps=self._read_bounds("startingTimestamp", "endingTimestamp"),
            offsets=self._read_bounds("startingOffset", "endingOffset"),
            kafka_partitions=self._read_kafka_partitions(),
        )

    def find_objects(self) -> ArchivedObjects:
        """Find the topic's objects that may hold records of the selection."""
        folder = self._options.get("connectors")
        env = {**os.environ, FOLDER_VARIABLE: folder} if folder else os.environ
        return find_objects(self._options["connector"], self._options.get("topic"), self._selection, env)

    def find_decoder(self) -> ValueDecoder | None:
        """Find the decoder of values. Return None if they stay bytes."""
        schema_id = self._read_number("schemaId")
        decode = self._options.get("decode", "false").lower()
        if decode not in {"true", "false"}:
            raise ConfigError(f"kafka_archive: decode is true or false, not {decode}")
        if decode == "false" and schema_id is None:
            return None
        return self.find_objects().decode_values(schema_id).decoder

    def choose_task_bytes(self, size: int) -> int:
        """Choose the bytes of a task so that each core gets one, as Spark's file sources do."""
        least = self._read_number("minPartitions") or os.cpu_count() or 1
        return min(TASK_BYTES, max(LEAST_TASK_BYTES, size // least))

    def _read_bounds(self, first: str, last: str) -> tuple[int, int] | None:
        low = self._read_number(first)
        high = self._read_number(last)
        if low is high is None:
            return None
        return FIRST_NUMBER if low is None else low, LAST_NUMBER if high is None else high

    def _read_kafka_partitions(self) -> frozenset[int] | None:
        text = self._options.get("kafkaPartitions")
        if text is None:
            return None
        return frozenset(_parse_number("kafkaPartitions", number, 2**31 - 1) for number in text.split(","))

    def _read_number(self, name: str) -> int | None:
        text = self._options.get(name)
        return None if text is None else _parse_number(name, text, LAST_NUMBER)


def _parse_number(name: str, text: str, highest: int) -> int:
    """Parse an option's number. Raise ConfigError if it is not one, or is beyond `highest` or its negative."""
    try:
        number = int(text)
    except ValueError as err:
        raise ConfigError(f"kafka_archive: {name}: {text!r} is no whole number") from err
    if abs(number) > highest:
        raise ConfigError(f"kafka_archive: {name}: {number} is beyond {highest}")
    return number


@dataclass
class ObjectsOfTask(InputPartition):
    """The objects one Spark task reads."""

    objects: ArchivedObjects


class KafkaArchiveReader(DataSourceReader):
    """Finds the objects once, when Spark plans, and reads them in its tasks."""

    def __init__(self, options: _Options, schema: pa.Schema, decoder: ValueDecoder | None) -> None:
        self._options = options
        self._schema = schema
        self._decoder = decoder

    def partitions(self) -> Sequence[InputPartition]:
        objects = replace(self._options.find_objects(), decoder=self._decoder)
        return [ObjectsOfTask(task) for task in objects.split(self._options.choose_task_bytes(objects.size))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ObjectsOfTask):
            return  # Spark's own, if there are no objects
        for batch in partition.objects.open().to_batches(columns=self._schema.names, batch_size=BATCH_RECORDS):
            columns = [_cast(batch.column(field.name), field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column if needed. Arrow refuses null structs with non-nullable fields, even for the same type."""
    return column if column.type == kind else column.cast(kind)
