"""The house rules that no linter knows: small folders, one meaning a name, none that says `partition` alone."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_s3_platform_tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "kafka_s3_platform"
TESTS = REPOSITORY / "kafka_s3_platform_tests"
MAX_FILES = 20
PASSED_ON = ("cli", "plugins.py")
"""The command line's functions are called as its commands are, which are what they run; `plugins` passes names on."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def public_names(module: ast.Module) -> Iterator[str]:
    """Functions, classes and types that the module defines for others."""
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper() and not name.isupper():
                yield name


@pytest.mark.parametrize("root", [PACKAGE, TESTS], ids=["package", "tests"])
def test_no_folder_has_more_files_than_one_can_oversee(root: Path) -> None:
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    counts = {folder: len({*folder.glob("*.py")} - {folder / "__init__.py"}) for folder in folders}
    assert {str(folder.relative_to(root)): count for folder, count in counts.items() if count > MAX_FILES} == {}


def test_no_two_rooms_give_one_name_to_two_things() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for path, module in modules():
        if not path.startswith(PASSED_ON):
            for name in public_names(module):
                if not name.startswith("_"):
                    homes[name].add(path)
    assert {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1} == {}


def test_partition_alone_is_the_name_of_nothing() -> None:
    """It means three things here. Fields of stored documents and Spark's methods keep their names."""
    found = [
        f"{path} {name}"
        for path, module in modules()
        for node in ast.walk(module)
        for name in defined_names(node)
        if re.fullmatch(r"_?partitions?", name)
    ]
    assert found == [
        *(f"{path} partition" for path in ("formats/envelope/json.py", "formats/lenses.py")),
        *(f"reading/spark_source.py {name}" for name in ("partitions", "partition")),
    ]


def test_no_id_of_an_object_stands_for_it() -> None:
    """A freed object's id is that of another object soon. Where one must be a key, the map keeps the object."""
    found = [
        path
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"
    ]
    assert found == ["converters/json_schema/decode.py"]


def defined_names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return [name]
    return []
