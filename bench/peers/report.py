"""`python -m bench.peers.report FILE`: makes the tables of bench/results/peers.md, and its chart."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.charts import draw_bars
from bench.documents import RESULTS, render_table, write_section

CHART = RESULTS / "peers.svg"
Line = Mapping[str, Any]
Runs = Mapping[tuple[str, str], Sequence[Line]]
"""By tool and by what it writes, in the order of the rounds."""


def main() -> None:
    """Read the lines, and write both files."""
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    machine = next(line for line in reversed(lines) if line["what"] == "machine")
    # A file may hold several runs: figures of two do not compare.
    lines = lines[lines.index(machine) + 1 :]
    records = machine["records"]
    archives = _group(line for line in lines if line["what"] == "archive" and line["records"] == records)
    small = _group(line for line in lines if line["what"] == "archive" and line["records"] != records)
    restores = _group(line for line in lines if line["what"] == "restore")
    killed = _group(line for line in lines if line["what"] == "killed restore")
    measured = (
        f"Measured at {machine['when']} on {machine['cores']} cores and {machine['memory_gib']} GiB, with a load of "
        f"{machine['load']:.1f} before it; Python {machine['python']}. Two figures are those of two rounds.\n"
    )
    kills = (
        "Restore killed (SIGKILL to all its processes; a warm Spark lives on) when half of the records had come, and "
        "the same command run again:\n"
    )
    parts = [
        measured,
        f"Archive of {records:,} records of {machine['record_bytes']} B (key and value) in 8 kafka partitions:\n",
        _render(archives, ARCHIVE, lambda line: line["seconds"]),
        "Archive of 1,000 records, which is what starting costs:\n",
        _render(small, ARCHIVE[:3], lambda line: line["seconds"]),
        f"Restore of the {records:,} records to a new topic:\n",
        _render(restores, RESTORE, lambda line: line["seconds"]),
        kills,
        _render(killed, KILLED, lambda line: line["missing"] + line["twice"]),
        "Left out:\n",
        "".join(f"- {name}: {why}.\n" for name, why in machine["left_out"].items()),
        "![Seconds and CPU seconds of each tool](peers.svg)",
    ]
    write_section("peers", "\n".join(parts))
    panels = {
        f"Archive of {records:,} records, seconds": _best(archives, "seconds"),
        f"Archive of {records:,} records, CPU seconds": _best(archives, "cpu_seconds"),
        "Archive of 1,000 records, seconds": _best(small, "seconds"),
        f"Restore of {records:,} records, seconds": _best(restores, "seconds"),
        f"Restore of {records:,} records, CPU seconds": _best(restores, "cpu_seconds"),
    }
    CHART.write_text(draw_bars({title: bars for title, bars in panels.items() if bars}, "this platform"))


def _group(lines: Iterable[Line]) -> Runs:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["tool"], line["writes"]), []).append(line)
    return found


def _measured(runs: Sequence[Line]) -> list[Line]:
    return [line for line in runs if "error" not in line]


def _figures(key: str) -> Callable[[Sequence[Line]], str]:
    return lambda runs: ", ".join(format(line[key], ".1f" if line[key] >= 1 else ".2f") for line in runs)


def _most(key: str) -> Callable[[Sequence[Line]], str]:
    return lambda runs: f"{max(line[key] for line in runs):,}" if runs[0].get(key) else "-"


def _rate(runs: Sequence[Line]) -> str:
    return f"{max(line['records'] / line['seconds'] for line in runs):,.0f}"


def _faults(runs: Sequence[Line]) -> str:
    keys = ("missing", "twice", "altered")
    if keys[0] not in runs[0]:
        return "by its restore"
    return " / ".join(f"{max(line[key] for line in runs):,}" for key in keys)


Column = tuple[str, Callable[[Sequence[Line]], str]]
TIMES: tuple[Column, ...] = (("s", _figures("seconds")), ("CPU s", _figures("cpu_seconds")))
FAULTS: Column = ("read back: missing / twice / altered", _faults)
ARCHIVE: tuple[Column, ...] = (
    *TIMES,
    ("memory, MiB", _most("peak_mib")),
    ("records/s, best", _rate),
    ("objects, MB", _most("stored_mb")),
    FAULTS,
)
RESTORE: tuple[Column, ...] = (*TIMES, ("memory, MiB", _most("peak_mib")), ("records/s, best", _rate), FAULTS)
KILLED: tuple[Column, ...] = (
    ("records in the target when killed", _most("killed_at")),
    ("records in it at the end", _most("found")),
    FAULTS,
    *TIMES,
)


def _render(runs: Runs, columns: Sequence[Column], order: Callable[[Line], float]) -> str:
    """Return a table: the best first, what failed last and with its error."""
    done = {name: _measured(lines) for name, lines in runs.items()}
    ranked = sorted((name for name, lines in done.items() if lines), key=lambda name: min(map(order, done[name])))
    rows = [[*name, *(cell(done[name]) for _, cell in columns)] for name in ranked]
    table = render_table(["tool", "archive", *(title for title, _ in columns)], rows)
    failures = [(name, line["error"]) for name, lines in runs.items() for line in lines if "error" in line]
    told = "".join(f"- {name[0]}, {name[1]}: {' '.join(error.split())[-300:]}\n" for name, error in failures)
    return table + (f"\nNot measured:\n\n{told}" if told else "")


def _best(runs: Runs, key: str) -> dict[str, float]:
    best = {
        f"{tool}{', envelope' if writes.startswith('whole') and tool.startswith('this') else ''}": min(
            line[key] for line in _measured(lines)
        )
        for (tool, writes), lines in runs.items()
        if _measured(lines)
    }
    return dict(sorted(best.items(), key=lambda item: item[1]))


if __name__ == "__main__":
    main()
