"""`kafka-s3 show`."""

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.output import aligned, json_option
from kafka_s3_platform.cli.output import show as printed
from kafka_s3_platform.cli.runs import topic_option, topics_of
from kafka_s3_platform.compact.summary import DaySummary, day_summaries
from kafka_s3_platform.defs.topic import ArchivedTopic

_HEAD = ("DAY", "COMPLETE HOURS", "RECORDS", "LATE", "OBJECTS", "BYTES", "MERGED")
_NUMBERS = range(1, 6)


@click.command
@click.argument("connector")
@topic_option
@json_option
def show(connector: str, topic: str | None, as_json: bool) -> None:
    """Show what is archived of CONNECTOR's topics, day by day.

    An hour is complete when everything is archived that Kafka held once the hour and the allowed lateness were over. A
    MERGED day is compacted.
    """
    found = [(t, _days(t)) for t in topics_of(connector, topic)]
    documents = [{"topic": t.topic, "days": [_document(day) for day in days]} for t, days in found]
    printed({"topics": documents}, as_json, [line for t, days in found for line in _lines(t, days)])


def _days(topic: ArchivedTopic) -> list[DaySummary]:
    snapshot = topic.index.peek()
    zone = ZoneInfo(topic.config.layout.timezone)
    return day_summaries(snapshot, zone, topic.lateness) if snapshot else []


def _document(day: DaySummary) -> dict[str, Any]:
    return {
        "day": day.day.isoformat() if day.day else None,
        "hours": day.hour_count,
        "complete_hours": day.complete_count,
        "records": day.record_count,
        "late_records": day.late_count,
        "objects": len(day.objects),
        "bytes": day.object_bytes,
        "merged": day.is_merged,
    }


def _lines(topic: ArchivedTopic, days: Sequence[DaySummary]) -> list[str]:
    if not days:
        return [f"{topic.topic}: nothing is archived yet"]
    held = f"{sum(d.record_count for d in days):,} records in {sum(len(d.objects) for d in days):,} objects"
    head = f"{topic.topic}: {held} of {sum(d.object_bytes for d in days):,} bytes"
    return [head, *aligned([_HEAD, *map(_row, days)], _NUMBERS)]


def _row(day: DaySummary) -> tuple[str, ...]:
    return (
        day.day.isoformat() if day.day else "out of range",
        f"{day.complete_count} of {day.hour_count}" if day.day else "",
        f"{day.record_count:,}",
        f"{day.late_count:,}",
        f"{len(day.objects):,}",
        f"{day.object_bytes:,}",
        "yes" if day.is_merged else "no",
    )
