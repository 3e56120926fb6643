"""The archive use case: reserve, scan, commit, report.

Every stage may be killed and run again: nothing exists before the commit, a reservation that nobody finishes is
superseded by the next one that overlaps it, and objects are created at keys that only their own offsets have.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from uuid import uuid4

from kafka_s3_platform.archive.clock import refuse_wrong_clocks
from kafka_s3_platform.archive.failures import errors_of, failure_of, retention_ms
from kafka_s3_platform.archive.groups import group_rows, replacing
from kafka_s3_platform.archive.hours import hour_reports
from kafka_s3_platform.archive.look import observation, unchanged
from kafka_s3_platform.archive.plan import ArchivePlan, PlanInput, ReadPlan, ms, plan_hours, plan_until_now
from kafka_s3_platform.archive.regrown import regrown
from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.archive.retold import retold
from kafka_s3_platform.archive.scan import tried
from kafka_s3_platform.archive.schemas import archived_schemas, registries
from kafka_s3_platform.archive.takeover import publish_coverage
from kafka_s3_platform.archive.task import HOUR_MS, FailedScan, ScanResult, ScanTask
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import (
    IntegrityError,
    LogTruncatedError,
    PlatformError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import CommittedOffset, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.clock import StoreClock
from kafka_s3_platform.store.index import Change, IndexSnapshot, Row, TopicIndex, committed
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK, check_promises
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

SLICE_TASKS = 64
"""Tasks whose results are committed together: a killed run of a long backfill keeps its finished slices."""

DAY_MS = 86_400_000


def archive(request: ArchiveRequest, runner: TaskRunner) -> ArchiveReport:
    """Archive what `request` asks for and is not archived yet. Raises the errors of its rooms, with their reasons.

    What fails for some offsets, or for some kafka partitions, fails after all others are committed: it is the
    `failure` of the report, which the caller raises when it has told the rest.
    """
    config = request.config
    store = ObjectStore(config.store)
    index = index_of(request)
    with ClusterAdmin(config.kafka) as admin:
        description = admin.describe_topic(request.topic)
        check_promises(store, config.archive.index_dir, uploads=True)
        store.write_in_vain(f"{config.layout.topics_dir}/{WRITE_CHECK}".lstrip("/"))
        refuse_wrong_clocks(config, store, admin, description)
        reserved = _reserve(request, index, admin, description, store.clock)
        try:
            done = _scan_and_commit(request, reserved, runner, admin)
        except SupersededError:
            raise
        except Exception:
            _release(reserved)
            raise
        return _report(request, reserved, done)


def index_of(request: ArchiveRequest) -> TopicIndex:
    """The index that the request's connector keeps of its topic."""
    config = request.config
    return TopicIndex(config.store, config.archive.index_dir, config.name, request.topic)


@dataclass(frozen=True)
class _Reserved:
    """A plan that is committed: `epoch` is the version that did it."""

    index: TopicIndex
    description: TopicDescription
    plan: ArchivePlan
    state: IndexState
    index_id: str
    epoch: int
    planned_at: datetime
    run_id: str

    def writer(self, connector: str) -> Provenance:
        """Who writes this run's objects."""
        topic = self.description
        who = connector, topic.topic, topic.topic_id, self.index_id, self.run_id, self.epoch
        return Provenance(*who, index_dir=self.index.index_dir)


def _reserve(
    request: ArchiveRequest, index: TopicIndex, admin: ClusterAdmin, description: TopicDescription, clock: StoreClock
) -> _Reserved:
    """Commit the plan on the index version it was made from; plan again whenever another commit came first."""

    def step(snapshot: IndexSnapshot) -> _Reserved:
        snapshot.state.refuse_during_maintenance(request.topic, datetime.now(timezone.utc))
        topic, (groups, plan) = unchanged(
            admin, description, lambda seen: _groups_and_plan(request, snapshot.state, admin, seen, clock)
        )
        epoch = _commit_plan(request, snapshot, plan, topic, groups)
        _log_plan(request, plan, epoch)
        planned = index, topic, plan, snapshot.state, snapshot.index_id, epoch, plan.observed_at
        return _Reserved(*planned, request.run_id)

    return committed(index, step)


