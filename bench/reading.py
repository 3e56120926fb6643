"""What it costs to read an archived topic by `kafka_s3_platform.read`, beside the same engine on the same objects.

`python -m bench.reading` needs the embedded stack (`make up`). DuckDB and polars read from the store both ways, without
us by Arrow's or their own S3 client. Spark without us reads copies on the local disk: it has no S3 client here. Each
query reads all values. CPU seconds are of this process and Spark, not of the store. `--formats` reads values alone.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

from bench.measure import measured
from bench.start import fill_topic, write_connector
from bench.workload import ensure_topic, key, value
from kafka_s3_platform import read
from kafka_s3_platform.connect.config.files import find_connector
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT, SegmentFilter
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.reading.dataset import find_objects

Query = Callable[[], tuple[int, ...]]
"""Returns how many records it found, and perhaps more."""

Queries = Mapping[str, Mapping[str, Query]]
"""By engine or format, and way."""

NAME = "reading"
TASKS = 2
FORMATS = {"json": "json.JsonFormat", "avro": "avro.AvroFormat", "parquet": "parquet.ParquetFormat"}
FIELDS = {"id": "int64", "ok": "boolean", "amount": "double", "attempt": "int32"} | dict.fromkeys(
    ("user", "session", "action", "currency", "country", "agent"), "string"
)
SCHEMA = json.dumps(
    {"type": "struct", "name": "Event", "fields": [{"field": name, "type": kind} for name, kind in FIELDS.items()]}
).encode()
QUERY = "SELECT count(*), sum(octet_length(value)), max({}offset{}) FROM archive"


def main() -> None:
    """Print a row for each engine, or for each format: seconds and CPU seconds, the best of the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--formats", action="store_true", help="read formats of values alone, without another engine")
    asked = parser.parse_args()
    stack = StackSettings.from_environment()
    os.environ.update(stack.environment())
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy("dagster.yaml", folder)
        os.environ |= {"DAGSTER_HOME": folder, "KAFKA_S3_CONNECTORS": f"{folder}/connectors"}
        if asked.formats:
            topic = ensure_topic(stack.bootstrap_servers, asked.records, f"values-{asked.records}", make_record)
            for name in FORMATS:
                archive(Path(folder), f"{NAME}-{name}", topic, build_keys(name))
            queries = list_format_queries()
        else:
            archive(Path(folder), NAME, fill_topic(asked.records))
            keys = [segment.key for segment in find_objects(NAME, None, EVERY_SEGMENT).segments]
            queries = list_queries(stack, keys, copy_objects(Path(folder) / "copies", keys), asked.records)
        compare(queries, asked.records, asked.rounds)
        if not asked.formats:
            chosen = find_objects(NAME, None, SegmentFilter(kafka_partitions=frozenset({0}))).segments
            compare(list_choices(asked.records), sum(segment.record_count for segment in chosen), asked.rounds)


def archive(folder: Path, name: str, topic: str, more: Mapping[str, str] = {}) -> None:
    """Archive all of the topic, by a connector of this name."""
    write_connector(folder / "connectors", name, topic, more)
    subprocess.run([sys.executable, "-m", "kafka_s3_platform.cli", "archive", name], cwd=folder, check=True)


