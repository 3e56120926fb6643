"""All environment variables that the project's code, or a file of `deploy/`, reads, for `docs/deploying.md`."""

from dataclasses import dataclass

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.environment import LOCAL_PREFIX, SERVE_PREFIX
from kafka_s3_platform.operate.defs.retention_sensor import DEFAULT_DAYS


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
PAGES = "code location, `kafka-s3 serve`"

VARIABLES = (
    EnvironmentVariable(environment.CONNECTORS, "`connectors`", CODE, "The folder of connector files."),
    EnvironmentVariable(
        environment.AUTOSTART,
        "",
        CODE,
        "`1`: sensors and schedules run from the start. Otherwise turn them on in the UI.",
    ),
    EnvironmentVariable(
        environment.PLUGINS,
        "",
        CODE,
        "Modules whose classes connector files and runs may name, separated by commas"
        " ([extending](extending.md#what-may-be-loaded)).",
    ),
    EnvironmentVariable(
        environment.SPARK_CONF,
        "",
        CODE,
        "A properties file for Spark: `spark.master` of a [cluster](spark-cluster.md#the-settings), memory, and"
        " whatever else ([where Spark runs](architecture.md#where-spark-runs)).",
    ),
    EnvironmentVariable(
        environment.WARM_SPARK,
        "",
        CODE,
        "Minutes. A run on one machine that finds no [warm Spark](architecture.md#a-warm-spark) starts one, which ends"
        " when it was not used for so long. Not set: a run uses one that is there. `0`: each process has a session of"
        " its own.",
    ),
    EnvironmentVariable(
        environment.EVIDENCE_KEY,
        "",
        "code location, commands",
        "A file with an Ed25519 private key (PEM, no passphrase), which signs evidence of restores, rehearsals and deep"
        " verifications ([evidence](restore-proof.md#evidence)). Not set: evidence is stored unsigned.",
    ),
    EnvironmentVariable(
        environment.RUN_RETENTION_DAYS,
        str(DEFAULT_DAYS),
        CODE,
        "Days after which the sensor `retention` deletes a run from Dagster's storage; `0`: never"
        " ([storage](dagster-storage.md#how-long-it-is-kept)).",
    ),
    EnvironmentVariable(
        "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS",
        "60",
        CODE,
        "Dagster's own: how long a tick of a sensor may take. The sensor that replays new objects lists for 2/3 of it.",
    ),
    EnvironmentVariable(
        environment.DAGSTER_URL,
        "",
        f"{PAGES}, webserver",
        "Where Dagster's UI is for people, such as `https://example.com/dagster`. Alerts and the status page link"
        " there, and with a path, so do the links that Dagster's own pages have to forms of restores. The webserver of"
        " compose and systemd takes requests to its name, too. Not set: the status page takes `http://127.0.0.1:3000`,"
        " and alerts name runs without a link.",
    ),
    EnvironmentVariable(
        environment.ALERT_WEBHOOK_URL,
        "",
        CODE,
        "Where [alerts](operating.md#alerts) are posted, as JSON. It is a secret: who knows it can post there.",
    ),
    EnvironmentVariable(
        environment.ALERT_EMAIL_TO, "", CODE, "Who gets alerts by email: addresses, separated by commas."
    ),
    EnvironmentVariable(environment.ALERT_EMAIL_FROM, "", CODE, "The sender's address of these emails."),
    EnvironmentVariable(environment.ALERT_SMTP_HOST, "", CODE, "The server that takes these emails."),
    EnvironmentVariable(
        f"{environment.ALERT_PREFIX}SMTP_PORT", "587; with `tls` 465, with `none` 25", CODE, "Its port."
    ),
    EnvironmentVariable(
        environment.ALERT_SMTP_SECURITY,
        "starttls",
        CODE,
        "`starttls`; `tls` from the first byte on; `none`, which takes no password.",
    ),
    EnvironmentVariable(environment.ALERT_SMTP_USER, "", CODE, "The user, if the server asks for one."),
    EnvironmentVariable(environment.ALERT_SMTP_PASSWORD, "", CODE, "The user's password."),
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
