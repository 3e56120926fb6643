"""Asset checks of a topic's archive that do not read its objects: `archived`, after every run, and `at_risk`.

A picture of the last days' hours goes with the result of `archived`. The lag sensor evaluates `at_risk`, the risk of
lost records or late hours, when the outcome changes, and with each observation of the lag while there is a risk.
`at_risk` can also be run by hand.
"""

import base64
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from itertools import groupby, pairwise
from typing import Any

import dagster as dg

from kafka_s3_platform.core.archive.failures import count_offsets, describe_time_left
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import make_metadata_table
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets, check_each, make_topic_checks, pick_topics
from kafka_s3_platform.core.errors import BrokerUnavailableError, StoreUnavailableError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.gaps import count_reasons
from kafka_s3_platform.core.model.health import Level, Risk
from kafka_s3_platform.core.status.backlogs import Backlogs, read_archived
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.risk import describe_time, find_risk
from kafka_s3_platform.core.status.topic import find_newest_closed_hour
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import list_day_hours
from kafka_s3_platform.core.upkeep.hour_states import COLOURS, MARKS, HourState, find_hour_states, list_grid_days

RISK_CHECK = "at_risk"
SILENT_METADATA = "does_not_answer"
"""The metadata that names the server, if the check fails because the server has not answered for some minutes.

An alert names it once for all topics.
"""

LOST_METADATA = "lost_at"
"""The metadata with the time from which Kafka may delete the oldest record that is not archived."""

_HOURS_METADATA = ("hours_at_risk_from", "hours_at_risk_to")

RUN_SECONDS = 3_600.0
"""Time in which a run of the checks may ask Kafka and the store. A tick has less."""


def make_evaluation(
    topic: TopicAssets, risk: Risk, silence: BrokerUnavailableError | StoreUnavailableError | None = None
) -> dg.AssetCheckEvaluation:
    """Make the result of a topic's check `at_risk`: the risk of lost records or late hours.

    `silence` is the error of Kafka or the store after some minutes without an answer, or None.
    """
    return dg.AssetCheckEvaluation(
        asset_key=topic.key("kafka"),
        check_name=RISK_CHECK,
        passed=risk.level is Level.FINE,
        severity=ERROR if risk.level is Level.FAIL else WARN,
        description=risk.text or None,
        metadata={
            **({} if silence is None else {SILENT_METADATA: _name_server(topic, silence)}),
            **({} if risk.lost_at is None else {LOST_METADATA: dg.MetadataValue.timestamp(risk.lost_at)}),
            **dict(zip(_HOURS_METADATA, map(dg.MetadataValue.timestamp, risk.hours or ()), strict=False)),
        },
    )


def read_hours_at_risk(
    instance: dg.DagsterInstance, topics: Iterable[TopicAssets]
) -> dict[str, tuple[datetime, datetime]]:
    """Return [from, to) of the hours Kafka will soon delete, by topic, from the last result of `at_risk`."""
    by_key = {dg.AssetCheckKey(topic.key("kafka"), RISK_CHECK): topic.topic for topic in topics}
    last = instance.event_log_storage.get_latest_asset_check_execution_by_key([*by_key])
    hours_by_topic = {}
    for key, record in last.items():
        if record.event is None or record.event.dagster_event is None:
            continue
        metadata = record.event.dagster_event.asset_check_evaluation_data.metadata
        start, end = (read_reported_time(metadata, name) for name in _HOURS_METADATA)
        if start and end:
            hours_by_topic[by_key[key]] = start, end
    return hours_by_topic


def read_reported_time(metadata: Mapping[str, dg.MetadataValue[Any]], name: str) -> datetime | None:
    """Return the time that the metadata of a check's result has under `name`, or None if there is none.

    Anybody can report a result in Dagster's UI, with any metadata.
    """
    try:
        return datetime.fromtimestamp(float(str(metadata[name].value)), timezone.utc)
    except (LookupError, ValueError, OverflowError, OSError):
        return None


def _name_server(topic: TopicAssets, silence: BrokerUnavailableError | StoreUnavailableError) -> str:
    """Name the silent server for alerts: Kafka by its addresses, or the store by its own."""
    if isinstance(silence, BrokerUnavailableError):
        return f"Kafka at {topic.config.kafka.bootstrap_servers}"
    return f"the store at {topic.config.store.endpoint_url or f'S3 in {topic.config.store.region}'}"


