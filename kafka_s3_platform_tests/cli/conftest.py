import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings

REPOSITORY = Path(__file__).parents[2]


class KafkaS3(Protocol):
    """Runs `kafka-s3` as a shell does, in a folder with `connectors/` and Dagster's own home."""

    folder: Path

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]": ...


class _KafkaS3:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_", "PYTHON"))}
        env = {**given, "DAGSTER_HOME": str(self.folder / "dagster"), "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", "kafka_s3_platform.cli", *arguments]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def kafka_s3(tmp_path: Path) -> KafkaS3:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "dagster").mkdir()
    return _KafkaS3(tmp_path)


def write_connector(kafka_s3: KafkaS3, topics: str, **more: str) -> None:
    """Connector `c` at a cluster and a store that are not there."""
    keys = {"name": "c", "topics": topics, "s3.bucket.name": "bucket", "store.url": "http://127.0.0.1:31698"}
    logins = {"aws.access.key.id": "id", "aws.secret.access.key": "secret", "s3.part.retries": "0"}
    folder = kafka_s3.folder / "connectors"
    (folder / "worker.properties").write_text("bootstrap.servers=127.0.0.1:31699\n")
    (folder / "c.json").write_text(json.dumps({**keys, **logins, **more}))


def write_reachable_connector(
    kafka_s3: KafkaS3, kafka: KafkaSettings, store: StoreSettings, topics: str, **more: str
) -> None:
    """Connector `c` at the session's own cluster and store."""
    assert store.access_key_id is not None
    assert store.secret_access_key is not None
    logins = {
        "aws.access.key.id": store.access_key_id.get_secret_value(),
        "aws.secret.access.key": store.secret_access_key.get_secret_value(),
    }
    own = {"s3.bucket.name": store.bucket, "store.url": str(store.endpoint_url), "s3.region": store.region}
    write_connector(kafka_s3, topics, **{**own, **logins, "archive.start.hour": "2025-12-01T00:00", **more})
    worker = kafka_s3.folder / "connectors" / "worker.properties"
    worker.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")


def parsed(found: "subprocess.CompletedProcess[str]") -> Any:
    """The JSON of a command that succeeded."""
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)
