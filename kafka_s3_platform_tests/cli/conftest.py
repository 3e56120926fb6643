import io
import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafka_s3_platform.cli import main
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.resources import SPARK_VARIABLE
from kafka_s3_platform_tests.conftest import connector_keys, copy_home
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour
from kafka_s3_platform_tests.support import Sent, produce

REPOSITORY = Path(__file__).parents[2]


class KafkaS3(Protocol):
    """Runs `kafka-s3` as a shell does, in a folder with `connectors/` and Dagster's own home.

    Raises AssertionError unless the command ends with the status, if one is given.
    """

    folder: Path

    def __call__(self, *arguments: str, status: int | None = None) -> "subprocess.CompletedProcess[str]": ...


def make_environment(folder: Path) -> dict[str, str]:
    """The environment of a command: nothing of the platform's or Dagster's but a home of its own."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_", "PYTHON"))}
    return {**given, "DAGSTER_HOME": str(folder / "dagster"), "PYTHONPATH": str(REPOSITORY)}


class _OwnProcess:
    """Each command has a process of its own, and starts whatever it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int | None = None) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "kafka_s3_platform.cli", *arguments]
        env = make_environment(self.folder)
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done


class _ThisProcess:
    """Commands run here: what Python has imported and the session of Spark serve all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, status: int | None = None) -> "subprocess.CompletedProcess[str]":
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, _without_log_handlers(), redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            spark = {SPARK_VARIABLE: os.environ[SPARK_VARIABLE]}
            for name in os.environ.keys() - make_environment(self.folder).keys() - spark.keys():
                patch.delenv(name)
            for name, value in make_environment(self.folder).items():
                patch.setenv(name, value)
            try:
                main(list(arguments), prog_name="kafka-s3")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception:  # noqa: BLE001 - as Python ends
                traceback.print_exc()
                code = 1
        assert status in (None, code), out.getvalue() + err.getvalue()
        return subprocess.CompletedProcess(["kafka-s3", *arguments], code, out.getvalue(), err.getvalue())


@contextmanager
def _without_log_handlers() -> Iterator[None]:
    """The command sets up logging as in a process of its own, and what it set up goes with it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    own = logging.getLogger("kafka_s3_platform").level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("kafka_s3_platform").setLevel(own)


def _in_folder(folder: Path, fresh_home: Path) -> KafkaS3:
    (folder / "connectors").mkdir()
    copy_home(fresh_home, folder / "dagster")
    return _ThisProcess(folder)


@pytest.fixture
def kafka_s3(tmp_path: Path, fresh_home: Path, request: pytest.FixtureRequest) -> KafkaS3:
    if "stack" in request.fixturenames:
        request.getfixturevalue("spark")
    return _in_folder(tmp_path, fresh_home)


@pytest.fixture
def kafka_s3_without_spark(tmp_path: Path, fresh_home: Path) -> KafkaS3:
    """For tests of servers in which no run is executed."""
    return _in_folder(tmp_path, fresh_home)


@pytest.fixture
def kafka_s3_process(kafka_s3: KafkaS3) -> KafkaS3:
    """The same folder and home, with a process for each command, as a shell has it."""
    return _OwnProcess(kafka_s3.folder)


def write_connector(kafka_s3: KafkaS3, topics: str, **more: str) -> None:
    """Connector `c` at a cluster and a store that are not there."""
    keys = {"name": "c", "topics": topics, "s3.bucket.name": "bucket", "store.url": "http://127.0.0.1:31698"}
    logins = {"aws.access.key.id": "id", "aws.secret.access.key": "secret", "s3.part.retries": "0"}
    folder = kafka_s3.folder / "connectors"
    (folder / "worker.properties").write_text("bootstrap.servers=127.0.0.1:31699\n")
    (folder / "c.json").write_text(json.dumps({**keys, **logins, **more}))


def write_reachable_connector(
    kafka_s3: KafkaS3, kafka: KafkaSettings, store: StoreSettings, topics: str, **more: str
) -> ConnectorConfig:
    """Connector `c` at the session's own cluster and store, as it is loaded."""
    own = {**connector_keys(store), "archive.start.hour": "2025-12-01T00:00"}
    write_connector(kafka_s3, topics, **{**own, **more})
    worker = kafka_s3.folder / "connectors" / "worker.properties"
    worker.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")
    return load_connector(worker.parent / "c.json", worker, {})


def connect_late_topic(
    kafka_s3: KafkaS3, kafka: KafkaSettings, store: StoreSettings, topic: str, hours: int
) -> ConnectorConfig:
    """Connector `c`, whose topic has a record of so many hours ago, and one of this hour. None is archived."""
    own = connector_of_this_hour(kafka, store, topic)
    produce(kafka, topic, [Sent(timestamp=ago(own, back) + timedelta(seconds=1)) for back in (hours, 0)])
    start = own.archive.start_hour.strftime("%Y-%m-%dT%H:%M")
    times = {"archive.start.hour": start, "archive.allowed.lateness.ms": "0"}
    return write_reachable_connector(kafka_s3, kafka, store, topic, **times)


def parsed(found: "subprocess.CompletedProcess[str]") -> Any:
    """The JSON of a command that succeeded."""
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)
