"""Commands that are the first in a Dagster home, all at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from kafka_s3_platform_tests.cli.conftest import REPOSITORY

OPEN = """
import multiprocessing
import os
import sys
import time
import dagster as dg
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from kafka_s3_platform.cli.runs import open_instance

AT_ONCE = 3
look = sqlite_run_storage.check_alembic_revision

def look_slowly(*given):
    found = look(*given)
    time.sleep(1)
    return found

# between looking for tables and making them others come along: here always, else one time in three
sqlite_run_storage.check_alembic_revision = look_slowly

def open_home(ready):
    ready.wait()
    with open_instance() as found:
        found.get_runs(limit=1)
        found.all_instigator_state()
        found.get_materialized_partitions(dg.AssetKey("a"))
        found.report_runless_asset_event(dg.AssetMaterialization("a", partition="p"))

fork = multiprocessing.get_context("fork")
for folder in ("by_variable", "by_file"):
    os.chdir(folder)
    os.environ.update(DAGSTER_HOME=os.getcwd()) if folder == "by_variable" else os.environ.pop("DAGSTER_HOME")
    ready = fork.Barrier(AT_ONCE)
    started = [fork.Process(target=open_home, args=[ready]) for _ in range(AT_ONCE)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    if any(process.exitcode != 0 for process in started):
        sys.exit(folder)
    os.chdir("..")
"""


def test_several_commands_at_once_open_a_fresh_home(tmp_path: Path) -> None:
    """Each has a process of its own, which has imported everything: that takes longer than all else."""
    for folder in ("by_variable", "by_file"):
        (tmp_path / folder).mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", tmp_path / "by_file")
    given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_"))}
    env = {**given, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", OPEN], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(list((tmp_path / folder).rglob("*.db")) for folder in ("by_variable", "by_file"))
