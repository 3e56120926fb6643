"""The compaction use case: reserve a day, merge, commit.

Every stage may be killed and run again: inputs stay live until the one commit that retires them and adds the outputs;
a later compaction of the same day supersedes an earlier one, which then can never commit; keys carry the epoch.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.archive.writers import Bucket
from kafka_s3_platform.compact.days import day_report, day_start
from kafka_s3_platform.compact.merge import MergeResult, MergeTask, merge
from kafka_s3_platform.compact.plan import Merge, daily_encoded_partition, daily_layout, plan_day
from kafka_s3_platform.compact.request import CompactReport, CompactRequest
from kafka_s3_platform.errors import ConfigError, SupersededError
from kafka_s3_platform.model.segment import Compaction, Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, committed, live_keys, quote
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK, check_promises
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)


def compact(request: CompactRequest, runner: TaskRunner) -> CompactReport:
    """Merge what is live of the day's hourly segments into daily ones. Raises the errors of its rooms.

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
    reserved = _reserve(request, TopicIndex(config.store, config.archive.index_dir, config.name, request.topic))
    results: list[MergeResult] = []
    if reserved.merges:
        try:
            results = _merge_all(request, reserved, runner)
            _commit(reserved, results)
        except SupersededError:
            raise
        except Exception:
            _release(reserved)
            raise
    return _report(request, reserved, results, started)


@dataclass(frozen=True)
class _Reserved:
    """A plan that is committed, unless it is empty: `epoch` is the version that did it."""

    index: TopicIndex
    run_id: str
    topic_id: str
    index_id: str
    merges: tuple[Merge, ...]
    epoch: int

    @property
    def inputs(self) -> tuple[Segment, ...]:
        return tuple(s for m in self.merges for s in m.inputs)

    @property
    def predicate(self) -> str:
        return f"(kind = 'compaction' AND epoch = {self.epoch})"


def _reserve(request: CompactRequest, index: TopicIndex) -> _Reserved:
    """Commit the plan on the index version it was made from; plan again whenever another commit came first."""

    def step(snapshot: IndexSnapshot) -> _Reserved:
        reserved = _plan(request, snapshot)
        if reserved.merges:
            snapshot.commit(_reservation(request, snapshot.state, reserved))
        return reserved

    return committed(index, step)


def _plan(request: CompactRequest, snapshot: IndexSnapshot) -> _Reserved:
    snapshot.state.refuse_during_maintenance(request.topic, datetime.now(timezone.utc))
    merges = plan_day(snapshot.segments, request.day, request.config.archive.daily_segment_bytes)
    known = snapshot.state.topic
    topic_id = known.topic_id if known else ""
    return _Reserved(snapshot.index, request.run_id, topic_id, snapshot.index_id, tuple(merges), snapshot.version + 1)


def _reservation(request: CompactRequest, state: IndexState, reserved: _Reserved) -> Change:
    """Earlier compactions of the day end here, and so does a vacuum of an earlier version that outstayed its lease."""
    start = day_start(request.day, ZoneInfo(request.config.layout.timezone))
    row = Compaction(start, request.run_id, reserved.epoch, datetime.now(timezone.utc))
    superseded = [f"(kind = 'compaction' AND epoch = {c.epoch})" for c in state.compactions if c.chunk_start == start]
    ended = [f"(kind = 'maintenance' AND epoch = {m.epoch})" for m in state.maintenance]
    return Change(added=(row,), removed=(*superseded, *ended), run_id=request.run_id)


def _merge_all(request: CompactRequest, reserved: _Reserved, runner: TaskRunner) -> list[MergeResult]:
    tasks = [_task(request, reserved, planned) for planned in reserved.merges]
    what = f"compact {request.topic} {request.day}"
    progress = Progress(logger, what, len(tasks), sum(m.size for m in reserved.merges))
    results = []
    for result in runner.run(merge, tasks, request.config.tasks_max):
        progress.advance(result.merge.size, result.merge.record_count, sum(s.record_bytes for s in result.segments))
        results.append(result)
    return results


def _task(request: CompactRequest, reserved: _Reserved, planned: Merge) -> MergeTask:
    config = request.config
    start = day_start(request.day, planned.zone)
    return MergeTask(
        store=config.store,
        layout=daily_layout(config.layout, planned.zone, planned.segment_bytes),
        writer=Provenance(
            config.name,
            request.topic,
            reserved.topic_id,
            reserved.index_id,
            request.run_id,
            reserved.epoch,
            index_dir=reserved.index.index_dir,
        ),
        bucket=Bucket(
            round(start.timestamp() * 1000), daily_encoded_partition(config.layout, planned.zone, request.day)
        ),
        merge=planned,
    )


def _commit(reserved: _Reserved, results: Sequence[MergeResult]) -> None:
    """Retire the inputs and add the outputs in one commit, if every input is still live and the day still ours."""
    outputs = tuple(s for r in results for s in r.segments)
    change = Change(added=outputs, retired=reserved.inputs, removed=(reserved.predicate,), run_id=reserved.run_id)

    def step(snapshot: IndexSnapshot) -> None:
        # no other run can have made these keys: a response was lost
        if not live_keys(outputs) <= live_keys((*snapshot.segments, *snapshot.retired)):
            _check_ours(reserved, snapshot)
            snapshot.commit(change)

    committed(reserved.index, step)


def _check_ours(reserved: _Reserved, snapshot: IndexSnapshot) -> None:
    where = f"{reserved.index.uri}: compaction {reserved.run_id} (epoch {reserved.epoch})"
    if not any(c.epoch == reserved.epoch for c in snapshot.state.compactions):
        raise SupersededError(
            f"{where} was superseded by a later one of the same day or by a vacuum; it commits nothing. Run it again "
            f"for what is still due"
        )
    gone = set(reserved.inputs) - set(snapshot.segments)
    if gone:
        keys = ", ".join(quote(s.key) for s in sorted(gone, key=lambda s: s.key)[:5])
        raise SupersededError(f"{where}: {len(gone)} of its inputs were replaced meanwhile ({keys}); run it again")


def _release(reserved: _Reserved) -> None:
    """Give a failed run's day back, so that the vacuum need not wait for it. Best effort: it may be gone."""
    try:
        snapshot = reserved.index.open()
        if any(c.epoch == reserved.epoch for c in snapshot.state.compactions):
            snapshot.commit(Change(removed=(reserved.predicate,), run_id=reserved.run_id))
    except Exception as err:  # noqa: BLE001 - the run's own error is the one to tell
        logger.warning("%s: compaction %d was not released: %s", reserved.index.uri, reserved.epoch, err)


def _report(
    request: CompactRequest, reserved: _Reserved, results: Sequence[MergeResult], started: datetime
) -> CompactReport:
    snapshot = reserved.index.open()
    day = day_report(snapshot, request.day)
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
        merged=reserved.inputs,
        written=tuple(s for r in results for s in r.segments),
        version=snapshot.version,
        seconds=(datetime.now(timezone.utc) - started).total_seconds(),
    )
