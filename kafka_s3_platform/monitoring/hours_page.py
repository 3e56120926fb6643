"""Renders the hours of a topic as a page: a row a day, a cell an hour, in colours that carry their mark."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from markupsafe import Markup

from kafka_s3_platform.instance.windows import Hours, link_window
from kafka_s3_platform.status.topic import ArchivedTopic
from kafka_s3_platform.text import count_noun
from kafka_s3_platform.upkeep.hour_states import COLOURS, MARKS, DescribedHour, GridDay, HourState
from kafka_s3_platform.web_page import PAGE, PAGE_STYLE

DAYS = (7, 31, 92)
MAX_DAYS = 366

_STYLE = PAGE_STYLE + Markup("""
a { color: var(--blue); } .soft { color: var(--soft); }
main { max-width: 1260px; }
.grid { border-collapse: separate; border-spacing: 2px; width: auto; }
.grid th, .grid td { border: 0; padding: 0; }
.grid th { font: 12px ui-monospace, monospace; color: var(--soft); }
.grid tbody th { padding-right: 10px; } .grid .n { padding-left: 12px; font-size: 13px; text-align: right; }
.grid thead th { width: 26px; text-align: center; } .grid thead .n { width: auto; }
.cell { width: 26px; height: 22px; border-radius: 3px; text-align: center; }
.cell { font: 600 13px/22px ui-monospace, monospace; }
.cell a { display: block; color: inherit; text-decoration: none; border-radius: 3px; }
.cell a:hover, .cell a:focus { outline: 2px solid var(--ink); }
.ahead { background: none; }
.keys { display: flex; flex-wrap: wrap; gap: 6px 20px; margin: 14px 0 0; padding: 0; list-style: none; }
.keys { font-size: 13px; }
.keys li { display: flex; gap: 8px; align-items: center; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 16px; }
nav [aria-current] { color: var(--ink); font-weight: 600; text-decoration: none; }
""")
_COLOURS = Markup().join(
    Markup(".{} {{ background: {}; color: {}; }}\n").format(state.replace(" ", "-"), *colours)
    for state, colours in COLOURS.items()
)
_NOTHING = Markup()


@dataclass(frozen=True)
class HoursOfTopic:
    """What the page shows: the days of a topic, as the index had them at `read_at`."""

    topic: ArchivedTopic
    days: Sequence[GridDay]
    read_at: datetime


def render_hours_page(found: HoursOfTopic, kafka_partition: int | None, day_count: int, up: str, dagster: str) -> str:
    """Render the page, of all kafka partitions or of one. `up` is the status page as a link on it."""
    name = found.topic.name
    numbers = sorted({p for day in found.days for hour in day.hours for p in hour.kafka_partitions})

    def name_state(hour: DescribedHour) -> HourState:
        return hour.state if kafka_partition is None else hour.kafka_partitions.get(kafka_partition, "none")

    what = "all kafka partitions" if kafka_partition is None else f"kafka partition {kafka_partition}"
    body = [
        Markup(
            '<div class="head"><h1>{}</h1></div>\n<p class="way"><a href="{}">Status</a> · hours of {} · {} · '
        ).format(name, up, found.topic.config.layout.timezone, what),
        Markup("as the index was at {} UTC</p>\n").format(f"{found.read_at:%Y-%m-%d %H:%M:%S}"),
        _render_choice("Days", [(str(n), _link(n, kafka_partition), n == day_count) for n in DAYS]),
    ]
    if len(numbers) > 1:
        links = [(str(n), _link(day_count, n), n == kafka_partition) for n in numbers]
        every = ("all", _link(day_count, None), kafka_partition is None)
        body.append(_render_choice("Kafka partition", [every, *links]))
    body.append(_render_grid(found, name_state, dagster) if found.days else _EMPTY)
    return str(PAGE.format(title=f"{name} - hours", style=_STYLE + _COLOURS, body=_NOTHING.join(body)))


_EMPTY = Markup('<section><p class="soft">Nothing of this topic is archived yet.</p></section>\n')


def _link(days: int, kafka_partition: int | None) -> str:
    chosen = {} if kafka_partition is None else {"kafka_partition": kafka_partition}
    return f"?{urlencode({'days': days, **chosen})}"


def _render_choice(what: str, links: Sequence[tuple[str, str, bool]]) -> Markup:
    parts = [Markup('<span class="soft">{}</span>').format(what)]
    for text, link, is_chosen in links:
        current = Markup(' aria-current="page"') if is_chosen else _NOTHING
        parts.append(Markup('<a href="{}"{}>{}</a>').format(link, current, text))
    return Markup('<nav aria-label="{}">{}</nav>\n').format(what, _NOTHING.join(parts))


def _render_grid(found: HoursOfTopic, name_state: Callable[[DescribedHour], HourState], dagster: str) -> Markup:
    count = max(len(day.hours) for day in found.days)
    heads = [Markup('<th scope="col">{}</th>').format(f"{n:02}" if n < 24 else "+1") for n in range(count)]
    head = Markup('<tr><th scope="col">Day</th>{}<th scope="col" class="n">complete</th>').format(_NOTHING.join(heads))
    head += Markup('<th scope="col" class="n">records</th></tr>')
    hours = Hours(found.topic.config)
    rows = [_render_day(found.topic, day, count, name_state, hours, dagster) for day in reversed(found.days)]
    counts = Counter(name_state(hour) for day in found.days for hour in day.hours)
    keys = [
        Markup('<li><span class="cell {}">{}</span>{} <span class="soft">({:,})</span></li>').format(
            _name_class(state), mark, text if text == state else f"{state}: {text}", counts[state]
        )
        for state, (mark, text) in MARKS.items()
        if counts[state] and text
    ]
    return Markup(
        '<section><table class="grid"><thead>{}</thead><tbody>\n{}</tbody></table>\n'
        '<ul class="keys">{}</ul></section>\n'
    ).format(head, _NOTHING.join(rows), _NOTHING.join(keys))


def _render_day(
    topic: ArchivedTopic,
    day: GridDay,
    count: int,
    name_state: Callable[[DescribedHour], HourState],
    hours: Hours,
    dagster: str,
) -> Markup:
    cells = [_render_hour(topic, hour, name_state(hour), hours, dagster) for hour in day.hours]
    blank = Markup("<td></td>") * (count - len(cells))
    complete = sum(name_state(hour) in {"complete", "late", "empty", "in doubt"} for hour in day.hours)
    records = sum(hour.report.record_count for hour in day.hours)
    return Markup('<tr><th scope="row">{}</th>{}{}<td class="n">{} of {}</td><td class="n">{:,}</td></tr>\n').format(
        day.day.isoformat(), _NOTHING.join(cells), blank, complete, len(cells), records
    )


def _render_hour(topic: ArchivedTopic, hour: DescribedHour, state: HourState, hours: Hours, dagster: str) -> Markup:
    if state == "ahead":
        return Markup('<td class="cell ahead"></td>')
    key = hours.key(hour.report.hour)
    told = [f"{key}: {state}", count_noun(hour.report.record_count, "record")]
    told += [f"{hour.report.late_count:,} late"] if hour.report.late_count else []
    told += [f"kafka partition {p}: {each}" for p, each in hour.kafka_partitions.items() if each in _TOLD]
    link = link_window(dagster, [topic.config.name, "hourly", topic.topic], key)
    return Markup('<td class="cell {}"><a href="{}" title="{}" aria-label="{}">{}</a></td>').format(
        _name_class(state), link, "\n".join(told), ", ".join(told), MARKS[state][0]
    )


_TOLD = ("gap", "at risk", "partial")


def _name_class(state: HourState) -> str:
    return state.replace(" ", "-")
