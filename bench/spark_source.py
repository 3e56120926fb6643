"""Spark's own Kafka source into Arrow batches, with headers; prints one JSON line. Fails if its jars cannot be had."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pyarrow as pa

from bench.measure import measured
from kafka_s3_platform.spark.session import build_spark_conf


def run(bootstrap_servers: str, topic: str) -> dict[str, float]:
    """Read the whole topic once and count its records in Python, as Arrow."""
    import pyspark
    from pyspark.sql import SparkSession

    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    conf = build_spark_conf({"spark.master": "local[2]", "spark.jars.packages": package, "spark.driver.memory": "4g"})
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    frame = spark.read.format("kafka").options(**options).load()
    with measured() as usage:
        rows = frame.mapInArrow(_count, "records long").collect()
    spark.stop()
    return asdict(usage) | {"records": sum(row["records"] for row in rows)}


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"records": [batch.num_rows]})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*sys.argv[1:])) + "\n")
