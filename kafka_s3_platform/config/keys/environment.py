"""The environment variables of a deployment. The code takes their names from here, and so does `docs/deploying.md`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

from kafka_s3_platform.errors import ConfigError


@dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable. `where` names the processes reading it."""

    name: str
    default: str
    where: str
    doc: str


CODE = "code location"
EVERYWHERE = "all of Dagster"
EXECUTORS = "code location, executors"

CONNECTORS = EnvironmentVariable("KAFKA_S3_CONNECTORS", "`connectors`", CODE, "The folder of connector files.")
AUTOSTART = EnvironmentVariable(
    "KAFKA_S3_AUTOSTART", "", CODE, "`1`: sensors and schedules run from the start. Otherwise turn them on in the UI."
)
PLUGINS = EnvironmentVariable(
    "KAFKA_S3_PLUGINS",
    "",
    CODE,
    "Modules whose classes connector files and runs may name, separated by commas"
    " ([extending](extending.md#what-may-be-loaded)).",
)
SPARK_CONF = EnvironmentVariable(
    "KAFKA_S3_SPARK_CONF",
    "",
    CODE,
    "A properties file for Spark: `spark.master` of a [cluster](spark-cluster.md#the-settings), memory, and whatever"
    " else ([where Spark runs](architecture.md#where-spark-runs)).",
)
WARM_SPARK = EnvironmentVariable(
    "KAFKA_S3_WARM_SPARK",
    "",
    CODE,
    "Minutes. A run on one machine that finds no [warm Spark](architecture.md#a-warm-spark) starts one, which ends when"
    " it was not used for so long. Not set: a run uses one that is there. `0`: each process has a session of its own.",
)
RUN_RETENTION_DAYS = EnvironmentVariable(
    "KAFKA_S3_RUN_RETENTION_DAYS",
    "30",
    CODE,
    "Days after which the sensor `retention` deletes a run from Dagster's storage; `0`: never"
    " ([storage](dagster-storage.md#how-long-it-is-kept)).",
)
SENSOR_SECONDS = EnvironmentVariable(
    "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS",
    "60",
    CODE,
    "Dagster's own: how long a tick of a sensor may take. The sensor that replays new objects lists for 2/3 of it.",
)
DAGSTER_URL = EnvironmentVariable(
    "KAFKA_S3_DAGSTER_URL",
    "",
    "code location, `kafka-s3 serve`, webserver",
    "Where Dagster's UI is for people, such as `https://example.com/dagster`. Alerts and the status page link there,"
    " and with a path, so do the links that Dagster's own pages have to forms of restores. The webserver of compose and"
    " systemd takes requests to its name, too. Not set: the status page takes `http://127.0.0.1:3000`, and alerts name"
    " runs without a link.",
)
ALERT_PREFIX = "KAFKA_S3_ALERT_"
ALERT_WEBHOOK_URL = EnvironmentVariable(
    f"{ALERT_PREFIX}WEBHOOK_URL",
    "",
    CODE,
    "Where [alerts](operating.md#alerts) are posted, as JSON. It is a secret: who knows it can post there.",
)
ALERT_EMAIL_TO = EnvironmentVariable(
    f"{ALERT_PREFIX}EMAIL_TO", "", CODE, "Who gets alerts by email: addresses, separated by commas."
)
ALERT_EMAIL_FROM = EnvironmentVariable(f"{ALERT_PREFIX}EMAIL_FROM", "", CODE, "The sender's address of these emails.")
ALERT_SMTP_HOST = EnvironmentVariable(f"{ALERT_PREFIX}SMTP_HOST", "", CODE, "The server that takes these emails.")
ALERT_SMTP_PORT = EnvironmentVariable(
    f"{ALERT_PREFIX}SMTP_PORT", "587; with `tls` 465, with `none` 25", CODE, "Its port."
)
ALERT_SMTP_SECURITY = EnvironmentVariable(
    f"{ALERT_PREFIX}SMTP_SECURITY",
    "starttls",
    CODE,
    "`starttls`; `tls` from the first byte on; `none`, which takes no password.",
)
ALERT_SMTP_USER = EnvironmentVariable(f"{ALERT_PREFIX}SMTP_USER", "", CODE, "The user, if the server asks for one.")
ALERT_SMTP_PASSWORD = EnvironmentVariable(f"{ALERT_PREFIX}SMTP_PASSWORD", "", CODE, "The user's password.")
LOCAL_PREFIX = "KAFKA_S3_LOCAL_"
LOCAL_DEFAULTS = {
    f"{LOCAL_PREFIX}KAFKA_PORT": "29092",
    f"{LOCAL_PREFIX}S3_PORT": "28333",
    f"{LOCAL_PREFIX}REGISTRY_PORT": "28341",
    f"{LOCAL_PREFIX}AWS_ACCESS_KEY_ID": "kafka-s3",
    f"{LOCAL_PREFIX}BUCKET": "kafka-archive",
}
"""Where the embedded stack is if nothing else is set. Connector files may name these variables, set or not."""

