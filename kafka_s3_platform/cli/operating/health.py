"""`kafka-s3 health`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from kafka_s3_platform.cli.messages import Verdict, align_columns, json_option, print_result
from kafka_s3_platform.cli.options import connectors_argument
from kafka_s3_platform.core.errors import find_code
from kafka_s3_platform.core.model.health import ConnectorHealth, FailedRun, Level, TopicHealth, format_place
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.model.turns import TopicTurns
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.operate.monitoring.overview import Overviews, load_all, load_named
from kafka_s3_platform.operate.status.concerns import list_concerns

LOOK_SECONDS = 30.0
_HEAD = ("AT RISK", "LAG", "NEWEST COMPLETE", "OLDEST NOT COMPLETE", "PROVEN", "LAST ERROR", "CONNECTOR/TOPIC")
"""The name, of up to 249 characters, comes last, so it makes no other row longer."""

_NUMBERS = (1,)
UNKNOWN = "not known"


@click.command
@connectors_argument
@json_option
@click.pass_context
def health(ctx: click.Context, connectors: Sequence[str], as_json: bool) -> None:
    """Show what is late, what is at risk, and what failed last: of each CONNECTOR, or of all.

    AT RISK is the result of the topic's check `at_risk`, made now. Exit status 1 if something is at risk or unknown, or
    if a failed run needs somebody. Reads only, and starts neither Spark nor a run.
    """
    configs, failures = load_named(connectors) if connectors else load_all()
    declared = None if connectors else {config.name for config in configs}
    overview = Overviews(LOOK_SECONDS).take(configs, failures, declared)
    print_result(
        {"connectors": [make_document(health_of_one) for health_of_one in overview]},
        as_json,
        [*_format_lines(overview)],
    )
    ctx.exit(0 if all(health_of_one.is_well for health_of_one in overview) else 1)


def make_document(health: ConnectorHealth) -> dict[str, Any]:
    """Make the JSON of a connector. What is not known is null."""
    return {
        "connector": health.connector,
        "looked_at": health.looked_at,
        "is_well": health.is_well,
        **describe_state(health),
        "error": health.error or None,
        "evidence_error": health.evidence_error or None,
        "topics": [_make_topic(topic, health.looked_at) for topic in health.topics],
        "errors": [_make_error(failed_run) for failed_run in health.history.failures] if health.history else None,
        "errors_unknown": None if health.history else (health.history_error or UNKNOWN),
        "removed_topics": health.removed_topics,
        "is_removed": health.is_removed,
    }


def describe_state(health: ConnectorHealth) -> dict[str, Any]:
    """Make the JSON of the state of a connector's work, of its lag and its last run. What is not known is null."""
    return {
        "type": "source" if health.is_source else "sink",
        "state": health.state.name if health.state else None,
        "since": health.state.since if health.state else None,
        "lag": health.lag,
        "last_run": asdict(health.last_run) if health.last_run else None,
        "triggers": [asdict(trigger) for trigger in health.history.triggers] if health.history else None,
    }


def _make_topic(topic: TopicHealth, now: datetime) -> dict[str, Any]:
    """Make the JSON of a topic."""
    oldest = topic.oldest_incomplete
    return {
        "topic": topic.topic,
        "is_well": topic.is_well,
        "at_risk": None if topic.risk is None else topic.risk.level.answer,
        "at_risk_says": None if topic.risk is None else topic.risk.text,
        "lag": topic.lag,
        "newest_complete_hour": topic.newest_complete,
        "oldest_incomplete_hour": oldest,
        "oldest_incomplete_age_seconds": (now - oldest - HOUR).total_seconds() if oldest else None,
        "retention_left_seconds": topic.retention_left,
        "unresolved_offsets": topic.unresolved_offsets,
        "last_proven": None if topic.proof is None else asdict(topic.proof),
        "rehearsal": None if topic.turns is None else _make_rehearsal(topic, topic.turns, now),
        "kafka_error": topic.kafka_error or None,
        "store_error": topic.store_error or None,
    }


def _make_rehearsal(topic: TopicHealth, turns: TopicTurns, now: datetime) -> dict[str, Any]:
    """Make the JSON about how much of a topic rehearsals have proven."""
    return {
        "hours": turns.hour_count,
        "proven_hours": turns.count_proven(now),
        "failed_hours": turns.failed_count,
        "period_days": turns.period_days,
        "due_at": turns.due_at,
        "whole_restore_seconds": topic.return_seconds,
    }


def _make_error(failed_run: FailedRun) -> dict[str, Any]:
    """Make the JSON of a failed run."""
    return {
        "run_id": failed_run.run_id,
        "kind": failed_run.kind,
        "ended_at": failed_run.ended_at,
        "code": find_code(failed_run.message),
        "message": failed_run.message,
        "topics": failed_run.topics,
        "is_over": failed_run.is_over,
    }


