"""Asset checks that read the index alone, after every run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.archive.bad_records import count_offsets
from kafka_s3_platform.archive.failures import describe_time_left
from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.topic import ArchivedTopic, Group, find_newest_closed_hour
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.upkeep.compact.days import find_day, list_due_days

WARN = dg.AssetCheckSeverity.WARN
ERROR = dg.AssetCheckSeverity.ERROR
LATE_SHARE = 0.01
"""Share of late records above which `lateness` warns: the allowed lateness is then too short."""

MAX_ROWS = 100
"""Rows of a check's table; its count tells how many there are."""

HOURLY_CHECKS: Mapping[str, str] = {
    "contiguous": "Every kafka partition is archived without a hole between its first and its last offset.",
    "complete": "Every closed hour that a run was asked to archive is complete.",
    "gaps": "No offset is lost. An offset is lost if retention deleted it before it was archived, if the log was "
    "truncated, or if somebody decided to skip it.",
    "unresolved": "No offsets are left that could not be archived. `kafka-s3 resolve` lists such offsets, and how to "
    "resolve them.",
    "lateness": f"At most {LATE_SHARE:.0%} of the records came after the allowed lateness of their hour.",
}
DAILY_CHECKS: Mapping[str, str] = {
    "compacted": "No day that is over has hourly segments left to merge.",
    "counts": "Every day holds as many records as the hourly segments that were merged into it.",
}


ResultsOf = Callable[[ArchivedTopic, IndexSnapshot], list[dg.AssetCheckResult]]


def make_hourly_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Make the checks of coverage and completeness of a topic's hours."""
    return _make_checks(topic, "hourly", HOURLY_CHECKS, make_hourly_results)


def make_daily_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Make the checks that a topic's days hold what their hours held."""
    return _make_checks(topic, "daily", DAILY_CHECKS, make_daily_results)


