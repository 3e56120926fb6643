"""`kafka-s3 take-over`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.cli.messages import json_option
from kafka_s3_platform.cli.options import connector_argument, topic_option
from kafka_s3_platform.cli.runs import find_archived_topics, print_topics
from kafka_s3_platform.core.archive.takeover import TakeOverReport, name_group, record_takeover
from kafka_s3_platform.core.defs.topic import TopicAssets


@click.command("take-over")
@connector_argument
@click.option("--group", metavar="GROUP", help="Consumer group of the old sink. Default: connect-CONNECTOR.")
@topic_option
@json_option
def take_over(connector: str, group: str | None, topic: str | None, as_json: bool) -> None:
    """Begin archiving where a stopped Kafka Connect sink ended: at the committed offsets of its consumer group."""
    # An empty text may come from an unset shell variable.
    if group == "":
        raise click.UsageError("--group is empty: name the old sink's consumer group, or leave the option out")
    run_id = str(uuid4())

    def take_over_one(archived: TopicAssets) -> tuple[dict[str, Any], Iterator[str]]:
        report = record_takeover(archived.config, archived.topic, group or name_group(connector), run_id)
        return asdict(report), _format_report(report)

    print_topics(find_archived_topics(connector, topic, at_kafka=True), take_over_one, as_json)


def _format_report(report: TakeOverReport) -> Iterator[str]:
    """Yield the lines about the first offsets to archive."""
    state = "taken over" if report.gaps else "was taken over before, nothing is changed"
    yield f"{report.topic}: {state} from consumer group {report.group}"
    for kafka_partition, offset in sorted(report.offsets.items()):
        yield f"  kafka partition {kafka_partition}: archiving goes on at offset {offset}"
    for kafka_partition, offset in sorted(report.log_starts.items()):
        yield f"  kafka partition {kafka_partition}: no committed offset; archiving begins with the log, at {offset}"
    for gap in (g for g in report.gaps if g.is_lost):
        yield f"  lost: kafka partition {gap.kafka_partition} [{gap.start_offset}, {gap.end_offset}), {gap.reason}"
