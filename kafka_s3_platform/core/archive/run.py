"""Archive topics: reserve, split into tasks, scan, commit, report.

One run has one reservation and one pass of tasks over all topics. Every stage may be killed and run again. Nothing
counts as archived before the commit. An unfinished reservation is ended by the next run that overlaps it. The key of an
object names its offsets, so a second run finds the objects of the first.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.core.archive.clock import find_wrong_clocks
from kafka_s3_platform.core.archive.commit import TopicSlice, commit_results, find_recreated_topics
from kafka_s3_platform.core.archive.failures import build_errors, build_failure, build_start_errors
from kafka_s3_platform.core.archive.hours import report_hours
from kafka_s3_platform.core.archive.plan import ReadPlan
from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest, HourReport
from kafka_s3_platform.core.archive.reserve import ReservedPlan, reserve_plans
from kafka_s3_platform.core.archive.takeover import publish_coverage
from kafka_s3_platform.core.archive.task import ENDING_TOPIC, FailedScan, ScanGroup, ScanResult, ScanTask, scan_group
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import LogTruncatedError, PlatformError, TransientError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.core.model.gaps import parse_retention_ms
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import EpochMark
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import DAY_MS, HOUR_MS, to_epoch_ms
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import TaskRunner, deal_out
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.lease import release_leases, released_on_failure
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import WRITE_CHECK, check_promises

logger = logging.getLogger(__name__)


HourOffsets = Mapping[int, OffsetAtTime]
"""The first offset at or after each hour start (epoch ms)."""

TASK_COST = 20_000
"""Fixed cost of a task, expressed in offsets: connecting, and beginning and ending a segment."""

SLICE_TASKS = 64
"""Number of Spark tasks to commit together as a slice. A long backfill keeps its committed slices if it is killed."""


def look_up_hour_offsets(
    plans: Mapping[str, ReservedPlan], admin: ClusterAdmin
) -> Answers[str, Answers[int, HourOffsets]]:
    """Look up the start of each hour up to now in each kafka partition. Only the Wallclock extractor needs them."""
    lookups: dict[str, tuple[list[int], Sequence[int]]] = {}
    for topic, reserved in plans.items():
        archive = reserved.request.config.archive
        times = range(to_epoch_ms(archive.start_hour), to_epoch_ms(reserved.planned_at), HOUR_MS)
        lookups[topic] = [r.kafka_partition for r in reserved.plan.reads if r.ranges], times
    if all(plan.request.config.layout.timestamp_extractor != "Wallclock" for plan in plans.values()):
        return Answers(
            {t: Answers({p: {} for p in kafka_partitions}, {}) for t, (kafka_partitions, _) in lookups.items()}, {}
        )
    return admin.offsets_for_times_of(lookups)


def build_tasks(
    plans: Iterable[ReservedPlan], hour_offsets: Mapping[str, Mapping[int, HourOffsets]], runner: TaskRunner
) -> list[ScanTask]:
    """Return the ranges of the plans as tasks of about `archive.task.size` offsets each.

    `hour_offsets` is by topic and kafka partition. Kafka partitions not in it are not read. A limit on the connector's
    speed is shared among the tasks running at the same time.
    """
    parts: list[tuple[ReservedPlan, ReadPlan, tuple[OffsetRange, ...]]] = []
    for reserved in plans:
        task_size = reserved.request.config.archive.task_size
        for read_plan in reserved.plan.reads:
            if read_plan.kafka_partition in hour_offsets[reserved.request.topic]:
                parts += (
                    (reserved, read_plan, ranges) for ranges in _group_ranges(read_plan, reserved.state, task_size)
                )
    if not parts:
        return []
    task_count = min(runner.at_once(parts[0][0].request.config.tasks_max), len(parts))
    tasks: list[ScanTask] = []
    for reserved, read_plan, ranges in parts:
        offsets = hour_offsets[reserved.request.topic][read_plan.kafka_partition]
        tasks.append(_build_task(reserved, offsets, read_plan, ranges, task_count))
    return tasks


def group_tasks(tasks: Sequence[ScanTask], at_once: int) -> list[tuple[ScanTask, ...]]:
    """Deal out the tasks into groups of about the same cost. A task that fails in a group may be tried again alone."""
    return deal_out(tasks, lambda task: task.size + TASK_COST, at_once)


def _group_ranges(read_plan: ReadPlan, state: IndexState, task_size: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Group new ranges and, apart from them, unresolved ones, whose task may give up if they fail again."""
    unresolved = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == read_plan.kafka_partition)
    for is_retry in (False, True):
        ranges = [r for r in read_plan.ranges if unresolved.covers(r.start_offset, r.end_offset) is is_retry]
        yield from _fill_groups(ranges, task_size)


