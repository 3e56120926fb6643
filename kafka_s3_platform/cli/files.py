"""`kafka-s3 files`."""

from datetime import date
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.cli.options import connector_argument, parse_day, parse_hour, topic_option
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, try_topics
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.layouts.segment_key import explain_hidden_names
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.upkeep.compact.days import find_span, read_day_segments, read_month_segments
from kafka_s3_platform.core.upkeep.verify import read_hour_segments


@click.command
@connector_argument
@topic_option
@click.option("--day", metavar="DAY", help="Print only objects of this day, such as 2013-01-31.")
@click.option(
    "--hour",
    metavar="HOUR",
    help="Print only objects of this hour, such as 2013-01-31T15. Objects of a merged day or month hold all of it.",
)
@json_option
def files(connector: str, topic: str | None, day: str | None, hour: str | None, as_json: bool) -> None:
    """Print the URIs of CONNECTOR's current objects, one per line.

    Together these objects hold each record once. Objects merged into later ones are not printed. They stay in the
    bucket: if you read them too, you read records twice.

    Days and hours are in the timezone of the connector when it wrote the object.
    """
    if day is not None and hour is not None:
        raise click.UsageError("--day and --hour: name one of them")
    only_day = None if day is None else parse_day(day)
    topics = find_archived_topics(connector, topic)
    by_topic, failures = try_topics(
        topics, lambda t: [_make_document(t, s) for s in _find_live_segments(t, only_day, hour)]
    )
    documents = list(chain.from_iterable(by_topic))
    print_result({"files": documents}, as_json, [d["uri"] for d in documents])
    for line in explain_hidden_names(d["uri"].split("/", 3)[3] for d in documents):
        click.echo(line, err=True)
    raise_failures(failures)


def _find_live_segments(topic: TopicAssets, day: date | None, hour: str | None) -> list[Segment]:
    """Return the objects that hold the records of a day, an hour or all, by kafka partition and offset.

    Objects merged into later ones are not among them.
    """
    start = None if hour is None else parse_hour("--hour", hour, ZoneInfo(topic.config.layout.timezone))
    snapshot = topic.index.peek()
    if snapshot is None:
        return []
    if start is not None:
        segments = tuple(read_hour_segments(snapshot, [start]))
    elif day is not None:
        segments = (*read_day_segments(snapshot, day), *read_month_segments(snapshot, day))
    else:
        segments = snapshot.segments
    return sorted(segments, key=lambda s: (s.kafka_partition, s.start_offset, s.key))


def _make_document(topic: TopicAssets, segment: Segment) -> dict[str, Any]:
    """Make the JSON of one object."""
    span = find_span(segment)
    return {
        "uri": f"s3://{topic.config.store.bucket}/{segment.key}",
        "topic": topic.topic,
        "kafka_partition": segment.kafka_partition,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "records": segment.record_count,
        "bytes": segment.size,
        "chunk": segment.chunk,
        "day": span.isoformat() if span else None,
        "timezone": segment.zone.key,
        "format": segment.format,
        "siblings": [f"s3://{topic.config.store.bucket}/{o.key}" for o in segment.siblings],
    }
