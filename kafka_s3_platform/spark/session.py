"""Spark settings of a run: what the platform needs whatever the master is."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

MAX_TASK_ATTEMPTS = 4


def spark_conf(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Spark properties for one run; `overrides` win (`spark.master` for a cluster, memory, ...).

    Speculation stays off: two live attempts of a scan would only fight over the same object keys.
    """
    # local mode never retries a task unless the master says how often
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
        # The driver listens on a port and deserializes Java objects from it: other users of this machine reach it. For
        # a local master Spark makes up the secret by itself; a cluster's is a matter of its deployment.
        conf.setdefault("spark.authenticate", "true")
    return conf


def is_started(env: Mapping[str, str]) -> bool:
    """Whether this process has Spark's already, or was started by it: its arguments are what they are."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in env or SparkContext._gateway is not None  # noqa: SLF001 - nothing else tells


@contextmanager
def private_files() -> Iterator[None]:
    """Processes that are started in this block write files for this user alone: tasks carry secrets, and may spill."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
