"""`kafka-s3 vacuum`."""

import re
from dataclasses import asdict
from datetime import timedelta
from uuid import uuid4

import click

from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, topic_option, try_topics
from kafka_s3_platform.upkeep.vacuum import VacuumReport, set_aside_unknown
from kafka_s3_platform.upkeep.vacuum import vacuum_topic as remove_orphans

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _parse_age(ctx: click.Context, param: click.Parameter, text: str) -> timedelta:  # noqa: ARG001 - click's signature
    match = re.fullmatch(r"([0-9]+)([mhd])", text)
    if match is None:
        raise click.BadParameter(f"{text!r}: not an age, such as 90m, 24h or 7d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


@click.command
@connector_argument
@topic_option
@click.option(
    "--older-than",
    default="24h",
    callback=_parse_age,
    metavar="AGE",
    help="Remove only objects and uploads older than this, such as 90m, 24h or 7d. Default: 24h.",
)
@click.option("--dry-run", is_flag=True, help="Print the objects that would be removed, and remove nothing.")
@click.option(
    "--index-put-back",
    is_flag=True,
    help="Remove nothing: after the index was put back from a copy, let runs write beside objects that it lacks.",
)
@json_option
def vacuum(
    *, connector: str, topic: str | None, older_than: timedelta, dry_run: bool, index_put_back: bool, as_json: bool
) -> None:
    """Remove objects that CONNECTOR's runs never committed, and unfinished uploads. Touches nothing else."""
    run_id = str(uuid4())
    if index_put_back:
        if dry_run:
            raise click.UsageError("--index-put-back removes nothing, so it needs no --dry-run")
        _set_aside(connector, topic, run_id, as_json)
        return
    reports, failures = try_topics(
        find_archived_topics(connector, topic),
        lambda t: (t.topic, remove_orphans(t.config, t.topic, run_id, older_than, dry_run)),
    )
    documents = [{"topic": name, **asdict(report)} for name, report in reports]
    print_result(
        {"run_id": run_id, "topics": documents}, as_json, [_format_report(name, report) for name, report in reports]
    )
    raise_failures(failures)


def _set_aside(connector: str, topic: str | None, run_id: str, as_json: bool) -> None:
    by_topic, failures = try_topics(
        find_archived_topics(connector, topic), lambda t: (t.topic, set_aside_unknown(t.config, t.topic, run_id))
    )
    lines = [
        f"{name}: {len(keys)} object(s) that the index does not know stay, and later runs write beside them"
        for name, keys in by_topic
    ]
    print_result(
        {"run_id": run_id, "topics": [{"topic": name, "set_aside": keys} for name, keys in by_topic]}, as_json, lines
    )
    raise_failures(failures)


def _format_report(topic: str, report: VacuumReport) -> str:
    verb = "would be removed" if report.dry_run else "removed"
    ending = "" if report.finished else "; not finished, run again"
    return (
        f"{topic}: {len(report.removed)} orphan object(s), {report.removed_bytes:,} bytes, and "
        f"{len(report.aborted_uploads)} unfinished upload(s) {verb}; {report.retained} kept for now, "
        f"{len(report.foreign)} of other writers left alone{ending}"
    )
