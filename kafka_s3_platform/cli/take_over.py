"""`kafka-s3 take-over`."""

from collections.abc import Iterator
from dataclasses import asdict
from uuid import uuid4

import click

from kafka_s3_platform.archive.takeover import TakeOverReport, group_of
from kafka_s3_platform.archive.takeover import take_over as take_over_topic
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of


@click.command("take-over")
@click.argument("connector")
@click.option("--group", metavar="GROUP", help="The old sink's consumer group. Default: connect-CONNECTOR.")
@topic_option
@json_option
def take_over(connector: str, group: str | None, topic: str | None, as_json: bool) -> None:
    """Begin archiving where a stopped Kafka Connect sink ended, as its consumer group has committed."""
    run_id = str(uuid4())
    topics = topics_of(connector, topic, at_kafka=True)
    reports, failures = of_each(
        topics, lambda t: take_over_topic(t.config, t.topic, group or group_of(connector), run_id)
    )
    show({"topics": [asdict(r) for r in reports]}, as_json, [line for r in reports for line in _lines(r)])
    raise_failures(failures)


def _lines(report: TakeOverReport) -> Iterator[str]:
    state = "taken over" if report.gaps else "was taken over before, nothing is changed"
    yield f"{report.topic}: {state} from consumer group {report.group}"
    for kafka_partition, offset in sorted(report.offsets.items()):
        yield f"  kafka partition {kafka_partition}: archiving goes on at offset {offset}"
    for kafka_partition, offset in sorted(report.log_starts.items()):
        yield f"  kafka partition {kafka_partition}: no committed offset; archiving begins with the log, at {offset}"
    for gap in (g for g in report.gaps if g.is_lost):
        yield f"  lost: kafka partition {gap.kafka_partition} [{gap.start_offset}, {gap.end_offset}), {gap.reason}"