def _groups_and_plan(
    request: ArchiveRequest, state: IndexState, admin: ClusterAdmin, description: TopicDescription, clock: StoreClock
) -> tuple[Sequence[CommittedOffset], ArchivePlan]:
    observed_at = clock.earlier_now()
    # asked before the log's end is, so that what groups have read lies within what this run archives
    groups = group_rows(admin, request.config, request.topic, description.kafka_partitions, observed_at)
    return groups, _plan(request, state, admin, description, observed_at)


def _plan(
    request: ArchiveRequest,
    state: IndexState,
    admin: ClusterAdmin,
    description: TopicDescription,
    observed_at: datetime,
) -> ArchivePlan:
    look = admin.look(request.topic, description.kafka_partitions)
    failures = {**look.failures, **regrown(request.config, description, state, look.found)}
    sound = Answers({p: f for p, f in look.found.items() if p not in failures}, failures)
    frontiers = observation(description, observed_at, sound.some())
    given = PlanInput(
        request.config,
        description,
        frontiers,
        state,
        partial(admin.offsets_for_times, request.topic),
        failures,
    )
    if request.hours is None:
        return plan_until_now(given)
    return plan_hours(given, request.hours)


def _commit_plan(
    request: ArchiveRequest,
    snapshot: IndexSnapshot,
    plan: ArchivePlan,
    description: TopicDescription,
    groups: Sequence[CommittedOffset],
) -> int:
    epoch = snapshot.version + 1
    superseded = {r.epoch for r in snapshot.state.conflicting(plan.needed)}
    reservations = [
        Reservation(p, r.start_offset, r.end_offset, request.run_id, epoch, plan.observed_at)
        for p, ranges in plan.needed.items()
        for r in ranges
    ]
    known = {(h.hour, h.kafka_partition, h.start_offset, h.end_offset) for h in snapshot.state.hours}
    hours = [h for h in plan.hours if (h.hour, h.kafka_partition, h.start_offset, h.end_offset) not in known]
    change = Change(
        added=(
            *reservations,
            *hours,
            *plan.frontiers,
            *_new_generation(snapshot.state, description),
            *plan.gaps,
            *groups,
        ),
        removed=(
            *(f"(kind = 'reservation' AND epoch = {e})" for e in sorted(superseded)),
            # of vacuums of earlier versions that outstayed their lease: they see that they were ended
            *(f"(kind = 'maintenance' AND epoch = {m.epoch})" for m in snapshot.state.maintenance),
            *replacing(snapshot.state, groups),
        ),
        run_id=request.run_id,
    )
    asked = dict.fromkeys(plan.gaps, request.hours[0]) if request.hours else {}
    return snapshot.commit(change, gap_hours=asked)


def _new_generation(state: IndexState, description: TopicDescription) -> list[Row]:
    return [] if state.topic == description.generation else [description.generation]


def _log_plan(request: ArchiveRequest, plan: ArchivePlan, epoch: int) -> None:
    offsets = sum(len(r) for ranges in plan.needed.values() for r in ranges)
    logger.info(
        "%s: reserved %s offsets of %d kafka partitions as epoch %d",
        request.topic,
        f"{offsets:,}",
        len(plan.needed),
        epoch,
    )
    for kafka_partition, offset in plan.waiting.items():
        logger.warning(
            "%s-%d: waiting for the transaction open at offset %d; what follows it is read when it ends",
            request.topic,
            kafka_partition,
            offset,
        )


@dataclass
class _Done:
    """What became of a run's tasks, which are of `kafka_partitions`: `results` are committed."""

    kafka_partitions: frozenset[int]
    results: list[ScanResult] = field(default_factory=list)
    failed: list[FailedScan] = field(default_factory=list)

    @property
    def is_in_vain(self) -> bool:
        """Whether tasks of every kafka partition fail and none succeeds: no use to let a long backfill try each."""
        failed = {f.kafka_partition for f in self.failed}
        return bool(failed) and failed == self.kafka_partitions and not self.results


