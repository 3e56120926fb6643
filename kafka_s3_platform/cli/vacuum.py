"""`kafka-s3 vacuum`."""

import re
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.archive.vacuum import VacuumReport
from kafka_s3_platform.archive.vacuum import vacuum as remove_orphans
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _age(ctx: click.Context, param: click.Parameter, text: str) -> timedelta:  # noqa: ARG001 - click's signature
    found = re.fullmatch(r"([0-9]+)([mhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r}: not an age, such as 90m, 24h or 7d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


@click.command
@click.argument("connector")
@topic_option
@click.option("--older-than", default="24h", callback=_age, metavar="AGE", help="Such as 90m, 24h (the default), 7d.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@json_option
def vacuum(connector: str, topic: str | None, older_than: timedelta, dry_run: bool, as_json: bool) -> None:
    """Remove objects and unfinished uploads of runs of CONNECTOR that never committed. Nothing else is touched."""
    run_id = str(uuid4())
    reports, failures = of_each(
        topics_of(connector, topic),
        lambda t: (t.topic, remove_orphans(t.config, t.topic, run_id, older_than, dry_run)),
    )
    documents = [_document(name, report) for name, report in reports]
    show({"run_id": run_id, "topics": documents}, as_json, [_line(name, report) for name, report in reports])
    raise_failures(failures)


def _document(topic: str, report: VacuumReport) -> dict[str, Any]:
    return {"topic": topic, **asdict(report)}


def _line(topic: str, report: VacuumReport) -> str:
    verb = "would be removed" if report.dry_run else "removed"
    ending = "" if report.finished else "; not finished, run again"
    return (
        f"{topic}: {len(report.removed)} orphan object(s), {report.removed_bytes:,} bytes, and "
        f"{len(report.aborted_uploads)} unfinished upload(s) {verb}; {report.kept} kept for now, "
        f"{len(report.foreign)} of other writers left alone{ending}"
    )
