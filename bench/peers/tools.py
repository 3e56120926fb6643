"""The tools that do the same job: how each is fetched, and the commands by which it archives and restores."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from zlib import crc32

from bench.start import write_connector
from bench.workload import KAFKA_PARTITIONS
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.java.runtime import find_java
from kafka_s3_platform.operate.local.ivy import Download
from kafka_s3_platform.operate.local.settings import StackSettings

HERE = Path(__file__).parent
BUILD_SECONDS = 1800.0

Layout = Literal["lines", "envelope", "own"]


@dataclass(frozen=True)
class Job:
    """A topic to archive under a prefix of the bucket, and the topic that the archive is restored to."""

    name: str
    topic: str
    folder: Path
    """Of the job alone."""
    target: str = ""

    @property
    def prefix(self) -> str:
        """Of its objects."""
        return f"bench/{self.name}"


@dataclass(frozen=True)
class Command:
    """What a user would type."""

    arguments: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True)
class Tool:
    """One way to do the job."""

    name: str
    writes: str
    layout: Layout
    """How its objects are read back. `own`: only the tool reads them, so its restore tells what is in them."""
    archive: Callable[[Job], Command]
    restore: Callable[[Job], Command] | None = None
    warm: bool = False
    """Whether it uses the platform's warm Spark, whose CPU and memory count."""


@dataclass(frozen=True)
class Tools:
    """What was found, and why the others are left out."""

    found: tuple[Tool, ...]
    left_out: Mapping[str, str]


class NotHereError(Exception):
    """The tool cannot be had on this machine. The text says why."""


def find_tools(stack: StackSettings, home: Path) -> Tools:
    """Fetch and build what can be had. `home` is the folder of the platform's commands."""
    found: list[Tool] = list(_list_ours(home))
    left_out = {}
    finders: Mapping[str, Callable[[StackSettings], Iterable[Tool]]] = {
        "a Python script": _list_scripts,
        "OSO's kafka-backup": _list_kafka_backup,
        "kcat": _list_kcat,
        "Spark's own Kafka source": _list_spark,
        "Kafka Connect": _list_connect,
    }
    for name, find in finders.items():
        try:
            found += find(stack)
        except (NotHereError, PlatformError, OSError) as err:
            left_out[name] = str(err)
    return Tools(tuple(found), left_out | NOT_TO_BE_HAD)


NOT_TO_BE_HAD = {
    "Kafka Connect's sinks for S3": "the registry at hand serves none of Aiven's, Camel's and Spredfast's, which "
    "Maven Central lists; Confluent's and Lenses' are not listed there",
    "Redpanda Connect": "it is built from source, with Go, which this bench does not do",
}


def _list_ours(home: Path) -> Iterable[Tool]:
    lines = {
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "s3.compression.type": "gzip",
    }
    for name, minutes in (("this platform, cold", "0"), ("this platform, with a warm Spark", "30")):
        run_lines = partial(_run_ours, home, lines, minutes, "archive")
        run, restore = (partial(_run_ours, home, {}, minutes, verb) for verb in ("archive", "restore"))
        warm = minutes != "0"
        # Lines lack keys, headers and timestamps. What is restored as it was is the envelope.
        yield Tool(name, "gzip JSON lines", "lines", run_lines, warm=warm)
        yield Tool(name, "whole records, zstd Parquet", "envelope", run, restore, warm)


def _run_ours(home: Path, keys: Mapping[str, str], minutes: str, verb: str, job: Job) -> Command:
    shutil.rmtree(home / "connectors", ignore_errors=True)
    path = write_connector(home / "connectors", job.name, job.topic)
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    arguments = [sys.executable, "-m", "kafka_s3_platform.cli", verb, job.name]
    if verb == "restore":
        arguments += ["--topic", job.topic, "--to-topic", job.target, "--restore-id", job.target]
    return Command(arguments, {"DAGSTER_HOME": str(home), "KAFKA_S3_WARM_SPARK": minutes}, home)


