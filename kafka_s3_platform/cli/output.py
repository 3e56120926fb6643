"""Prints the results of commands: JSON for scripts, or lines for people."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from kafka_s3_platform.cli.messages import MESSAGES, paint_text
from kafka_s3_platform.text import format_entry

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@dataclass(frozen=True)
class Verdict:
    """A line with good or bad news. A terminal shows it in a colour."""

    text: str
    is_good: bool


def print_result(value: Any, as_json: bool, lines: Sequence[str | Verdict]) -> None:
    """Print a command's result as JSON or as lines. Without lines, print nothing."""
    MESSAGES.end()
    if as_json:
        # JSON escapes all control characters but this one.
        click.echo(json.dumps(value, indent=2, default=datetime.isoformat).replace("\x7f", "\\u007f"))
    elif lines:
        click.echo("\n".join(map(_format_line, lines)))


def _format_line(line: str | Verdict) -> str:
    if isinstance(line, str):
        return format_entry(line)
    return paint_text(format_entry(line.text), "green" if line.is_good else "yellow")


def align_columns(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Return the rows of a table as aligned lines. The columns `numbers` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_format_cells(row, widths, numbers)).rstrip() for row in rows]


def _format_cells(row: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> Iterator[str]:
    for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if at in numbers else cell.ljust(width)


def strip_links(text: str) -> str:
    """Return text of the documentation with the labels of its links alone: a terminal follows no links."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
