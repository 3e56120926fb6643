"""`kafka-s3 show`."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.archive.bad_records import count_offsets
from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.archive.request import HourReport
from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import align_columns, json_option, print_result
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, topic_option, try_each
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import list_day_hours
from kafka_s3_platform.upkeep.compact.summary import DaySummary, summarize_days

_HEAD = ("DAY", "COMPLETE HOURS", "RECORDS", "LATE", "OBJECTS", "BYTES", "MERGED")
_NUMBERS = range(1, 6)
_HEAD_OF_HOURS = ("DAY", "00    06    12    18", "COMPLETE", "RECORDS", "LATE")

_MARKS = {
    "lost": ("!", "offsets are missing for good, in it or between it and the next"),
    "complete": ("#", "complete"),
    "empty": ("o", "complete, and no record of it is in this archive"),
    "partial": ("~", "archived in part, or not known to be complete"),
    "none": (".", "nothing archived"),
    "ahead": (" ", ""),
}
"""What is known of an hour, the worst first: the mark that stands for it, and what the legend says."""


@click.command
@connector_argument
@topic_option
@click.option("--hours", "by_hour", is_flag=True, help="Show the state of each hour, a mark an hour and a line a day.")
@click.option("--days", type=click.IntRange(1), help="With --hours: so many days, the newest. Default: 31.")
@json_option
def show(connector: str, topic: str | None, by_hour: bool, days: int | None, as_json: bool) -> None:
    """Show what is archived of CONNECTOR's topics, day by day.

    An hour is complete when the archive holds all that Kafka held at the end of the hour plus the allowed lateness. A
    MERGED day is compacted. Compaction does not merge objects of a format that holds values only.
    """
    if days is not None and not by_hour:
        raise click.UsageError("--days is for --hours; without it, all days are shown")
    found, failures = try_each(
        find_archived_topics(connector, topic), lambda of: _show_hours(of, days or 31) if by_hour else _show_topic(of)
    )
    lines = [line for _, of_one in found for line in of_one]
    print_result({"topics": [document for document, _ in found]}, as_json, lines)
    raise_failures(failures)


def _show_topic(topic: ArchivedTopic) -> tuple[dict[str, Any], list[str]]:
    """Make the JSON document and the lines of a topic. Raises if the index lacks something that it reads."""
    snapshot = topic.index.peek()
    days = _group_days(topic, snapshot)
    lines = [*_format_table(topic, days), *_format_missing(topic, snapshot)]
    return _make_document(topic, snapshot, days=list(map(_make_day_document, days))), lines


def _show_hours(topic: ArchivedTopic, day_count: int) -> tuple[dict[str, Any], list[str]]:
    """Make the JSON document and the lines of a topic's hours, up to the last day that has any."""
    snapshot = topic.index.peek()
    held = [summary.day for summary in _group_days(topic, snapshot) if summary.day]
    if snapshot is None or not held:
        return _make_document(topic, snapshot, hours=[]), [*_format_table(topic, ()), *_format_missing(topic, snapshot)]
    zone = ZoneInfo(topic.config.layout.timezone)
    now = datetime.now(timezone.utc)
    shown = min(day_count, (held[-1] - held[0]).days + 1)
    first = held[-1] - timedelta(days=shown - 1)
    days = [first + timedelta(days=n) for n in range(shown)]
    by_day = {day: list_day_hours(day, zone) for day in days}
    reports = report_hours(snapshot, [hour for hours in by_day.values() for hour in hours], topic.lateness)
    beside = _find_hours_beside(snapshot)
    by_hour = {report.hour: (_name_state(report, report.hour in beside, now), report) for report in reports}
    rows = [_format_hours(day, [by_hour[hour] for hour in hours]) for day, hours in by_day.items()]
    met = {state for state, _ in by_hour.values()}
    lines = [
        f"{topic.topic}: hours of {topic.config.layout.timezone}",
        *align_columns([_HEAD_OF_HOURS, *rows], (3, 4)),
        *(f"  {mark} {text}" for state, (mark, text) in _MARKS.items() if state in met and text),
    ]
    if held[0] < first:
        lines.append(f"{topic.topic}: days before {first} are not shown; --days shows more")
    if (today := now.astimezone(zone).date()) > held[-1]:
        lines.append(f"{topic.topic}: nothing is archived of {held[-1] + timedelta(days=1)} to {today}")
    documents = [_make_hour_document(state, report) for state, report in by_hour.values()]
    return _make_document(topic, snapshot, hours=documents), [*lines, *_format_missing(topic, snapshot)]


def _find_hours_beside(snapshot: IndexSnapshot) -> set[datetime | None]:
    """Return the hours that begin before a gap of no known hour: it is of that hour or of a later one."""
    lost = [gap for hour, gap in snapshot.gaps_by_hour() if hour is None and gap.is_lost]
    return {snapshot.state.last_begun(gap.kafka_partition, gap.start_offset) for gap in lost}


def _name_state(hour: HourReport, is_beside: bool, now: datetime) -> str:
    """Name what is known of an hour. Complete hours may have lost what retention took: that counts first."""
    if is_beside or any(gap.is_lost for gap in hour.gaps):
        return "lost"
    if hour.complete:
        return "complete" if hour.record_count else "empty"
    if hour.scanned or hour.segments:
        return "partial"
    return "none" if hour.hour <= now else "ahead"


def _format_hours(day: date, hours: Sequence[tuple[str, HourReport]]) -> tuple[str, ...]:
    complete = sum(report.complete for _, report in hours)
    records = sum(report.record_count for _, report in hours)
    late = sum(report.late_count for _, report in hours)
    marks = "".join(_MARKS[state][0] for state, _ in hours)
    return day.isoformat(), marks, f"{complete} of {len(hours)}", f"{records:,}", f"{late:,}"


def _make_hour_document(state: str, report: HourReport) -> dict[str, Any]:
    return {
        "hour": report.hour.isoformat(),
        "state": state,
        "complete": report.complete,
        "records": report.record_count,
        "late_records": report.late_count,
        "gaps": [
            {"kafka_partition": g.kafka_partition, "from": g.start_offset, "to": g.end_offset, "reason": g.reason}
            for g in report.gaps
        ],
        "unresolved_offsets": report.unresolved_count,
    }


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


def _make_document(topic: ArchivedTopic, snapshot: IndexSnapshot | None, **shown: Any) -> dict[str, Any]:
    unresolved, left_out = _count_unresolved(snapshot), _count_left_out(snapshot)
    return {"topic": topic.topic, **shown, "unresolved_offsets": unresolved, "left_out_offsets": left_out}


def _make_day_document(day: DaySummary) -> dict[str, Any]:
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


def _format_missing(topic: ArchivedTopic, snapshot: IndexSnapshot | None) -> list[str]:
    count = _count_unresolved(snapshot)
    listed = f"kafka-s3 resolve {topic.config.name} --topic {topic.topic}"
    lines = []
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