def _fill_groups(ranges: Sequence[OffsetRange], task_size: int) -> list[tuple[OffsetRange, ...]]:
    """Put the ranges, in order, into groups of at most `task_size` offsets. A larger range has a group of its own."""
    groups: list[list[OffsetRange]] = []
    for item in ranges:
        if groups and sum(map(len, groups[-1])) + len(item) <= task_size:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [tuple(g) for g in groups]


def _build_task(
    reserved: ReservedPlan,
    hour_offsets: HourOffsets,
    read_plan: ReadPlan,
    ranges: tuple[OffsetRange, ...],
    task_count: int,
) -> ScanTask:
    """Build the task to read `ranges` of one kafka partition, with its share of the rate limits."""
    config = reserved.request.config
    start_offset = ranges[0].start_offset
    return ScanTask(
        kafka=config.kafka,
        store=config.store,
        layout=config.layout,
        archive=config.archive,
        records=config.records,
        writer=reserved.writer,
        kafka_partition=read_plan.kafka_partition,
        ranges=ranges,
        epoch_marks=tuple(_find_epoch_mark(reserved, read_plan.kafka_partition, r.start_offset) for r in ranges),
        earliest_ms=to_epoch_ms(config.archive.start_hour),
        latest_ms=to_epoch_ms(reserved.planned_at) + DAY_MS,
        watermark_ms=max((timestamp for offset, timestamp in read_plan.marks if offset < start_offset), default=0),
        condemned=reserved.state.list_condemned_starts(read_plan.kafka_partition),
        hour_offsets=_select_hour_offsets(config, hour_offsets, ranges),
        records_per_second=_share_limit(config.archive.records_per_second, task_count),
        bytes_per_second=_share_limit(config.archive.bytes_per_second, task_count),
    )


def _share_limit(limit: float | None, tasks: int) -> float | None:
    return limit / tasks if limit else None


def _find_epoch_mark(reserved: ReservedPlan, kafka_partition: int, start_offset: int) -> EpochMark | None:
    """Return an archived offset with its epoch, by which a scan from `start_offset` on notices a truncated log.

    Return None if nothing is archived there, or if the leader has an earlier epoch now. Epochs only grow, but the
    checksum of a batch does not protect its epoch, and for an epoch that never existed, a broker would report a
    truncated log for ever. Also return None before the end of an accepted truncation: if unresolved offsets split a
    scan, each piece has the epoch of the range's end, which the log may have lost.
    """
    if start_offset < (reserved.state.gap_offsets(kafka_partition, "truncated").end_offset or 0):
        return None
    frontier = next((f for f in reserved.plan.frontiers if f.kafka_partition == kafka_partition), None)
    leader_epoch, log_start = (frontier.leader_epoch, frontier.log_start_offset) if frontier else (None, 0)
    mark = reserved.state.find_epoch_mark(kafka_partition, log_start, start_offset)
    if mark is not None and leader_epoch is not None and mark.leader_epoch > leader_epoch:
        logger.warning(
            "%s-%d: what is archived below offset %d is of leader epoch %d, the leader is of epoch %d: whether the log "
            "was truncated there is not known",
            reserved.description.topic,
            kafka_partition,
            mark.offset,
            mark.leader_epoch,
            leader_epoch,
        )
        return None
    return mark


def _select_hour_offsets(
    config: ConnectorConfig, hour_offsets: HourOffsets, ranges: Sequence[OffsetRange]
) -> tuple[tuple[int, int], ...]:
    """Return (first offset, hour start in ms) of the hours up to the end of `ranges`, for the Wallclock extractor."""
    if config.layout.timestamp_extractor != "Wallclock":
        return ()
    offsets = [(o, t) for t, o in sorted(hour_offsets.items()) if isinstance(o, int)]
    until_end = [(o, t) for o, t in offsets if o < ranges[-1].end_offset]
    earlier_times = [t for o, t in until_end if o <= ranges[0].start_offset]
    first_time = earlier_times[-1] if earlier_times else to_epoch_ms(config.archive.start_hour)
    # Of hours that begin at the same offset, all but the last are empty. `dict` keeps the last.
    return tuple(dict([(0, first_time), *until_end]).items())


