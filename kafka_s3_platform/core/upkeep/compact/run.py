"""Compact days and months of topics: reserve them, merge, commit. One run has one reservation and one pass of tasks.

Every stage may be killed and run again. Inputs stay live until one commit retires them and adds the outputs. A later
compaction of the same day supersedes an earlier one, which can then never commit. The keys of objects contain the
epoch, so no key is used twice.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError, PlatformError, SupersededError, TransientError
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.model.silence import SHARED_ERRORS, try_topics
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.segments.target import Bucket
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import TaskRunner, deal_out
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.lease import Lease, release_leases, released_on_failure
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import WRITE_CHECK, check_promises
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import (
    CompactReport,
    CompactRequest,
    Span,
    find_day_start,
    find_first_day,
    list_day_hours,
    load_day_segments,
    read_day_segments,
    report_day,
)
from kafka_s3_platform.core.upkeep.compact.merge import MergeGroup, MergeTask, Outcome, try_merges
from kafka_s3_platform.core.upkeep.compact.plan import (
    Merge,
    ReservedDay,
    build_merged_layout,
    encode_span,
    list_due_months,
    reserve_days,
)

logger = logging.getLogger(__name__)

TopicDay: TypeAlias = tuple[str, Span]

TASK_COST = 8 * 2**20
"""Fixed cost of a merge, expressed in bytes: requests, and the beginning and end of an object."""

MAX_MONTHS = 12
"""Maximum number of a topic's months to merge in one run. The months of an old archive take several runs."""

SLICE_TASKS = 64
"""Number of Spark tasks to commit together as a slice. A long backfill keeps its committed slices if it is killed."""


def compact_days(
    requests: Sequence[CompactRequest], runner: TaskRunner
) -> Mapping[TopicDay, CompactReport | PlatformError]:
    """Compact days or months of topics of a connector in one run: one reservation, one pass of tasks, a commit a slice.

    Returns the report of each topic's day, or the error that left the day as it was. Raises errors common to all
    topics, above all errors of the store. Committed slices stay.
    """
    started = datetime.now(timezone.utc)
    config = requests[0].config
    _check_connector(config, requests[0].topic)
    index = ConnectorIndex.of(config)
    reserved = reserve_days(requests, index, runner)
    run = _Run(index, config, reserved.days, runner)
    with released_on_failure(index, list(reserved.leases.values())):
        run.run()
    release_leases(index, run.open_leases)
    failed = {(r.topic, r.span): reserved.failures[r.topic] for r in requests if r.topic in reserved.failures}
    failed |= run.failures
    compacted = [r for r in requests if (r.topic, r.span) not in failed]
    outcomes: dict[TopicDay, CompactReport | PlatformError] = {
        **failed,
        **dict(_build_reports(index, compacted, run.committed, started)),
    }
    return {(r.topic, r.span): outcomes[r.topic, r.span] for r in requests}


def compact_due_months(
    configs: Mapping[str, ConnectorConfig], run_id: str, runner: TaskRunner
) -> Mapping[TopicDay, CompactReport | PlatformError]:
    """Compact the oldest due months of topics of one connector, and the newest. Return each one's report or error."""
    if not any(config.archive.monthly_segment_bytes for config in configs.values()):
        return {}
    snapshot = ConnectorIndex.of(next(iter(configs.values()))).open()
    now = datetime.now(timezone.utc)
    requests: list[CompactRequest] = []
    for topic, config in configs.items():
        zone = ZoneInfo(config.layout.timezone)
        lateness = timedelta(milliseconds=config.archive.allowed_lateness_ms)
        size = config.archive.monthly_segment_bytes
        months = list_due_months(snapshot.topic(topic), zone, lateness, now, size)
        # months that cannot be merged stay due, and must not hold up all later ones
        selected = [*months[: MAX_MONTHS - 1], *months[MAX_MONTHS - 1 :][-1:]]
        requests += (CompactRequest(config, topic, month, run_id) for month in selected)
    return compact_days(requests, runner) if requests else {}


def _check_connector(config: ConnectorConfig, topic: str) -> None:
    """Raise an error if the connector's format, store or clock forbid a compaction, before anything is reserved."""
    if not config.layout.is_envelope:
        raise ConfigError(
            f"connector {config.name} writes objects of format {config.layout.format}, which holds values only: "
            f"compaction writes whole records. The hours of {topic} that were archived in an envelope stay as "
            f"they are, and can be merged by the same file with format.class=EnvelopeParquetFormat"
        )
    store = ObjectStore(config.store)
    check_promises(store, config.archive.index_dir, uploads=True)
    store.write_in_vain(f"{config.layout.daily_dir}/{WRITE_CHECK}")
    refuse_wrong_clock(config, store)


