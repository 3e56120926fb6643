"""Puts what was measured into bench/results/."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

RESULTS = Path("bench/results")


def write_section(name: str, text: str) -> None:
    """Replace what stands between the section's markers in its document. Raises ValueError if it has none."""
    document = RESULTS / f"{name}.md"
    pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of measured -->)", re.DOTALL)
    written, sections = pattern.subn(lambda match: f"{match[1]}{text}\n{match[2]}", document.read_text())
    if not sections:
        raise ValueError(f"{document} has no section <!-- measured: {name} -->")
    document.write_text(written)


def render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (columns, ["---"] * len(columns), *rows))