def _scan_and_commit(request: ArchiveRequest, reserved: _Reserved, runner: TaskRunner, admin: ClusterAdmin) -> _Done:
    hour_offsets = _hour_offsets(request, reserved, admin)
    tasks = _tasks(request, reserved, hour_offsets.some(), runner)
    progress = Progress(logger, f"archive {request.topic}", len(tasks), sum(t.size for t in tasks))
    unread = [r for r in reserved.plan.reads if r.kafka_partition in hour_offsets.failures]
    failed = [FailedScan(r.kafka_partition, r.ranges, hour_offsets.failures[r.kafka_partition]) for r in unread]
    done = _Done(frozenset(reserved.plan.needed), failed=failed)
    for at in range(0, len(tasks), SLICE_TASKS):
        part = tasks[at : at + SLICE_TASKS]
        slice_done = _Done(done.kafka_partitions)
        _scan(slice_done, request, runner.run(tried, part, request.config.tasks_max), progress)
        done.failed += slice_done.failed
        results = _with_retention(request, _beside_truncations(slice_done.results, done.failed), admin)
        _check_topic(admin, reserved)
        done.results += results
        schemas = _schemas(request, reserved, results)
        in_vain = done.is_in_vain and not slice_done.results
        last = in_vain or at + SLICE_TASKS >= len(tasks)
        _commit_results(reserved, results, schemas, last=last)
        _publish(request, reserved, admin)
        if last:
            break
    return done


def _scan(
    done: _Done, request: ArchiveRequest, outcomes: Iterator[ScanResult | FailedScan], progress: Progress
) -> None:
    for outcome in outcomes:
        if isinstance(outcome, FailedScan):
            logger.warning("%s-%d: %s", request.topic, outcome.kafka_partition, outcome.error)
            done.failed.append(outcome)
            if done.is_in_vain and len(done.failed) >= 2 * request.config.tasks_max:
                break
        else:
            progress.advance(outcome.size, outcome.record_count, outcome.record_bytes)
            done.results.append(outcome)


def _beside_truncations(results: Sequence[ScanResult], failed: Sequence[FailedScan]) -> list[ScanResult]:
    """What does not lie in a log that was truncated: archived, it would be the archive's end, and hide where that was.

    Only the task that reads on where the archive ended finds out.
    """
    truncated = {f.kafka_partition for f in failed if isinstance(f.error, LogTruncatedError)}
    return [r for r in results if r.kafka_partition not in truncated]


def _with_retention(request: ArchiveRequest, results: list[ScanResult], admin: ClusterAdmin) -> list[ScanResult]:
    """Unresolved offsets with how long the topic keeps them: who looks at the index later need not ask Kafka."""
    if not any(r.unresolved for r in results):
        return results
    kept = retention_ms(admin.topic_configs(request.topic))
    return [replace(r, unresolved=tuple(replace(u, retention_ms=kept) for u in r.unresolved)) for r in results]


def _publish(request: ArchiveRequest, reserved: _Reserved, admin: ClusterAdmin) -> None:
    if request.config.archive.publish_offsets:
        publish_coverage(admin, request.config.name, request.topic, reserved.index.open().state)


def _tasks(
    request: ArchiveRequest,
    reserved: _Reserved,
    hour_offsets: Mapping[int, Mapping[int, OffsetAtTime]],
    runner: TaskRunner,
) -> list[ScanTask]:
    """The plan's ranges as tasks of about `archive.task.size` offsets each."""
    size = request.config.archive.task_size
    reads = [r for r in reserved.plan.reads if r.kafka_partition in hour_offsets]
    parts = [(r, part) for r in reads for part in _apart(reserved.state, r)]
    groups = [(r, group) for r, part in parts for group in _grouped(part, size)]
    concurrent = min(runner.at_once(request.config.tasks_max), len(groups)) if groups else 1
    return [
        _task(request, reserved, hour_offsets[read.kafka_partition], read, ranges, concurrent)
        for read, ranges in groups
    ]


