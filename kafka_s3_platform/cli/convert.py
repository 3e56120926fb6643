"""`kafka-s3 convert`."""

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
import javaproperties

from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.config.zooz import convert as converted
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.text import entry


@click.command
@click.argument("env_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The connector file to write, .json or .properties. Default: JSON to standard output.",
)
@json_option
def convert(env_file: Path | None, output: Path | None, as_json: bool) -> None:
    """Turn the environment variables of Zooz's kafka-s3-connector into a connector file.

    They are read from ENV_FILE, lines of `export NAME=value` or `NAME=value`; without it, from the environment. Secrets
    are not copied: the file refers to their variables. Variables that have no counterpart are told.
    """
    try:
        found = converted(os.environ if env_file is None else _variables(env_file))
    except ValueError as err:
        raise ConfigError(f"{env_file or 'the environment'}: {err}") from err
    if output is not None:
        _write(output, found.keys)
    document = {"keys": dict(found.keys), "without_counterpart": dict(found.without_counterpart)}
    document["notes"] = dict(found.notes)
    keys = json.dumps(dict(found.keys), indent=2).splitlines()
    show(document, as_json, keys if output is None else [f"wrote {output}"])
    for name, reason in found.without_counterpart.items():
        click.echo(entry(f"{name} has no counterpart: {reason}"), err=True)
    for name, note in found.notes.items():
        click.echo(entry(f"{name}: {note}"), err=True)


def _variables(path: Path) -> dict[str, str]:
    found = {}
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
            found[name] = value
    return found


def _write(path: Path, keys: Mapping[str, str]) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists already; name another file")
    text = javaproperties.dumps(keys, timestamp=False) if path.suffix == ".properties" else json.dumps(keys, indent=2)
    path.write_text(f"{text.rstrip()}\n")
