"""`kafka-s3 show`."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.messages import align_columns, json_option
from kafka_s3_platform.cli.options import connector_argument, topic_option
from kafka_s3_platform.cli.runs import find_archived_topics, print_topics
from kafka_s3_platform.core.archive.failures import count_offsets
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.model.gaps import count_reasons
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.text import count_noun, format_size
from kafka_s3_platform.core.upkeep.compact.days import (
    DaySummary,
    find_first_day,
    find_next_day,
    summarize_days,
)
from kafka_s3_platform.core.upkeep.hour_states import MARKS, DescribedHour, GridDay, make_hour_grid

_HEAD = ("DAY", "COMPLETE HOURS", "RECORDS", "LATE", "OBJECTS", "BYTES", "MERGED")
_NUMBERS = range(1, 6)
_HEAD_OF_HOURS = ("DAY", "00    06    12    18", "COMPLETE", "RECORDS", "LATE")


@click.command
@connector_argument
@topic_option
@click.option("--hours", "by_hour", is_flag=True, help="Show each hour's state: one mark per hour, one line per day.")
@click.option(
    "--days", type=click.IntRange(1), help="With --hours: the number of days to show, the newest ones. Default: 31."
)
@json_option
def show(connector: str, topic: str | None, by_hour: bool, days: int | None, as_json: bool) -> None:
    """Show what is archived of CONNECTOR's topics, day by day.

    An hour is complete when the archive holds all that Kafka held at the end of the hour plus the allowed lateness. A
    MERGED day is compacted; a month whose days are merged is one line. Compaction does not merge objects of formats
    with values only.
    """
    if days is not None and not by_hour:
        raise click.UsageError("--days is for --hours; without it, all days are shown")
    describe = partial(_describe_hours, day_count=days or 31) if by_hour else _describe_days
    print_topics(find_archived_topics(connector, topic), describe, as_json)


def _describe_days(topic: TopicAssets) -> tuple[dict[str, Any], list[str]]:
    """Make the JSON document and the lines of a topic. Raises if the index is incomplete."""
    snapshot = topic.index.peek()
    days = _group_days(topic, snapshot)
    lines = [*_format_table(topic, days), *_format_missing(topic, snapshot)]
    return _make_document(topic, snapshot, days=list(map(_make_day_document, days))), lines


def _describe_hours(topic: TopicAssets, day_count: int) -> tuple[dict[str, Any], list[str]]:
    """Make the JSON document and the lines of a topic's hours, up to the last day that has any."""
    snapshot = topic.index.peek()
    spans = [summary.span for summary in _group_days(topic, snapshot) if summary.span]
    if snapshot is None or not spans:
        return _make_document(topic, snapshot, hours=[]), [*_format_table(topic, ()), *_format_missing(topic, snapshot)]
    zone = ZoneInfo(topic.config.layout.timezone)
    now = datetime.now(timezone.utc)
    oldest_day = find_first_day(spans[0])
    newest_day = find_next_day(spans[-1]) - timedelta(days=1)
    shown_count = min(day_count, (newest_day - oldest_day).days + 1)
    first_day = newest_day - timedelta(days=shown_count - 1)
    days = [first_day + timedelta(days=n) for n in range(shown_count)]
    grid = make_hour_grid(snapshot, days, zone, topic.lateness, now)
    states = {hour.state for row in grid for hour in row.hours}
    lines = [
        f"{topic.topic}: hours of {topic.config.layout.timezone}",
        *align_columns([_HEAD_OF_HOURS, *map(_format_hours, grid)], (3, 4)),
        *(f"  {mark} {text}" for state, (mark, text) in MARKS.items() if state in states and text),
    ]
    if oldest_day < first_day:
        lines.append(f"{topic.topic}: days before {first_day} are not shown; --days shows more")
    if (today := now.astimezone(zone).date()) > newest_day:
        lines.append(f"{topic.topic}: nothing is archived of {newest_day + timedelta(days=1)} to {today}")
    documents = [_make_hour_document(hour) for row in grid for hour in row.hours]
    return _make_document(topic, snapshot, hours=documents), [*lines, *_format_missing(topic, snapshot)]


def _format_hours(day: GridDay) -> tuple[str, ...]:
    """Return the cells of a day: a mark for each hour, and its counts."""
    reports = [hour.report for hour in day.hours]
    complete = sum(report.complete for report in reports)
    records = sum(report.record_count for report in reports)
    late_count = sum(report.late_count for report in reports)
    marks = "".join(MARKS[hour.state][0] for hour in day.hours)
    return day.day.isoformat(), marks, f"{complete} of {len(reports)}", f"{records:,}", f"{late_count:,}"