def _task(
    request: ArchiveRequest,
    reserved: _Reserved,
    hour_offsets: Mapping[int, OffsetAtTime],
    read: ReadPlan,
    ranges: tuple[OffsetRange, ...],
    concurrent: int,
) -> ScanTask:
    config = request.config
    return ScanTask(
        kafka=config.kafka,
        store=config.store,
        layout=config.layout,
        records=config.records,
        writer=reserved.writer(config.name),
        kafka_partition=read.kafka_partition,
        ranges=ranges,
        leader_epochs=tuple(_leader_epoch(reserved, read.kafka_partition, r.start_offset) for r in ranges),
        earliest_ms=ms(config.archive.start_hour),
        latest_ms=ms(reserved.planned_at) + DAY_MS,
        lateness_ms=config.archive.allowed_lateness_ms,
        watermark_ms=_watermark(read, ranges[0].start_offset),
        condemned=reserved.state.condemned_offsets(read.kafka_partition),
        hour_offsets=_inside(config, hour_offsets, ranges),
        allow_gaps=config.archive.allow_gaps,
        records_per_second=_share(config.archive.records_per_second, concurrent),
        bytes_per_second=_share(config.archive.bytes_per_second, concurrent),
    )


def _leader_epoch(reserved: _Reserved, kafka_partition: int, start_offset: int) -> int | None:
    """The epoch by which a truncated log is found out, None where nobody knows one.

    Nor where the leader of now has an earlier one, for epochs only grow: no checksum of a batch holds its epoch, and a
    broker would say for ever of one that never was that the log was truncated. Nor before the end of a truncation that
    was accepted: a scan that unresolved offsets split has the epoch of its range's end, which the log may have lost.
    """
    if start_offset < reserved.state.accepted_end(kafka_partition):
        return None
    known = reserved.state.leader_epoch(kafka_partition, start_offset)
    now = next((f.leader_epoch for f in reserved.plan.frontiers if f.kafka_partition == kafka_partition), None)
    if known is not None and now is not None and known > now:
        logger.warning(
            "%s-%d: what is archived below offset %d is of leader epoch %d, the leader is of epoch %d: whether the log "
            "was truncated there is not known",
            reserved.description.topic,
            kafka_partition,
            start_offset,
            known,
            now,
        )
        return None
    return known


def _share(limit: float | None, tasks: int) -> float | None:
    return limit / tasks if limit else None


def _apart(state: IndexState, read: ReadPlan) -> Iterator[Sequence[OffsetRange]]:
    """What is new, and what was unresolved before: where much of that fails again, a task gives up the rest of it."""
    known = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == read.kafka_partition)
    for is_known in (False, True):
        yield [r for r in read.ranges if known.covers(r.start_offset, r.end_offset) is is_known]


def _grouped(ranges: Sequence[OffsetRange], task_size: int) -> list[tuple[OffsetRange, ...]]:
    groups: list[list[OffsetRange]] = []
    for item in ranges:
        if groups and sum(map(len, groups[-1])) + len(item) <= task_size:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [tuple(g) for g in groups]


def _watermark(read: ReadPlan, start_offset: int) -> int:
    return max((t for o, t in read.marks if o < start_offset), default=0)


def _hour_offsets(
    request: ArchiveRequest, reserved: _Reserved, admin: ClusterAdmin
) -> Answers[int, Mapping[int, OffsetAtTime]]:
    """For the Wallclock extractor: where each hour up to now begins in each kafka partition, as planned."""
    config = request.config
    wanted = [r.kafka_partition for r in reserved.plan.reads if r.ranges]
    if config.layout.timestamp_extractor != "Wallclock":
        return Answers({p: {} for p in wanted}, {})
    times = range(ms(config.archive.start_hour), ms(reserved.planned_at), HOUR_MS)
    return admin.offsets_for_times(request.topic, wanted, times)


