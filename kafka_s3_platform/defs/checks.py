"""Asset checks that read the index alone, after every run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any, cast
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.archive.bad_records import offset_count
from kafka_s3_platform.archive.failures import time_left
from kafka_s3_platform.archive.hours import hour_reports
from kafka_s3_platform.compact.days import day_of, days_due
from kafka_s3_platform.defs.failures import dagster_failures
from kafka_s3_platform.defs.metadata import table
from kafka_s3_platform.defs.topic import ArchivedTopic, Group, newest_closed_hour
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import IndexSnapshot

WARN = dg.AssetCheckSeverity.WARN
ERROR = dg.AssetCheckSeverity.ERROR
LATE_SHARE = 0.01
"""Share of late records above which `lateness` warns: the allowed lateness is then too short."""

MAX_ROWS = 100
"""Rows of a check's table; its count tells how many there are."""

HOURLY_CHECKS: Mapping[str, str] = {
    "contiguous": "Every kafka partition is archived without a hole between its first and its last offset.",
    "complete": "Every closed hour that was asked for is complete.",
    "gaps": "No offset is lost: deleted by retention before it was archived, truncated, or skipped by a decision.",
    "unresolved": "Nothing is left that could not be archived. `kafka-s3 resolve` lists what is, and how to end it.",
    "lateness": f"At most {LATE_SHARE:.0%} of the records came after their hour's allowed lateness.",
}
DAILY_CHECKS: Mapping[str, str] = {
    "compacted": "No day that is over holds hourly segments that are not merged.",
    "counts": "Every day holds as many records as the hourly segments that were merged into it.",
}


ResultsOf = Callable[[ArchivedTopic, IndexSnapshot], list[dg.AssetCheckResult]]


def hourly_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Coverage and completeness of a topic's hours."""
    return _checks(topic, "hourly", HOURLY_CHECKS, hourly_results)


def daily_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Whether a topic's days hold what their hours held."""
    return _checks(topic, "daily", DAILY_CHECKS, daily_results)


