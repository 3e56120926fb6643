"""What messages name to be typed or set is there: commands, options, fields of a run's config, keys of files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import kafka_s3_platform
from kafka_s3_platform.cli import COMMANDS, main
from kafka_s3_platform.connect.config.mapping import CONNECTOR_KEYS
from kafka_s3_platform.core.defs.restore.config import (
    AnyRestoreConfig,
    ForeignRestoreConfig,
    RestoreConfig,
    list_fields,
)
from kafka_s3_platform_tests.conftest import present

Texts = list[tuple[str, str]]
Options = dict[str, dict[str, click.Parameter]]

SOURCE = Path(kafka_s3_platform.__file__).parent

NOT_OURS = {
    "operate/local/broker.py": "kafka-storage.sh",
    "connect/converters/protobuf/files.py": "protoc",
}
OF_KAFKA = {"--bootstrap-server", "--delete-offsets", "--partition", "--start-offset"}
"""Of kafka-consumer-groups.sh and kafka-transactions.sh."""

OF_SPARK = {"--load-spark-defaults", "--properties-file"}
"""Of spark-submit."""


@pytest.fixture(scope="module")
def texts() -> Texts:
    """(file and line, text) of every string that is no documentation; what an f-string fills in is X."""
    return list(_find_texts())


def _find_texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name in NOT_OURS:
            continue
        tree = ast.parse(path.read_text())
        parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield f"{name}:{node.lineno}", "".join(_text(part) for part in node.values)
            elif isinstance(node, ast.Constant) and node not in parts | documentation:
                yield f"{name}:{node.lineno}", _text(node)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "X"


def options_of(command: str) -> dict[str, click.Parameter]:
    """The options of a command, and of the commands that it is a group of."""
    named = find_command(command)
    commands = [named, *(named.commands.values() if isinstance(named, click.Group) else ())]
    parameters = [parameter for each in commands for parameter in each.params]
    return {option: parameter for parameter in parameters for option in parameter.opts}


def find_command(name: str) -> click.Command:
    return present(main.get_command(click.Context(main), name))


@pytest.fixture(scope="module")
def options() -> Options:
    return {command: options_of(command) for command in COMMANDS}


def test_every_option_that_a_text_names_is_one_of_a_command(texts: Texts, options: Options) -> None:
    known = OF_KAFKA.union(OF_SPARK, ["--help"], *options.values())
    named = [(at, option) for at, text in texts for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)]
    assert len(named) > 100
    assert [(at, option) for at, option in named if option not in known] == []


def test_every_command_that_a_text_names_takes_the_options_beside_it(texts: Texts, options: Options) -> None:
    named = [(at, *found) for at, text in texts for found in re.findall(r"kafka-s3 ([a-z][a-z-]*)([^`.;,()]*)", text)]
    assert len(named) > 5
    for at, command, rest in named:
        assert command in COMMANDS, at
        assert set(re.findall(r"--[a-z-]+", rest)) <= set(options[command]), at


@pytest.mark.parametrize("config", [RestoreConfig, ForeignRestoreConfig])
def test_every_allowance_of_a_restore_is_an_option_and_a_field_of_its_config(
    config: type[AnyRestoreConfig], texts: Texts, options: Options
) -> None:
    fields = list_fields(config)
    pattern = r"(--[a-z][a-z-]*)[a-z0-9 ]*\(([a-z_.]+)\)"
    rooms = ("core/restore/", "connect/restore/")
    named = [(at, *found) for at, text in texts for found in re.findall(pattern, text) if at.startswith(rooms)]
    assert len(named) > 10
    for at, option, field in named:
        assert option in options["restore"], at
        assert field in fields, at


def test_every_key_that_a_text_names_is_one_of_connector_files(texts: Texts) -> None:
    """What ends in a dot, or goes on with what is filled in, is the beginning of keys."""
    pattern = r"(?<![\w./])(?:archive|errors|behavior)(?:\.[a-z]+)+(?![a-z]|\.$|\.[a-zX])"
    named = [(at, key) for at, text in texts for key in re.findall(pattern, text)]
    assert len(named) > 50
    assert [(at, key) for at, key in named if not CONNECTOR_KEYS.find(key)] == []