@dataclass
class _DayRun:
    """The state of one day or month of a topic in a run. A day with an `error` stays as it is."""

    reserved: ReservedDay
    pending_merges: int
    """Number of the day's merges without an outcome yet."""

    outputs: list[Segment] = field(default_factory=list)
    error: PlatformError | None = None
    is_committed: bool = False

    @property
    def is_over(self) -> bool:
        """True if the day is committed, or never will be."""
        return self.is_committed or self.error is not None

    @property
    def is_merged(self) -> bool:
        """True if there is something to commit."""
        return not self.pending_merges and not self.is_over


class _Run:
    """Merges the reserved days, and commits them in slices."""

    def __init__(
        self, index: ConnectorIndex, config: ConnectorConfig, days: Sequence[ReservedDay], runner: TaskRunner
    ) -> None:
        self._index = index
        self._config = config
        self._runner = runner
        self._days = {(d.request.topic, d.request.span): _DayRun(d, len(d.merges)) for d in days}
        self._by_topic: dict[str, list[_DayRun]] = {}
        for (topic, _), day_run in self._days.items():
            self._by_topic.setdefault(topic, []).append(day_run)
        self._merged_count = 0
        self._closed: set[str] = set()
        """Topics whose last days are committed, which has ended their leases."""

    @property
    def failures(self) -> dict[TopicDay, PlatformError]:
        return {key: day_run.error for key, day_run in self._days.items() if day_run.error is not None}

    @property
    def committed(self) -> dict[TopicDay, _DayRun]:
        return {key: day_run for key, day_run in self._days.items() if day_run.is_committed}

    @property
    def open_leases(self) -> list[Lease]:
        return [days[0].reserved.lease for topic, days in self._by_topic.items() if topic not in self._closed]

    def run(self) -> None:
        """Merge the reserved days in Spark tasks. Commit each slice of them. Raises errors common to all topics."""
        tasks = [
            _build_task(day_run.reserved, merge) for day_run in self._days.values() for merge in day_run.reserved.merges
        ]
        if not tasks:
            return
        self._progress = Progress(logger, self._describe(), len(tasks), sum(t.merge.size for t in tasks))
        groups = deal_out(tasks, lambda t: t.merge.size + TASK_COST, self._runner.at_once(self._config.tasks_max))
        for at in range(0, len(groups), SLICE_TASKS):
            retries = self._merge(groups[at : at + SLICE_TASKS])
            if retries:
                self._merge([(task,) for task in retries])
            self._commit()

    def _describe(self) -> str:
        if len(self._days) == 1:
            [(topic, day)] = self._days
            return f"compact {topic} {day}"
        topics = count_noun(len(self._by_topic), "topic")
        return f"compact {count_noun(len(self._days), 'day')} of {topics} of {self._config.name}"

    def _merge(self, groups: Sequence[tuple[MergeTask, ...]]) -> list[MergeTask]:
        """Merge groups of tasks in Spark. Return the tasks to try again, each in a group of its own."""
        retries: list[MergeTask] = []
        groups_left = [tuple(task for task in group if not self._days[task.topic_day].is_over) for group in groups]
        numbered = [MergeGroup(n, group) for n, group in enumerate(groups_left) if group]
        for number, outcomes in self._runner.run(try_merges, numbered, self._config.tasks_max):
            for task, outcome in zip(groups_left[number], outcomes, strict=True):
                if isinstance(outcome, TransientError) and len(groups_left[number]) > 1:
                    retries.append(task)
                else:
                    self._note(task, outcome)
        return retries

    def _note(self, task: MergeTask, outcome: Outcome) -> None:
        """Note the outcome of a merge for its day. Raise an error common to all topics. Any other fails the day."""
        day_run = self._days[task.topic_day]
        if isinstance(outcome, PlatformError):
            if isinstance(outcome, SHARED_ERRORS):
                raise outcome
            logger.warning("%s, day %s: %s", *task.topic_day, outcome)
            day_run.error = day_run.error or outcome
            return
        day_run.pending_merges -= 1
        if not day_run.pending_merges:
            self._merged_count += 1
        record_bytes = sum(s.record_bytes for s in outcome)
        days_text = f"{self._merged_count} of {len(self._days)} days"
        self._progress.advance(task.merge.size, task.merge.record_count, record_bytes, days_text)
        day_run.outputs += outcome

    def _commit(self) -> None:
        """Commit the completely merged days of all topics at once, and end the leases of topics with no other days.

        A topic is left out, with an error, if its lease was lost or an input is no longer live.
        """
        merged = {topic: [day for day in days if day.is_merged] for topic, days in self._by_topic.items()}
        merged = {topic: days for topic, days in merged.items() if days}
        if not merged:
            return
        finished = {topic for topic in merged if all(day.is_merged or day.is_over for day in self._by_topic[topic])}

        def plan(snapshot: ConnectorSnapshot) -> tuple[Mapping[str, Change], Mapping[str, PlatformError]]:
            snapshot.load_states(merged)
            for span in {day.reserved.request.span for days in merged.values() for day in days}:
                load_day_segments(snapshot, merged, span)
            return try_topics(
                merged, lambda topic: _build_change(merged[topic], snapshot.topic(topic), ends_lease=topic in finished)
            )

        failures = self._index.commit_planned(plan)
        for topic, days in merged.items():
            for day in days:
                day.error = failures.get(topic)
                day.is_committed = topic not in failures
        self._closed |= finished - failures.keys()