def _inside(
    config: ConnectorConfig, hour_offsets: Mapping[int, OffsetAtTime], ranges: Sequence[OffsetRange]
) -> tuple[tuple[int, int], ...]:
    """For the Wallclock extractor: (offset, ms) where the hour of a task's first record and those after it begin."""
    if config.layout.timestamp_extractor != "Wallclock":
        return ()
    offsets = [(o, t) for t, o in sorted(hour_offsets.items()) if isinstance(o, int)]
    inside = [(o, t) for o, t in offsets if o < ranges[-1].end_offset]
    before = [(o, t) for o, t in inside if o <= ranges[0].start_offset]
    first = before[-1][1] if before else ms(config.archive.start_hour)
    return tuple(dict([(0, first), *inside]).items())


def _check_topic(admin: ClusterAdmin, reserved: _Reserved) -> None:
    """A topic deleted and created again while it was scanned must not be mixed into the archive."""
    now = admin.describe_topic(reserved.description.topic)
    if now.topic_id != reserved.description.topic_id:
        raise TopicRecreatedError(
            f"topic {now.topic} was deleted and created again during the scan (id {reserved.description.topic_id} "
            f"became {now.topic_id}); nothing of it was committed"
        )


def _schemas(request: ArchiveRequest, reserved: _Reserved, results: Sequence[ScanResult]) -> tuple[ArchivedSchema, ...]:
    """The schemas that the results' records name, and those of live segments that an earlier run could not fetch."""
    records = request.config.records
    if not registries(records):
        return ()
    snapshot = reserved.index.open()
    segments = (*snapshot.segments, *(s for r in results for s in r.segments))
    found = archived_schemas(snapshot.state, {i for s in segments for i in s.schema_ids}, records)
    if found.problem:
        logger.warning("%s: schemas %s are not archived yet: %s", request.topic, found.missing, found.problem)
    return found.rows


def _commit_results(
    reserved: _Reserved, results: Sequence[ScanResult], schemas: Sequence[ArchivedSchema], last: bool
) -> None:
    """Commit a slice: on the reservation's version, or on a later one that left the reservation untouched."""
    _check_results(reserved, results)
    if not results and not (last and reserved.plan.needed):
        return
    commit_id = str(uuid4())
    removed = [f"(kind = 'reservation' AND epoch = {reserved.epoch})"] if last else []
    rows: list[Row] = [*schemas]
    for result in results:
        rows += [*result.scans, *result.segments, *result.gaps]
    gap_hours = _gap_hours(reserved, results)

    def step(snapshot: IndexSnapshot) -> None:
        if commit_id not in snapshot.state.commit_ids:
            _check_not_superseded(reserved, snapshot.state)
            told = retold(snapshot, results)
            change = Change((*rows, *told.added), (), (*removed, *told.removed), reserved.run_id)
            snapshot.commit(change, commit_id, {**told.gap_hours, **gap_hours})

    committed(reserved.index, step)


def _gap_hours(reserved: _Reserved, results: Sequence[ScanResult]) -> dict[Gap, datetime]:
    """The hour asked for that each gap found by scanning begins in."""
    hours = [h for h in reserved.plan.hours if h.start_offset != h.end_offset]
    return {
        gap: h.hour
        for result in results
        for gap in result.gaps
        for h in hours
        if h.kafka_partition == gap.kafka_partition and h.holds(gap.start_offset)
    }


def _check_not_superseded(reserved: _Reserved, state: IndexState) -> None:
    if not any(r.epoch == reserved.epoch for r in state.reservations):
        others = sorted({r.run_id for r in state.reservations} - {reserved.run_id})
        raise SupersededError(
            f"{reserved.index.uri}: the reservation of run {reserved.run_id} (epoch {reserved.epoch}) was superseded "
            f"by a later run that overlaps it (open now: {', '.join(others) or 'none'}); this run commits nothing. "
            f"Run again for what is still missing"
        )