LOCAL_SECRET = f"{LOCAL_PREFIX}AWS_SECRET_ACCESS_KEY"


def find_stack_folder() -> Path:
    """Return the shared folder of this user's embedded stacks. It may not exist."""
    return Path.home() / ".cache" / "kafka-s3-stack"


def read_stack_secret() -> str:
    """Return the secret of this user's embedded stores. The first time, it is made, readable for the user alone.

    Raises:
        ConfigError: it cannot be kept.
    """
    path = find_stack_folder() / "secret"
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent) as new_file:
                new_file.write(token_hex())
                new_file.flush()
                # Of two processes, both use what the first one made.
                with suppress(FileExistsError):
                    os.link(new_file.name, path)
        return path.read_text()
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}; set {LOCAL_SECRET} where no home can be written") from err


def find_local_default(name: str) -> str | None:
    """Return the default of a variable of the embedded stack, None for any other variable."""
    return read_stack_secret() if name == LOCAL_SECRET else LOCAL_DEFAULTS.get(name)


SERVE_PREFIX = "KAFKA_S3_SERVE"

VARIABLES = (
    CONNECTORS,
    AUTOSTART,
    PLUGINS,
    SPARK_CONF,
    WARM_SPARK,
    RUN_RETENTION_DAYS,
    SENSOR_SECONDS,
    DAGSTER_URL,
    ALERT_WEBHOOK_URL,
    ALERT_EMAIL_TO,
    ALERT_EMAIL_FROM,
    ALERT_SMTP_HOST,
    ALERT_SMTP_PORT,
    ALERT_SMTP_SECURITY,
    ALERT_SMTP_USER,
    ALERT_SMTP_PASSWORD,
    EnvironmentVariable(
        f"{LOCAL_PREFIX}*",
        "",
        "embedded stack",
        "Folder, ports, credentials and the release of Kafka of `kafka-s3 up`, which is for one person's machine and"
        " not for servers ([the embedded stack](connector-files.md#the-embedded-stack)).",
    ),
    EnvironmentVariable(
        f"{SERVE_PREFIX}_*",
        "",
        "`kafka-s3 serve`",
        "Each of its options: `KAFKA_S3_SERVE_PORT` is `--port` ([operating](operating.md#the-status-page)).",
    ),
    EnvironmentVariable(
        "DAGSTER_HOME", "", EVERYWHERE, "The folder of `dagster.yaml`. Topics found by `topics.regex` are kept there."
    ),
    EnvironmentVariable("DAGSTER_POSTGRES_HOST", "", EVERYWHERE, "The host of Dagster's Postgres."),
    EnvironmentVariable("DAGSTER_POSTGRES_PORT", "", EVERYWHERE, "Its port."),
    EnvironmentVariable("DAGSTER_POSTGRES_DB", "", EVERYWHERE, "Its database. Dagster creates the tables."),
    EnvironmentVariable("DAGSTER_POSTGRES_USER", "", EVERYWHERE, "Its user, who owns the database."),
    EnvironmentVariable("DAGSTER_POSTGRES_PASSWORD", "", EVERYWHERE, "The user's password."),
    EnvironmentVariable(
        "PGSSLMODE",
        "prefer",
        EVERYWHERE,
        "libpq's. Its default takes clear text, and any certificate. Where Postgres is on another machine, set "
        "`verify-full`, and the authority in `PGSSLROOTCERT`.",
    ),
    EnvironmentVariable("PGSSLROOTCERT", "`~/.postgresql/root.crt`", EVERYWHERE, "libpq's: a file of authorities."),
    EnvironmentVariable(
        "DAGSTER_COMPUTE_LOGS_BUCKET",
        "",
        EVERYWHERE,
        "The bucket for what the processes of runs print. Not the archive's: `retention` deletes from it.",
    ),
    EnvironmentVariable(
        "AWS_*",
        "",
        "code location, webserver, executors",
        "As boto3 reads them, for the bucket above; for archives, see"
        " [what the environment says](iam.md#what-the-environment-says).",
    ),
    EnvironmentVariable(
        "JAVA_HOME", "the `java` of `PATH`", EXECUTORS, "Java 17 or newer, for Spark's driver, master and executors."
    ),
    EnvironmentVariable(
        "PYSPARK_PYTHON", "the Python of the run", CODE, "The Python of a cluster's executors, on their machines."
    ),
    EnvironmentVariable(
        "SPARK_HOME", "PySpark's own", "executors", "The driver is always PySpark's own Spark, whatever it says."
    ),
    EnvironmentVariable(
        "SPARK_CONF_DIR",
        "",
        CODE,
        "A folder of Spark's own settings. What it says of Java and of logging stays as it is. Its master and deploy"
        " mode are not used.",
    ),
    EnvironmentVariable(
        "SPARK_LOCAL_DIRS",
        "the folder of temporary files",
        EXECUTORS,
        "Where Spark keeps temporary files. `kafka-s3 doctor` looks how much room is there.",
    ),
    EnvironmentVariable(
        "SPARK_*_OPTS",
        "",
        CODE,
        "`SPARK_SUBMIT_OPTS` and `SPARK_LAUNCHER_OPTS`: options of Spark's Java. Those of a quick start are added, as"
        " far as none of their kind is there.",
    ),
    EnvironmentVariable(
        "NO_COLOR", "", "command line", "If it is not empty, `kafka-s3` shows no colours, also on a terminal."
    ),
    EnvironmentVariable("TERM", "", "command line", "`dumb`: a terminal on which `kafka-s3` shows no display."),
    EnvironmentVariable(
        "XDG_RUNTIME_DIR",
        "`~/.cache`",
        CODE,
        "Where the folder `kafka-s3` with the sockets of [warm Sparks](architecture.md#a-warm-spark) is.",
    ),
    EnvironmentVariable(
        "PYSPARK_SUBMIT_ARGS", "", CODE, "Arguments of spark-submit, as PySpark reads them. Better: a properties file."
    ),
    EnvironmentVariable(
        "NUMBA_CACHE_DIR",
        "beside the code",
        EXECUTORS,
        "Where numba keeps the compiled decoder of record batches. The process must be able to write there.",
    ),
    EnvironmentVariable(
        "NUMBA_CPU_NAME",
        "this processor",
        EXECUTORS,
        "The processor that numba compiles for. `generic`, as in the image, makes the cache good on every machine.",
    ),
)
"""All variables that the project's code, or a file of `deploy/`, reads."""


def check_url(text: str) -> str:
    """Return the URL of a place on the web. ValueError, without quoting it: it may be a secret."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0 and "@" not in url.netloc
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is no URL that begins with https:// or http:// and the name of a host, without a user")
    return text


def read_page_url(variable: EnvironmentVariable, env: Mapping[str, str]) -> str | None:
    """Return the start of the links to some pages, without a slash at its end. None if it is not set, or empty.

    Raises:
        ConfigError: links cannot begin with it.
    """
    text = env.get(variable.name)
    if not text:
        return None
    try:
        url = check_url(text)
    except ValueError as err:
        raise ConfigError(f"{variable.name}: {text!r} {err}") from None
    if "?" in url or "#" in url:
        raise ConfigError(
            f"{variable.name}: {text!r} cannot begin a link: it has a query or a fragment; leave them out"
        )
    return url.rstrip("/")
