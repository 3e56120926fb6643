"""The archive use case: reserve, scan, commit, report.

Every stage may be killed and run again: nothing exists before the commit, a reservation that nobody finishes is
superseded by the next one that overlaps it, and objects are created at keys that only their own offsets have.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from uuid import uuid4

from kafka_s3_platform.archive.groups import group_rows, replacing
from kafka_s3_platform.archive.hours import hour_reports
from kafka_s3_platform.archive.plan import ArchivePlan, PlanInput, ReadPlan, ms, plan_hours, plan_until_now
from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.archive.scan import scan
from kafka_s3_platform.archive.schemas import archived_schemas, registries
from kafka_s3_platform.archive.takeover import publish_coverage
from kafka_s3_platform.archive.task import HOUR_MS, ScanResult, ScanTask
from kafka_s3_platform.errors import (
    IntegrityError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import CommittedOffset, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import Change, IndexSnapshot, Row, TopicIndex, committed
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

SLICE_TASKS = 64
"""Tasks whose results are committed together: a killed run of a long backfill keeps its finished slices."""

DAY_MS = 86_400_000


def archive(request: ArchiveRequest, runner: TaskRunner) -> ArchiveReport:
    """Archive what `request` asks for and is not archived yet. Raises the errors of its rooms, with their reasons."""
    config = request.config
    store = ObjectStore(config.store)
    index = index_of(request)
    with ClusterAdmin(config.kafka) as admin:
        description = admin.describe_topic(request.topic)
        store.check_writable(config.layout.topics_dir)
        store.check_writable(config.archive.index_dir)
        reserved = _reserve(request, index, admin, description)
        try:
            results = _scan_and_commit(request, reserved, runner, admin)
        except SupersededError:
            raise
        except Exception:
            _release(reserved)
            raise
    return _report(request, reserved, results)


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
        return Provenance(connector, topic.topic, topic.topic_id, self.index_id, self.run_id, self.epoch)


def _reserve(
    request: ArchiveRequest, index: TopicIndex, admin: ClusterAdmin, description: TopicDescription
) -> _Reserved:
    """Commit the plan on the index version it was made from; plan again whenever another commit came first."""

    def step(snapshot: IndexSnapshot) -> _Reserved:
        snapshot.state.refuse_during_maintenance(request.topic, datetime.now(timezone.utc))
        # asked before the log's end is, so that what groups have read lies within what this run archives
        groups = group_rows(admin, request.config, request.topic, description.kafka_partitions)
        plan = _plan(request, snapshot.state, admin, description)
        epoch = _commit_plan(request, snapshot, plan, description, groups)
        _log_plan(request, plan, epoch)
        now = plan.frontiers[0].observed_at
        return _Reserved(index, description, plan, snapshot.state, snapshot.index_id, epoch, now, request.run_id)

    return committed(index, step)


def _plan(
    request: ArchiveRequest, state: IndexState, admin: ClusterAdmin, description: TopicDescription
) -> ArchivePlan:
    kafka_partitions = description.kafka_partitions
    frontiers = admin.frontiers(request.topic, kafka_partitions)
    given = PlanInput(
        request.config,
        description,
        frontiers,
        state,
        lambda times: admin.offsets_for_times(request.topic, kafka_partitions, times),
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
        Reservation(p, r.start_offset, r.end_offset, request.run_id, epoch, plan.frontiers[0].observed_at)
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
            # of vacuums that outstayed their lease: they see that they were ended, and delete nothing more
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


def _scan_and_commit(
    request: ArchiveRequest, reserved: _Reserved, runner: TaskRunner, admin: ClusterAdmin
) -> list[ScanResult]:
    tasks = _tasks(request, reserved, admin, runner)
    progress = Progress(logger, f"archive {request.topic}", len(tasks), sum(t.size for t in tasks))
    results: list[ScanResult] = []
    for at in range(0, len(tasks), SLICE_TASKS):
        part = tasks[at : at + SLICE_TASKS]
        done = list(_observed(runner.run(scan, part, request.config.tasks_max), progress))
        _check_topic(admin, reserved)
        schemas = _schemas(request, reserved, done)
        _commit_results(reserved, part, done, schemas, last=at + SLICE_TASKS >= len(tasks))
        _publish(request, reserved, admin)
        results += done
    return results


def _publish(request: ArchiveRequest, reserved: _Reserved, admin: ClusterAdmin) -> None:
    if request.config.archive.publish_offsets:
        publish_coverage(admin, request.config.name, request.topic, reserved.index.open().state)


def _observed(results: Iterator[ScanResult], progress: Progress) -> Iterator[ScanResult]:
    for result in results:
        progress.advance(result.size, result.record_count, result.record_bytes)
        yield result


def _tasks(request: ArchiveRequest, reserved: _Reserved, admin: ClusterAdmin, runner: TaskRunner) -> list[ScanTask]:
    """The plan's ranges as tasks of about `archive.task.size` offsets each."""
    groups = [(r, g) for r in reserved.plan.reads for g in _grouped(r.ranges, request.config.archive.task_size)]
    concurrent = min(runner.at_once(request.config.tasks_max), len(groups)) if groups else 1
    return [_task(request, reserved, admin, read, ranges, concurrent) for read, ranges in groups]


