"""`kafka-s3 files`."""

from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.archive.verify import holds_one_of
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of
from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.compact.days import day_of, segments_of_day
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.model.segment import Segment


@click.command
@click.argument("connector")
@topic_option
@click.option("--day", metavar="DAY", help="Only objects of this day, such as 2013-01-31.")
@click.option(
    "--hour", metavar="HOUR", help="Only objects that hold this hour, such as 2013-01-31T15; of a merged day all of it."
)
@json_option
def files(connector: str, topic: str | None, day: str | None, hour: str | None, as_json: bool) -> None:
    """Print the objects that hold CONNECTOR's records now, one URI a line: read together, each record once.

    Objects of hours that were merged, and of days that were merged again, are not among them: those stay in the bucket,
    and whoever reads both reads records twice. Days and hours are those of the timezone that an object was written in.
    """
    if day is not None and hour is not None:
        raise click.UsageError("--day and --hour: name one of them")
    wanted = _day(day)
    topics = topics_of(connector, topic)
    found, failures = of_each(topics, lambda t: [_document(t, s) for s in _live(t, wanted, hour)])
    documents = [document for of_one in found for document in of_one]
    show({"files": documents}, as_json, [d["uri"] for d in documents])
    raise_failures(failures)


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError as err:
        raise click.UsageError(f"--day {text}: not a day, such as 2013-01-31") from err


def _live(topic: ArchivedTopic, day: date | None, hour: str | None) -> list[Segment]:
    """Live segments by kafka partition and offset."""
    start = None if hour is None else _hour(hour, ZoneInfo(topic.config.layout.timezone))
    snapshot = topic.index.peek()
    found = snapshot.segments if snapshot else ()
    if day is not None:
        found = segments_of_day(found, day)
    if start is not None:
        found = tuple(s for s in found if holds_one_of(s, [start]))
    return sorted(found, key=lambda s: (s.kafka_partition, s.start_offset, s.key))


def _hour(text: str, zone: ZoneInfo) -> datetime:
    found = moment("--hour", text, zone)
    if (found.second, found.microsecond, found.astimezone(zone).minute) != (0, 0, 0):
        raise click.UsageError(f"--hour {text}: not the start of an hour of {zone.key}, such as 2013-01-31T15")
    return found


def _document(topic: ArchivedTopic, segment: Segment) -> dict[str, Any]:
    day = day_of(segment)
    return {
        "uri": f"s3://{topic.config.store.bucket}/{segment.key}",
        "topic": topic.topic,
        "kafka_partition": segment.kafka_partition,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "records": segment.record_count,
        "bytes": segment.size,
        "chunk": segment.chunk,
        "day": day.isoformat() if day else None,
        "timezone": segment.zone.key,
        "format": segment.format,
        "siblings": [f"s3://{topic.config.store.bucket}/{o.key}" for o in segment.siblings],
    }