def _format_lines(connectors: Sequence[ConnectorHealth]) -> Iterator[str | Verdict]:
    """Yield the lines of the command: a table, the concerns, the problems, and the verdict."""
    if not connectors:
        yield "there are no connectors"
        return
    yield "hours of UTC"
    yield from align_columns([_HEAD, *(row for health in connectors for row in _format_rows(health))], _NUMBERS)
    yield from (concern.text for concern in list_concerns(connectors))
    for health in connectors:
        yield from _explain_problems(health)
    yield _judge(connectors)


def _format_rows(health: ConnectorHealth) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a connector in the table, one for each topic."""
    failures = health.history.failures if health.history else ()
    error = _format_error(health, next(iter(failures), None))
    if health.error:
        yield (UNKNOWN, "", "", "", "", error, health.connector)
    elif not health.topics and not health.is_removed:
        yield ("source" if health.is_source else "no topic", "", "", "", "", error, health.connector)
    for topic in health.topics:
        yield (
            UNKNOWN if topic.risk is None else topic.risk.level.answer,
            UNKNOWN if topic.lag is None else f"{topic.lag:,}",
            _format_hour(topic.newest_complete, is_known=topic.is_index_known),
            _format_hour(topic.oldest_incomplete, is_known=topic.is_known),
            UNKNOWN if health.evidence_error else f"{topic.proof.at:%Y-%m-%d}" if topic.proof else "never",
            _format_error(health, health.history.find_failure(topic.topic) if health.history else None),
            f"{health.connector}/{topic.topic}",
        )


def _format_hour(hour: datetime | None, *, is_known: bool) -> str:
    """Return the cell of an hour. If it is None, there is no such hour, or it is not known."""
    if hour is not None:
        return f"{hour:%Y-%m-%d %H:%M}"
    return "none" if is_known else UNKNOWN


def _format_error(health: ConnectorHealth, failed_run: FailedRun | None) -> str:
    """Return the cell about the last failed run."""
    if health.history is None:
        return UNKNOWN
    if failed_run is None:
        return "none"
    return f"{failed_run.kind}{', over' if failed_run.is_over else ''}"


def _explain_problems(health: ConnectorHealth) -> Iterator[str]:
    """Yield lines about unresolved offsets, and about failed runs."""
    for topic in health.topics:
        if topic.unresolved_offsets:
            command = f"kafka-s3 resolve {health.connector} --topic {topic.topic}"
            count = count_noun(topic.unresolved_offsets, "offset")
            yield f"{health.connector}/{topic.topic}: {count} could not be archived; to see them: {command}"
    if health.is_dagster_up is None and health.history_error:
        yield f"{health.connector}: which runs failed is not known: {health.history_error}"
    for failed_run in health.history.failures if health.history else ():
        if not failed_run.is_over:
            place = format_place(health.connector, failed_run.topics)
            end_text = f"{failed_run.ended_at:%Y-%m-%d %H:%M} UTC"
            yield f"{place}: run {failed_run.run_id} ({failed_run.kind}) failed at {end_text}: {failed_run.message}"


def _judge(connectors: Sequence[ConnectorHealth]) -> Verdict:
    """Return the last line: the number of topics at risk, and of other problems."""
    topics = [topic for health in connectors for topic in health.topics]
    at_risk = sum(topic.risk is not None and topic.risk.level is not Level.FINE for topic in topics)
    unknown = sum(not topic.is_known for topic in topics)
    broken_count = sum(bool(health.error) for health in connectors)
    if all(health.is_well for health in connectors):
        return Verdict(f"nothing is at risk: {count_noun(len(topics), 'topic')}", is_good=True)
    failed_count = sum(len(health.failures) for health in connectors)
    text = f"{at_risk:,} of {count_noun(len(topics), 'topic')} at risk, {unknown} not known"
    text += f"; of {count_noun(broken_count, 'connector')} nothing is known" if broken_count else ""
    unproven_count = sum(bool(health.evidence_error) for health in connectors)
    text += f"; of {count_noun(unproven_count, 'connector')} it is not known what came back" if unproven_count else ""
    stalled_count = sum(health.is_dagster_up is False for health in connectors)
    text += f"; nothing requests runs of {count_noun(stalled_count, 'connector')}" if stalled_count else ""
    text += f"; {count_noun(failed_count, 'failed run')}" if failed_count else ""
    lacking = sum(bool(topic.turns and topic.turns.failed) for topic in topics)
    text += f"; of {count_noun(lacking, 'topic')} not all came back" if lacking else ""
    return Verdict(text, is_good=False)