def make_risk_checks(topics: Sequence[TopicAssets]) -> dg.AssetChecksDefinition:
    """Make the check `at_risk` for each topic. If checks are run by hand, one op evaluates the picked ones."""
    config = topics[0].config

    def at_risk(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation]:
        picked_topics = pick_topics(context, topics, "kafka")
        with (
            raise_dagster_failures(context),
            closing(IndexLook("risk", picked_topics)) as index_look,
            ClusterAdmin(config.kafka) as admin,
        ):
            tick = Tick({}, logging.getLogger(__name__), RUN_SECONDS)
            backlogs = Backlogs(
                picked_topics, admin, lambda topic: read_archived(topic, index_look, is_known=True), tick
            )
            yield from check_each(picked_topics, lambda topic: make_evaluation(topic, find_risk(backlogs.read(topic))))

    specs = [_make_spec(topic) for topic in topics]
    return make_topic_checks(at_risk, name=make_op_name("check", "risk", config.name), checks=specs)


def _make_spec(topic: TopicAssets) -> dg.AssetCheckSpec:
    """Define the check `at_risk` of a topic. Its description names the connector's thresholds."""
    settings = topic.config.archive
    warn, fail = (describe_time(ms / 1000) for ms in (settings.risk_age_warn_ms, settings.risk_age_fail_ms))
    return dg.AssetCheckSpec(
        RISK_CHECK,
        asset=topic.key("kafka"),
        description="Nothing that is not archived is about to be lost or late. Warns if no more than "
        f"{settings.risk_retention_warn:.0%} of the topic's retention.ms is left to the oldest record that is not "
        f"archived, or if an hour that ended {warn} ago is not complete. Fails at {settings.risk_retention_fail:.0%} "
        f"and {fail}, when Kafka or the store has not answered for some minutes, and while the topic is not archived "
        "until somebody decides. The lag sensor evaluates it.",
    )


PICTURE_DAYS = 31
MAX_BYTES = 4000
"""Maximum size of a picture, which shows fewer days if it has to. Dagster keeps one with each result of the check."""

Row = tuple[date, Sequence[HourState]]


def draw_hours(
    topic: TopicAssets, snapshot: IndexSnapshot, now: datetime, at_risk: tuple[datetime, datetime] | None
) -> str:
    """Return Markdown with the state of each hour in a topic's last days, the newest day first.

    `at_risk` is [from, to) of the unarchived hours Kafka will soon delete, or None if there are none.
    """
    zone = topic.config.layout.zone
    days = list_grid_days(snapshot, PICTURE_DAYS, zone, now, topic.config.archive.start_hour)
    by_day = {day: list_day_hours(day, zone) for day in days}
    hours = [hour for hours_of_day in by_day.values() for hour in hours_of_day]
    states = iter(find_hour_states(snapshot, hours, topic.lateness, now, at_risk))
    rows = [(day, [next(states) for _ in hours_of_day]) for day, hours_of_day in by_day.items()]
    return render_picture(rows[::-1], topic.config.layout.timezone)


def render_picture(rows: Sequence[Row], zone: str) -> str:
    """Return Markdown of the days: numbers, an SVG and a text. Leave out the last rows if it exceeds MAX_BYTES."""
    counts = Counter(state for _, states in rows for state in states)
    summary = ", ".join(f"{counts[state]} {state}" for state, (_, text) in MARKS.items() if counts[state] and text)
    picture = base64.b64encode(_render_svg(rows).encode()).decode()
    lines = [f"{day:%m-%d}  {''.join(MARKS[state][0] for state in states)}" for day, states in rows]
    legend = [f"{mark}  {text}" for state, (mark, text) in MARKS.items() if counts[state] and text]
    text = "\n".join(["       00    06    12    18", *lines, "", *legend])
    markdown = f"Hours of {zone}: {summary}\n\n![{summary}](data:image/svg+xml;base64,{picture})\n\n```\n{text}\n```\n"
    return markdown if len(markdown) <= MAX_BYTES else render_picture(rows[:-1], zone)