def archive_topic(request: ArchiveRequest, runner: TaskRunner) -> ArchiveReport:
    """Archive the part of `request` not archived yet. Raises the errors of the stages.

    An error of some offsets or of some kafka partitions does not stop the others. The others are committed, and the
    error becomes the `failure` of the report. The caller raises it after it has reported the rest.
    """
    outcome = archive_topics([request], runner)[request.topic]
    if isinstance(outcome, ArchiveReport):
        return outcome
    raise outcome


def archive_topics(
    requests: Sequence[ArchiveRequest], runner: TaskRunner
) -> Mapping[str, ArchiveReport | PlatformError]:
    """Archive topics of one connector in one run: one reservation, one pass of tasks, one commit of the results.

    Returns for each topic its report, or the error that ended its run. Raises errors common to all topics, above all
    errors of the store. A long pass is committed in slices of tasks, which stay committed after an error.
    """
    by_topic = {request.topic: request for request in requests}
    config = requests[0].config
    store = ObjectStore(config.store)
    index = ConnectorIndex.of(config)
    with ClusterAdmin(config.kafka, begins=True) as admin:
        descriptions = admin.describe_topics(by_topic)
        if not descriptions.results:
            # the store is not checked: the error to report is Kafka's
            return descriptions.failures
        _check_store(config, store)
        failures = {**descriptions.failures, **find_wrong_clocks(config, store, admin, descriptions.results)}
        healthy = {topic: description for topic, description in descriptions.results.items() if topic not in failures}
        if not healthy:
            return failures
        reserved = reserve_plans(by_topic, healthy, index, admin, store.clock, runner)
        failures |= reserved.failures
        if not reserved.plans:
            return failures
        with released_on_failure(index, [plan.lease for plan in reserved.plans.values()]):
            topic_runs = _Run(index, reserved.plans, admin, runner).run()
        release_leases(index, [run.reserved.lease for run in topic_runs.values() if run.error])
        return {**failures, **dict(_build_reports(index, topic_runs))}


def _check_store(config: ConnectorConfig, store: ObjectStore) -> None:
    """Check the store before the reservation, so that a refusal leaves nothing behind."""
    check_promises(store, config.archive.index_dir, uploads=True)
    store.write_in_vain(f"{config.layout.topics_dir}/{WRITE_CHECK}".lstrip("/"))


@dataclass
class _TopicRun:
    """The state of one topic in a run.

    `results` are committed. After an `error`, nothing more of the topic is committed.
    """

    reserved: ReservedPlan
    pending_tasks: int = 0
    """Number of tasks without an outcome yet."""

    results: list[ScanResult] = field(default_factory=list)
    uncommitted: list[ScanResult] = field(default_factory=list)
    """Results that are not committed yet."""

    failed: list[FailedScan] = field(default_factory=list)
    error: PlatformError | None = None
    is_closed: bool = False
    """True if the topic's last slice is committed, which has ended its lease."""

    @property
    def is_in_vain(self) -> bool:
        """True if tasks of every kafka partition failed and none succeeded: the rest of a backfill is not tried."""
        failed = {f.kafka_partition for f in self.failed}
        needed = self.reserved.plan.needed.keys()
        return bool(failed) and failed == needed and not self.results and not self.uncommitted

    @property
    def is_over(self) -> bool:
        """True if no further task of the topic is tried."""
        return self.error is not None or self.is_in_vain

    @property
    def is_done(self) -> bool:
        return self.is_over or not self.pending_tasks

    @property
    def has_slice(self) -> bool:
        """True if there is something to commit."""
        return self.error is None and not self.is_closed and (bool(self.uncommitted) or self.is_done)

    def add(self, outcome: ScanResult | FailedScan) -> None:
        """Note the outcome of a task."""
        self.pending_tasks -= 1
        if isinstance(outcome, ScanResult):
            self.uncommitted.append(outcome)
        elif isinstance(outcome.error, ENDING_TOPIC):
            self.error = self.error or outcome.error
        else:
            self.failed.append(outcome)


