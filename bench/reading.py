"""What it costs to read an archived topic by `kafka_s3_platform.read`, beside the same engine on the same objects.

`python -m bench.reading` needs the embedded stack (`make up`). DuckDB and polars read from the store both ways, without
us by Arrow's or their own S3 client. Spark without us reads copies on the local disk: it has no S3 client here. Each
query reads all values. CPU seconds are of this process and Spark, not of the store.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

from bench.measure import measured
from bench.start import fill_topic, write_connector
from kafka_s3_platform import read
from kafka_s3_platform.config.files import find_connector
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.reading.dataset import find_objects
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.row_filter import EVERY_SEGMENT

NAME = "reading"
QUERY = "SELECT count(*), sum(octet_length(value)), max({}offset{}) FROM archive"


def main() -> None:
    """Print a row for each engine: seconds and CPU seconds through us and without us, the best of the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=4_000_000)
    asked = parser.parse_args()
    topic = fill_topic(asked.records)
    stack = StackSettings.from_environment()
    os.environ.update(stack.environment())
    with tempfile.TemporaryDirectory() as folder:
        write_connector(Path(folder) / "connectors", NAME, topic)
        shutil.copy("dagster.yaml", folder)
        os.environ |= {"DAGSTER_HOME": folder, "KAFKA_S3_CONNECTORS": f"{folder}/connectors"}
        subprocess.run([sys.executable, "-m", "kafka_s3_platform.cli", "archive", NAME], cwd=folder, check=True)
        keys = [segment.key for segment in find_objects(NAME, None, EVERY_SEGMENT).segments]
        copies = copy_objects(Path(folder) / "copies", keys)
        print(f"| {len(keys)} objects, {asked.records:,} records | by | s | CPU s |\n|---|---|---|---|")
        for engine, ways in list_queries(stack, keys, copies).items():
            best: dict[str, tuple[float, float]] = {}
            for _ in range(asked.rounds):
                for way, query in ways.items():
                    with measured() as usage:
                        found = query()
                    if found[0] != asked.records:
                        raise RuntimeError(f"{engine}, {way}: {found[0]:,} records, where {asked.records:,} are due")
                    best[way] = min(best.get(way, (9e9, 9e9)), (usage.seconds, usage.cpu_seconds))
            for way, (seconds, cpu) in best.items():
                print(f"| {engine} | {way} | {seconds:.2f} | {cpu:.1f} |", flush=True)


def list_queries(
    stack: StackSettings, keys: list[str], copies: list[str]
) -> Mapping[str, Mapping[str, Callable[[], tuple[int, ...]]]]:
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
    spark = start_spark()
    ours = spark.read.format("kafka_archive").option("connector", NAME).schema("value BINARY, offset BIGINT")
    return {
        "DuckDB": {
            "read": lambda: query_duckdb(read(NAME)),
            "a dataset of Arrow": lambda: query_duckdb(ds.dataset(uris, filesystem=s3)),
        },
        "polars": {
            "read": lambda: query_polars(pl.scan_pyarrow_dataset(read(NAME))),
            "scan_parquet": lambda: query_polars(scan()),
        },
        "Spark": {
            "kafka_archive, of two columns": lambda: query_spark(spark, ours.load()),
            "read.parquet, local copies": lambda: query_spark(spark, spark.read.parquet(*copies)),
        },
    }


def query_duckdb(archive: ds.Dataset) -> tuple[int, ...]:  # noqa: ARG001 - the query names it
    """Count, and read all values."""
    return tuple(duckdb.execute(QUERY.format('"', '"')).fetchall()[0])


def query_polars(archive: pl.LazyFrame) -> tuple[int, ...]:
    """Count, and read all values."""
    """Count, and read all values."""
    wanted = pl.len(), pl.col("value").bin.size().sum().alias("size"), pl.col("offset").max()
    return tuple(archive.select(*wanted).collect().row(0))


def query_spark(spark: Any, archive: Any) -> tuple[int, ...]:
    """Count, and read all values."""
    archive.createOrReplaceTempView("archive")
    return tuple(spark.sql(QUERY.format("`", "`")).collect()[0])


def start_spark() -> Any:
    """Start Spark as the platform does, and register the data source."""
    from kafka_s3_platform.defs.resources import start_session
    from kafka_s3_platform.reading.spark_source import KafkaArchive

    spark = start_session()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KafkaArchive)
    return spark


def copy_objects(folder: Path, keys: list[str]) -> list[str]:
    """Write the objects to files. Return their paths."""
    folder.mkdir()
    store = ObjectStore(find_connector(NAME, os.environ).store)
    for number, key in enumerate(keys):
        (folder / f"{number}.parquet").write_bytes(store.get(key))
    return [str(path) for path in sorted(folder.iterdir())]


if __name__ == "__main__":
    main()
