"""The Spark resource of assets. The config of a run can set nothing in it, because it could name programs to run."""

import atexit
import logging
import os
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.parse import read_properties
from kafka_s3_platform.core.errors import ConfigError, PlatformError, SparkUnavailableError
from kafka_s3_platform.core.java.runtime import find_java
from kafka_s3_platform.core.spark.runner import ChosenRunner, SparkRunner, TaskRunner
from kafka_s3_platform.core.spark.session import (
    DEPLOY_MODE,
    build_spark_conf,
    has_user_name,
    ignore_other_spark,
    is_started,
    log_errors_only,
    make_private_files,
    set_java_options,
    start_java_without_user,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

SPARK_VARIABLE = environment.SPARK_CONF
"""Names a properties file of the deployment. Its Spark properties, such as spark.master, override the platform's."""


SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"


def read_deployed_conf(env: Mapping[str, str]) -> dict[str, str]:
    """Read the deployment's Spark properties.

    Raises ConfigError if they cannot be read, or if they would make Spark's driver another process.
    """
    path = env.get(SPARK_VARIABLE)
    secret_properties = read_properties(Path(path)) if path else {}
    properties = {name: value.get_secret_value() for name, value in secret_properties.items()}
    if (mode := properties.get(DEPLOY_MODE, "client")) != "client":
        raise ConfigError(f"{path}: {DEPLOY_MODE}={mode}: the driver is this process; say client, or leave it out")
    return properties


def make_submit_arguments(env: Mapping[str, str]) -> str:
    """Return PySpark's arguments that make Spark itself read the deployment's properties, as these may be secret."""
    path = shlex.quote(str(Path(env[SPARK_VARIABLE]).absolute()))
    return f"--load-spark-defaults --properties-file {path} {env.get(SUBMIT_VARIABLE, 'pyspark-shell')}"


class NoValues(dg.IOManager):
    """Stores no values, as no step passes one on. Dagster's own manager pickles them to a folder a run may choose."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if obj is not None:
            raise TypeError(f"{context.get_identifier()} gave {type(obj).__name__}: nothing is handed on between steps")

    def load_input(self, context: dg.InputContext) -> object:
        raise TypeError(f"{context.name} asks for a value: nothing is handed on between steps")


class SparkResource:
    """The Spark found by `choose`, such as a warm one, or else dagster-pyspark's lazy session.

    `choose` gets the runner on the session of this process, and `spark.master`.

    The session starts with the first task of a process, and stops with the process, because starting one takes longer
    than most steps.

    It is not a `ConfigurableResource`, because the config of a run could set the fields of one.
    """

    def __init__(self, choose: Callable[[TaskRunner, str], TaskRunner] | None = None) -> None:
        self._choose = choose

    def make_runner(self) -> TaskRunner:
        """Return a runner of tasks, on this process's session if it has one."""
        runner = SparkRunner(start_session)
        choose = self._choose
        if choose is None or _start_once.cache_info().currsize:
            return runner
        return ChosenRunner(lambda: choose(runner, build_spark_conf(read_deployed_conf(os.environ))["spark.master"]))


def start_session() -> "SparkSession":
    """Start Spark, or return this process's session.

    A cluster may end a session, for instance when its executors fail one after the other. In this case, another one is
    started.

    Raises SparkUnavailableError if Spark does not start, and ConfigError if there is no Java, or the deployment's file
    cannot be read.
    """
    session = _start_once()
    if _has_ended(session):
        session.stop()
        _start_once.cache_clear()
        session = _start_once()
    return session


@cache
def _start_once() -> "SparkSession":
    """Start Spark at the first call in this process. Later calls return the same session."""
    return start_spark(read_deployed_conf(os.environ), {})


def _has_ended(session: "SparkSession") -> bool:
    """Return True if the cluster has ended the session, so that another one is needed."""
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001 - nothing public asks Java
    except (Py4JError, OSError):
        return False  # its Java has died: the first task fails and says so


def start_spark(deployed: Mapping[str, str], overrides: Mapping[str, str]) -> "SparkSession":
    """Start Spark with the deployment's properties, some of which `overrides` may replace.

    Any error but the platform's own becomes a SparkUnavailableError. Raises the same errors as `start_session`.
    """
    ignore_other_spark(os.environ)
    try:
        return _start(deployed, overrides)
    except PlatformError as err:
        raise err.retell(f"Spark does not start: {err.text}") from err
    except Exception as err:
        # the first line of a Java error says where it happened, and the second line what happened
        text = " ".join(str(err).split("\n")[:2]).strip() or type(err).__name__
        raise SparkUnavailableError(
            f"Spark does not start: {text}. What Java printed above may explain more. Correct what this machine "
            f"lacks, or "
            f"the properties that {SPARK_VARIABLE} names, and run again"
        ) from err


def _start(deployed: Mapping[str, str], overrides: Mapping[str, str]) -> "SparkSession":
    """Start Spark with the deployment's properties, of which `overrides` take precedence."""
    # imports PySpark, which a code location need not know to load
    from dagster_pyspark import LazyPySparkResource

    if not is_started(os.environ):
        find_java()
        logger.info("starting Spark")
    conf = build_spark_conf({**deployed, **overrides})
    # spark.pyspark.python is for spark-submit: a session made in Python reads only the variable
    os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    arguments = os.environ.get(SUBMIT_VARIABLE)
    if deployed and not is_started(os.environ):
        # Properties of PySpark become arguments of Spark's process, which every user of the machine sees.
        os.environ[SUBMIT_VARIABLE] = make_submit_arguments(os.environ)
        conf = {name: value for name, value in conf.items() if name in overrides or name not in deployed}
    try:
        java_options = set_java_options({**conf, **deployed, **overrides}, os.environ)
        with make_private_files(), log_errors_only(os.environ), java_options:
            if not has_user_name() and not is_started(os.environ):
                start_java_without_user(conf, os.environ)
            session: SparkSession = LazyPySparkResource(spark_config=conf).spark_session
    finally:
        # not for processes that this one starts, which may have another file
        os.environ.pop(SUBMIT_VARIABLE, None)
        if arguments is not None:
            os.environ[SUBMIT_VARIABLE] = arguments
    atexit.register(session.stop)
    return session