class _Run:
    """Scans the reserved plans, and commits the results in slices."""

    def __init__(
        self, index: ConnectorIndex, plans: Mapping[str, ReservedPlan], admin: ClusterAdmin, runner: TaskRunner
    ) -> None:
        self._index = index
        self._admin = admin
        self._runner = runner
        self._topics = {topic: _TopicRun(plan) for topic, plan in plans.items()}
        self._hours: set[datetime] = set()
        """The hours of records read so far."""

        self._config = next(iter(plans.values())).request.config
        topics = next(iter(plans)) if len(plans) == 1 else f"{len(plans)} topics of {self._config.name}"
        self._what = f"archive {topics}"

    def run(self) -> Mapping[str, _TopicRun]:
        """Scan and commit all tasks. Raises errors common to all topics."""
        groups = self._build_groups()
        for at in range(0, max(1, len(groups)), SLICE_TASKS):
            groups_left = [self._drop_ended(group) for group in groups[at : at + SLICE_TASKS]]
            retries = self._scan([group for group in groups_left if group])
            if retries:
                self._scan([(task,) for task in retries])
            self._commit()
        return self._topics

    def _build_groups(self) -> list[tuple[ScanTask, ...]]:
        """Return tasks of all topics the broker answers for, in groups of similar cost. Others get its error."""
        hour_offsets = look_up_hour_offsets(
            {topic: topic_run.reserved for topic, topic_run in self._topics.items()}, self._admin
        )
        for topic, err in hour_offsets.failures.items():
            self._topics[topic].error = err
        offsets = {}
        for topic, answers in hour_offsets.results.items():
            topic_run = self._topics[topic]
            unanswered = [r for r in topic_run.reserved.plan.reads if r.kafka_partition in answers.failures]
            topic_run.failed += [
                FailedScan(r.kafka_partition, r.ranges, answers.failures[r.kafka_partition]) for r in unanswered
            ]
            try:
                offsets[topic] = answers.any_or_raise()
            except PlatformError as err:
                topic_run.error = err
        tasks = build_tasks([self._topics[topic].reserved for topic in offsets], offsets, self._runner)
        for task in tasks:
            self._topics[task.writer.topic].pending_tasks += 1
        self._progress = Progress(logger, self._what, len(tasks), sum(t.size for t in tasks))
        return group_tasks(tasks, self._runner.at_once(self._config.tasks_max) if tasks else 1)

    def _drop_ended(self, group: Sequence[ScanTask]) -> tuple[ScanTask, ...]:
        return tuple(task for task in group if not self._topics[task.writer.topic].is_over)

    def _scan(self, groups: Sequence[tuple[ScanTask, ...]]) -> list[ScanTask]:
        """Scan the groups. Return tasks that failed transiently in larger groups, to be tried again alone."""
        retries: list[ScanTask] = []
        numbered = [ScanGroup(n, group) for n, group in enumerate(groups)]
        for number, outcomes in self._runner.run(scan_group, numbered, self._config.tasks_max):
            group = groups[number]
            for task, outcome in zip(group, outcomes, strict=True):
                is_transient = isinstance(outcome, FailedScan) and isinstance(outcome.error, TransientError)
                if is_transient and len(group) > 1:
                    retries.append(task)
                else:
                    self._note(task.writer.topic, outcome)
            failed = sum(len(t.failed) for t in self._topics.values())
            if failed >= 2 * self._config.tasks_max and all(t.is_over for t in self._topics.values()):
                # two rounds of tasks have failed, so the rest of the slice is not tried
                return []
        return retries

    def _note(self, topic: str, outcome: ScanResult | FailedScan) -> None:
        """Note the outcome of a task for its topic, log it if it failed, and show progress if not."""
        if isinstance(outcome, FailedScan):
            logger.warning("%s-%d: %s", topic, outcome.kafka_partition, outcome.error)
        else:
            self._hours.update(s.chunk_start for s in outcome.segments if s.chunk_start)
            hours_text = f"{len(self._hours):,} hours with records"
            self._progress.advance(outcome.size, outcome.record_count, outcome.record_bytes, hours_text)
        self._topics[topic].add(outcome)

    def _commit(self) -> None:
        """Commit new results, except of topics that were created again meanwhile, or have lost their lease."""
        reserved = {topic: topic_run.reserved for topic, topic_run in self._topics.items() if topic_run.has_slice}
        failures = find_recreated_topics(self._admin, reserved)
        prepared = {topic: self._prepare_slice(topic) for topic in reserved if topic not in failures}
        failures |= commit_results(self._index, prepared)
        for topic, err in failures.items():
            self._topics[topic].error = err
        for topic in prepared.keys() - failures.keys():
            topic_run = self._topics[topic]
            topic_run.results += prepared[topic].results
            topic_run.uncommitted.clear()
            topic_run.is_closed = prepared[topic].last
        if self._config.archive.publish_offsets:
            snapshot = self._index.open()
            for topic in prepared.keys() - failures.keys():
                publish_coverage(self._admin, self._config.name, topic, snapshot.topic(topic).state)

    def _prepare_slice(self, topic: str) -> TopicSlice:
        """Build the topic's slice to be committed now. The last slice also ends the topic's lease."""
        topic_run = self._topics[topic]
        results = _add_retention(
            topic_run.reserved.description, _drop_truncated(topic_run.uncommitted, topic_run.failed)
        )
        return TopicSlice(topic_run.reserved, results, last=topic_run.is_done)


