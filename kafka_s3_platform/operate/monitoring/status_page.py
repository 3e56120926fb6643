"""Renders a health report as one HTML page. It needs no script and loads nothing from elsewhere."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from urllib.parse import urlencode

from kafka_s3_platform.core.errors import ErrorCode, find_code
from kafka_s3_platform.core.model.health import (
    ArchivedTotals,
    ConnectorHealth,
    FailedRun,
    Level,
    RunningRestore,
    TopicHealth,
    format_place,
)
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.status.risk import describe_time
from kafka_s3_platform.core.templates import render_template
from kafka_s3_platform.core.text import count_noun, escape_unprintable, format_size
from kafka_s3_platform.operate.monitoring.lookout import HealthReport

UNKNOWN = "not known"
MOST_TEXT = 2_000
"""The most characters of an error on the page. Dagster's page of the run has the rest."""

MOST_OPEN = 60
"""The most topics for which all connectors' tables are open, unless the address names the open ones."""


@dataclass(frozen=True)
class StatusPage:
    """A health report and the rest of its page, for the topics that have `name_filter` in their names.

    `hours_link` is a link on the page, below which are the hours of topics. A browser loads the page again every
    `interval` seconds. `opened` are the connectors with open tables, or None if nobody has opened or closed one. They
    are in the page's address, so loading the page again closes none.
    """

    report: HealthReport
    dagster: str
    hours_link: str
    now: datetime
    interval: float
    name_filter: str = ""
    opened: Collection[str] | None = None

    @cached_property
    def topics(self) -> list[TopicHealth]:
        return [topic for health in self.report.connectors for topic in health.topics]

    @property
    def verdict(self) -> tuple[str, str]:
        """The colour and the words for the state of the whole."""
        if self.report.error:
            return "bad", UNKNOWN
        ranks = [_rank(topic) for topic in self.topics]
        unknown = ranks.count(2) + sum(bool(health.error) for health in self.report.connectors)
        counts = ((ranks.count(3), ""), (unknown, " not known"), (ranks.count(1), " soon"))
        words = ", ".join(f"{count}{what}" for count, what in counts if count)
        failed = sum(len(health.failures) for health in self.report.connectors)
        texts = [f"at risk: {words}"] if words else []
        texts += [count_noun(failed, "failed run")] if failed else []
        if not texts:
            return ("good", "nothing is at risk") if self.topics else ("plan", "no topic is archived")
        return ("bad" if ranks.count(3) or unknown else "part"), "; ".join(texts)

    def describe_last_check(self, connector: str) -> str:
        """Return a sentence about the time when everything about the connector was last known."""
        good = self.report.good.get(connector)
        if good is None:
            return "Not one full check of it since this server began."
        return f"Last full check {self.describe_age(good.looked_at)} ago."

    @property
    def restores(self) -> list[tuple[str, RunningRestore]]:
        """The running restores, each with its connector."""
        return [(c.connector, restore) for c in self.report.connectors if c.history for restore in c.history.restores]

    @cached_property
    def failures(self) -> list[tuple[str, FailedRun]]:
        """The failed runs, each with its connector."""
        failures = [(c.connector, run) for c in self.report.connectors if c.history for run in c.history.failures]
        return sorted(failures, key=lambda pair: (pair[1].is_over, -pair[1].ended_at.timestamp()))

    @cached_property
    def tiles(self) -> list[tuple[str, str]]:
        """The figures of the archive. Topics whose figures are unknown are counted, but not added as 0."""
        totals = [topic.totals for topic in self.topics if topic.totals is not None]
        proofs = [topic.proof.at for topic in self.topics if topic.proof is not None]
        if not totals and not proofs:
            return []
        return [
            *self._describe_archived(totals),
            self._describe_runs(),
            *self._describe_proofs(proofs),
            *self._describe_return(),
        ]

    def _describe_archived(self, totals: Sequence[ArchivedTotals]) -> list[tuple[str, str]]:
        """Return the numbers of archived records and bytes."""
        # of a topic without an index, it is known that nothing is archived
        unknown_count = sum(not topic.is_index_known for topic in self.topics)
        is_known = unknown_count < len(self.topics)
        unknown = f", but for {count_noun(unknown_count, 'topic')} not known" if is_known and unknown_count else ""
        days = sum(t.day_segments for t in totals)
        objects = f"in {sum(t.segments for t in totals) - days:,} hourly and {days:,} merged objects"
        if merged_bytes := sum(t.merged_bytes for t in totals):
            objects += f", and {format_size(merged_bytes)} of merged hours"
        expired = sum(t.expired_records for t in totals)
        records = f"records archived{unknown}" + (f", {expired:,} expired" if expired else "")
        return [
            (f"{sum(t.records for t in totals):,}" if is_known else UNKNOWN, records),
            (f"{sum(t.yesterday_records for t in totals):,}" if is_known else UNKNOWN, "of them of yesterday (UTC)"),
            (format_size(sum(t.segment_bytes for t in totals)), objects) if is_known else (UNKNOWN, "stored"),
        ]

    def _describe_runs(self) -> tuple[str, str]:
        """Return the number of runs that failed in the last 24 hours."""
        histories = [health.history for health in self.report.connectors if health.history is not None]
        runs = f"{sum(h.day_failures for h in histories):,} of {sum(h.day_runs for h in histories):,}"
        return runs if histories else UNKNOWN, "runs of the last 24 hours failed"

    def _describe_proofs(self, proofs: Sequence[datetime]) -> list[tuple[str, str]]:
        """Return how many topics were proven to be restorable, and the oldest of their last proofs (`proofs`)."""
        failed_count = sum(bool(topic.turns and topic.turns.failed) for topic in self.topics)
        lacking = f", but not all hours of {failed_count:,}" if failed_count else ""
        oldest = f"{min(proofs):%Y-%m-%d}" if proofs else "never"
        # of a connector without an answer of the store, nobody knows
        is_known = not any(health.evidence_error or health.error for health in self.report.connectors)
        return [
            (
                f"{len(proofs):,} of {len(self.topics):,}" if is_known else UNKNOWN,
                f"topics were proven to come back{lacking}",
            ),
            (oldest if is_known else UNKNOWN, "oldest of their last proofs"),
        ]

    def _describe_return(self) -> list[tuple[str, str]]:
        """Return how much was restored in rehearsals, and how long a restore of all takes, or [] without rehearsals."""
        rehearsed = [topic for topic in self.topics if topic.turns is not None]
        if not rehearsed:
            return []
        hours = sum(topic.turns.hour_count for topic in rehearsed if topic.turns)
        proven = sum(topic.turns.count_proven(self.now) for topic in rehearsed if topic.turns)
        seconds = [topic.return_seconds for topic in self.topics if topic.return_seconds is not None]
        others = len(self.topics) - len(seconds)
        unknown = f", but for {count_noun(others, 'topic')} not known" if others else ""
        return [
            (f"{proven:,} of {hours:,}", "hours came back in rehearsals within their period"),
            (
                describe_time(max(60.0, sum(seconds))) if seconds else UNKNOWN,
                f"for a restore of all, as measured{unknown}",
            ),
        ]

    @cached_property
    def tables(self) -> list[tuple[ConnectorHealth, list[TopicHealth]]]:
        """The connectors to show, even without topics, the worst first, each with its topics in the same order."""
        part = self.name_filter.casefold()
        tables = [(health, self._find_topics(health)) for health in self.report.connectors if not health.is_removed]
        shown = (table for table in tables if table[1] or part in table[0].connector.casefold())
        return sorted(shown, key=lambda t: (-max(map(_rank, t[1]), default=0), t[0].connector))

    @cached_property
    def open_tables(self) -> frozenset[str]:
        """The connectors with open tables. If there are few topics, all tables are open at first."""
        if self.opened is not None:
            return frozenset(self.opened)
        is_small = bool(self.name_filter) or sum(len(topics) for _, topics in self.tables) <= MOST_OPEN
        return frozenset(health.connector for health, _ in self.tables if is_small)

    def name_state(self, health: ConnectorHealth) -> tuple[str, str]:
        """Return the colour and the words of a connector's state."""
        if health.state is None:
            return ("bad", UNKNOWN if health.is_loaded else "not loaded")
        return {"RUNNING": "good", "PAUSED": "plan"}.get(health.state.name, "bad"), health.state.name

    def describe_work(self, health: ConnectorHealth) -> str:
        """Describe the connector's state: since when it lasts, its lag, its last run, and its turned-off triggers."""
        run = health.last_run
        lag = "" if not health.topics else f"lag {UNKNOWN if health.lag is None else f'{health.lag:,}'}"
        since = f"since {self.describe_age(health.state.since)}" if health.state and health.state.since else ""
        last = f"last run: {run.describe()} {self.describe_age(run.ended_at)} ago" if run else ""
        off = f"turned off: {', '.join(health.turned_off)}" if health.turned_off else ""
        return "; ".join(filter(None, ("source" if health.is_source else "", since, lag, last, off)))

    def describe_metadata(self, health: ConnectorHealth) -> str:
        """Describe the age of consumer groups' archived offsets, and the outcome of the registry's last run.

        Return "" for a connector without topics and runs.
        """
        totals = [topic.totals for topic in health.topics if topic.totals is not None]
        groups = [pair for of_topic in totals for pair in of_topic.groups.items()]
        # of a topic without an index, it is known that nothing is archived
        unknown_count = sum(not topic.is_index_known for topic in health.topics)
        unknown = f", but for {count_noun(unknown_count, 'topic')} not known" if unknown_count else ""
        texts = []
        if unknown_count < len(health.topics):
            oldest = f", the oldest {self.describe_age(min(at for _, at in groups))} ago" if groups else ""
            texts.append(f"{count_noun(len(dict(groups)), 'consumer group')}{oldest}{unknown}")
        elif health.topics:
            texts.append("consumer groups not known")
        runs = [run for run in (health.history.ended if health.history else ()) if run.kind == "registry"]
        texts += [f"the last run of {run.describe()} {self.describe_age(run.ended_at)} ago" for run in runs]
        return "; ".join(texts)

    def count_bad(self, topics: Sequence[TopicHealth]) -> int:
        """Count the topics that have a problem."""
        return sum(_rank(topic) > 0 for topic in topics)

    def _find_topics(self, health: ConnectorHealth) -> list[TopicHealth]:
        """Return the connector's topics that have the filter in their names, the worst first."""
        part = self.name_filter.casefold()
        topics = [t for t in health.topics if part in f"{health.connector}/{t.topic}".casefold()]
        return sorted(
            topics, key=lambda t: (-_rank(t), math.inf if t.retention_left is None else t.retention_left, t.topic)
        )

    @cached_property
    def last_complete(self) -> dict[tuple[str, str], datetime | None]:
        """The newest complete hour of each connector's topics, as of the time when everything was last known."""
        good = self.report.good.values()
        return {(c.connector, topic.topic): topic.newest_complete for c in good for topic in c.topics}

    def link(self, toggled: str | None = None) -> str:
        """Return a link to the page with these topics and tables, with one table (`toggled`) opened or closed."""
        opened = self.opened
        if toggled is not None:
            opened = (self.open_tables & {health.connector for health, _ in self.tables}) ^ {toggled}
        query = [("topic", self.name_filter)] if self.name_filter else []
        if opened is not None:
            query += [("open", name) for name in sorted(opened) or [""]]
        return f"?{urlencode(query)}"

    def describe_age(self, moment: datetime) -> str:
        """Describe the time since a moment."""
        age = self.now - moment
        if age < timedelta(minutes=1):
            return f"{max(0, age.total_seconds()):.0f} s"
        return describe_time(age.total_seconds())


def render_status_page(page: StatusPage) -> str:
    """Render the page."""
    return render_template(
        "operate/monitoring/status_page.html.j2",
        page=page,
        HOUR=HOUR,
        describe_time=describe_time,
        format_place=format_place,
        name_section=lambda error: (find_code(error) or ErrorCode.OTHER).section,
        shorten=_shorten,
    )


def _rank(topic: TopicHealth) -> int:
    """Return a number that orders topics by how soon somebody has to look at them."""
    if (topic.risk is not None and topic.risk.level is Level.FAIL) or (topic.turns and topic.turns.failed):
        return 3
    return 2 if not topic.is_known or topic.risk is None else int(topic.risk.level)


def _shorten(text: str) -> str:
    text = escape_unprintable(text)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
