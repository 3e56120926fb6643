"""What Dagster keeps of runs is for this user alone: the config of a run may hold secrets."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.kafka.offset_admin import OffsetAdmin
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


@pytest.fixture
def _open_to_others() -> Iterator[None]:
    """As most users have it: others read what is written. The command changes that for its process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_to_others")
def test_nobody_else_reads_the_runs_of_a_command_not_even_those_of_a_folder_that_was_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(REPOSITORY / "dagster.yaml", tmp_path)
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "orders.json").write_text(json.dumps(CONNECTOR))
    (tmp_path / "connectors" / "worker.properties").write_text("bootstrap.servers=127.0.0.1:9\n")
    (tmp_path / ".dagster").mkdir(mode=0o755)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("KAFKA_S3_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(OffsetAdmin.__init__, "__defaults__", (1.0,))
    ran = CliRunner().invoke(main, ["archive", "orders"])
    assert "127.0.0.1:9" in ran.output
    assert list(tmp_path.rglob("runs.db")), ran.output
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