def _name_store(stack: StackSettings) -> dict[str, str]:
    """Return the variables that boto3 and the AWS SDKs read."""
    return {
        "AWS_ENDPOINT_URL": stack.s3_endpoint,
        "AWS_ACCESS_KEY_ID": stack.aws_access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.aws_secret_access_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _list_scripts(stack: StackSettings) -> Iterable[Tool]:
    def make(processes: str) -> Tool:
        def run(verb: str, job: Job, topic: str) -> Command:
            where = [stack.bootstrap_servers, topic, stack.bucket, job.prefix, processes]
            return Command([sys.executable, HERE / "script.py", verb, *where], _name_store(stack))

        return Tool(
            f"a Python script, {processes} process{'es' if processes != '1' else ''}",
            "gzip JSON lines",
            "lines",
            lambda job: run("archive", job, job.topic),
            lambda job: run("restore", job, job.target),
        )

    return [make("1"), make("2")]


def _list_kafka_backup(stack: StackSettings) -> Iterable[Tool]:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise NotHereError("there is no cargo")
    folder = stack.cache / "peers" / "kafka_backup"
    binary = folder / "target/release/kafka-backup-bench"
    sources = {name: (HERE / "kafka_backup" / name).read_text() for name in ("Cargo.toml", "src/main.rs")}
    built = {name: (folder / name).read_text() for name in sources if (folder / name).exists()}
    if not binary.exists() or built != sources:
        (folder / "src").mkdir(parents=True, exist_ok=True)
        for name, text in sources.items():
            (folder / name).write_text(text)
        print("compiling kafka-backup-core (once, 5 to 15 minutes)", file=sys.stderr, flush=True)
        build = [cargo, "build", "--release"]
        done = subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode:
            raise NotHereError(f"it does not compile: {done.stderr[-300:]}")
    kafka = {"bootstrap_servers": [stack.bootstrap_servers]}

    def run(job: Job, mode: str, keys: Mapping[str, object]) -> Command:
        storage = {
            "backend": "s3",
            "bucket": stack.bucket,
            "region": "us-east-1",
            "endpoint": stack.s3_endpoint,
            "access_key": stack.aws_access_key_id,
            "secret_key": stack.aws_secret_access_key,
            "prefix": job.prefix,
            "path_style": True,
            "allow_http": True,
        }
        config = job.folder / f"{mode}.yaml"
        # YAML is a superset of JSON.
        config.write_text(json.dumps({"mode": mode, "backup_id": "backup", "storage": storage, **keys}))
        return Command([binary, config], folder=job.folder)

    def archive(job: Job) -> Command:
        options = {"stop_at_current_offsets": True, "include_offset_headers": False, "compression": "zstd"}
        offsets = {"db_path": str(job.folder / "offsets.db")}
        source = {**kafka, "topics": {"include": [job.topic]}}
        return run(job, "backup", {"source": source, "backup": options, "offset_storage": offsets})

    def restore(job: Job) -> Command:
        # A checkpoint each second, where a minute is the default: with it, less is sent twice after a kill.
        options = {
            "topic_mapping": {job.topic: job.target},
            "checkpoint_state": str(job.folder / f"{job.target}.checkpoint"),
            "checkpoint_interval_secs": 1,
        }
        target = {**kafka, "topics": {"include": [job.topic]}}
        return run(job, "restore", {"target": target, "restore": options})

    return [Tool("OSO's kafka-backup", "whole records, its own zstd segments", "own", archive, restore)]


def _list_kcat(stack: StackSettings) -> Iterable[Tool]:
    if missing := [name for name in ("kcat", "rclone") if shutil.which(name) is None]:
        raise NotHereError(f"not installed: {' and '.join(missing)} (Debian has packages of these names)")

    def run(verb: str, job: Job, topic: str) -> Command:
        remote = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": stack.s3_endpoint,
            "ACCESS_KEY_ID": stack.aws_access_key_id,
            "SECRET_ACCESS_KEY": stack.aws_secret_access_key,
        }
        variables = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in remote.items()}
        # rclone refuses to start with it, although the embedded store has no TLS.
        variables["AWS_CA_BUNDLE"] = ""
        where = [stack.bootstrap_servers, topic, f"store:{stack.bucket}/{job.prefix}", str(KAFKA_PARTITIONS)]
        return Command(["bash", HERE / "kcat.sh", verb, *where], variables)

    return [
        Tool(
            "kcat, gzip -1 and rclone",
            "gzip JSON lines",
            "lines",
            lambda job: run("archive", job, job.topic),
            lambda job: run("restore", job, job.target),
        )
    ]


