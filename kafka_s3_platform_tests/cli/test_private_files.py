"""What Dagster keeps of runs is for this user alone: the config of a run may hold secrets."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kafka_s3_platform_tests.cli.conftest import REPOSITORY

CONNECTOR = {
    "name": "orders",
    "config": {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "s3.bucket.name": "archive",
        "store.url": "http://127.0.0.1:9",
        "aws.access.key.id": "any",
        "aws.secret.access.key": "any",
    },
}


def test_nobody_else_reads_the_runs_of_a_command_not_even_those_of_a_folder_that_was_open(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "dagster.yaml", tmp_path)
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "orders.json").write_text(json.dumps(CONNECTOR))
    (tmp_path / "connectors" / "worker.properties").write_text("bootstrap.servers=127.0.0.1:9\n")
    (tmp_path / ".dagster").mkdir(mode=0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_S3_", "DAGSTER_"))}
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "archive", "orders"]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, umask=0o022)
    assert list(tmp_path.rglob("runs.db")), ran.stderr
    assert (tmp_path / ".dagster").stat().st_mode & 0o777 == 0o700
    assert [path for path in (tmp_path / ".dagster").rglob("*") if path.stat().st_mode & 0o077] == []


def test_nobody_else_reads_what_the_development_server_writes(tmp_path: Path) -> None:
    server = tmp_path / "bin" / "dagster"
    server.parent.mkdir()
    server.write_text("#!/bin/sh\nmkdir -p .dagster/storage && echo runs >.dagster/storage/runs.db\n")
    server.chmod(0o755)
    (tmp_path / ".dagster").mkdir(mode=0o755)
    command = ["make", "-f", str(REPOSITORY / "Makefile"), "-o", "up", f"BIN={server.parent}", "dev"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, umask=0o022)
    written = tmp_path / ".dagster" / "storage" / "runs.db"
    assert [each.stat().st_mode & 0o077 for each in (written, written.parent, written.parents[1])] == [0, 0, 0]
