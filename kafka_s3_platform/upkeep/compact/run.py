"""Compact a day: reserve it, merge, commit.

Every stage may be killed and run again: inputs stay live until the one commit that retires them and adds the outputs;
a later compaction of the same day supersedes an earlier one, which then can never commit; keys carry the epoch.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from zoneinfo import ZoneInfo

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.errors import ConfigError, SupersededError
from kafka_s3_platform.model.segment import Compaction, Segment
from kafka_s3_platform.model.times import to_epoch_ms
from kafka_s3_platform.segments.target import Bucket
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, collect_object_keys, retry_commit
from kafka_s3_platform.store.lease import Lease, take_lease
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK, check_promises
from kafka_s3_platform.store.upload import Provenance
from kafka_s3_platform.upkeep.compact.days import find_day_start, report_day
from kafka_s3_platform.upkeep.compact.merge import MergeResult, MergeTask, merge_segments
from kafka_s3_platform.upkeep.compact.plan import Merge, build_daily_layout, encode_day, plan_day
from kafka_s3_platform.upkeep.compact.request import CompactReport, CompactRequest

logger = logging.getLogger(__name__)


def compact_day(request: CompactRequest, runner: TaskRunner) -> CompactReport:
    """Merge what is live of the day's hourly segments into daily ones. Raises the errors of the stages.

    Nothing to merge is no error: the report then says what the day holds.
    """
    started = datetime.now(timezone.utc)
    config = request.config
    if not config.layout.is_envelope:
        raise ConfigError(
            f"connector {config.name} writes objects of format {config.layout.format}, which holds values only: "
            f"compaction writes whole records. The hours of {request.topic} that were archived in an envelope stay as "
            f"they are, and can be merged by the same file with format.class=EnvelopeParquetFormat"
        )
    store = ObjectStore(config.store)
    check_promises(store, config.archive.index_dir, uploads=True)
    store.write_in_vain(f"{config.layout.daily_dir}/{WRITE_CHECK}")
    refuse_wrong_clock(config, store)
    index = TopicIndex.of(config, request.topic)
    reserved = retry_commit(index, partial(_reserve_day, request))
    if reserved is None:
        return _build_report(request, index, (), (), started)
    with reserved.lease.released_on_failure():
        results = _merge_all(request, reserved, runner)
        _commit_results(reserved, results)
    return _build_report(request, index, reserved.inputs, results, started)


@dataclass(frozen=True)
class _ReservedDay:
    """A plan that is committed."""

    lease: Lease
    topic_id: str
    index_id: str
    merges: tuple[Merge, ...]

    @property
    def inputs(self) -> tuple[Segment, ...]:
        return tuple(s for m in self.merges for s in m.inputs)


def _reserve_day(request: CompactRequest, snapshot: IndexSnapshot) -> _ReservedDay | None:
    """Commit the plan on the index version that it was made from, None if there is nothing to merge.

    Earlier compactions of the day end here.
    """
    state = snapshot.state
    state.refuse_during_maintenance(request.topic, datetime.now(timezone.utc))
    merges = plan_day(snapshot.segments, request.day, request.config.archive.daily_segment_bytes)
    if not merges:
        return None
    start = find_day_start(request.day, ZoneInfo(request.config.layout.timezone))
    row = Compaction(start, request.run_id, snapshot.version + 1, datetime.now(timezone.utc))
    superseded = [c for c in state.compactions if c.chunk_start == start]
    lease = take_lease(snapshot, Change(added=(row,), run_id=request.run_id), superseded)
    topic_id = state.topic.topic_id if state.topic else ""
    return _ReservedDay(lease, topic_id, snapshot.index_id, tuple(merges))


def _merge_all(request: CompactRequest, reserved: _ReservedDay, runner: TaskRunner) -> list[MergeResult]:
    tasks = [_build_task(request, reserved, planned) for planned in reserved.merges]
    what = f"compact {request.topic} {request.day}"
    progress = Progress(logger, what, len(tasks), sum(m.size for m in reserved.merges))
    results = []
    for result in runner.run(merge_segments, tasks, request.config.tasks_max):
        progress.advance(result.merge.size, result.merge.record_count, sum(s.record_bytes for s in result.segments))
        results.append(result)
    return results


def _build_task(request: CompactRequest, reserved: _ReservedDay, planned: Merge) -> MergeTask:
    config = request.config
    start = find_day_start(request.day, planned.zone)
    return MergeTask(
        store=config.store,
        layout=build_daily_layout(config.layout, planned.zone, planned.segment_bytes),
        writer=Provenance(
            config.name,
            request.topic,
            reserved.topic_id,
            reserved.index_id,
            request.run_id,
            reserved.lease.epoch,
            index_dir=reserved.lease.index.index_dir,
        ),
        bucket=Bucket(to_epoch_ms(start), encode_day(config.layout, planned.zone, request.day)),
        merge=planned,
    )


def _commit_results(reserved: _ReservedDay, results: Sequence[MergeResult]) -> None:
    """Retire the inputs and add the outputs in one commit, if every input is still live and the day still ours."""
    lease = reserved.lease
    outputs = tuple(s for r in results for s in r.segments)
    change = Change(added=outputs, retired=reserved.inputs, removed=lease.end, run_id=lease.run_id)

    def step(snapshot: IndexSnapshot) -> None:
        # no other run can have made these keys: a response was lost
        if not collect_object_keys(outputs) <= collect_object_keys((*snapshot.segments, *snapshot.retired)):
            lease.refuse_superseded(snapshot.state)
            _refuse_replaced_inputs(reserved, snapshot)
            snapshot.commit(change)

    retry_commit(lease.index, step)


def _refuse_replaced_inputs(reserved: _ReservedDay, snapshot: IndexSnapshot) -> None:
    gone = set(reserved.inputs) - set(snapshot.segments)
    if gone:
        lease = reserved.lease
        keys = ", ".join(f"'{s.key}'" for s in sorted(gone, key=lambda s: s.key)[:5])
        raise SupersededError(
            f"{lease.index.uri}: compaction {lease.run_id} (epoch {lease.epoch}): {len(gone)} of its inputs were "
            f"replaced meanwhile ({keys}); run it again"
        )


def _build_report(
    request: CompactRequest,
    index: TopicIndex,
    merged: tuple[Segment, ...],
    results: Sequence[MergeResult],
    started: datetime,
) -> CompactReport:
    snapshot = index.open()
    day = report_day(snapshot, request.day)
    if day.unmergeable:
        formats = ", ".join(sorted({s.format for s in day.unmergeable}))
        logger.warning(
            "%s, day %s: %d objects of format %s stay hourly: that holds values only, of which no record can be made",
            request.topic,
            request.day,
            len(day.unmergeable),
            formats,
        )
    return CompactReport(
        day=day,
        merged=merged,
        written=tuple(s for r in results for s in r.segments),
        version=snapshot.version,
        seconds=(datetime.now(timezone.utc) - started).total_seconds(),
    )
