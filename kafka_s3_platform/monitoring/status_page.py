"""Renders what was seen last as one HTML page, which needs no script and loads nothing from elsewhere.

Every piece is a `Markup`, as in a restore's report: names and errors cannot become HTML.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote, urlencode

from markupsafe import Markup

from kafka_s3_platform.errors import ErrorCode, find_code
from kafka_s3_platform.model.health import (
    ConnectorHealth,
    FailedRun,
    Level,
    RunningRestore,
    TopicHealth,
    format_place,
)
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.monitoring.concerns import list_concerns
from kafka_s3_platform.monitoring.lookout import Seen
from kafka_s3_platform.status.risk import describe_time
from kafka_s3_platform.text import count_noun, escape_unprintable, format_size
from kafka_s3_platform.web_page import PAGE, PAGE_STYLE

UNKNOWN = "not known"
MOST_ROWS = 30
"""Rows of what needs somebody. The table below them has every topic."""

MOST_TEXT = 2_000
"""Characters of an error that the page shows. Dagster's page of the run has the rest."""

AT_RISK_PLACE = "errors.md#what-is-about-to-be-lost-or-late"
"""The heading of docs/errors.md for a topic at risk."""

REMOVED_PLACE = "operating.md#what-was-removed"
"""The heading of docs/operating.md for a connector or topic that is archived no more."""

_STYLE = PAGE_STYLE + Markup("""
a { color: var(--blue); } .big { font-size: 15px; padding: 4px 16px; }
.pale { background: none; color: var(--soft); border: 1px solid var(--line); padding: 1px 11px; }
ul.now { list-style: none; padding: 0; } ul.now li { padding: 6px 0 6px 12px; margin: 6px 0; overflow-wrap: anywhere; }
li.mark, li.alarm { white-space: pre-line; }
.text { white-space: pre-line; overflow-wrap: anywhere; margin: 4px 0 0; }
.soft { color: var(--soft); } .foot { margin-top: 16px; }
main { max-width: 1260px; } .tiles { margin-top: 16px; } .filter { margin: 0 0 8px; }
.group { margin: 8px 0; } .group a { color: var(--ink); text-decoration: none; font-weight: 600; }
td.name { overflow-wrap: anywhere; } table.cards { font-size: 13px; }
.filter input, .filter button { font: inherit; padding: 2px 8px; }
.tile b { font-size: 16px; white-space: normal; overflow-wrap: anywhere; }
@media (min-width: 1200px) {
  .one { white-space: nowrap; } table.cards { table-layout: fixed; } th:nth-child(2) { width: 104px; }
  th:nth-child(3) { width: 84px; } th:nth-child(4), th:nth-child(5) { width: 236px; }
  th:nth-child(6) { width: 94px; } th:nth-child(7) { width: 156px; }
}
progress { width: 100%; height: 12px; accent-color: var(--blue); }
@media (max-width: 760px) {
  main { padding: 16px 10px 40px; } section { padding: 12px; }
  table.cards, .cards tbody, .cards tr, .cards td { display: block; } .cards thead { display: none; }
  .cards tr { border-bottom: 1px solid var(--line); padding: 8px 0; }
  .cards td, .cards td.n { border: 0; padding: 2px 0; text-align: left; white-space: normal; }
  .cards td[data-of]::before { content: attr(data-of) ": "; color: var(--soft); }
}
""")
_NOTHING = Markup()
# by an address without what comes after #: a browser would only scroll there
_REFRESH = Markup('<meta http-equiv="refresh" content="{};url={}">\n')
_COLOURS = {Level.FINE: "good", Level.WARN: "part", Level.FAIL: "bad"}
_BADGE = Markup('<span class="badge {}">{}</span>')
_FILTER = Markup(
    '<form class="filter"><input name="topic" value="{}" aria-label="Topic or connector"> '
    "<button>Filter topics</button></form>\n"
)
_GROUP = Markup(
    '<div class="group" id="{}"><a href="{}" aria-expanded="{}">{} {}</a> <span class="soft">{}</span></div>\n{}'
)
_TABLE = Markup('<table class="cards"><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>\n')
_HEADS = Markup(
    '<th>Topic</th><th>At risk</th><th class="n">Lag</th><th>Newest complete hour</th><th>Oldest not complete</th>'
    "<th>Last proven</th><th>More</th>"
)
MOST_OPEN = 60
"""Up to so many topics, the tables of all connectors are open, unless the address names those that are."""