SPARK_SOURCE = "4.2.0"
"""The newest release of Spark's Kafka source that was served. It runs on Spark 4.2 and on 4.3.0."""
HADOOP, AWS_SDK, ANALYTICS = "3.5.0", "2.57.8", "1.3.1"
KAFKA = "4.3.1"


def _list_spark(stack: StackSettings) -> Iterable[Tool]:
    sdk = "software.amazon.awssdk"
    jars = _fetch(
        stack,
        "spark_source",
        [
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_SOURCE),
            ("org.apache.hadoop", "hadoop-aws", HADOOP),
            *((sdk, name, AWS_SDK) for name in ("s3", "s3-transfer-manager", "sts", "apache-client")),
            ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", ANALYTICS),
        ],
        # Spark has these. The bundle is the whole SDK, in 600 MB.
        ["hadoop-client-*", "scala-*", "spark-tags_*", "slf4j-api", "lz4-java", "snappy-java", "bundle"],
    )
    listed = ",".join(map(str, sorted(jars.iterdir())))

    def archive(job: Job) -> Command:
        where = [stack.bootstrap_servers, job.topic, f"s3a://{stack.bucket}/{job.prefix}/lines"]
        variables = {**_name_store(stack), "PYSPARK_PYTHON": sys.executable}
        return Command([sys.executable, HERE / "spark_text.py", *where, listed], variables)

    name = f"Spark {version('pyspark')} with its Kafka source {SPARK_SOURCE} and s3a"
    return [Tool(name, "gzip JSON lines", "lines", archive)]


def _list_connect(stack: StackSettings) -> Iterable[Tool]:
    jars = _fetch(
        stack, "connect", [("org.apache.kafka", name, KAFKA) for name in ("connect-runtime", "connect-file")], []
    )

    def archive(job: Job) -> Command:
        where = [stack.bootstrap_servers, job.topic, job.name, str(job.folder), str(find_java()), f"{jars}/*"]
        return Command([sys.executable, HERE / "connect_file.py", *where])

    return [
        Tool(f"Kafka Connect {KAFKA}, FileStreamSink", "lines in a local file: not in S3, not gzip", "lines", archive)
    ]


def _fetch(stack: StackSettings, name: str, modules: Sequence[tuple[str, str, str]], excluded: Sequence[str]) -> Path:
    """Fetch modules of Maven Central with all that they need but `excluded`, once. Return the folder of the jars."""
    wanted = "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="*->default"/>' for org, name, rev in modules
    )
    without = "".join(f'<exclude module="{pattern}" matcher="glob"/>' for pattern in excluded)
    module = (
        f'<ivy-module version="2.0"><info organisation="bench" module="{name}"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}{without}</dependencies></ivy-module>"
    )

    def write_options(folder: Path) -> list[str]:
        (folder / "ivy.xml").write_text(module)
        return ["-ivy", str(folder / "ivy.xml"), "-types", "jar", "bundle", "maven-plugin"]

    download = Download(
        name=f"peers/{name}-{crc32(module.encode()):08x}",
        title=name,
        coordinates=", ".join(":".join(each) for each in modules),
        ivy_options=write_options,
        # no digests of these are recorded: what is compared with the platform is believed
        list_differences=lambda _: (),
    )
    (stack.cache / "peers").mkdir(parents=True, exist_ok=True)
    return download.folder(stack.cache)


def find_variables(command: Command) -> dict[str, str]:
    """Return the whole environment of a command."""
    return {**os.environ, **command.variables}
