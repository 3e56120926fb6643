"""Draws days x hours of a topic in a few kilobytes, for Dagster's pages: a picture, and below it the same in marks."""

import base64
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from itertools import groupby
from zoneinfo import ZoneInfo

from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import list_day_hours
from kafka_s3_platform.upkeep.hour_grid import list_grid_days
from kafka_s3_platform.upkeep.hour_states import COLOURS, MARKS, HourState, sketch_hours

PICTURE_DAYS = 31
MAX_BYTES = 4000
"""A picture is as large at most, and shows fewer days if it has to: Dagster keeps one with each result of the check."""

Row = tuple[date, Sequence[HourState]]


def draw_hours(
    topic: TopicAssets, snapshot: IndexSnapshot, now: datetime, at_risk: tuple[datetime, datetime] | None
) -> str:
    """Return Markdown of the last days of a topic, the newest first. `at_risk` is as in `state_hours`."""
    zone = ZoneInfo(topic.config.layout.timezone)
    days = list_grid_days(snapshot, PICTURE_DAYS, zone, now, topic.config.archive.start_hour)
    by_day = {day: list_day_hours(day, zone) for day in days}
    hours = [hour for hours_of_day in by_day.values() for hour in hours_of_day]
    states = iter(sketch_hours(snapshot, hours, topic.lateness, now, at_risk))
    rows = [(day, [next(states) for _ in hours_of_day]) for day, hours_of_day in by_day.items()]
    return render_picture(rows[::-1], topic.config.layout.timezone)


def render_picture(rows: Sequence[Row], zone: str) -> str:
    """Render as many of the rows, from the first on, as MAX_BYTES takes."""
    counts = Counter(state for _, states in rows for state in states)
    summary = ", ".join(f"{counts[state]} {state}" for state, (_, text) in MARKS.items() if counts[state] and text)
    picture = base64.b64encode(_render_svg(rows).encode()).decode()
    lines = [f"{day:%m-%d}  {''.join(MARKS[state][0] for state in states)}" for day, states in rows]
    legend = [f"{mark}  {text}" for state, (mark, text) in MARKS.items() if counts[state] and text]
    text = "\n".join(["       00    06    12    18", *lines, "", *legend])
    markdown = f"Hours of {zone}: {summary}\n\n![{summary}](data:image/svg+xml;base64,{picture})\n\n```\n{text}\n```\n"
    return markdown if len(markdown) <= MAX_BYTES else render_picture(rows[:-1], zone)


def _render_svg(rows: Sequence[Row]) -> str:
    """Render a line for each run of hours of one state: an hour is one unit wide, a day one high."""
    paths: dict[HourState, list[str]] = {}
    for y, (_, states) in enumerate(rows):
        x = 0
        for state, run in groupby(states):
            size = len([*run])
            paths.setdefault(state, []).append(f"M{x} {y}h{size}")
            x += size
    drawn = "".join(
        f'<path stroke="{COLOURS[state][0]}" d="{"".join(segments)}"/>'
        for state, segments in paths.items()
        if state in COLOURS
    )
    labels = "".join(f'<text x="{n}" y="-1">{n:02}</text>' for n in (0, 6, 12, 18))
    labels += "".join(f'<text x="-3" y="{y}.3">{day:%m-%d}</text>' for y, (day, _) in enumerate(rows) if y % 5 == 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-3 -2 28.5 {len(rows) + 2}" width="570" '
        f'height="{14 * (len(rows) + 2)}"><g font-family="monospace" font-size=".9" fill="#888">{labels}</g>'
        f'<g stroke-width=".86">{drawn}</g></svg>'
    )