_SECTION = Markup("<section><h2>{}</h2>\n{}</section>\n")


@dataclass(frozen=True)
class PageLinks:
    """Where Dagster's UI and the hours of topics are. `hours` is a link on the status page."""

    dagster: str
    hours: str

    def show_run(self, run_id: str) -> Markup:
        """Link a run in Dagster."""
        return Markup('<a class="one" href="{}/runs/{}">run {}</a>').format(self.dagster, quote(run_id), run_id[:8])

    def show_asset(self, text: str, view: str, *path: str) -> Markup:
        """Link a view of an asset in Dagster: `checks` or `partitions`."""
        parts = "/".join(quote(part, safe="") for part in path)
        return Markup('<a href="{}/assets/{}?view={}">{}</a>').format(self.dagster, parts, view, text)

    def show_place(self, place: str) -> Markup:
        """Name a heading of the documentation, such as `errors.md#what-fails`."""
        return Markup("<code>docs/{}</code>").format(place)

    def show_runbook(self, error: str) -> Markup:
        """Name what the runbook says of an error, by the code in its text."""
        return self.show_place(f"runbook.md#{(find_code(error) or ErrorCode.OTHER).anchor}")


def render_status_page(
    last_look: Seen,
    links: PageLinks,
    now: datetime,
    interval: float,
    wanted: str = "",
    opened: Collection[str] | None = None,
) -> str:
    """Render the page, with the topics whose names hold `wanted`. A browser loads it again each `interval` seconds.

    `opened` are the connectors whose tables are open, None if nobody has opened or closed one. They are in the page's
    address, so loading it again closes none.
    """
    parts = [
        _REFRESH.format(max(5, round(interval)), _link(wanted, opened)),
        _render_head(last_look, now, interval),
        _render_now(last_look, links, now),
        _render_restores(last_look.connectors, links),
        _render_failed(last_look.connectors, links, now),
        _render_tiles(last_look.connectors),
        _render_topics(last_look, links, now, wanted, opened),
        _render_foot(links),
    ]
    return str(PAGE.format(title=_judge(last_look)[1] + " - Kafka-S3", style=_STYLE, body=_NOTHING.join(parts)))


def _rank(topic: TopicHealth) -> int:
    """Order topics by how soon somebody has to look at them."""
    if topic.risk is not None and topic.risk.level is Level.FAIL:
        return 3
    return 2 if not topic.is_known or topic.risk is None else int(topic.risk.level)


def _judge(last_look: Seen) -> tuple[str, str]:
    """Return the colour and the words of the whole."""
    topics = [topic for each in last_look.connectors for topic in each.topics]
    ranks = [_rank(topic) for topic in topics]
    unknown = ranks.count(2) + sum(bool(each.error) for each in last_look.connectors)
    if last_look.error:
        return "bad", "not known"
    said = [f"{ranks.count(3)}"] if ranks.count(3) else []
    said += [f"{unknown} not known"] if unknown else []
    said += [f"{ranks.count(1)} soon"] if ranks.count(1) else []
    if not said:
        return ("good", "nothing is at risk") if topics else ("plan", "no topic is archived")
    return ("bad" if ranks.count(3) or unknown else "part"), f"at risk: {', '.join(said)}"


def _render_head(last_look: Seen, now: datetime, interval: float) -> Markup:
    colour, words = _judge(last_look)
    topics = sum(len(each.topics) for each in last_look.connectors)
    count = sum(not each.is_removed for each in last_look.connectors)
    when = "the first check is running"
    if last_look.looked_at is not None:
        age = max(0.0, (now - last_look.looked_at).total_seconds())
        when = f"last check {last_look.looked_at:%Y-%m-%d %H:%M:%S} UTC, {age:.0f} s ago"
    return Markup(
        '<div class="head"><h1>Kafka-S3 archive</h1><span class="badge big {}">{}</span></div>\n'
        '<p class="way">{}, {}; {}, again every {} s. All times are UTC.</p>\n'
    ).format(colour, words, count_noun(count, "connector"), count_noun(topics, "topic"), when, f"{interval:g}")