def _make_checks(
    topic: ArchivedTopic, group: Group, descriptions: Mapping[str, str], results: ResultsOf
) -> dg.AssetChecksDefinition:
    key = topic.key(group)

    @dg.multi_asset_check(
        name=topic.op_name("check", group), specs=make_check_specs(key, descriptions), can_subset=True
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with raise_dagster_failures(context):
            snapshot = topic.index.peek()
            found = results(topic, snapshot) if snapshot else make_nothing_yet(key, descriptions)
        yield from select_results(context, found)

    return check


def list_index_checks(key: dg.AssetKey) -> list[dg.AssetCheckKey]:
    """Return the checks to run with the asset: those that read the index alone."""
    names = {"hourly": HOURLY_CHECKS, "daily": DAILY_CHECKS}.get(key.path[1], {})
    return [dg.AssetCheckKey(key, name) for name in names]


def make_check_specs(key: dg.AssetKey, checks: Mapping[str, str]) -> list[dg.AssetCheckSpec]:
    """Return the check specs for names and descriptions."""
    return [dg.AssetCheckSpec(name, asset=key, description=text) for name, text in checks.items()]


def make_nothing_yet(key: dg.AssetKey, checks: Mapping[str, str]) -> list[dg.AssetCheckResult]:
    """Make the results of checks of a topic without an index."""
    text = "Nothing is archived yet."
    return [dg.AssetCheckResult(passed=True, check_name=name, asset_key=key, description=text) for name in checks]


def select_results(
    context: dg.AssetCheckExecutionContext, results: Sequence[dg.AssetCheckResult]
) -> Iterator[dg.AssetCheckResult]:
    """Return the results that the run asked for."""
    names = {key.name for key in context.selected_asset_check_keys}
    yield from (result for result in results if result.check_name in names)


def make_hourly_results(topic: ArchivedTopic, snapshot: IndexSnapshot) -> list[dg.AssetCheckResult]:
    """Make the results of `HOURLY_CHECKS`."""
    return [
        _check_contiguous(topic, snapshot),
        _check_complete(topic, snapshot),
        _check_gaps(topic, snapshot),
        _check_unresolved(topic, snapshot),
        _check_lateness(topic, snapshot),
    ]


def make_hourly_evaluations(topic: ArchivedTopic) -> Iterator[dg.AssetCheckEvaluation]:
    """Make the results of `HOURLY_CHECKS` as events of the step that archives.

    For a run that fails: the step of the checks is then skipped, and Dagster shows them all as failed, without why.
    """
    snapshot = topic.index.peek()
    for result in make_hourly_results(topic, snapshot) if snapshot else ():
        yield dg.AssetCheckEvaluation(
            asset_key=topic.key("hourly"),
            check_name=cast("str", result.check_name),
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
        )


def make_daily_results(topic: ArchivedTopic, snapshot: IndexSnapshot) -> list[dg.AssetCheckResult]:
    """Make the two results of `DAILY_CHECKS`."""
    return [_check_compacted(topic, snapshot), _check_counts(topic, snapshot)]


def _check_contiguous(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    state = snapshot.state
    rows = []
    offsets = 0
    for kafka_partition in sorted({s.kafka_partition for s in state.scans}):
        for before, after in pairwise(state.coverage(kafka_partition).ranges):
            start = before.end_offset
            end = after.start_offset
            rows.append({"kafka_partition": kafka_partition, "start_offset": start, "end_offset": end})
            offsets += end - start
    return _make_result(
        topic, "contiguous", rows, ["kafka_partition", "start_offset", "end_offset"], {"offsets": offsets}
    )


def _check_complete(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    newest = find_newest_closed_hour(datetime.now(timezone.utc), topic.lateness, topic.hours.first)
    closed = sorted(
        {h.hour for h in snapshot.state.hours if newest is not None and topic.hours.first <= h.hour <= newest}
    )
    reports = {r.hour: r for r in report_hours(snapshot, closed, topic.lateness)}
    rows = [{"hour": topic.hours.key(h), "scanned": r.scanned} for h, r in reports.items() if not r.complete]
    return _make_result(topic, "complete", rows, ["hour", "scanned"], {"closed_hours": len(closed)})


def _check_gaps(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    rows = [
        {
            "hour": topic.hours.key(hour) if hour and hour >= topic.hours.first else None,
            "kafka_partition": gap.kafka_partition,
            "start_offset": gap.start_offset,
            "end_offset": gap.end_offset,
            "reason": gap.reason,
        }
        for hour, gap in snapshot.gaps_by_hour()
        if gap.is_lost
    ]
    offsets = {True: 0, False: 0}
    for gap in snapshot.state.gaps:
        offsets[gap.is_lost] += gap.end_offset - gap.start_offset
    columns = ["hour", "kafka_partition", "start_offset", "end_offset", "reason"]
    numbers = {"offsets": offsets[True], "taken_over_offsets": offsets[False]}
    return _make_result(topic, "gaps", rows, columns, numbers)


def _check_unresolved(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    """Fail until somebody resolves the offsets: retention deletes records in the meantime."""
    state = snapshot.state
    now = datetime.now(timezone.utc)
    rows = [
        {
            "kafka_partition": item.kafka_partition,
            "start_offset": item.start_offset,
            "end_offset": item.end_offset,
            "reason": item.reason,
            "message": item.message,
            "found_at": item.found_at.isoformat(timespec="seconds"),
            "time_left": describe_time_left(item, now),
        }
        for item in state.unresolved
    ]
    columns = ["kafka_partition", "start_offset", "end_offset", "reason", "message", "found_at", "time_left"]
    offsets = {"offsets": count_offsets(state.unresolved)}
    return _make_result(topic, "unresolved", rows, columns, offsets, severity=ERROR)


def _check_lateness(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    hourly = [s for s in (*snapshot.segments, *snapshot.retired) if s.chunk == "hourly"]
    records = sum(s.record_count for s in hourly)
    late = sum(s.late_count for s in hourly)
    share = late / records if records else 0.0
    return dg.AssetCheckResult(
        passed=share <= LATE_SHARE,
        check_name="lateness",
        asset_key=topic.key("hourly"),
        severity=WARN,
        metadata={"late_records": late, "records": records, "late_share": share},
    )


def _check_compacted(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    zone = ZoneInfo(topic.config.layout.timezone)
    due = list_due_days(snapshot, zone, topic.lateness, datetime.now(timezone.utc))
    return _make_result(topic, "compacted", [{"day": day.isoformat()} for day in due], ["day"], {}, group="daily")


def _check_counts(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    daily = _count_by_day([s for s in snapshot.segments if s.chunk == "daily"])
    merged = _count_by_day([s for s in snapshot.retired if s.chunk == "hourly"])
    rows = [
        {"day": day.isoformat(), "daily_records": daily.get(day, 0), "hourly_records": merged.get(day, 0)}
        for day in sorted({*daily, *merged})
        if daily.get(day, 0) != merged.get(day, 0)
    ]
    columns = ["day", "daily_records", "hourly_records"]
    return _make_result(topic, "counts", rows, columns, {"days": len(daily)}, group="daily", severity=ERROR)


def _count_by_day(segments: Sequence[Segment]) -> dict[date, int]:
    found: dict[date, int] = {}
    for segment in segments:
        day = find_day(segment)
        if day is not None:
            found[day] = found.get(day, 0) + segment.record_count
    return found


def _make_result(
    topic: ArchivedTopic,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    numbers: Mapping[str, int],
    *,
    group: str = "hourly",
    severity: dg.AssetCheckSeverity = WARN,
) -> dg.AssetCheckResult:
    """Make the result of a check, which passes if there are no rows to show."""
    return dg.AssetCheckResult(
        passed=not rows,
        check_name=name,
        asset_key=dg.AssetKey([topic.config.name, group, topic.topic]),
        severity=severity,
        metadata={"count": len(rows), **numbers, "found": make_metadata_table(rows[:MAX_ROWS], columns)},
    )
