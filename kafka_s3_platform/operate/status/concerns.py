"""Lists what needs attention, the nearest loss first, for the page, `kafka-s3 health`, `/health`, mails and alerts.

A *concern* is a sentence about a connector or its topics. Topics with the same sentence are one concern.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_s3_platform.core.errors import ErrorCode, find_code
from kafka_s3_platform.core.model.health import ConnectorHealth, FailedRun, Level, format_place, group_errors
from kafka_s3_platform.core.text import count_noun

ConcernKind = Literal[
    "loss", "broken", "silent", "stalled", "unknown", "failed", "late", "soon", "unproven", "removed", "check"
]


@dataclass(frozen=True)
class AlertCondition:
    """The properties of a kind of concern. `section` is a heading of the documentation.

    `check` is the health check that fails because of it, or empty. `advice` is for mails: without it, none is sent.
    `alerts` are the names of its alerts in `deploy/prometheus`.
    """

    severity: Literal["critical", "warning"]
    section: str
    check: str = ""
    advice: str = ""
    alerts: tuple[str, ...] = ()


_AT_RISK = "docs/operating.md#what-is-at-risk"
_LATE = "docs/operating.md#what-is-late"
_CAUSES_FIRST = f"See {_AT_RISK}: what hinders archiving comes first."
_WAIT = (
    "See why it does not answer. Nothing else has to be done: what is due is archived when it answers again, for as "
    "long as Kafka keeps it."
)
_CORRECT = "Correct the file; the others load. `kafka-s3 check FILE` explains it. What its connector archived stays."

CONDITIONS: Mapping[ConcernKind, AlertCondition] = {
    "loss": AlertCondition(
        "critical", _AT_RISK, "at_risk", _CAUSES_FIRST, ("KafkaS3AtRisk", "KafkaS3RetentionLossNear")
    ),
    "broken": AlertCondition(
        "critical", "docs/rehearsal.md#what-did-not-come-back", "rehearsal", alerts=("KafkaS3NotComingBack",)
    ),
    # it fails no check, but being unable to know something does
    "silent": AlertCondition("critical", _LATE, "", _WAIT, ("KafkaS3KafkaDown", "KafkaS3StoreDown")),
    "stalled": AlertCondition(
        "critical", "docs/operating.md#does-each-connector-run", "dagster", alerts=("KafkaS3DagsterDown",)
    ),
    "unknown": AlertCondition("critical", _LATE, "reachable", _CORRECT, ("KafkaS3NotKnown",)),
    "failed": AlertCondition(
        "warning", "docs/operating.md#why-did-it-fail", "runs", alerts=("KafkaS3RunNeedsSomebody",)
    ),
    "late": AlertCondition("critical", _AT_RISK, "at_risk", _CAUSES_FIRST, ("KafkaS3AtRisk",)),
    "soon": AlertCondition("warning", _AT_RISK, alerts=("KafkaS3AtRiskSoon",)),
    "unproven": AlertCondition("warning", "docs/rehearsal.md#what-was-not-rehearsed", alerts=("KafkaS3Unproven",)),
    "removed": AlertCondition("warning", "docs/operating.md#what-was-removed"),
    "check": AlertCondition("critical", ""),
}
"""The nearest loss comes first, then causes, then late work, which is usually their effect.