def _render_now(last_look: Seen, links: PageLinks, now: datetime) -> Markup:
    """Render what somebody has to look at, the nearest loss first. It is empty on a good day."""
    rows: list[tuple[str, Markup]] = []
    if last_look.error:
        good = max((each.looked_at for each in last_look.good.values()), default=None)
        last = f"The last full check was {_describe_age(good, now)} ago." if good else "There was no full check yet."
        rows.append(("alarm", Markup("{}. {}").format(_shorten(last_look.error).removesuffix("."), last)))
    for concern in list_concerns(last_look.connectors):
        place = links.show_place(AT_RISK_PLACE)
        last = ""
        if concern.kind in {"silent", "unknown"}:
            place = links.show_runbook(concern.says) if concern.kind == "unknown" else _NOTHING
            last = _tell_last(concern.connector, last_look, now)
        elif concern.kind == "removed":
            place = links.show_place(REMOVED_PLACE)
        says = concern.text.removeprefix(f"{concern.place}: ")
        row = Markup('<b>{}</b>: {} {} <span class="soft">{}</span>').format(concern.place, _shorten(says), place, last)
        rows.append(("mark" if concern.kind in {"soon", "removed"} else "alarm", row))
    own = {reason.says for reason in last_look.reasons if reason.check not in {"reachable", "at_risk"}}
    rows += [("alarm", Markup("{}").format(_shorten(says))) for says in sorted(own)]
    if not rows:
        return _NOTHING
    items = _NOTHING.join(Markup('<li class="{}">{}</li>\n').format(*row) for row in rows[:MOST_ROWS])
    more = Markup('<li class="soft">and {} more: the table has them</li>').format(len(rows) - MOST_ROWS)
    more = more if len(rows) > MOST_ROWS else _NOTHING
    return _SECTION.format("Needs attention", Markup('<ul class="now">{}{}</ul>').format(items, more))


def _tell_last(connector: str, last_look: Seen, now: datetime) -> str:
    good = last_look.good.get(connector)
    if good is None:
        return "Not one full check of it since this server began."
    return f"Last full check {_describe_age(good.looked_at, now)} ago."


def _render_tiles(connectors: Sequence[ConnectorHealth]) -> Markup:
    """Render what the archive holds. Topics of which it is not known are counted, and not added as nothing."""
    topics = [topic for each in connectors for topic in each.topics]
    totals = [topic.totals for topic in topics if topic.totals is not None]
    proofs = [topic.proof.at for topic in topics if topic.proof is not None]
    if not totals and not proofs:
        return _NOTHING
    # of a topic without an index, it is known that nothing is archived
    unread = sum(not topic.is_index_known for topic in topics)
    is_known = unread < len(topics)
    unknown = f", but for {count_noun(unread, 'topic')} not known" if is_known and unread else ""
    days = sum(t.day_segments for t in totals)
    objects = f"in {sum(t.segments for t in totals) - days:,} hourly and {days:,} daily objects"
    histories = [connector.history for connector in connectors if connector.history is not None]
    runs = f"{sum(h.day_failures for h in histories):,} of {sum(h.day_runs for h in histories):,}"
    tiles = (
        (f"{sum(t.records for t in totals):,}" if is_known else UNKNOWN, f"records archived{unknown}"),
        (f"{sum(t.yesterday_records for t in totals):,}" if is_known else UNKNOWN, "of them of yesterday (UTC)"),
        (format_size(sum(t.segment_bytes for t in totals)) if is_known else UNKNOWN, objects if is_known else "stored"),
        (runs if histories else UNKNOWN, "runs of the last 24 hours failed"),
        (f"{len(proofs):,} of {len(topics):,}" if histories else UNKNOWN, "topics were proven to come back"),
        (f"{min(proofs):%Y-%m-%d}" if proofs else "never" if histories else UNKNOWN, "oldest of their last proofs"),
    )
    each = Markup('<div class="tile"><b>{}</b><span>{}</span></div>\n')
    return Markup('<div class="tiles">\n{}</div>\n').format(_NOTHING.join(each.format(*tile) for tile in tiles))