def _checks(
    topic: ArchivedTopic, group: Group, descriptions: Mapping[str, str], results: ResultsOf
) -> dg.AssetChecksDefinition:
    key = topic.key(group)

    @dg.multi_asset_check(name=topic.op_name("check", group), specs=specs(key, descriptions), can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with dagster_failures(context):
            snapshot = topic.index.peek()
            found = results(topic, snapshot) if snapshot else nothing_yet(key, descriptions)
        yield from selected(context, found)

    return check


def index_checks(key: dg.AssetKey) -> list[dg.AssetCheckKey]:
    """The checks to run with the asset: those that read the index alone."""
    names = {"hourly": HOURLY_CHECKS, "daily": DAILY_CHECKS}.get(key.path[1], {})
    return [dg.AssetCheckKey(key, name) for name in names]


def specs(key: dg.AssetKey, checks: Mapping[str, str]) -> list[dg.AssetCheckSpec]:
    """Check specs by name and description."""
    return [dg.AssetCheckSpec(name, asset=key, description=text) for name, text in checks.items()]


def nothing_yet(key: dg.AssetKey, checks: Mapping[str, str]) -> list[dg.AssetCheckResult]:
    """What checks say of a topic without an index."""
    text = "Nothing is archived yet."
    return [dg.AssetCheckResult(passed=True, check_name=name, asset_key=key, description=text) for name in checks]


def selected(
    context: dg.AssetCheckExecutionContext, results: Sequence[dg.AssetCheckResult]
) -> Iterator[dg.AssetCheckResult]:
    """Those results that the run asked for."""
    names = {key.name for key in context.selected_asset_check_keys}
    yield from (result for result in results if result.check_name in names)


def hourly_results(topic: ArchivedTopic, snapshot: IndexSnapshot) -> list[dg.AssetCheckResult]:
    """The results of `HOURLY_CHECKS`."""
    return [
        _contiguous(topic, snapshot),
        _complete(topic, snapshot),
        _gaps(topic, snapshot),
        _unresolved(topic, snapshot),
        _lateness(topic, snapshot),
    ]


def hourly_evaluations(topic: ArchivedTopic) -> Iterator[dg.AssetCheckEvaluation]:
    """The results of `HOURLY_CHECKS` as events of the step that archives.

    For a run that fails: the step of the checks is then skipped, and Dagster shows them all as failed, without why.
    """
    snapshot = topic.index.peek()
    for result in hourly_results(topic, snapshot) if snapshot else ():
        yield dg.AssetCheckEvaluation(
            asset_key=topic.key("hourly"),
            check_name=cast("str", result.check_name),
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
        )


def daily_results(topic: ArchivedTopic, snapshot: IndexSnapshot) -> list[dg.AssetCheckResult]:
    """The two results of `DAILY_CHECKS`."""
    return [_compacted(topic, snapshot), _counts(topic, snapshot)]


def _contiguous(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    state = snapshot.state
    pairs = [
        (p, before.end_offset, after.start_offset)
        for p in sorted({s.kafka_partition for s in state.scans})
        for before, after in zip(state.coverage(p).ranges, state.coverage(p).ranges[1:], strict=False)
    ]
    rows = [{"kafka_partition": p, "start_offset": start, "end_offset": end} for p, start, end in pairs]
    offsets = sum(end - start for _, start, end in pairs)
    return _result(topic, "contiguous", rows, ["kafka_partition", "start_offset", "end_offset"], {"offsets": offsets})


def _complete(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    newest = newest_closed_hour(datetime.now(timezone.utc), topic.lateness, topic.hours.first)
    closed = sorted(
        {h.hour for h in snapshot.state.hours if newest is not None and topic.hours.first <= h.hour <= newest}
    )
    reports = {r.hour: r for r in hour_reports(snapshot, closed, topic.lateness)}
    rows = [{"hour": topic.hours.key(h), "scanned": r.scanned} for h, r in reports.items() if not r.complete]
    return _result(topic, "complete", rows, ["hour", "scanned"], {"closed_hours": len(closed)})


def _gaps(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
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
    return _result(topic, "gaps", rows, columns, numbers)


def _unresolved(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    """Red until somebody acts: retention goes on while nobody does."""
    state, now = snapshot.state, datetime.now(timezone.utc)
    rows = [
        {
            "kafka_partition": item.kafka_partition,
            "start_offset": item.start_offset,
            "end_offset": item.end_offset,
            "reason": item.reason,
            "message": item.message,
            "found_at": item.found_at.isoformat(timespec="seconds"),
            "time_left": time_left(item, now),
        }
        for item in state.unresolved
    ]
    columns = ["kafka_partition", "start_offset", "end_offset", "reason", "message", "found_at", "time_left"]
    offsets = {"offsets": offset_count(state.unresolved)}
    return _result(topic, "unresolved", rows, columns, offsets, severity=ERROR)


def _lateness(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    hourly = [s for s in (*snapshot.segments, *snapshot.retired) if s.chunk == "hourly"]
    records, late = sum(s.record_count for s in hourly), sum(s.late_count for s in hourly)
    share = late / records if records else 0.0
    return dg.AssetCheckResult(
        passed=share <= LATE_SHARE,
        check_name="lateness",
        asset_key=topic.key("hourly"),
        severity=WARN,
        metadata={"late_records": late, "records": records, "late_share": share},
    )


def _compacted(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    zone = ZoneInfo(topic.config.layout.timezone)
    due = days_due(snapshot, zone, topic.lateness, datetime.now(timezone.utc))
    return _result(topic, "compacted", [{"day": day.isoformat()} for day in due], ["day"], {}, group="daily")


def _counts(topic: ArchivedTopic, snapshot: IndexSnapshot) -> dg.AssetCheckResult:
    daily = _records_by_day([s for s in snapshot.segments if s.chunk == "daily"])
    merged = _records_by_day([s for s in snapshot.retired if s.chunk == "hourly"])
    rows = [
        {"day": day.isoformat(), "daily_records": daily.get(day, 0), "hourly_records": merged.get(day, 0)}
        for day in sorted({*daily, *merged})
        if daily.get(day, 0) != merged.get(day, 0)
    ]
    columns = ["day", "daily_records", "hourly_records"]
    return _result(topic, "counts", rows, columns, {"days": len(daily)}, group="daily", severity=ERROR)


def _records_by_day(segments: Sequence[Segment]) -> dict[date, int]:
    found: dict[date, int] = {}
    for segment in segments:
        day = day_of(segment)
        if day is not None:
            found[day] = found.get(day, 0) + segment.record_count
    return found


def _result(
    topic: ArchivedTopic,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    numbers: Mapping[str, int],
    *,
    group: str = "hourly",
    severity: dg.AssetCheckSeverity = WARN,
) -> dg.AssetCheckResult:
    """Passed when there is nothing to show."""
    return dg.AssetCheckResult(
        passed=not rows,
        check_name=name,
        asset_key=dg.AssetKey([topic.config.name, group, topic.topic]),
        severity=severity,
        metadata={"count": len(rows), **numbers, "found": table(rows[:MAX_ROWS], columns)},
    )