Somebody may not know of a removal. `check` is a sentence from a user's own health check, or from the lag's."""

_ORDER = [*CONDITIONS]


@dataclass(frozen=True)
class Concern:
    """A sentence about `topics` of a connector, and `others` of other connectors. Without topics, about the connector.

    `own_check` is the name of the user's health check that says so. Such a concern is about no connector.
    """

    kind: ConcernKind
    connector: str
    topics: tuple[str, ...]
    sentence: str
    others: int = 0
    seconds_left: float = math.inf
    own_check: str = ""

    @property
    def place(self) -> str:
        """The name of the first topic, and the number of the others."""
        return format_place(self.connector, (*self.topics, *[""] * self.others))

    @property
    def words(self) -> str:
        """The sentence, with a note if it is about something unknown."""
        return f"{'not known: ' if self.kind == 'unknown' else ''}{self.sentence}"

    @property
    def text(self) -> str:
        """The place and the sentence."""
        return f"{self.place}: {self.words}" if self.place else self.words

    @property
    def condition(self) -> AlertCondition:
        return CONDITIONS[self.kind]

    @property
    def check(self) -> str:
        """The name of the health check that fails because of it, or empty if none does."""
        return self.own_check or self.condition.check

    @property
    def section(self) -> str:
        """The section of the documentation about it."""
        return (
            (find_code(self.sentence) or ErrorCode.OTHER).section if self.kind == "unknown" else self.condition.section
        )


def list_concerns(connectors: Sequence[ConnectorHealth]) -> list[Concern]:
    """List the concerns: the nearest loss first, then causes, then late work."""
    concerns = [*_list_risks(connectors)]
    for health in connectors:
        for what, is_up in (("Kafka cluster", health.is_kafka_up), ("object store", health.is_store_up)):
            if is_up is False:
                concerns.append(
                    Concern("silent", health.connector, (), f"its {what} does not answer, so nothing is archived.")
                )
        if health.is_dagster_up is False:
            concerns.append(Concern("stalled", health.connector, (), _describe_stall(health)))
        if health.removed_topics:
            concerns.append(Concern("removed", health.connector, health.removed_topics, health.removal))
        if health.error:
            concerns.append(Concern("unknown", health.connector, (), health.error))
        concerns += [Concern("failed", health.connector, run.topics, _describe_failure(run)) for run in health.failures]
        if health.evidence_error and health.is_known:
            concerns.append(Concern("unknown", health.connector, (), health.evidence_error))
        concerns += _list_rehearsals(health)
        errors = group_errors(health.topics).items()
        concerns += [Concern("unknown", health.connector, tuple(topics), error) for error, topics in errors]
    return sorted(concerns, key=lambda c: (_ORDER.index(c.kind), c.seconds_left, c.connector, c.topics))


def _describe_stall(health: ConnectorHealth) -> str:
    """Return the sentence about runs that nothing requests, though something should."""
    if health.history is None:
        return f"nothing requests its runs, and which of them failed is not known: {health.history_error}."
    return "nothing requests its runs: Dagster evaluates no sensor of it. See whether daemon and code location run."


def _describe_failure(run: FailedRun) -> str:
    """Return the sentence about a failed run."""
    code = find_code(run.message)
    because = f" by {code}" if code else ""
    return (
        f"run {run.run_id[:8]} ({run.kind}) failed at {run.ended_at:%Y-%m-%d %H:%M} UTC{because}, "
        "and no later one has succeeded. Once one has, or this one is deleted in Dagster, it is no longer told."
    )


def _list_rehearsals(health: ConnectorHealth) -> Iterator[Concern]:
    """Yield the concerns about hours that did not come back in a rehearsal, and about overdue rehearsals."""
    groups: dict[tuple[ConcernKind, str], list[str]] = defaultdict(list)
    for topic in health.topics:
        if topic.turns and (failed := topic.turns.failed):
            count = count_noun(topic.turns.failed_count, "hour")
            text = f"{count} did not come back when rehearsed, the first of {failed[0].start:%Y-%m-%d %H:%M} UTC: "
            groups["broken", text + failed[0].failure].append(topic.topic)
        due_at = topic.rehearsal_due
        if due_at is not None and due_at < health.looked_at:
            when = (
                "was never rehearsed" if topic.turns is None else f"not rehearsed since it was due, {due_at:%Y-%m-%d}"
            )
            advice = f"`kafka-s3 rehearse {health.connector}` does it now; see why its nightly job did not."
            groups["unproven", f"{when}: nobody knows whether all of it comes back. {advice}"].append(topic.topic)
    for (kind, sentence), topics in groups.items():
        yield Concern(kind, health.connector, tuple(topics), sentence)


def _list_risks(connectors: Sequence[ConnectorHealth]) -> list[Concern]:
    """List the risks of loss. Topics with the same sentence are one concern."""
    groups: dict[tuple[Level, str], list[tuple[float, str, str]]] = defaultdict(list)
    for health in connectors:
        for topic in health.topics:
            if topic.risk is not None and topic.risk.level is not Level.FINE:
                # without a known age, no loss can be foreseen
                is_near = topic.risk.hours is not None and topic.retention_left is not None
                seconds = topic.retention_left if is_near and topic.retention_left is not None else math.inf
                groups[topic.risk.level, topic.risk.text].append((seconds, health.connector, topic.topic))
    concerns = []
    for (level, text), places in groups.items():
        seconds, connector, _ = min(places)
        topics = tuple(topic for _, name, topic in sorted(places) if name == connector)
        kind: ConcernKind = "soon" if level is Level.WARN else "late" if math.isinf(seconds) else "loss"
        concerns.append(Concern(kind, connector, topics, text, len(places) - len(topics), seconds))
    return concerns
