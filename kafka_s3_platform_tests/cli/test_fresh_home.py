"""Commands that are the first in a Dagster home, all at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_s3_platform_tests.cli.conftest import REPOSITORY

AT_ONCE = 3
OPEN = """
import sys
import time
import dagster as dg
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from kafka_s3_platform.cli.runs import open_instance

look = sqlite_run_storage.check_alembic_revision

def look_slowly(*given):
    found = look(*given)
    time.sleep(1)
    return found

# between looking for tables and making them others come along: here always, else one time in three
sqlite_run_storage.check_alembic_revision = look_slowly
print("ready", flush=True)
sys.stdin.readline()
with open_instance() as found:
    found.get_runs(limit=1)
    found.all_instigator_state()
    found.get_materialized_partitions(dg.AssetKey("a"))
    found.report_runless_asset_event(dg.AssetMaterialization("a", partition="p"))
"""


@pytest.mark.parametrize("home", ["DAGSTER_HOME", "dagster.yaml"])
def test_several_commands_at_once_open_a_fresh_home(tmp_path: Path, home: str) -> None:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_"))}
    env = {**given, "PYTHONPATH": str(REPOSITORY)}
    if home == "DAGSTER_HOME":
        env["DAGSTER_HOME"] = str(tmp_path)
    else:
        (tmp_path / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    command = [sys.executable, "-c", OPEN]
    started = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(AT_ONCE)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
