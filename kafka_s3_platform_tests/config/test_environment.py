"""The table of environment variables has all of them."""

import re
from fnmatch import fnmatchcase

from bench.variables import VARIABLES
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import REPOSITORY

READ = re.compile(r"environ(?:\.get\(|\[)[\"'](\w+)|env(?:\.get\(|\[)[\"'](\w+)[\"']")


def is_declared(name: str) -> bool:
    return any(fnmatchcase(name, variable.name) for variable in VARIABLES)


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    # Zooz's variables are read from a file that somebody wants to be converted.
    sources = [path for path in sorted((REPOSITORY / "kafka_s3_platform").rglob("*.py")) if path.name != "zooz.py"]
    read = {name for path in sources for groups in READ.findall(path.read_text()) for name in groups if name}
    # `PATH` is everybody's.
    assert [name for name in sorted(read - {"PATH"}) if not is_declared(name)] == []
    assert "DAGSTER_HOME" in read


def test_our_own_names_are_written_once() -> None:
    for path in sorted((REPOSITORY / "kafka_s3_platform").rglob("*.py")):
        if path.name != "environment.py":
            assert re.findall(r'^\w+ = "KAFKA_S3_\w+"', path.read_text(), re.MULTILINE) == [], path


def test_the_instance_asks_for_no_other() -> None:
    asked = re.findall(r"env: (\w+)", (REPOSITORY / "deploy" / "dagster.yaml").read_text())
    assert asked
    assert [name for name in asked if not is_declared(name)] == []


def test_those_of_the_embedded_stack_are_one_row() -> None:
    assert all(is_declared(name) for name in StackSettings().environment())