def _render_topics(
    last_look: Seen, links: PageLinks, now: datetime, wanted: str, opened: Collection[str] | None
) -> Markup:
    """Render a table of each connector. Of many, those without a fault are closed, and those with one are first."""
    topics = [(each, _find_topics(each, wanted)) for each in last_look.connectors]
    topics = [(each, shown) for each, shown in topics if shown]
    count = sum(len(shown) for _, shown in topics)
    form = _FILTER.format(wanted)
    if not count:
        none = f"No name of a topic or connector holds {wanted!r}." if wanted else "There are none."
        return _SECTION.format("Topics", Markup('{}<p class="soft">{}</p>').format(form, none))
    topics.sort(key=lambda pair: (-max(map(_rank, pair[1])), pair[0].connector))
    names = {each.connector for each, _ in topics}
    is_small = bool(wanted) or count <= MOST_OPEN
    present = frozenset((names if is_small else ()) if opened is None else opened)
    parts = []
    for each, shown in topics:
        is_open = each.connector in present
        href = f"{_link(wanted, (names & present) ^ {each.connector})}#{quote(each.connector)}"
        bad = sum(_rank(topic) > 0 for topic in shown)
        count_text = count_noun(len(shown), "topic") + (f", {bad:,} not well" if bad else "")
        table = _render_table(each, shown, last_look, links, now) if is_open else _NOTHING
        sign = "▾" if is_open else "▸"
        parts.append(_GROUP.format(each.connector, href, str(is_open).lower(), sign, each.connector, count_text, table))
    return _SECTION.format("Topics", form + _NOTHING.join(parts))


def _link(wanted: str, opened: Collection[str] | None) -> str:
    """Return a link to the page with these topics and tables."""
    query = [("topic", wanted)] if wanted else []
    if opened is not None:
        query += [("open", name) for name in sorted(opened) or [""]]
    return f"?{urlencode(query)}"


def _render_table(
    of: ConnectorHealth, topics: Sequence[TopicHealth], seen: Seen, links: PageLinks, now: datetime
) -> Markup:
    good = seen.good.get(of.connector)
    known = {topic.topic: topic for topic in good.topics} if good else {}
    rows = (_render_topic(of, topic, known.get(topic.topic), links, now) for topic in topics)
    return _TABLE.format(_HEADS, _NOTHING.join(rows))


def _find_topics(found: ConnectorHealth, wanted: str) -> list[TopicHealth]:
    wanted = wanted.casefold()
    topics = [t for t in found.topics if wanted in f"{found.connector}/{t.topic}".casefold()]
    return sorted(
        topics, key=lambda t: (-_rank(t), math.inf if t.retention_left is None else t.retention_left, t.topic)
    )


def _render_topic(
    of: ConnectorHealth, topic: TopicHealth, known: TopicHealth | None, links: PageLinks, now: datetime
) -> Markup:
    """Render a row. `known` is what was found of the topic when everything was known last."""
    connector = of.connector
    proof = f"{topic.proof.at:%Y-%m-%d}" if topic.proof else "never" if of.history else "not known"
    level = None if topic.risk is None else topic.risk.level
    badge = _BADGE.format("bad", UNKNOWN) if level is None else _BADGE.format(_COLOURS[level], level.answer)
    assets = Markup(" · ").join(
        (
            links.show_asset("check", "checks", connector, "kafka", topic.topic),
            Markup('<a href="{}/{}/{}">hours</a>').format(links.hours, quote(connector, ""), quote(topic.topic, "")),
            links.show_asset("backfill", "partitions", connector, "hourly", topic.topic),
        )
    )
    return Markup(
        '<tr><td class="name" data-of="Topic">{}</td>'
        '<td data-of="At risk">{}</td><td class="n" data-of="Lag">{}</td><td data-of="Newest complete hour">{}</td>'
        '<td data-of="Oldest not complete">{}</td><td class="one" data-of="Last proven">{}</td>'
        '<td class="one" data-of="More">{}</td></tr>\n'
    ).format(
        topic.topic,
        badge,
        "not known" if topic.lag is None else f"{topic.lag:,}",
        _render_newest(topic, known, now),
        _render_hour(topic.oldest_incomplete, "none" if topic.is_known else "not known", now),
        Markup('<span class="soft">{}</span>').format(proof),
        assets,
    )


