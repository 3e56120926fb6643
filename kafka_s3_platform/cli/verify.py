"""`kafka-s3 verify`."""

from dataclasses import asdict
from typing import Any

import click

from kafka_s3_platform.archive.verify import VerifyReport, verify_archive
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import topic_option, topics_of
from kafka_s3_platform.defs.resources import SparkResource


@click.command
@click.argument("connector")
@topic_option
@click.option("--deep", is_flag=True, help="Read every object, and check its SHA-256, records and offsets.")
@json_option
@click.pass_context
def verify(ctx: click.Context, connector: str, topic: str | None, deep: bool, as_json: bool) -> None:
    """Compare the objects of CONNECTOR's topics with what the index says of them. Exit status 1 if one is damaged."""
    with SparkResource().runner() as runner:
        reports = [verify_archive(t.config, t.topic, deep, runner) for t in topics_of(connector, topic)]
    show({"topics": [_document(r) for r in reports]}, as_json, [line for r in reports for line in _lines(r)])
    ctx.exit(0 if all(r.ok for r in reports) else 1)


def _document(report: VerifyReport) -> dict[str, Any]:
    return {"ok": report.ok, **asdict(report)}


def _lines(report: VerifyReport) -> list[str]:
    state = "ok" if report.ok else f"{len(report.damages)} thing(s) are not as the index says"
    head = (
        f"{report.topic}: {state}; {report.segment_count} object(s), {report.record_count:,} records, "
        f"{report.size:,} bytes, {len(report.holes)} hole(s), {len(report.gaps)} gap(s)"
    )
    damages = [
        f"  kafka partition {d.kafka_partition}, {d.key or 'no single object'}: {d.message}" for d in report.damages
    ]
    holes = [
        f"  not archived: kafka partition {h.kafka_partition} [{h.start_offset}, {h.end_offset})" for h in report.holes
    ]
    gaps = [
        f"  lost: kafka partition {g.kafka_partition} [{g.start_offset}, {g.end_offset}), {g.reason}"
        for g in report.gaps
    ]
    taken_over = [
        f"  with the sink before this one: kafka partition {g.kafka_partition} [{g.start_offset}, {g.end_offset})"
        for g in report.taken_over
    ]
    return [head, *damages, *holes, *gaps, *taken_over]
