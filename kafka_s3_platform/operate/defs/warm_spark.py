"""The choice between a warm Spark and a session of the run's own, and the process of a warm Spark."""

import logging
import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_s3_platform.core.config import environment, plugins
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.spark.session import build_spark_conf
from kafka_s3_platform.operate.warm_spark.client import NoWarmSparkError, WarmRunner, find_warm_spark
from kafka_s3_platform.operate.warm_spark.server import become_server, launch_server, retire_servers
from kafka_s3_platform.operate.warm_spark.wire import find_folder, identify_process, refuse_foreign_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

VARIABLE = environment.WARM_SPARK

DEFAULT_MINUTES = 60
"""The time a warm Spark of the stack waits for the next run."""

LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:, *(\d+))?\])?")

SLOTS = 256
"""The number of tasks of all runs in the session. It is more than there ever are, so no run waits for another.

Each run has as many under way as its own session would have."""


def read_idle_minutes(env: Mapping[str, str]) -> int | None:
    """Return the minutes after which an unused warm Spark ends, or None without the variable.

    Raises ConfigError if the variable is not a number.
    """
    text = env.get(VARIABLE, "")
    if text and not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"environment variable {VARIABLE}={text!r} is no number of minutes, such as {DEFAULT_MINUTES}"
        )
    return int(text) if text else None


def choose_runner(runner: TaskRunner, master: str) -> TaskRunner:
    """Return a runner on a warm Spark: a session in a process of its own, which is ready for later runs too.

    If there is none, or if another machine runs the tasks, return `runner`, which starts a session in this process.
    """
    minutes = read_idle_minutes(os.environ)
    if minutes == 0 or not LOCAL_MASTER.fullmatch(master):
        return runner
    try:
        return WarmRunner(find_warm_spark(start_warm_spark if minutes else None))
    except NoWarmSparkError as err:
        logger.info("no warm Spark, so this process starts a session of its own: %s", err)
        return runner


def start_warm_spark() -> None:
    """Start a process with a Spark session for later runs, if this environment, folder and installation have none.

    Raises OSError.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError("this system does not show whose process is at the other end of a socket")
    launch_server(serve_warm_spark)


def stop_warm_spark() -> bool:
    """Make the warm Sparks of this folder and Python end with their last client. Return False if there are none.

    Raises OSError if the folder of their sockets is not only this user's.
    """
    folder = find_folder()
    if not folder.exists():
        return False
    refuse_foreign_folder(folder)
    return retire_servers(folder, identify_process().home) > 0


def serve_warm_spark() -> None:
    """Keep a Spark session for the runs of this environment, folder and installation, until nobody uses it."""
    minutes = read_idle_minutes(os.environ) or DEFAULT_MINUTES
    become_server(_start_shared_session, minutes * 60.0)


def _start_shared_session() -> "tuple[SparkSession, int]":
    """Start the session of a warm Spark. Return it, and the most tasks one run may have at once.

    The session has tasks of several runs, so each task has a Python process of its own, without the cached credentials
    or plug-ins of another.

    Raises the same errors as `start_session`.
    """
    # imported only by the server, not by the process that makes its socket and does not wait for a session
    from kafka_s3_platform.core.defs.resources import read_deployed_conf, start_spark

    deployed = read_deployed_conf(os.environ)
    master_parts = LOCAL_MASTER.fullmatch(build_spark_conf(deployed)["spark.master"])
    if master_parts is None:
        raise ConfigError("a warm Spark is for one machine: spark.master names others")
    # Without memory, Java may go on for ever and do nothing.
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:+ExitOnOutOfMemoryError".strip()
    cores, attempts = master_parts.groups()
    master = f"local[{SLOTS},{attempts}]" if attempts else f"local[{SLOTS}]"
    overrides = {"spark.master": master, "spark.python.worker.reuse": "false", "spark.ui.showConsoleProgress": "false"}
    session = start_spark(deployed, overrides)
    context: Any = session.sparkContext
    context.environment[plugins.VARIABLE] = ",".join(plugins.read_allowance())
    processors = context._jvm.java.lang.Runtime.getRuntime().availableProcessors()  # noqa: SLF001 - Spark's own number
    return session, processors if cores == "*" else int(cores or 1)
