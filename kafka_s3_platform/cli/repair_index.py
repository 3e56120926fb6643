"""`kafka-s3 repair-index`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.archive.repair import BadRow, RepairReport
from kafka_s3_platform.archive.repair import repair_index as repair_topic
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of


@click.command("repair-index")
@click.argument("connector")
@topic_option
@click.option("--apply", is_flag=True, help="Remove the rows. Without it, nothing is written.")
@json_option
def repair_index(connector: str, topic: str | None, apply: bool, as_json: bool) -> None:
    """List the rows of CONNECTOR's indexes that cannot be true; with --apply, remove them.

    Such rows hold an offset below 0, or a time from a clock that was ahead. They are ignored, removed or not: hours
    that were complete only by them are open again.
    """
    run_id = str(uuid4())
    topics = topics_of(connector, topic)
    reports, failures = of_each(topics, lambda t: repair_topic(t.config, t.topic, run_id, apply))
    show(
        {"run_id": run_id, "topics": [_document(r) for r in reports]}, as_json, [x for r in reports for x in _lines(r)]
    )
    raise_failures(failures)


def _document(report: RepairReport) -> dict[str, Any]:
    rows = [{**asdict(row), "at": row.at and row.at.isoformat()} for row in report.rows]
    return {**asdict(report), "rows": rows, "reopened": [hour.isoformat() for hour in report.reopened]}


def _lines(report: RepairReport) -> Iterator[str]:
    verb = "removed" if report.applied else "ignored; --apply removes them"
    yield f"{report.topic}: {len(report.rows)} bad row(s){f' {verb}' if report.rows else ''}"
    for row in report.rows:
        yield f"  {_row(row)}"
    for hour in report.reopened:
        yield f"  hour {hour:%Y-%m-%dT%H:%M%z} was complete by them, and is open again"


def _row(row: BadRow) -> str:
    values = ", ".join(f"{name} {value}" for name, value in row.values.items())
    at = f" of {row.at:%Y-%m-%dT%H:%M:%S%z}" if row.at else ""
    return f"version {row.version}: {row.kind}{at}, kafka partition {row.kafka_partition}, {values}: {row.why}"
