"""`kafka-s3 repair-index`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, topic_option, try_each
from kafka_s3_platform.upkeep.repair import BadRow, RepairReport
from kafka_s3_platform.upkeep.repair import remove_bad_rows as repair_topic


@click.command("repair-index")
@click.argument("connector")
@topic_option
@click.option("--apply", is_flag=True, help="Remove the rows. Default: only list them.")
@json_option
def repair_index(connector: str, topic: str | None, apply: bool, as_json: bool) -> None:
    """List, or remove, rows of the indexes that cannot be true.

    Lists such rows of the indexes of CONNECTOR's topics; with --apply, removes them. They hold an offset below 0, or a
    time from a clock that was ahead.

    These rows are ignored in any case, removed or not. So an hour that was complete only because of them is open again.
    """
    run_id = str(uuid4())
    topics = find_archived_topics(connector, topic)
    reports, failures = try_each(topics, lambda t: repair_topic(t.config, t.topic, run_id, apply))
    print_result(
        {"run_id": run_id, "topics": [_make_document(r) for r in reports]},
        as_json,
        [line for r in reports for line in _format_report(r)],
    )
    raise_failures(failures)


def _make_document(report: RepairReport) -> dict[str, Any]:
    rows = [{**asdict(row), "at": row.at and row.at.isoformat()} for row in report.rows]
    return {**asdict(report), "rows": rows, "reopened": [hour.isoformat() for hour in report.reopened]}


def _format_report(report: RepairReport) -> Iterator[str]:
    verb = "removed" if report.applied else "ignored; --apply removes them"
    yield f"{report.topic}: {len(report.rows)} bad row(s){f' {verb}' if report.rows else ''}"
    for row in report.rows:
        yield f"  {_format_row(row)}"
    for hour in report.reopened:
        yield f"  hour {hour:%Y-%m-%dT%H:%M%z} was complete by them, and is open again"


def _format_row(row: BadRow) -> str:
    values = ", ".join(f"{name} {value}" for name, value in row.values.items())
    at = f" of {row.at:%Y-%m-%dT%H:%M:%S%z}" if row.at else ""
    return f"version {row.version}: {row.kind}{at}, kafka partition {row.kafka_partition}, {values}: {row.why}"
