"""Spark settings of a run, which the platform needs with every master."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Spark's default.
MAX_TASK_ATTEMPTS = 4


def build_spark_conf(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Spark's properties for one run. `overrides` win (`spark.master` for a cluster, memory, ...).

    Speculation stays off: two live attempts of a scan would only compete for the same object keys.
    """
    # Local mode retries a task only if the master names the number of attempts.
    conf = {
        "spark.master": f"local[*,{MAX_TASK_ATTEMPTS}]",
        "spark.app.name": "kafka-s3-platform",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(MAX_TASK_ATTEMPTS),
        "spark.python.worker.reuse": "true",
        "spark.log.level": "ERROR",
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    conf |= overrides or {}
    if conf["spark.master"].startswith("local"):
        # The driver listens on a port that other users of this machine can reach, and deserializes Java objects from
        # it. For a local master, Spark makes the secret itself. A cluster's secret belongs to its deployment.
        conf.setdefault("spark.authenticate", "true")
    return conf


def is_started(env: Mapping[str, str]) -> bool:
    """Whether this process has started Spark's JVM already, or was started by it. Its options cannot change then."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in env or SparkContext._gateway is not None  # noqa: SLF001 - nothing else tells


@contextmanager
def make_private_files() -> Iterator[None]:
    """Make processes started in this block write files for this user only: tasks hold secrets, and may spill."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