def _build_change(days: Sequence[_DayRun], snapshot: IndexSnapshot, *, ends_lease: bool) -> Change:
    """Build the index rows of a topic's merged days. Raise SupersededError if its lease or an input is gone."""
    lease = days[0].reserved.lease
    lease.refuse_superseded(snapshot.state)
    for day in days:
        live = read_day_segments(snapshot, day.reserved.request.span)
        replaced = sorted(segment.key for segment in set(day.reserved.inputs).difference(live))
        if replaced:
            keys = ", ".join(f"'{key}'" for key in replaced[:5])
            raise SupersededError(
                f"{lease.uri}, topic {lease.topic}: compaction {lease.run_id} (epoch {lease.epoch}): {len(replaced)} "
                f"of its inputs were replaced meanwhile ({keys}); run it again"
            )
    return Change(
        added=tuple(segment for day in days for segment in day.outputs),
        retired=tuple(segment for day in days for segment in day.reserved.inputs),
        removed=lease.end if ends_lease else (),
        run_id=lease.run_id,
    )


def _build_task(reserved: ReservedDay, merge: Merge) -> MergeTask:
    """Build the task to merge segments of a day or month into larger ones."""
    request = reserved.request
    config = request.config
    start = find_day_start(request.span, merge.zone)
    return MergeTask(
        store=config.store,
        layout=build_merged_layout(config.layout, request.span, merge.zone, merge.segment_bytes),
        writer=reserved.writer,
        bucket=Bucket(to_epoch_ms(start), encode_span(config.layout, merge.zone, request.span)),
        merge=merge,
        topic_day=(request.topic, request.span),
    )


def _build_reports(
    index: ConnectorIndex,
    requests: Sequence[CompactRequest],
    committed: Mapping[TopicDay, _DayRun],
    started: datetime,
) -> Iterator[tuple[TopicDay, CompactReport]]:
    """Yield the report of each requested day, from the newest version of the index."""
    if not requests:
        return
    snapshot = index.open()
    seconds = (datetime.now(timezone.utc) - started).total_seconds()
    record_count = sum(s.record_count for day_run in committed.values() for s in day_run.outputs)
    for day in sorted({request.span for request in requests}, key=find_first_day):
        topics = [request.topic for request in requests if request.span == day]
        load_day_segments(snapshot, topics, day)
        hours = list_day_hours(day, ZoneInfo(requests[0].config.layout.timezone))
        for topic in topics:
            report = _build_report(snapshot, (topic, day), committed.get((topic, day)), record_count, seconds)
            out_of_range = snapshot.topic(topic).state.list_out_of_range(hours[0])
            out_of_range_count = sum(s.record_count for s in out_of_range if any(map(s.may_hold_apart, hours)))
            yield (topic, day), replace(report, out_of_range_count=out_of_range_count)


def _build_report(
    snapshot: ConnectorSnapshot, topic_day: TopicDay, day_run: _DayRun | None, record_count: int, seconds: float
) -> CompactReport:
    """Build the report of one day. Log the segments that cannot be merged."""
    topic, day = topic_day
    day_report = report_day(snapshot.topic(topic), day)
    if day_report.unmergeable:
        formats = ", ".join(sorted({s.format for s in day_report.unmergeable}))
        logger.warning(
            "%s, day %s: %d objects of format %s stay hourly: the format holds values only, so no record can be made",
            topic,
            day,
            len(day_report.unmergeable),
            formats,
        )
    return CompactReport(
        day=day_report,
        merged=day_run.reserved.inputs if day_run else (),
        written=tuple(day_run.outputs) if day_run else (),
        version=snapshot.version,
        run_record_count=record_count,
        seconds=seconds,
    )
