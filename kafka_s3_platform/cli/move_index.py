"""`kafka-s3 move-index`."""

from collections.abc import Iterator
from dataclasses import asdict

import click

from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.cli.runs import find_archived_topics
from kafka_s3_platform.upkeep.move_index import MoveReport
from kafka_s3_platform.upkeep.move_index import move_index as move_indexes


@click.command("move-index")
@click.argument("connector")
@click.option("--dry-run", is_flag=True, help="Only tell what would be moved.")
@json_option
def move_index(connector: str, dry_run: bool, as_json: bool) -> None:
    """Move the indexes of an earlier version into one for the whole connector.

    Earlier versions kept an index for each topic of CONNECTOR; this one keeps one for all of them. Stop the earlier
    version everywhere before. It refuses to read or write an index that was moved.

    The earlier indexes are kept. Killed at any moment, the same command goes on.
    """
    config = find_archived_topics(connector, None)[0].config
    report = move_indexes(config, dry_run)
    print_result(asdict(report), as_json, list(_format_report(report)))


def _format_report(report: MoveReport) -> Iterator[str]:
    for topic in report.topics:
        verb = "is in it" if topic.moved else "would be moved"
        yield f"{topic.topic}: {topic.row_count:,} rows of version {topic.version}; {verb}"
    if not report.topics:
        yield "no index of an earlier version is there: nothing is to be moved"
    if report.version is not None:
        yield f"{report.uri}: version {report.version}"