def _check_results(reserved: _Reserved, results: Sequence[ScanResult]) -> None:
    """Every range was scanned or is told, each offset lies in one segment at most, and every record is in one."""
    for kafka_partition in {r.kafka_partition for r in results}:
        mine = [r for r in results if r.kafka_partition == kafka_partition]
        wanted = RangeSet(item for r in mine for item in r.ranges)
        scanned = RangeSet(s.offsets for r in mine for s in r.scans)
        bad = RangeSet(u.offsets for r in mine for u in r.unresolved)
        gone = RangeSet(g.offsets for r in mine for g in r.gaps)
        if wanted != scanned | bad | gone or scanned & bad:
            raise _defect(reserved, kafka_partition, f"{wanted} was read, {scanned} scanned, {bad} unresolved")
        _check_segments(reserved, kafka_partition, mine, wanted)


def _check_segments(reserved: _Reserved, kafka_partition: int, results: Sequence[ScanResult], wanted: RangeSet) -> None:
    segments = [s for r in results for s in r.segments]
    outside = [s.key for s in segments if not wanted.covers(s.start_offset, s.end_offset)]
    keys = [key for s in segments for key in s.keys]
    if outside or len(set(keys)) != len(keys):
        raise _defect(reserved, kafka_partition, f"objects outside the scan or named twice: {outside}")
    if sum(s.record_count for s in segments) != sum(r.record_count for r in results):
        raise _defect(reserved, kafka_partition, "records read and records written differ")


def _defect(reserved: _Reserved, kafka_partition: int, what: str) -> IntegrityError:
    where = f"{reserved.description.topic}-{kafka_partition}, run {reserved.run_id}"
    return IntegrityError(f"{where}: {what}. This is a defect of the platform; nothing was committed")


def _release(reserved: _Reserved) -> None:
    """Give a failed run's reservation back, so that the vacuum need not wait for it. Best effort: it may be gone."""
    if not reserved.plan.needed:
        return
    try:
        snapshot = reserved.index.open()
        if any(r.epoch == reserved.epoch for r in snapshot.state.reservations):
            snapshot.commit(Change(removed=(f"(kind = 'reservation' AND epoch = {reserved.epoch})",)))
    except Exception as err:  # noqa: BLE001 - the run's own error is the one to tell
        logger.warning("%s: reservation %d was not released: %s", reserved.index.uri, reserved.epoch, err)


def _report(request: ArchiveRequest, reserved: _Reserved, done: _Done) -> ArchiveReport:
    snapshot, results = reserved.index.open(), done.results
    segments = [s for r in results for s in r.segments]
    touched = {s.chunk_start for s in segments if s.chunk_start} | set(request.hours or ())
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    seconds = (datetime.now(timezone.utc) - reserved.planned_at).total_seconds()
    return ArchiveReport(
        hours=tuple(hour_reports(snapshot, sorted(touched), lateness)),
        record_count=sum(r.record_count for r in results),
        record_bytes=sum(r.record_bytes for r in results),
        object_count=sum(len(s.keys) for s in segments),
        filtered_count=sum(s.filtered_count for r in results for s in r.scans),
        dead_letter_count=sum(s.dead_letter_count for r in results for s in r.scans),
        out_of_range_count=sum(s.record_count for s in segments if s.chunk_start is None),
        gaps=(*reserved.plan.gaps, *(g for r in results for g in r.gaps)),
        waiting=reserved.plan.waiting,
        version=snapshot.version,
        seconds=seconds,
        unresolved=tuple(u for r in results for u in r.unresolved),
        failure=_failure(request, reserved, done),
    )


def _failure(request: ArchiveRequest, reserved: _Reserved, done: _Done) -> PlatformError | None:
    unresolved = [u for r in done.results for u in r.unresolved]
    failed = [*reserved.plan.failures.values(), *errors_of(done.failed, request.config.name, request.topic)]
    return failure_of(request.config.name, request.topic, unresolved, failed)
