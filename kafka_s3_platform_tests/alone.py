"""A plug-in of pytest: the core's own tests, where nothing of the other parts can be imported.

    pytest -p kafka_s3_platform_tests.alone -m "not long and not connect" kafka_s3_platform_tests

A test is the core's own if neither its module, nor what that imports of the tests, imports another part. The embedded
stack is not the core's, but what tests run against.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "kafka_s3_platform"
TESTS = "kafka_s3_platform_tests"
STACK = f"{PACKAGE}.operate.local"
FORBIDDEN = (
    f"{PACKAGE}.connect",
    *(f"{PACKAGE}.operate.{path.name}" for path in ROOT.glob(f"{PACKAGE}/operate/[a-z]*")),
)

# Python refuses to import what stands here as None.
sys.modules.update({name: None for name in FORBIDDEN if name != STACK})  # type: ignore[misc]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules that are not the core's own."""
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    return None if is_cores_own(collection_path) else True


@cache
def is_cores_own(path: Path) -> bool:
    """Return True if a module of the tests, with all that it imports of the tests, imports the core alone."""
    above = [folder / "conftest.py" for folder in path.relative_to(ROOT).parents if folder.parts[1:]]
    seen: set[Path] = set()
    waiting = [path, *(ROOT / conftest for conftest in above if (ROOT / conftest).exists())]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in _list_imports(module):
            if name.startswith(TESTS):
                waiting += _find_modules(name)
            elif name.startswith(PACKAGE) and not name.startswith((f"{PACKAGE}.core", STACK)):
                return False
    return True


def _list_imports(module: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, also within functions."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _find_modules(name: str) -> list[Path]:
    """Return the file that a name is imported from, or is."""
    parts = name.split(".")
    files = [ROOT.joinpath(*parts[:count]).with_suffix(".py") for count in (len(parts), len(parts) - 1)]
    return [file for file in files if file.exists()][:1]