def _render_newest(topic: TopicHealth, known: TopicHealth | None, now: datetime) -> Markup:
    if topic.newest_complete is not None or topic.is_index_known:
        return _render_hour(topic.newest_complete, "none", now)
    if known is None or known.newest_complete is None:
        return _render_hour(None, "not known", now)
    # an hour that was complete stays so, and later ones may be by now
    return _render_hour(None, f"not known; {known.newest_complete:%Y-%m-%d %H:%M} or later", now)


def _render_hour(hour: datetime | None, otherwise: str, now: datetime) -> Markup:
    if hour is None:
        return Markup('<span class="soft">{}</span>').format(otherwise)
    age = _describe_age(hour + HOUR, now)
    row = Markup('<span class="one">{} <span class="soft">{} ago</span></span>')
    return row.format(f"{hour:%Y-%m-%d %H:%M}", age)


def _render_restores(connectors: Sequence[ConnectorHealth], links: PageLinks) -> Markup:
    running = [(each, restore) for each in connectors if each.history for restore in each.history.restores]
    if not running:
        return _NOTHING
    rows = _NOTHING.join(_render_restore(each.connector, restore, links) for each, restore in running)
    return _SECTION.format("Running restores", rows)


def _render_restore(connector: str, restore: RunningRestore, links: PageLinks) -> Markup:
    sent, planned = restore.sent_records, restore.planned_records
    bar, told = _NOTHING, "how far it is, its run tells"
    if sent is not None and planned is not None:
        bar = Markup('<progress max="{}" value="{}"></progress>').format(max(1, planned), min(sent, planned))
        told = (
            f"{sent:,} of at most {count_noun(planned, 'record')} sent"
            if sent < planned
            else f"{count_noun(sent, 'record')} sent, reading back"
        )
    where = f"{connector}/{restore.topic} to {restore.to_topic}" if restore.to_topic else connector
    return Markup('<p class="text"><b>{}</b> <span class="soft">{}</span>: {}, {}</p>{}\n').format(
        where, restore.restore_id, told, links.show_run(restore.run_id), bar
    )


def _render_failed(connectors: Sequence[ConnectorHealth], links: PageLinks, now: datetime) -> Markup:
    failed = [(each.connector, run) for each in connectors if each.history for run in each.history.failures]
    failed.sort(key=lambda pair: (pair[1].is_over, -pair[1].ended_at.timestamp()))
    parts = [_render_error(connector, run, links, now) for connector, run in failed]
    unknown = dict.fromkeys(each.history_error for each in connectors if each.history_error)
    parts += [Markup('<p class="text mark">Not known: {}</p>').format(_shorten(why)) for why in unknown]
    if not parts:
        parts = [Markup('<p class="soft">No run has failed, as far as Dagster remembers.</p>')]
    return _SECTION.format("Last errors", _NOTHING.join(parts))


def _render_error(connector: str, run: FailedRun, links: PageLinks, now: datetime) -> Markup:
    badge = _BADGE.format("pale", "over: later runs succeeded") if run.is_over else _BADGE.format("bad", "failed")
    return Markup('<div class="text"><b>{}</b>: {} {} {} ago, {} {}</div><p class="text">{}</p>\n').format(
        format_place(connector, run.topics),
        run.kind,
        badge,
        _describe_age(run.ended_at, now),
        links.show_run(run.run_id),
        links.show_runbook(run.message),
        _shorten(run.message),
    )


def _render_foot(links: PageLinks) -> Markup:
    return Markup(
        '<p class="way foot"><a href="{0}/runs">Runs</a> · <a href="{0}/automation">Sensors and schedules</a> · '
        '<a href="{0}/assets">Assets</a> in Dagster</p>\n'
    ).format(links.dagster)


def _describe_age(moment: datetime, now: datetime) -> str:
    age = now - moment
    if age < timedelta(minutes=1):
        return f"{max(0, age.total_seconds()):.0f} s"
    return describe_time(age.total_seconds())


def _shorten(text: str) -> str:
    text = escape_unprintable(text)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