def _drop_truncated(results: Sequence[ScanResult], failed: Sequence[FailedScan]) -> list[ScanResult]:
    """Leave out the results of truncated logs.

    If they were committed, the archive would end after them, and its earlier end would be forgotten. Only the task that
    reads from the archive's end notices the truncation, while the others succeed.
    """
    truncated = {f.kafka_partition for f in failed if isinstance(f.error, LogTruncatedError)}
    return [r for r in results if r.kafka_partition not in truncated]


def _add_retention(description: TopicDescription, results: list[ScanResult]) -> list[ScanResult]:
    """Note the topic's retention with unresolved offsets, so that a later reader of the index need not ask Kafka."""
    if not any(r.unresolved for r in results):
        return results
    retention_ms = parse_retention_ms(description.configs_in_force)
    noted = []
    for result in results:
        unresolved = tuple(replace(u, retention_ms=retention_ms) for u in result.unresolved)
        noted.append(replace(result, unresolved=unresolved))
    return noted


def _build_reports(
    index: ConnectorIndex, topic_runs: Mapping[str, _TopicRun]
) -> Iterator[tuple[str, ArchiveReport | PlatformError]]:
    """Yield the report of each topic, or the error that ended its run."""
    snapshot = index.open()
    snapshot.load_states(topic_runs)
    for topic, run in topic_runs.items():
        yield topic, run.error or _build_report(snapshot, run)


def _build_report(snapshot: ConnectorSnapshot, topic_run: _TopicRun) -> ArchiveReport:
    """Build the topic's report from its tasks' results and the index. Log the notes of all tasks."""
    reserved = topic_run.reserved
    request = reserved.request
    results = topic_run.results
    segments = [s for r in results for s in r.segments]
    scans = [s for r in results for s in r.scans]
    hours = {s.chunk_start for s in segments if s.chunk_start} | set(request.hours or ())
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    seconds = (datetime.now(timezone.utc) - reserved.planned_at).total_seconds()
    reports = tuple(report_hours(snapshot.topic(request.topic), sorted(hours), lateness))
    notes = Notes()
    for result in results:
        notes.join(result.notes)
    for sentence in notes.sentences:
        logger.warning("topic %s: %s", request.topic, sentence)
    return ArchiveReport(
        hours=reports,
        record_count=sum(r.record_count for r in results),
        record_bytes=sum(r.record_bytes for r in results),
        object_count=sum(len(s.keys) for s in segments),
        filtered_count=sum(s.filtered_count for s in scans),
        dead_letter_count=sum(s.dead_letter_count for s in scans),
        out_of_range_count=sum(s.record_count for s in segments if s.chunk_start is None),
        gaps=(*reserved.plan.gaps, *(g for r in results for g in r.gaps)),
        waiting=reserved.plan.waiting,
        version=snapshot.version,
        seconds=seconds,
        unresolved=tuple(u for r in results for u in r.unresolved),
        failure=_build_failure(topic_run, reports),
    )


def _build_failure(topic_run: _TopicRun, hours: Sequence[HourReport]) -> PlatformError | None:
    """Return one error for all failures of a topic, or None if nothing failed."""
    request = topic_run.reserved.request
    unresolved = [u for r in topic_run.results for u in r.unresolved]
    scan_errors = build_errors(topic_run.failed, request.config.name, request.topic)
    errors = [*topic_run.reserved.plan.failures.values(), *scan_errors, *build_start_errors(request, hours)]
    return build_failure(request.config.name, request.topic, unresolved, errors)
