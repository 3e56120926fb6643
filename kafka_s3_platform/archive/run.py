"""Archive a topic: reserve, scan, commit, report.

Every stage may be killed and run again. Nothing counts as archived before the commit. The next run that overlaps an
unfinished reservation ends it. The key of an object names its offsets, so a second run finds what the first one left.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.clock import refuse_wrong_clocks
from kafka_s3_platform.archive.commit import commit_results, fetch_schemas, refuse_recreated_topic
from kafka_s3_platform.archive.failures import build_errors, build_failure, parse_retention_ms
from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.archive.reserve import ReservedPlan, reserve_plan
from kafka_s3_platform.archive.scan import try_scan
from kafka_s3_platform.archive.split import build_tasks, look_up_hour_offsets
from kafka_s3_platform.archive.takeover import publish_coverage
from kafka_s3_platform.archive.task import FailedScan, ScanResult
from kafka_s3_platform.errors import LogTruncatedError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK, check_promises

logger = logging.getLogger(__name__)

SLICE_TASKS = 64
"""Number of tasks whose results are committed together: a long backfill that is killed keeps its finished slices."""


def archive_topic(request: ArchiveRequest, runner: TaskRunner) -> ArchiveReport:
    """Archive what `request` asks for and is not archived yet. Raises the errors of the stages.

    An error of some offsets or of some kafka partitions does not stop the others: they are committed, and the error
    becomes the `failure` of the report. The caller raises it after it has reported the rest.
    """
    config = request.config
    store = ObjectStore(config.store)
    index = TopicIndex.of(config, request.topic)
    with ClusterAdmin(config.kafka) as admin:
        description = admin.describe_topic(request.topic)
        # The store and the clocks are checked before anything is reserved, so that a refusal leaves nothing behind.
        check_promises(store, config.archive.index_dir, uploads=True)
        store.write_in_vain(f"{config.layout.topics_dir}/{WRITE_CHECK}".lstrip("/"))
        refuse_wrong_clocks(config, store, admin, description)
        reserved = reserve_plan(request, index, admin, description, store.clock)
        with reserved.lease.released_on_failure():
            done = _scan_and_commit(request, reserved, runner, admin)
        return _build_report(request, reserved, done)


@dataclass
class _Done:
    """The outcomes of a run's tasks, which read `kafka_partitions`. `results` are committed."""

    kafka_partitions: frozenset[int]
    results: list[ScanResult] = field(default_factory=list)
    failed: list[FailedScan] = field(default_factory=list)

    @property
    def is_in_vain(self) -> bool:
        """Whether tasks of every kafka partition failed and none succeeded: the rest of a backfill is not tried."""
        failed = {f.kafka_partition for f in self.failed}
        return bool(failed) and failed == self.kafka_partitions and not self.results


def _scan_and_commit(request: ArchiveRequest, reserved: ReservedPlan, runner: TaskRunner, admin: ClusterAdmin) -> _Done:
    hour_offsets = look_up_hour_offsets(request, reserved, admin)
    tasks = build_tasks(request, reserved, hour_offsets.some(), runner)
    progress = Progress(logger, f"archive {request.topic}", len(tasks), sum(t.size for t in tasks))
    unread = [r for r in reserved.plan.reads if r.kafka_partition in hour_offsets.failures]
    failed = [FailedScan(r.kafka_partition, r.ranges, hour_offsets.failures[r.kafka_partition]) for r in unread]
    done = _Done(frozenset(reserved.plan.needed), failed=failed)
    for at in range(0, len(tasks), SLICE_TASKS):
        part = tasks[at : at + SLICE_TASKS]
        slice_done = _Done(done.kafka_partitions)
        _collect_outcomes(slice_done, request, runner.run(try_scan, part, request.config.tasks_max), progress)
        done.failed += slice_done.failed
        results = _add_retention(request, _drop_truncated(slice_done.results, done.failed), admin)
        refuse_recreated_topic(admin, reserved)
        done.results += results
        schemas = fetch_schemas(request, reserved, results)
        in_vain = done.is_in_vain and not slice_done.results
        last = in_vain or at + SLICE_TASKS >= len(tasks)
        commit_results(reserved, results, schemas, last=last)
        if request.config.archive.publish_offsets:
            publish_coverage(admin, request.config.name, request.topic, reserved.index.open().state)
        if last:
            break
    return done


def _collect_outcomes(
    done: _Done, request: ArchiveRequest, outcomes: Iterator[ScanResult | FailedScan], progress: Progress
) -> None:
    for outcome in outcomes:
        if isinstance(outcome, FailedScan):
            logger.warning("%s-%d: %s", request.topic, outcome.kafka_partition, outcome.error)
            done.failed.append(outcome)
            # two rounds of tasks have failed: the rest of the slice is not tried
            if done.is_in_vain and len(done.failed) >= 2 * request.config.tasks_max:
                break
        else:
            progress.advance(outcome.size, outcome.record_count, outcome.record_bytes)
            done.results.append(outcome)


def _drop_truncated(results: Sequence[ScanResult], failed: Sequence[FailedScan]) -> list[ScanResult]:
    """Leave out the results of logs that were truncated.

    If they were committed, the archive would end after them, and nobody would see where it had ended before. Only the
    task that reads from the archive's end notices the truncation; the others succeed.
    """
    truncated = {f.kafka_partition for f in failed if isinstance(f.error, LogTruncatedError)}
    return [r for r in results if r.kafka_partition not in truncated]


def _add_retention(request: ArchiveRequest, results: list[ScanResult], admin: ClusterAdmin) -> list[ScanResult]:
    """Note with unresolved offsets how long the topic keeps them. A later reader of the index need not ask Kafka."""
    if not any(r.unresolved for r in results):
        return results
    kept = parse_retention_ms(admin.topic_configs(request.topic))
    noted = []
    for result in results:
        unresolved = tuple(replace(u, retention_ms=kept) for u in result.unresolved)
        noted.append(replace(result, unresolved=unresolved))
    return noted


def _build_report(request: ArchiveRequest, reserved: ReservedPlan, done: _Done) -> ArchiveReport:
    snapshot = reserved.index.open()
    results = done.results
    segments = [s for r in results for s in r.segments]
    scans = [s for r in results for s in r.scans]
    touched = {s.chunk_start for s in segments if s.chunk_start} | set(request.hours or ())
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    seconds = (datetime.now(timezone.utc) - reserved.planned_at).total_seconds()
    return ArchiveReport(
        hours=tuple(report_hours(snapshot, sorted(touched), lateness)),
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
        failure=_build_failure(request, reserved, done),
    )


def _build_failure(request: ArchiveRequest, reserved: ReservedPlan, done: _Done) -> PlatformError | None:
    unresolved = [u for r in done.results for u in r.unresolved]
    failed = [*reserved.plan.failures.values(), *build_errors(done.failed, request.config.name, request.topic)]
    return build_failure(request.config.name, request.topic, unresolved, failed)