def _task(
    request: ArchiveRequest,
    reserved: _Reserved,
    admin: ClusterAdmin,
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
        leader_epoch=reserved.state.leader_epoch(read.kafka_partition, ranges[0].start_offset),
        earliest_ms=ms(config.archive.start_hour),
        latest_ms=ms(reserved.planned_at) + DAY_MS,
        lateness_ms=config.archive.allowed_lateness_ms,
        watermark_ms=_watermark(read, ranges[0].start_offset),
        hour_offsets=_hour_offsets(request, read, ranges, reserved.planned_at, admin),
        allow_gaps=config.archive.allow_gaps,
        records_per_second=_share(config.archive.records_per_second, concurrent),
        bytes_per_second=_share(config.archive.bytes_per_second, concurrent),
    )


def _share(limit: float | None, tasks: int) -> float | None:
    return limit / tasks if limit else None


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
    request: ArchiveRequest, read: ReadPlan, ranges: Sequence[OffsetRange], planned_at: datetime, admin: ClusterAdmin
) -> tuple[tuple[int, int], ...]:
    """For the Wallclock extractor: where each hour up to now begins in the kafka partition, as planned."""
    config = request.config
    if config.layout.timestamp_extractor != "Wallclock":
        return ()
    first, last = ms(config.archive.start_hour), ms(planned_at)
    times = list(range(first, last, HOUR_MS))
    found = admin.offsets_for_times(request.topic, [read.kafka_partition], times)
    offsets = [(o, t) for t in times if (o := found[t][read.kafka_partition]) is not None]
    inside = [(o, t) for o, t in offsets if o < ranges[-1].end_offset]
    before = [(o, t) for o, t in inside if o <= ranges[0].start_offset]
    return tuple(dict([(0, before[-1][1] if before else first), *inside]).items())


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
    reserved: _Reserved,
    tasks: Sequence[ScanTask],
    results: Sequence[ScanResult],
    schemas: Sequence[ArchivedSchema],
    last: bool,
) -> None:
    """Commit a slice: on the reservation's version, or on a later one that left the reservation untouched."""
    _check_results(reserved, tasks, results)
    commit_id = str(uuid4())
    removed = (f"(kind = 'reservation' AND epoch = {reserved.epoch})",) if last else ()
    rows: list[Row] = [*schemas]
    for result in results:
        rows += [*result.scans, *result.segments, *result.gaps]
    change = Change(added=tuple(rows), removed=removed, run_id=reserved.run_id)
    gap_hours = _gap_hours(reserved, results)

    def step(snapshot: IndexSnapshot) -> None:
        if commit_id not in snapshot.state.commit_ids:
            _check_not_superseded(reserved, snapshot.state)
            snapshot.commit(change, commit_id, gap_hours)

    committed(reserved.index, step)


def _gap_hours(reserved: _Reserved, results: Sequence[ScanResult]) -> dict[Gap, datetime]:
    """The hour asked for that each gap found by scanning begins in."""
    hours = [h for h in reserved.plan.hours if h.end_offset is None or h.start_offset < h.end_offset]
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


def _check_results(reserved: _Reserved, tasks: Sequence[ScanTask], results: Sequence[ScanResult]) -> None:
    """Every reserved range was scanned, each offset lies in one segment at most, and every record is in one."""
    for kafka_partition in {t.kafka_partition for t in tasks}:
        wanted = RangeSet(r for t in tasks if t.kafka_partition == kafka_partition for r in t.ranges)
        mine = [r for r in results if r.kafka_partition == kafka_partition]
        scanned = RangeSet(OffsetRange(s.start_offset, s.end_offset) for r in mine for s in r.scans)
        if wanted != scanned:
            raise _defect(reserved, kafka_partition, f"{wanted} was reserved, {scanned} was scanned")
        _check_segments(reserved, kafka_partition, mine, scanned)


def _check_segments(
    reserved: _Reserved, kafka_partition: int, results: Sequence[ScanResult], scanned: RangeSet
) -> None:
    segments = [s for r in results for s in r.segments]
    outside = [s.key for s in segments if not scanned.covers(s.start_offset, s.end_offset)]
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


def _report(request: ArchiveRequest, reserved: _Reserved, results: Sequence[ScanResult]) -> ArchiveReport:
    snapshot = reserved.index.open()
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
    )