def _render_svg(rows: Sequence[Row]) -> str:
    """Draw the hours as SVG: a line for each run of hours in one state. An hour is one unit wide, a day one high."""
    paths: dict[HourState, list[str]] = {}
    for y, (_, states) in enumerate(rows):
        x = 0
        for state, run in groupby(states):
            size = len([*run])
            paths.setdefault(state, []).append(f"M{x} {y}h{size}")
            x += size
    lines = "".join(
        f'<path stroke="{COLOURS[state][0]}" d="{"".join(segments)}"/>'
        for state, segments in paths.items()
        if state in COLOURS
    )
    labels = "".join(f'<text x="{n}" y="-1">{n:02}</text>' for n in (0, 6, 12, 18))
    labels += "".join(f'<text x="-3" y="{y}.3">{day:%m-%d}</text>' for y, (day, _) in enumerate(rows) if y % 5 == 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-3 -2 28.5 {len(rows) + 2}" width="570" '
        f'height="{14 * (len(rows) + 2)}"><g font-family="monospace" font-size=".9" fill="#888">{labels}</g>'
        f'<g stroke-width=".86">{lines}</g></svg>'
    )


WARN = dg.AssetCheckSeverity.WARN
ERROR = dg.AssetCheckSeverity.ERROR
LATE_SHARE = 0.01
"""Share of late records above which the check warns, because the allowed lateness is too short."""

MAX_ROWS = 100
"""Maximum number of rows in a check's table. The check's count includes all rows."""

RECENT = timedelta(days=3)
"""Age up to which a check examines single hours, because its cost must not grow with the age of the archive."""

HOURLY_CHECK = "archived"
"""The only check of hours that reads no object."""

DAILY_CHECK = "compacted"
"""The only check of days."""

RESTORED_CHECK = "restored"
"""The only check of restores. It is about what the run itself has verified."""


def list_index_checks(key: dg.AssetKey) -> list[dg.AssetCheckKey]:
    """Return the checks the asset's own runs evaluate. They read only the index, or use the results of the run."""
    name = {"hourly": HOURLY_CHECK, "daily": DAILY_CHECK, "restored": RESTORED_CHECK}.get(key.path[1])
    return [dg.AssetCheckKey(key, name)] if name else []


def make_hourly_check(topic: TopicAssets) -> dg.AssetCheckSpec:
    """Define the check `archived` of a topic's hours."""
    return dg.AssetCheckSpec(
        HOURLY_CHECK,
        asset=topic.key("hourly"),
        description="Every kafka partition is archived without a hole between its first and its last offset. No offset "
        "is lost: retention deleted none before it was archived, the log was not truncated, and nobody decided to skip "
        "any. No offsets are left that could not be archived; `kafka-s3 resolve` lists such offsets, and how to "
        f"resolve them. Of the last {RECENT.days} days, every closed hour that a run was asked to archive is complete, "
        f"and at most {LATE_SHARE:.0%} of the records came after the allowed lateness of their hour.",
    )


def evaluate_hourly(
    topic: TopicAssets, index_look: IndexLook, at_risk: tuple[datetime, datetime] | None
) -> dg.AssetCheckEvaluation:
    """Evaluate the check `archived` from the index: is every offset of the topic archived once, and in time?

    `at_risk` is [from, to) of the hours Kafka will soon delete, which a picture in the result marks. The result is an
    event, not an AssetCheckResult, because a failed run would show its checks as failed, without the reason.
    """
    since = datetime.now(timezone.utc) - RECENT

    def find_all(snapshot: IndexSnapshot) -> list[_Finding]:
        return [
            _find_unresolved(snapshot),
            _find_lost(snapshot),
            _find_holes(snapshot),
            _find_incomplete(topic, snapshot, since),
            _find_late(snapshot, since),
        ]

    findings = index_look.read(topic, find_all)
    picture = index_look.read(topic, lambda snapshot: draw_hours(topic, snapshot, datetime.now(timezone.utc), at_risk))
    failed = [finding for finding in findings or () if finding.rows or finding.is_wrong]
    metadata: dict[str, Any] = {"hours": dg.MetadataValue.md(picture)} if picture else {}
    for finding in findings or ():
        metadata |= finding.numbers
    for finding in failed:
        if finding.rows:
            metadata[finding.name] = make_metadata_table(finding.rows[:MAX_ROWS], list(finding.rows[0]))
    nothing = "Nothing is archived yet." if findings is None else None
    return dg.AssetCheckEvaluation(
        asset_key=topic.key("hourly"),
        check_name=HOURLY_CHECK,
        passed=not failed,
        description=" ".join(finding.text for finding in failed) or nothing,
        metadata=metadata,
        severity=ERROR if any(finding.is_error for finding in failed) else WARN,
    )


