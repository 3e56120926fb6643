"""Draws plain charts as SVG, for the docs."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import log10

BAR, LEFT, WIDTH, LINE = 20, 330, 420, 220
COLOURS = ("#1f6feb", "#d1671c", "#2e8b57", "#8250df")
OURS, OTHERS = COLOURS[0], "#9aa4b2"


def draw_bars(panels: Mapping[str, Mapping[str, float]], ours: str) -> str:
    """Draw a bar for each name of each panel. Names that begin with `ours` have a colour of their own."""
    parts, y = [], 10
    for title, bars in panels.items():
        parts.append(_text(10, y + 14, title, bold=True))
        y += 24
        largest = max(bars.values())
        for name, value in bars.items():
            colour = OURS if name.startswith(ours) else OTHERS
            length = max(1.0, value / largest * WIDTH)
            parts.append(_text(LEFT - 8, y + 14, name, anchor="end"))
            parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{length:.0f}" height="{BAR - 5}" fill="{colour}"/>')
            parts.append(_text(round(LEFT + length + 6), y + 14, f"{value:,.3g}" if value < 100 else f"{value:,.0f}"))
            y += BAR
        y += 16
    return _wrap(LEFT + WIDTH + 80, y, parts)


def draw_lines(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> str:
    """Draw the curves of each panel: x, on a scale of powers, and y from 0. All points of a panel share their x."""
    parts: list[str] = []
    for at, (title, curves) in enumerate(panels.items()):
        parts += _draw_panel(10 + at % 2 * (WIDTH + 30), 10 + at // 2 * (LINE + 70), title, curves)
    rows = (len(panels) + 1) // 2
    return _wrap(2 * (WIDTH + 30) + 10, rows * (LINE + 70) + 10, parts)


def _draw_panel(left: int, top: int, title: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[str]:
    points = [point for curve in curves.values() for point in curve]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    highest = max(y for _, y in points) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        share = log10(x / first) / log10(last / first) if last > first else 0.5
        return left + 30 + share * (WIDTH - 70), top + 40 + (1 - y / highest / 1.1) * (LINE - 40)

    yield _text(left, top + 14, title, bold=True)
    bottom = top + LINE
    yield f'<line x1="{left + 20}" y1="{bottom}" x2="{left + WIDTH - 20}" y2="{bottom}" stroke="#666"/>'
    for x in sorted({x for x, _ in points}):
        yield _text(round(place(x, 0)[0]), bottom + 16, _shorten(x), anchor="middle")
    for at, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[at]
        placed = [place(*point) for point in curve]
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y in placed)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for (x, y), (_, value) in zip(placed, curve, strict=True):
            yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>'
            # Below the points of all curves but the first, whose figures stand above them.
            yield _text(round(x), round(y) + (16 if at else -7), f"{value:.3g}", anchor="middle", colour=colour)
        yield _text(left + 30 + at * 190, bottom + 34, name, colour=colour)


def _shorten(x: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.3g}{unit}"
    return f"{x:g}"


def _text(x: int, y: int, text: str, *, anchor: str = "start", bold: bool = False, colour: str = "#1f2328") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _wrap(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])
