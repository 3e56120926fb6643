"""What assets get from Dagster: Spark. Nothing of it is for the config of a run to choose: it would name programs."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.config.parse import read_properties
from kafka_s3_platform.spark.runner import SparkRunner
from kafka_s3_platform.spark.session import is_started, private_files, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPARK_VARIABLE = "KAFKA_S3_SPARK_CONF"
"""A properties file of the deployment: Spark's properties over the platform's own, such as spark.master."""


SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"


def deployed_conf(env: Mapping[str, str]) -> dict[str, str]:
    """What the deployment says of Spark.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = env.get(SPARK_VARIABLE)
    found = read_properties(Path(path)) if path else {}
    return {name: value.get_secret_value() for name, value in found.items()}


def submit_arguments(env: Mapping[str, str]) -> str:
    """What PySpark starts Spark with, so that Spark reads the deployment's file itself."""
    given = env.get(SUBMIT_VARIABLE, "pyspark-shell")
    own = f"--load-spark-defaults --properties-file {shlex.quote(str(Path(env[SPARK_VARIABLE]).absolute()))}"
    return given if own in given else f"{own} {given}"


class NoValues(dg.IOManager):
    """No step hands a value to another. Dagster's own manager pickles them in a folder that a run may name."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if obj is not None:
            raise TypeError(f"{context.get_identifier()} gave {type(obj).__name__}: nothing is handed on between steps")

    def load_input(self, context: dg.InputContext) -> object:
        raise TypeError(f"{context.name} asks for a value: nothing is handed on between steps")


class SparkResource:
    """dagster-pyspark's lazy session, which starts with a step's first task, and here also stops with the step.

    No `ConfigurableResource`: the fields of one are for the config of a run to set.
    """

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

        deployed = deployed_conf(os.environ)
        conf = spark_conf(deployed)
        # spark.pyspark.python is spark-submit's: a session made in Python reads the variable alone
        os.environ.setdefault("PYSPARK_PYTHON", conf["spark.pyspark.python"])
        if deployed and not is_started(os.environ):
            # What PySpark is given becomes arguments of Spark's process, which every user of the machine sees.
            os.environ[SUBMIT_VARIABLE] = submit_arguments(os.environ)
            conf = {name: value for name, value in conf.items() if name not in deployed}
        with private_files():
            started.append(LazyPySparkResource(spark_config=conf).spark_session)
        return started[0]
