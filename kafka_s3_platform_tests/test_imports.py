"""What must not be imported where it is not used: it is a large part of a start."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

LOOK = "import json, sys; {does}; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
SCAN = "import kafka_s3_platform.core.archive.scan, kafka_s3_platform.core.kafka.fetch.fetch_reader"
ARCHIVE = "import kafka_s3_platform.cli.archive, kafka_s3_platform.core.archive.run"
HELP = "import kafka_s3_platform.cli as c; c.main(['--help'], standalone_mode=False)"
COMPLETE = "from kafka_s3_platform.cli import main; main.shell_complete(main.make_context('k', ['list']), 're')"
OF_FORMATS = ("authlib", "confluent_kafka.schema_registry", "google.protobuf", "grpc_tools", "jsonschema")
"""What the registry and its formats need."""


@pytest.mark.parametrize(
    ("does", "without"),
    [
        (COMPLETE, ("dagster", "pyarrow", "pydantic")),
        (HELP, ("boto3", "confluent_kafka", "dagster", "jinja2", "numpy", "pyarrow", "pydantic", "pyspark")),
        (
            ARCHIVE,
            ("duckdb", "jinja2", "numba", "pandas", "pyspark", "kafka_s3_platform.core.archive.scan", *OF_FORMATS),
        ),
        (SCAN, ("dagster", "duckdb", "jinja2", "pandas", "sqlalchemy", "kafka_s3_platform.core.restore", *OF_FORMATS)),
    ],
    ids=[
        "the completion of a command's name",
        "the list of commands",
        "a command and its run",
        "a task of an archive run",
    ],
)
def test_what_is_heavy_is_imported_only_where_it_is_used(does: str, without: tuple[str, ...]) -> None:
    """Loading the definitions is in `defs/test_definitions.py`."""
    command = [sys.executable, "-c", LOOK.format(does=does)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(json.loads(found.stderr.splitlines()[-1]))
    assert loaded.isdisjoint(without), loaded & set(without)


def test_the_collector_leaves_out_what_the_definitions_import() -> None:
    told = "import gc, kafka_s3_platform.definitions; print(gc.get_freeze_count() > 100_000, gc.isenabled())"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]


def test_what_the_package_imports_is_declared() -> None:
    """Not only installed because something else needs it."""
    package = Path(__file__).parents[1] / "kafka_s3_platform"
    project = tomllib.loads((package.parent / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w.-]", name)[0].lower() for name in project["dependencies"]}
    nodes = [node for path in package.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    homes = packages_distributions()
    imported = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {package.name}
    assert {
        name for name in imported if declared.isdisjoint(home.lower().replace("_", "-") for home in homes[name])
    } == set()