@dataclass(frozen=True)
class _Finding:
    """The result of one part of the check `archived`. The part fails if there are rows to show, or if `is_wrong`."""

    name: str
    text: str
    numbers: Mapping[str, int | float]
    rows: Sequence[Mapping[str, Any]] = ()
    is_wrong: bool = False
    is_error: bool = False


def _find_holes(snapshot: IndexSnapshot) -> _Finding:
    """Find the unarchived offsets between archived ones of their kafka partition."""
    state = snapshot.state
    rows = []
    offsets = 0
    for kafka_partition in state.contiguous_ends:
        for previous_range, next_range in pairwise(state.coverage(kafka_partition).ranges):
            start = previous_range.end_offset
            end = next_range.start_offset
            rows.append({"kafka_partition": kafka_partition, "start_offset": start, "end_offset": end})
            offsets += end - start
    text = f"Not archived between archived ones: {count_noun(offsets, 'offset')}, in {count_noun(len(rows), 'hole')}."
    return _Finding("holes", text, {"hole_offsets": offsets}, rows)


def _find_incomplete(topic: TopicAssets, snapshot: IndexSnapshot, since: datetime) -> _Finding:
    """Find the hours from `since` on that were requested and are closed, but are not complete.

    The missing offsets of an older hour are found as a hole, or are missing in all hours after it.
    """
    state = snapshot.state
    newest = find_newest_closed_hour(datetime.now(timezone.utc), topic.lateness, topic.start_hour)
    first = max(since, topic.start_hour)
    closed = sorted(hour for hour in state.asked_hours if newest is not None and first <= hour <= newest)
    complete = state.judge.list_complete(closed, topic.lateness)
    verdicts = (state.judge.find_verdict(hour, topic.lateness) for hour in closed if hour not in complete)
    rows = [
        {
            "hour": topic.hours.key(verdict.hour),
            "scanned": state.is_scanned(verdict.hour),
            "out_of_range_records": verdict.out_of_range_count,
            "verdict": str(verdict),
        }
        for verdict in verdicts
    ]
    text = f"Not complete: {count_noun(len(rows), 'closed hour')} of the last {RECENT.days} days."
    return _Finding("incomplete_hours", text, {"closed_hours": len(closed)}, rows)


def _find_lost(snapshot: IndexSnapshot) -> _Finding:
    """Find offsets lost since archiving began: deleted, truncated or skipped before a run archived them."""
    counts = count_reasons(snapshot.state.judge.left_out)
    taken_over_count = counts.pop("taken over", 0)
    earlier_count = counts.pop("before archiving began", 0)
    rows = [
        {
            "kafka_partition": gap.kafka_partition,
            "start_offset": gap.start_offset,
            "end_offset": gap.end_offset,
            "reason": gap.reason,
        }
        for gap in snapshot.state.judge.left_out
        if gap.reason in counts
    ]
    lost_count = sum(counts.values())
    text = f"Lost: {count_noun(lost_count, 'offset')}, deleted, truncated or skipped before any run archived them."
    numbers = {
        "lost_offsets": lost_count,
        "taken_over_offsets": taken_over_count,
        "offsets_deleted_before_archiving_began": earlier_count,
    }
    return _Finding("lost", text, numbers, rows, is_error=True)


def _find_unresolved(snapshot: IndexSnapshot) -> _Finding:
    """Find the unresolved offsets, which runs could not archive. Retention may delete their records meanwhile."""
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
    offsets = count_offsets(state.unresolved)
    text = f"{count_noun(offsets, 'offset')} could not be archived; `kafka-s3 resolve` says which, and what to do."
    return _Finding("unresolved", text, {"unresolved_offsets": offsets}, rows, is_error=True)


def _find_late(snapshot: IndexSnapshot, since: datetime) -> _Finding:
    """Find the share of the records since `since` that came after the allowed lateness of their hour."""
    counts = snapshot.count_hours(since).values()
    records = sum(records for records, _ in counts)
    late = sum(late for _, late in counts)
    share = late / records if records else 0.0
    text = f"{share:.1%} of the records of the last {RECENT.days} days came after the allowed lateness of their hour."
    return _Finding("late", text, {"late_records": late, "late_share": share}, is_wrong=share > LATE_SHARE)
