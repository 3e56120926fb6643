"""Compiled functions of a process whose working directory somebody else writes to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_s3_platform_tests.conftest import REPOSITORY

WORKER = "from kafka_s3_platform.python_daemon import import_for_tasks; import_for_tasks()"
COMMAND = "from kafka_s3_platform.cli.machine.training import compile_kernels; compile_kernels()"


@pytest.mark.parametrize("code", [WORKER, COMMAND])
def test_a_file_of_the_working_directory_does_not_lead_to_a_cache_of_pickles(code: str, tmp_path: Path) -> None:
    """numba loads what such a cache holds. It makes the folder first, if it is to use it."""
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: .planted\ncache_locator_classes: planted.Locator\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    env |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [".numba_config.yaml"]
