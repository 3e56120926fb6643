"""The house rules that no linter knows: a size for each room, small folders, one meaning a name."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kafka_s3_platform_tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "kafka_s3_platform"
TESTS = REPOSITORY / "kafka_s3_platform_tests"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MAX_FILES = 20
MIN_LINES = 180
"""Files have so many lines on average: many small ones are as hard to oversee as a few large ones."""

PARTS = ("core", "connect", "operate")
ROOMS: Mapping[str, tuple[int, int]] = {
    ".": (490, 4),
    "cli": (5_500, 39),
    "connect": (150, 2),
    "connect/avro": (2_870, 14),
    "connect/config": (7_850, 28),
    "connect/converters": (4_510, 19),
    "connect/defs": (640, 6),
    "connect/formats": (2_560, 13),
    "connect/java": (390, 3),
    "connect/layouts": (470, 5),
    "connect/partitioners": (260, 2),
    "connect/registries": (660, 4),
    "connect/restore": (2_220, 11),
    "connect/segments": (350, 4),
    "connect/sources": (2_720, 10),
    "connect/transforms": (1_800, 8),
    "core": (1_000, 14),
    "core/archive": (3_330, 14),
    "core/codecs": (680, 4),
    "core/config": (1_320, 8),
    "core/defs": (5_210, 31),
    "core/formats": (2_990, 20),
    "core/instance": (790, 6),
    "core/java": (600, 5),
    "core/kafka": (5_470, 20),
    "core/layouts": (460, 3),
    "core/model": (3_010, 18),
    "core/partitioners": (760, 4),
    "core/restore": (9_370, 46),
    "core/segments": (720, 4),
    "core/spark": (630, 4),
    "core/status": (1_330, 8),
    "core/store": (4_710, 17),
    "core/upkeep": (4_070, 14),
    "operate": (10, 1),
    "operate/alerts": (1_030, 7),
    "operate/defs": (330, 4),
    "operate/groups": (670, 3),
    "operate/instance": (730, 7),
    "operate/local": (1_260, 10),
    "operate/monitoring": (1_520, 12),
    "operate/reading": (1_320, 5),
    "operate/rehearsal": (430, 2),
    "operate/status": (500, 3),
    "operate/warm_spark": (810, 4),
}
"""How many lines and files each room of the package may have. Who needs more raises it, and says why in the commit."""

HABITS: Mapping[str, int] = {
    "# noqa: ARG": 15,
    "a comprehension in another": 162,
    "a private module of Dagster": 15,
    "a vague name": 180,
    "a, b = x, y": 20,
}
"""How often the package may do what is hard to read. The aim is 0."""

SLACK = 60
"""So many lines fewer than it may have, and a room is held to what it has."""

VAGUE = frozenset(
    {
        *("found", "told", "said", "says", "known", "kept", "left", "seen", "asked", "wanted"),
        *("given", "each", "made", "held", "stored", "settled", "cut", "whole", "look"),
        *("sent", "written", "decided", "listed", "planned", "picked", "counted", "chosen", "taken", "done", "reached"),
        *("read", "unread", "untold", "undone", "joined", "remembered", "bad", "wrong", "before", "after", "again"),
        *("earlier", "instead", "own", "one", "some", "both", "these", "stays"),
    }
)
"""Names of variables, parameters and fields that say nothing of what they name."""

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


def name_room(path: Path) -> str:
    """The folder of a file below the part that it belongs to. The part itself for a file of no room."""
    return "/".join(path.parts[: min(2 if path.parts[0] in PARTS else 1, len(path.parts) - 1)]) or "."


def test_each_room_keeps_to_its_size() -> None:
    sizes: dict[str, list[int]] = defaultdict(list)
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.j2")):
        sizes[name_room(path.relative_to(PACKAGE))].append(len(path.read_text().splitlines()))
    rooms = {room: (sum(lines), len(lines)) for room, lines in sorted(sizes.items())}
    allowed = {room: ROOMS.get(room, (0, 0)) for room in rooms}
    larger = {room for room, size in rooms.items() if size[0] > allowed[room][0] or size[1] > allowed[room][1]}
    smaller = {room for room, size in rooms.items() if size[0] + SLACK < allowed[room][0] or size[1] < allowed[room][1]}
    assert {room: rooms[room] for room in larger} == {}, "raise what the room may have, if it must be"
    assert {room: rooms[room] for room in smaller} == {}, "lower what the room may have, lest it grow again"
    assert sum(lines for lines, _ in rooms.values()) >= MIN_LINES * sum(files for _, files in rooms.values())


def test_no_habit_that_is_hard_to_read_grows() -> None:
    counts = Counter(habit for path, module in modules() for habit in habits(path, module))
    assert dict(counts) == HABITS


def habits(path: str, module: ast.Module) -> Iterator[str]:
    yield from ["# noqa: ARG"] * (PACKAGE / path).read_text().count("noqa: ARG")
    for node in ast.walk(module):
        match node:
            case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple()):
                yield "a, b = x, y"
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = (child for child in ast.walk(node) if child is not node)
                if len(node.generators) > 1 or any(isinstance(child, COMPREHENSIONS) for child in inner):
                    yield "a comprehension in another"
            case ast.ImportFrom(module=str(name)) if re.match(r"dagster[\w.]*\._", name):
                yield "a private module of Dagster"
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in VAGUE:
                yield "a vague name"


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
        *(f"{path} partition" for path in ("connect/formats/lenses.py", "core/formats/envelope/json.py")),
        *(f"operate/reading/spark_source.py {name}" for name in ("partitions", "partition")),
    ]


def test_no_id_of_an_object_stands_for_it() -> None:
    """A freed object's id is that of another object soon. Where one must be a key, the map keeps the object."""
    found = [
        path
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"
    ]
    assert found == ["connect/converters/json_schema/decode.py"]


def defined_names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return [name]
    return []
