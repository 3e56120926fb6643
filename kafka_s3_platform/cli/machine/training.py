"""Runs Spark and the compiled functions for a moment, to prepare their caches, or to check the use of these."""

from dataclasses import dataclass

import pyarrow as pa
from numba.core.dispatcher import Dispatcher

from kafka_s3_platform.connect.avro import json_values
from kafka_s3_platform.core.kafka.fetch import kernels
from kafka_s3_platform.core.restore.outgoing import partitioning
from kafka_s3_platform.core.spark.runner import Attempt, SparkRunner


@dataclass(frozen=True)
class Kernel:
    """A function compiled by numba. `was_cached` is True if this process found it in the cache."""

    name: str
    was_cached: bool


def compile_kernels() -> list[Kernel]:
    """Have numba compile each of its functions into its cache on disk, and note which ones were in it already."""
    texts = pa.array([b"[]"], pa.binary())
    json_values.find_maybe_deeper(texts, 0)
    partitioning.hash_murmur2(texts)
    partitioning.hash_crc32(texts)
    return [
        Kernel(name, was_cached=bool(function.stats.cache_hits) and not function.stats.cache_misses)
        for module in (kernels, json_values, partitioning)
        for name, function in vars(module).items()
        if isinstance(function, Dispatcher)
    ]


def run_spark() -> None:
    """Start Spark, run tasks, and wait until its Java has ended, since it writes class data at its end."""
    from kafka_s3_platform.core.defs.resources import start_session
    from kafka_s3_platform.core.spark.session import end_java

    list(SparkRunner(start_session).run(_add, [1, 2], 2))
    end_java(start_session())


def _add(task: int, attempt: Attempt) -> int:
    """Add two numbers: a task for Spark."""
    return task + attempt.number
