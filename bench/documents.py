"""Puts what was measured into docs/bench.md."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCUMENT = Path("docs/bench.md")


def write_section(name: str, text: str) -> None:
    """Replace what stands between the section's markers in the document. Raises ValueError if it has none."""
    pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of measured -->)", re.DOTALL)
    written, found = pattern.subn(lambda match: f"{match[1]}{text}\n{match[2]}", DOCUMENT.read_text())
    if not found:
        raise ValueError(f"{DOCUMENT} has no section <!-- measured: {name} -->")
    DOCUMENT.write_text(written)


def render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (columns, ["---"] * len(columns), *rows))