def compare(queries: Queries, records: int, rounds: int) -> None:
    """Run the queries in turn, and print the best of each."""
    print(f"| {records:,} records | by | s | CPU s |\n|---|---|---|---|")
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for _ in range(rounds):
        for engine, ways in queries.items():
            for way, query in ways.items():
                with measured() as usage:
                    found = query()
                if found[0] != records:
                    raise RuntimeError(f"{engine}, {way}: {found[0]:,} records, where {records:,} are due")
                before = best.get((engine, way), (9e9, 9e9))
                best[engine, way] = min(before[0], usage.seconds), min(before[1], usage.cpu_seconds)
    for (engine, way), (seconds, cpu) in best.items():
        print(f"| {engine} | {way} | {seconds:.2f} | {cpu:.2f} |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


def make_record(n: int) -> tuple[bytes, bytes]:
    """Make a record of the bench topic, with the schema of its value, as JsonConverter writes it."""
    return key(n), b'{"schema":%s,"payload":%s}' % (SCHEMA, value(n))


def build_keys(name: str) -> Mapping[str, str]:
    """Build the keys of a connector that keeps values alone, in this format."""
    return {
        "format.class": f"io.confluent.connect.s3.format.{FORMATS[name]}",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }


def list_format_queries() -> Queries:
    """Return the queries of values alone, by format and what is read."""
    return {name: _list_ways(f"{NAME}-{name}", decodes=name != "json") for name in FORMATS}


def _list_ways(connector: str, *, decodes: bool) -> Mapping[str, Query]:
    ways: dict[str, Query] = {
        "count": lambda: (read(connector).count_rows(),),
        "values": lambda: read(connector).to_table(columns=["value", "offset"]).shape,
    }
    if decodes:
        ways["decoded values"] = lambda: read(connector, decode=True).to_table(columns=["value", "offset"]).shape
    return ways


def list_queries(stack: StackSettings, keys: list[str], copies: list[str], records: int) -> Queries:
    """Return the queries, by engine and way."""
    s3 = S3FileSystem(
        endpoint_override=stack.s3_endpoint, access_key=stack.aws_access_key_id, secret_key=stack.aws_secret_access_key
    )
    uris = [f"{stack.bucket}/{key}" for key in keys]
    options = {
        "aws_endpoint_url": stack.s3_endpoint,
        "aws_access_key_id": stack.aws_access_key_id,
        "aws_secret_access_key": stack.aws_secret_access_key,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    scan = partial(pl.scan_parquet, [f"s3://{uri}" for uri in uris], storage_options=options, hive_partitioning=False)
    spark = start_spark(records)
    ours = spark.read.format("kafka_archive").option("connector", NAME).schema("value BINARY, offset BIGINT")
    return {
        "DuckDB": {
            "read": lambda: query_duckdb(read(NAME)),
            "a dataset of Arrow": lambda: query_duckdb(ds.dataset(uris, filesystem=s3)),
        },
        "polars": {
            "read": lambda: query_polars(pl.scan_pyarrow_dataset(read(NAME))),
            "a dataset of Arrow": lambda: query_polars(pl.scan_pyarrow_dataset(ds.dataset(uris, filesystem=s3))),
            "scan_parquet": lambda: query_polars(scan()),
        },
        "Spark": {
            "kafka_archive, of two columns": lambda: query_spark(spark, ours.load()),
            "a Python data source, out of memory": lambda: query_spark(spark, spark.read.format("memory").load()),
            "read.parquet, local copies": lambda: query_spark(spark, spark.read.parquet(*copies)),
        },
    }


def list_choices(records: int) -> Queries:
    """Return two queries of Spark for one kafka partition: a condition opens all objects, an option those chosen."""
    spark = start_spark(records)
    columns = "value BINARY, offset BIGINT, partition INT"

    def load(**options: str) -> Any:
        reader = spark.read.format("kafka_archive").option("connector", NAME).options(**options)
        return reader.schema(columns).load()

    return {
        "Spark": {
            "one kafka partition, by a condition": lambda: query_spark(spark, load().where("partition = 0")),
            "one kafka partition, by an option": lambda: query_spark(spark, load(kafkaPartitions="0")),
        }
    }


def query_duckdb(archive: ds.Dataset) -> tuple[int, ...]:  # noqa: ARG001 - the query names it
    """Count, and read all values."""
    return tuple(duckdb.execute(QUERY.format('"', '"')).fetchall()[0])


def query_polars(archive: pl.LazyFrame) -> tuple[int, ...]:
    """Count, and read all values."""
    wanted = pl.len(), pl.col("value").bin.size().sum().alias("size"), pl.col("offset").max()
    return tuple(archive.select(*wanted).collect().row(0))


def query_spark(spark: Any, archive: Any) -> tuple[int, ...]:
    """Count, and read all values."""
    archive.createOrReplaceTempView("archive")
    return tuple(spark.sql(QUERY.format("`", "`")).collect()[0])


def start_spark(records: int) -> Any:
    """Start Spark as the platform does, and register the data source, and one of as many records out of memory."""
    from kafka_s3_platform.core.defs.resources import start_session
    from kafka_s3_platform.operate.reading.spark_source import KafkaArchive

    spark = start_session()
    spark.dataSource.register(KafkaArchive)
    spark.dataSource.register(_build_memory_source(records))
    return spark


def _build_memory_source(records: int) -> Any:
    """Build a data source whose tasks send the same batch over and over: what any source in Python costs at least."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from kafka_s3_platform.operate.reading.spark_source import BATCH_RECORDS

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(TASKS)]

        def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
            columns = [pa.array(map(value, range(BATCH_RECORDS)), pa.binary()), pa.array(range(BATCH_RECORDS))]
            batch = pa.RecordBatch.from_arrays(columns, names=["value", "offset"])
            for start in range(0, records // TASKS, BATCH_RECORDS):
                yield batch.slice(0, records // TASKS - start)

    class Memory(DataSource):
        @classmethod
        def name(cls) -> str:
            return "memory"

        def schema(self) -> str:
            return "value BINARY, offset BIGINT"

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return Reader()

    return Memory


def copy_objects(folder: Path, keys: list[str]) -> list[str]:
    """Write the objects to files. Return their paths."""
    folder.mkdir()
    store = ObjectStore(find_connector(NAME, os.environ).store)
    for number, name in enumerate(keys):
        (folder / f"{number}.parquet").write_bytes(store.get(name))
    return [str(path) for path in sorted(folder.iterdir())]


if __name__ == "__main__":
    main()
