"""What assets get from Dagster: Spark."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from kafka_s3_platform.spark.runner import SparkRunner
from kafka_s3_platform.spark.session import spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource["SparkResource"]):
    """dagster-pyspark's lazy session, which starts with a step's first task, and here also stops with the step."""

    spark_config: Mapping[str, str] = Field(
        default_factory=dict, description="Spark properties over the platform's own, such as spark.master."
    )

    @contextmanager
    def runner(self) -> Iterator[SparkRunner]:
        """Runs tasks on the step's own session."""
        started: list[SparkSession] = []
        try:
            yield SparkRunner(lambda: started[0] if started else self._start(started))
        finally:
            for session in started:
                session.stop()

    def _start(self, started: "list[SparkSession]") -> "SparkSession":
        # imports PySpark, which a code location need not know to load
        from dagster_pyspark import LazyPySparkResource

        conf = spark_conf(self.spark_config)
        # spark.pyspark.python is spark-submit's: a session made in Python reads the variable alone
        os.environ.setdefault("PYSPARK_PYTHON", conf["spark.pyspark.python"])
        started.append(LazyPySparkResource(spark_config=conf).spark_session)
        return started[0]
