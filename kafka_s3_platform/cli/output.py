"""How commands print: JSON for scripts, or lines for people."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click

from kafka_s3_platform.text import entry

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def show(value: Any, as_json: bool, lines: Sequence[str]) -> None:
    """Print a command's outcome. Where it has no lines, nothing is printed: an empty list is no line."""
    if as_json:
        # JSON escapes all control characters but this one
        click.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))
    elif lines:
        click.echo("\n".join(map(entry, lines)))


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Rows of a table as lines, their cells below each other; those of the columns `numbers` end there."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths, numbers)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> Iterator[str]:
    for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if at in numbers else cell.ljust(width)


def without_links(text: str) -> str:
    """Text of the documentation with what its links say, and not where they lead: a terminal follows none."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
