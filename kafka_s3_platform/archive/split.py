"""Split a plan's ranges into tasks."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from kafka_s3_platform.archive.plan import ReadPlan
from kafka_s3_platform.archive.request import ArchiveRequest
from kafka_s3_platform.archive.reserve import ReservedPlan
from kafka_s3_platform.archive.task import ScanTask
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import DAY_MS, HOUR_MS, to_epoch_ms
from kafka_s3_platform.spark.runner import TaskRunner

logger = logging.getLogger(__name__)


HourOffsets = Mapping[int, OffsetAtTime]
"""Hour start in epoch ms -> the first offset at or after it."""


def look_up_hour_offsets(
    request: ArchiveRequest, reserved: ReservedPlan, admin: ClusterAdmin
) -> Answers[int, HourOffsets]:
    """Look up where each hour up to now begins in each kafka partition. Only the Wallclock extractor needs it."""
    config = request.config
    wanted = [r.kafka_partition for r in reserved.plan.reads if r.ranges]
    if config.layout.timestamp_extractor != "Wallclock":
        return Answers({p: {} for p in wanted}, {})
    times = range(to_epoch_ms(config.archive.start_hour), to_epoch_ms(reserved.planned_at), HOUR_MS)
    return admin.offsets_for_times(request.topic, wanted, times)


def build_tasks(
    request: ArchiveRequest, reserved: ReservedPlan, hour_offsets: Mapping[int, HourOffsets], runner: TaskRunner
) -> list[ScanTask]:
    """Return the plan's ranges as tasks of about `archive.task.size` offsets each."""
    groups: list[tuple[ReadPlan, tuple[OffsetRange, ...]]] = []
    for read in reserved.plan.reads:
        if read.kafka_partition in hour_offsets:
            ranges_of_tasks = _group_ranges(read, reserved.state, request.config.archive.task_size)
            groups += ((read, ranges) for ranges in ranges_of_tasks)
    concurrent = min(runner.at_once(request.config.tasks_max), len(groups)) if groups else 1
    return [
        _build_task(request, reserved, hour_offsets[read.kafka_partition], read, ranges, concurrent)
        for read, ranges in groups
    ]


def _group_ranges(read: ReadPlan, state: IndexState, task_size: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Group the new ranges, and apart from them those that were unresolved before.

    If too much fails again, a task gives up the rest of its ranges: no new range should be among them.
    """
    known = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == read.kafka_partition)
    for is_known in (False, True):
        ranges = [r for r in read.ranges if known.covers(r.start_offset, r.end_offset) is is_known]
        yield from _fill_groups(ranges, task_size)


def _fill_groups(ranges: Sequence[OffsetRange], task_size: int) -> list[tuple[OffsetRange, ...]]:
    groups: list[list[OffsetRange]] = []
    for item in ranges:
        if groups and sum(map(len, groups[-1])) + len(item) <= task_size:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [tuple(g) for g in groups]


def _build_task(
    request: ArchiveRequest,
    reserved: ReservedPlan,
    hour_offsets: HourOffsets,
    read: ReadPlan,
    ranges: tuple[OffsetRange, ...],
    concurrent: int,
) -> ScanTask:
    config = request.config
    start_offset = ranges[0].start_offset
    return ScanTask(
        kafka=config.kafka,
        store=config.store,
        layout=config.layout,
        archive=config.archive,
        records=config.records,
        writer=reserved.writer(config.name),
        kafka_partition=read.kafka_partition,
        ranges=ranges,
        leader_epochs=tuple(_find_leader_epoch(reserved, read.kafka_partition, r.start_offset) for r in ranges),
        earliest_ms=to_epoch_ms(config.archive.start_hour),
        latest_ms=to_epoch_ms(reserved.planned_at) + DAY_MS,
        watermark_ms=max((timestamp for offset, timestamp in read.marks if offset < start_offset), default=0),
        condemned=reserved.state.condemned_offsets(read.kafka_partition),
        hour_offsets=_select_hour_offsets(config, hour_offsets, ranges),
        records_per_second=_share_limit(config.archive.records_per_second, concurrent),
        bytes_per_second=_share_limit(config.archive.bytes_per_second, concurrent),
    )


def _share_limit(limit: float | None, tasks: int) -> float | None:
    return limit / tasks if limit else None


def _find_leader_epoch(reserved: ReservedPlan, kafka_partition: int, start_offset: int) -> int | None:
    """Find the leader epoch that shows whether the log was truncated. Return None if it is not known.

    Return None also if the leader has an earlier epoch now. Epochs only grow, but the checksum of a batch does not
    protect its epoch. For an epoch that never existed, a broker would report for ever that the log was truncated.

    Return None also before the end of a truncation that was accepted. Where unresolved offsets split a scan, each piece
    has the epoch of the range's end, and the log may have lost that epoch.
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


def _select_hour_offsets(
    config: ConnectorConfig, hour_offsets: HourOffsets, ranges: Sequence[OffsetRange]
) -> tuple[tuple[int, int], ...]:
    """Return (offset, ms) of the hour of a task's first record and of the later hours. For the Wallclock extractor."""
    if config.layout.timestamp_extractor != "Wallclock":
        return ()
    offsets = [(o, t) for t, o in sorted(hour_offsets.items()) if isinstance(o, int)]
    inside = [(o, t) for o, t in offsets if o < ranges[-1].end_offset]
    before = [t for o, t in inside if o <= ranges[0].start_offset]
    first = before[-1] if before else to_epoch_ms(config.archive.start_hour)
    # Of hours that begin at the same offset, all but the last are empty. `dict` keeps the last.
    return tuple(dict([(0, first), *inside]).items())
