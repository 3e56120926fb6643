"""`kafka-s3 show`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.archive.bad_records import count_offsets
from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import align_columns, json_option, print_result
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, topic_option, try_each
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.summary import DaySummary, summarize_days

_HEAD = ("DAY", "COMPLETE HOURS", "RECORDS", "LATE", "OBJECTS", "BYTES", "MERGED")
_NUMBERS = range(1, 6)


@click.command
@connector_argument
@topic_option
@json_option
def show(connector: str, topic: str | None, as_json: bool) -> None:
    """Show what is archived of CONNECTOR's topics, day by day.

    An hour is complete when the archive holds all that Kafka held at the end of the hour plus the allowed lateness. A
    MERGED day is compacted. Compaction does not merge objects of a format that holds values only.
    """
    found, failures = try_each(find_archived_topics(connector, topic), _show_topic)
    lines = [line for _, of_one in found for line in of_one]
    print_result({"topics": [document for document, _ in found]}, as_json, lines)
    raise_failures(failures)


def _show_topic(topic: ArchivedTopic) -> tuple[dict[str, Any], list[str]]:
    """Make the JSON document and the lines of a topic. Raises if the index lacks something that it reads."""
    snapshot = topic.index.peek()
    days = _group_days(topic, snapshot)
    return _make_topic_document(topic, snapshot, days), _format_topic(topic, snapshot, days)


def _group_days(topic: ArchivedTopic, snapshot: IndexSnapshot | None) -> list[DaySummary]:
    zone = ZoneInfo(topic.config.layout.timezone)
    if snapshot:
        return summarize_days(snapshot, zone, topic.lateness)
    return []


def _count_unresolved(snapshot: IndexSnapshot | None) -> int:
    return count_offsets(snapshot.state.unresolved) if snapshot else 0


def _count_left_out(snapshot: IndexSnapshot | None) -> dict[str, int]:
    """Count by reason the offsets of gaps: they count as archived, so the hours that had them can be complete."""
    counts: Counter[str] = Counter()
    for gap in snapshot.state.gaps if snapshot else ():
        counts[gap.reason] += len(gap.offsets)
    return dict(counts)


def _make_topic_document(
    topic: ArchivedTopic, snapshot: IndexSnapshot | None, days: Sequence[DaySummary]
) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "days": [_make_document(day) for day in days],
        "unresolved_offsets": _count_unresolved(snapshot),
        "left_out_offsets": _count_left_out(snapshot),
    }


def _make_document(day: DaySummary) -> dict[str, Any]:
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


def _format_topic(topic: ArchivedTopic, snapshot: IndexSnapshot | None, days: Sequence[DaySummary]) -> list[str]:
    count = _count_unresolved(snapshot)
    listed = f"kafka-s3 resolve {topic.config.name} --topic {topic.topic}"
    lines = _format_table(topic, days)
    if left_out := _count_left_out(snapshot):
        told = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left_out.items()))
        lines.append(f"{topic.topic}: offsets that count as archived, and are not in this archive: {told}")
    if count:
        lines.append(f"{topic.topic}: {count:,} offset(s) could not be archived; to see them: {listed}")
    return lines


def _format_table(topic: ArchivedTopic, days: Sequence[DaySummary]) -> list[str]:
    if not days:
        return [f"{topic.topic}: nothing is archived yet"]
    held = f"{sum(d.record_count for d in days):,} records in {sum(len(d.objects) for d in days):,} objects"
    head = f"{topic.topic}: {held} of {sum(d.object_bytes for d in days):,} bytes"
    return [head, *align_columns([_HEAD, *map(_format_row, days)], _NUMBERS)]


def _format_row(day: DaySummary) -> tuple[str, ...]:
    return (
        day.day.isoformat() if day.day else "out of range",
        f"{day.complete_count} of {day.hour_count}" if day.day else "",
        f"{day.record_count:,}",
        f"{day.late_count:,}",
        f"{len(day.objects):,}",
        f"{day.object_bytes:,}",
        _describe_merged(day),
    )


def _describe_merged(day: DaySummary) -> str:
    if not day.is_merged or not day.unmergeable_count:
        return "yes" if day.is_merged else "no"
    return f"yes, but {day.unmergeable_count} of values only"
