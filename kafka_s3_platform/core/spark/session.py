"""The Spark settings of a run that the platform needs with every master."""

import atexit
import logging
import os
import pwd
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_s3_platform.core.java.runtime import choose_options, find_java, find_pyspark_jars, name_class_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

OTHER_SPARK_VARIABLES = (
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "SPARK_LOCAL_CONNECT_REUSE",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_API_MODE",
)
"""Environment variables that would make PySpark the client of another Spark, so that it starts none of its own."""

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").absolute()
JAVA_VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable from which Spark's launcher takes options of the JVM."""

DAEMON_MODULE = "kafka_s3_platform.python_daemon"
"""The module of the process from which Spark forks its Python workers, for a local master only.

A cluster's workers may get the package from elsewhere, later.
"""

DEPLOY_MODE = "spark.submit.deployMode"
_CLUSTER = re.compile(r"^\s*(spark\.master|spark\.submit\.deployMode)[\s=:]+(\S+)", re.MULTILINE)

# Spark's default.
MAX_TASK_ATTEMPTS = 4


def build_spark_conf(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Spark's properties for one run. `overrides` win (such as `spark.master` for a cluster, or memory).

    Speculation stays off: two live attempts of a scan would only compete for the same object keys.
    """
    # Local mode retries a task only if the master names the number of attempts.
    conf = {
        "spark.master": f"local[*,{MAX_TASK_ATTEMPTS}]",
        DEPLOY_MODE: "client",
        "spark.app.name": "kafka-s3-platform",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(MAX_TASK_ATTEMPTS),
        "spark.python.worker.reuse": "true",
        "spark.api.mode": "classic",
        # Python 3.11 and newer: workers import nothing from the folder that Spark was started in.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    conf |= overrides or {}
    is_local = conf["spark.master"].startswith("local")
    # The workers of a cluster may have their Python elsewhere. Those of this machine need the driver's.
    workers = sys.executable if is_local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    conf.setdefault("spark.pyspark.python", workers)
    if is_local:
        # The driver listens on a port that other users of this machine can reach, and deserializes Java objects from
        # it. For a local master, Spark makes the secret itself. A cluster's secret belongs to its deployment.
        conf.setdefault("spark.authenticate", "true")
        conf.setdefault("spark.python.daemon.module", DAEMON_MODULE)
    else:
        # for executors: the log settings of `log_errors_only` are a file of this machine
        conf.setdefault("spark.log.level", "ERROR")
    return conf


_JAVA_VARIABLES = (JAVA_VARIABLE, "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_PROPERTIES = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_JAVA_FILES = ("spark-defaults.conf", "spark-env.sh", "java-opts")
"""The places of options for Spark's Java: variables, properties, and files in Spark's configuration folder."""


def find_class_data() -> Path:
    """Return the path of the class data of Spark's driver for this Java and these jars. It may not exist."""
    return name_class_data(find_java(), find_pyspark_jars().iterdir())


@contextmanager
def set_java_options(conf: Mapping[str, str], env: MutableMapping[str, str]) -> Iterator[None]:
    """Set Java options in this block that make Spark start quickly, except options already set otherwise."""
    options = "\n".join(
        [*(env.get(name, "") for name in _JAVA_VARIABLES), *(conf.get(n, "") for n in _JAVA_PROPERTIES)]
    )
    folder = Path(env.get("SPARK_CONF_DIR") or find_pyspark_jars().with_name("conf"))
    options += "\n".join(_read_text(folder / name) for name in _JAVA_FILES)
    # Another Java puts together the command line of Spark's Java.
    launching = env.get("SPARK_LAUNCHER_OPTS", "")
    variables = {
        JAVA_VARIABLE: f"{shlex.join(choose_options(options, find_class_data()))} {env.get(JAVA_VARIABLE, '')}",
        "SPARK_LAUNCHER_OPTS": f"{' '.join(choose_options(options + launching))} {launching}",
    }
    with _set_variables(env, variables):
        yield


@contextmanager
def _set_variables(env: MutableMapping[str, str], variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in this block, and restore them after it."""
    earlier_values = {name: env.get(name) for name in variables}
    env.update(variables)
    try:
        yield
    finally:
        for name, value in earlier_values.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value


def _read_text(path: Path) -> str:
    """Return the file's text, empty if there is no such file."""
    return path.read_text(errors="replace") if path.is_file() else ""


def is_started(env: Mapping[str, str]) -> bool:
    """Return True if this process started Spark's JVM, or was started by it. The JVM's options are then fixed."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in env or SparkContext._gateway is not None  # noqa: SLF001 - nothing else tells


def ignore_other_spark(env: MutableMapping[str, str]) -> None:
    """Change the environment so that PySpark starts the Spark of its own package, and no other that is set up here."""
    home = str(find_pyspark_jars().parent)
    ignored_names = [name for name in OTHER_SPARK_VARIABLES if name in env]
    if env.get("SPARK_HOME", home) != home:
        ignored_names.append("SPARK_HOME")
    if ignored_names:
        logger.warning(
            "not used: %s in the environment. Spark is the one of this Python's PySpark", ", ".join(ignored_names)
        )
    defaults = Path(env.get("SPARK_CONF_DIR") or find_pyspark_jars().with_name("conf"), "spark-defaults.conf")
    if ignored_settings := [f"{name}={value}" for name, value in _CLUSTER.findall(_read_text(defaults))]:
        where = "the file that KAFKA_S3_SPARK_CONF names can choose a master"
        logger.warning("not used: %s in %s. Only %s", ", ".join(ignored_settings), defaults, where)
    for name in OTHER_SPARK_VARIABLES:
        env.pop(name, None)
    env["SPARK_HOME"] = home


def has_user_name() -> bool:
    """Return True if this user is in the user database. Containers may run under any user id."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def start_java_without_user(conf: Mapping[str, str], env: MutableMapping[str, str]) -> None:
    """Start Spark's JVM with a made-up user name, a folder and a login, for a user id that the user database lacks."""
    from pyspark import SparkConf, SparkContext

    name = f"user-{os.getuid()}"
    for variable in ("HADOOP_USER_NAME", "SPARK_USER"):
        env.setdefault(variable, name)
    folder = tempfile.mkdtemp(prefix="kafka-s3-ivy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spark_conf = SparkConf(loadDefaults=False).setAll(list({"spark.jars.ivy": folder, **conf}.items()))
    SparkContext._ensure_initialized(conf=spark_conf)  # noqa: SLF001 - nothing else starts it before its context
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(name))


def end_java(session: "SparkSession") -> None:
    """Stop a session that this process has started, and wait until its Java has ended."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - nothing else knows its process
    # Otherwise the session would be stopped once more, without its Java.
    atexit.unregister(session.stop)
    session.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@contextmanager
def log_errors_only(env: MutableMapping[str, str]) -> Iterator[None]:
    """Make a JVM started in this block log errors only, unless somebody has configured Spark's log."""
    java_options = env.get(JAVA_VARIABLE, "")
    is_chosen = "log4j" in java_options or "SPARK_CONF_DIR" in env
    # If the root logger lets libraries' messages through, Spark's are wanted too.
    is_wanted = logging.getLogger().isEnabledFor(logging.INFO)
    options = f"{java_options} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}".strip()
    with _set_variables(env, {} if is_chosen or is_wanted else {JAVA_VARIABLE: options}):
        yield


@contextmanager
def make_private_files() -> Iterator[None]:
    """Make processes started in this block write files for this user only, because tasks hold secrets and may spill."""
    earlier_mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(earlier_mask)