def _make_hour_document(hour: DescribedHour) -> dict[str, Any]:
    """Make the JSON of an hour."""
    report = hour.report
    return {
        "hour": report.hour,
        "state": hour.state,
        "complete": report.complete,
        "records": report.record_count,
        "late_records": report.late_count,
        "gaps": [
            {"kafka_partition": g.kafka_partition, "from": g.start_offset, "to": g.end_offset, "reason": g.reason}
            for g in report.verdict.lacking
        ],
        "verdict": str(report.verdict),
        "unresolved_offsets": report.verdict.open_counts["unresolved"],
    }


def _group_days(topic: TopicAssets, snapshot: IndexSnapshot | None) -> list[DaySummary]:
    """Return the days of a topic for which anything is archived, oldest first."""
    zone = ZoneInfo(topic.config.layout.timezone)
    if snapshot:
        return summarize_days(snapshot, zone, topic.lateness)
    return []


def _count_unresolved(snapshot: IndexSnapshot | None) -> int:
    """Count the unresolved offsets."""
    return count_offsets(snapshot.state.unresolved) if snapshot else 0


def _count_left_out(snapshot: IndexSnapshot | None) -> dict[str, int]:
    """Count the offsets of gaps by reason: they count as archived, so their hours can be complete."""
    return dict(count_reasons(snapshot.state.judge.left_out if snapshot else ()))


def _make_document(topic: TopicAssets, snapshot: IndexSnapshot | None, **details: Any) -> dict[str, Any]:
    """Make the JSON of a topic. `details` are its days or hours."""
    unresolved, left_out = _count_unresolved(snapshot), _count_left_out(snapshot)
    return {"topic": topic.topic, **details, "unresolved_offsets": unresolved, "left_out_offsets": left_out}


def _make_day_document(day: DaySummary) -> dict[str, Any]:
    """Make the JSON of a day, or of a month whose days are merged."""
    return {
        "day": day.span.isoformat() if day.span else None,
        "hours": day.hour_count,
        "complete_hours": day.complete_count,
        "records": day.record_count,
        "late_records": day.late_count,
        "expired_records": day.expired_count,
        "erased_records": day.erased_count,
        "objects": len(day.objects),
        "bytes": day.object_bytes,
        "merged": day.is_merged,
        "objects_of_values_only": day.unmergeable_count,
    }


def _format_missing(topic: TopicAssets, snapshot: IndexSnapshot | None) -> list[str]:
    """Return the lines about offsets that are not in the archive."""
    count = _count_unresolved(snapshot)
    command = f"kafka-s3 resolve {topic.config.name} --topic {topic.topic}"
    lines = []
    if left_out := _count_left_out(snapshot):
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left_out.items()))
        lines.append(f"{topic.topic}: offsets that count as archived, and are not in this archive: {reasons}")
    if count:
        lines.append(f"{topic.topic}: {count_noun(count, 'offset')} could not be archived; to see them: {command}")
    return lines


def _format_table(topic: TopicAssets, days: Sequence[DaySummary]) -> list[str]:
    """Return the lines about the days of a topic."""
    if not days:
        return [f"{topic.topic}: nothing is archived yet"]
    objects = count_noun(sum(len(d.objects) for d in days), "object")
    content = f"{count_noun(sum(d.record_count for d in days), 'record')} in {objects}"
    head = f"{topic.topic}: {content} of {format_size(sum(d.object_bytes for d in days))}"
    return [head, *align_columns([_HEAD, *map(_format_row, days)], _NUMBERS)]


def _format_row(day: DaySummary) -> tuple[str, ...]:
    """Return the cells of a day."""
    return (
        day.span.isoformat() if day.span else "out of range",
        f"{day.complete_count} of {day.hour_count}" if day.span else "",
        f"{day.record_count:,}",
        f"{day.late_count:,}",
        f"{len(day.objects):,}",
        f"{day.object_bytes:,}",
        _describe_merged(day),
    )


def _describe_merged(day: DaySummary) -> str:
    """Describe a day's objects: if they are merged, and how many records have expired or were erased."""
    state = "yes" if day.is_merged else "no"
    if day.expired_count:
        state = f"{count_noun(day.expired_count, 'record')} expired"
    elif day.is_merged and day.unmergeable_count:
        state = f"yes, but {day.unmergeable_count} of values only"
    return f"{state}; {count_noun(day.erased_count, 'record')} erased" if day.erased_count else state
