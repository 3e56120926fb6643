"""The check of a topic's days. It reads the index alone. The merging step evaluates it too."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.defs.archive.checks import DAILY_CHECK, ERROR, MAX_ROWS, WARN
from kafka_s3_platform.defs.look import IndexLook
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import list_due_days, read_day_segments


def make_daily_check(topic: ArchivedTopic) -> dg.AssetCheckSpec:
    """Make the spec of the check."""
    return dg.AssetCheckSpec(
        DAILY_CHECK,
        asset=topic.key("daily"),
        description="No past day has hourly segments to merge, and each day of the run holds as many records as its "
        "merged hourly segments. `kafka-s3 verify` counts all days.",
    )


def evaluate_days(topic: ArchivedTopic, index: IndexLook, days: Sequence[date]) -> dg.AssetCheckEvaluation:
    """Evaluate the check after a run of these days; without any, only find days to merge.

    Counts no other days: the cost would grow with the age of the archive.
    """
    findings = index.read(topic, lambda snapshot: (_find_due(topic, snapshot), _find_differences(snapshot, days)))
    due, differences = findings or ([], [])
    problems = [
        *([f"{len(due)} past day(s) have hourly segments to merge."] if due else []),
        *([f"{len(differences)} day(s) of the run hold other counts than their hours."] if differences else []),
        *([] if findings else ["Nothing is archived yet."]),
    ]
    columns = ["day", "daily_records", "hourly_records"]
    return dg.AssetCheckEvaluation(
        asset_key=topic.key("daily"),
        check_name=DAILY_CHECK,
        passed=not due and not differences,
        description=" ".join(problems) or None,
        metadata={
            "due_days": len(due),
            "days_to_merge": make_metadata_table([{"day": day.isoformat()} for day in due[:MAX_ROWS]], ["day"]),
            "counted_days": len(days),
            "different_counts": make_metadata_table(differences[:MAX_ROWS], columns),
        },
        severity=ERROR if differences else WARN,
    )


def _find_due(topic: ArchivedTopic, snapshot: IndexSnapshot) -> list[date]:
    zone = ZoneInfo(topic.config.layout.timezone)
    return list_due_days(snapshot, zone, topic.lateness, datetime.now(timezone.utc))


def _find_differences(snapshot: IndexSnapshot, days: Sequence[date]) -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = []
    for day in days:
        daily = _count_records(read_day_segments(snapshot, day), "daily")
        hourly = _count_records(read_day_segments(snapshot, day, retired=True), "hourly")
        if daily != hourly:
            rows.append({"day": day.isoformat(), "daily_records": daily, "hourly_records": hourly})
    return rows


def _count_records(segments: Iterable[Segment], chunk: str) -> int:
    return sum(segment.record_count for segment in segments if segment.chunk == chunk)
