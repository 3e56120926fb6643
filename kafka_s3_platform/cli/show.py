"""`kafka-s3 show`."""

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.archive.bad_records import offset_count
from kafka_s3_platform.cli.output import aligned, json_option
from kafka_s3_platform.cli.output import show as printed
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of
from kafka_s3_platform.compact.summary import DaySummary, day_summaries
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.store.index import IndexSnapshot

_HEAD = ("DAY", "COMPLETE HOURS", "RECORDS", "LATE", "OBJECTS", "BYTES", "MERGED")
_NUMBERS = range(1, 6)


@click.command
@click.argument("connector")
@topic_option
@json_option
def show(connector: str, topic: str | None, as_json: bool) -> None:
    """Show what is archived of CONNECTOR's topics, day by day.

    An hour is complete when everything is archived that Kafka held once the hour and the allowed lateness were over. A
    MERGED day is compacted; objects of a format that holds values only stay as they are.
    """
    found, failures = of_each(topics_of(connector, topic), _shown)
    lines = [line for _, of_one in found for line in of_one]
    printed({"topics": [document for document, _ in found]}, as_json, lines)
    raise_failures(failures)


def _shown(topic: ArchivedTopic) -> tuple[dict[str, Any], list[str]]:
    """As a document and as lines. What the index lacks is found out when it is read, here."""
    snapshot = topic.index.peek()
    return _topic_document(topic, snapshot), _lines(topic, snapshot)


def _days(topic: ArchivedTopic, snapshot: IndexSnapshot | None) -> list[DaySummary]:
    zone = ZoneInfo(topic.config.layout.timezone)
    return day_summaries(snapshot, zone, topic.lateness) if snapshot else []


def _unresolved_count(snapshot: IndexSnapshot | None) -> int:
    return offset_count(snapshot.state.unresolved) if snapshot else 0


def _topic_document(topic: ArchivedTopic, snapshot: IndexSnapshot | None) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "days": [_document(day) for day in _days(topic, snapshot)],
        "unresolved_offsets": _unresolved_count(snapshot),
    }


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
        "objects_of_values_only": day.unmergeable_count,
    }


def _lines(topic: ArchivedTopic, snapshot: IndexSnapshot | None) -> list[str]:
    count = _unresolved_count(snapshot)
    listed = f"kafka-s3 resolve {topic.config.name} --topic {topic.topic}"
    return _table(topic, _days(topic, snapshot)) + (
        [f"{topic.topic}: {count:,} offset(s) could not be archived; to see them: {listed}"] if count else []
    )


def _table(topic: ArchivedTopic, days: Sequence[DaySummary]) -> list[str]:
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
        _merged(day),
    )


def _merged(day: DaySummary) -> str:
    if not day.is_merged or not day.unmergeable_count:
        return "yes" if day.is_merged else "no"
    return f"yes, but {day.unmergeable_count} of values only"
