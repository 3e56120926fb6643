"""How commands print: JSON for scripts, or lines for people."""

import json
from collections.abc import Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def show(value: Any, as_json: bool, lines: Sequence[str]) -> None:
    """Print a command's outcome."""
    click.echo(json.dumps(value, indent=2) if as_json else "\n".join(lines))
