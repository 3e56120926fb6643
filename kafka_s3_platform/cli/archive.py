"""`kafka-s3 archive`."""

from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.messages import Verdict, json_option, print_result
from kafka_s3_platform.cli.options import connector_argument, parse_hour, topic_option
from kafka_s3_platform.cli.runs import PARTITION_KEY, RunOutcome, find_archived_topics, raise_failures, run_topics
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.text import count_noun

LEFT_OUT = {
    "filtered_records": "records left out, by transforms or because they are null",
    "dead_letters": "records failed and were tolerated: dead letters",
}
"""Texts about records that a run leaves out, by the name of their count."""


@click.command
@connector_argument
@topic_option
@click.option(
    "--from",
    "from_hour",
    metavar="HOUR",
    help="Archive from this hour on. ISO 8601; without a UTC offset, in the connector's timezone.",
)
@click.option("--to", "to_hour", metavar="HOUR", help="Stop before this hour.")
@click.option(
    "--until-now", is_flag=True, help="Archive everything that is readable now, whatever its hour. This is the default."
)
@json_option
def archive(
    *, connector: str, topic: str | None, from_hour: str | None, to_hour: str | None, until_now: bool, as_json: bool
) -> None:
    """Archive hours of CONNECTOR's topics, or all up to now.

    With --from and --to, archives the hours [--from, --to). Otherwise archives everything that is readable now.
    """
    if (from_hour is None) != (to_hour is None) or (until_now and from_hour is not None):
        raise click.UsageError("give both --from and --to, or --until-now, or none of them")
    topics = find_archived_topics(connector, topic, at_kafka=True)
    # the hours are the connector's: each topic has the same
    keys = _choose_keys(topics[0], from_hour, to_hour) if topics and from_hour and to_hour else []
    outcomes, failures = run_topics("archive", topics, keys) if topics else ([], {})
    documents = [_make_document(o) for o in outcomes]
    lines = [line for d in documents for line in _format_hours(d)]
    print_result({"runs": documents}, as_json, lines)
    raise_failures(failures)


def _choose_keys(topic: TopicAssets, from_hour: str, to_hour: str) -> list[str]:
    """Return the first and last partition key of the hours [from, to)."""
    zone = ZoneInfo(topic.config.layout.timezone)
    start = parse_hour("--from", from_hour, zone)
    end = parse_hour("--to", to_hour, zone)
    if start >= end:
        raise click.UsageError(f"--from {from_hour} is not an hour before --to {to_hour}")
    last_window = topic.hours.definition.get_last_partition_window()
    if start < topic.start_hour or last_window is None or end > last_window.end:
        raise click.UsageError(
            f"[{from_hour}, {to_hour}) is not within [{topic.start_hour.isoformat()}, now]; archive.start.hour is "
            f"{topic.config.archive.start_hour.isoformat()}"
        )
    return [topic.hours.key(start), topic.hours.key(end - HOUR)]


def _make_document(outcome: RunOutcome) -> dict[str, Any]:
    """Make the JSON of a topic's run: its hours, and the totals of the run."""
    hours = [e for e in outcome.events if e[PARTITION_KEY] is not None]
    totals = [e for e in outcome.events if e[PARTITION_KEY] is None]
    return {
        "topic": outcome.topic,
        "run_id": outcome.run_id,
        "hours": sorted(hours, key=lambda e: str(e[PARTITION_KEY])),
        "totals": {k: v for e in totals for k, v in e.items() if k != PARTITION_KEY} or None,
    }


def _format_hours(document: dict[str, Any]) -> list[str | Verdict]:
    """Return the lines about a topic's run."""
    head = f"{document['topic']}: run {document['run_id']}"
    rows = map(_format_hour, document["hours"])
    totals = document["totals"]
    archived = (
        [f"  {count_noun(totals['records'], 'record')} archived now in {totals['seconds']:.1f} s"] if totals else []
    )
    ahead = {f"  {reason}" for hour in document["hours"] if (reason := hour.get("not_complete"))}
    left_out = [f"  {n:,} {label}" for name, label in LEFT_OUT.items() if totals and (n := totals.get(name))]
    return [head, *rows, *ahead, *archived, *left_out]


def _format_hour(hour: dict[str, Any]) -> Verdict:
    """Return the line about an hour."""
    objects = count_noun(hour["objects"], "object")
    content = f"{hour['partition_row_count']:>12,} records  {hour['object_bytes']:>14,} bytes in {objects}"
    state = hour.get("verdict") or ("complete" if hour["complete"] else "not complete")
    return Verdict(f"  {hour[PARTITION_KEY]}  {content}  {state}", hour["complete"])
