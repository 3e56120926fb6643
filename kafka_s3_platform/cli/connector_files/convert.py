"""`kafka-s3 convert`."""

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
import javaproperties

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.connect.config.zooz import convert_environment as converted
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.text import format_entry


@click.command
@click.argument("env_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this connector file, .json or .properties. Default: print JSON to standard output.",
)
@json_option
def convert(env_file: Path | None, output: Path | None, as_json: bool) -> None:
    """Convert Zooz's environment variables to a connector file.

    These variables configure Zooz's kafka-s3-connector. Reads them from ENV_FILE, with lines `export NAME=value` or
    `NAME=value`; without ENV_FILE, from the environment. Copies no secrets: the connector file refers to their
    variables. Reports variables without a counterpart.
    """
    try:
        connector = converted(os.environ if env_file is None else _read_variables(env_file))
    except ValueError as err:
        raise ConfigError(f"{env_file or 'the environment'}: {err}") from err
    if output is not None:
        _write_file(output, connector.keys)
    document = {"keys": dict(connector.keys), "without_counterpart": dict(connector.without_counterpart)}
    document["notes"] = dict(connector.notes)
    keys = json.dumps(dict(connector.keys), indent=2).splitlines()
    print_result(document, as_json, keys if output is None else [f"wrote {output}"])
    for name, reason in connector.without_counterpart.items():
        click.echo(format_entry(f"{name} has no counterpart: {reason}"), err=True)
    for name, note in connector.notes.items():
        click.echo(format_entry(f"{name}: {note}"), err=True)


def _read_variables(path: Path) -> dict[str, str]:
    """Read a file of shell variables. Raises ConfigError with the first bad line."""
    variables = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as err:
            raise ConfigError(f"{path}, line {number}: {err}") from err
        words = words[1:] if words[:1] == ["export"] else words
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                raise ConfigError(f"{path}, line {number}: not NAME=value, without blanks around =")
            variables[name] = value
    return variables


def _write_file(path: Path, keys: Mapping[str, str]) -> None:
    """Write a new connector file. Raises ConfigError if it exists."""
    if path.exists():
        raise ConfigError(f"{path} exists already; name another file")
    text = javaproperties.dumps(keys, timestamp=False) if path.suffix == ".properties" else json.dumps(keys, indent=2)
    path.write_text(f"{text.rstrip()}\n")
