"""Split a plan's ranges into tasks."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_s3_platform.archive.plan import ReadPlan
from kafka_s3_platform.archive.reserve import ReservedPlan
from kafka_s3_platform.archive.task import ScanTask
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.segment import EpochMark
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import DAY_MS, HOUR_MS, to_epoch_ms
from kafka_s3_platform.spark.groups import deal_out
from kafka_s3_platform.spark.runner import TaskRunner

logger = logging.getLogger(__name__)


HourOffsets = Mapping[int, OffsetAtTime]
"""Hour start in epoch ms -> the first offset at or after it."""


def look_up_hour_offsets(
    plans: Mapping[str, ReservedPlan], admin: ClusterAdmin
) -> Answers[str, Answers[int, HourOffsets]]:
    """Look up the start of each hour up to now in each kafka partition. Only the Wallclock extractor needs it."""
    lookups: dict[str, tuple[list[int], Sequence[int]]] = {}
    for topic, reserved in plans.items():
        archive = reserved.request.config.archive
        times = range(to_epoch_ms(archive.start_hour), to_epoch_ms(reserved.planned_at), HOUR_MS)
        lookups[topic] = [r.kafka_partition for r in reserved.plan.reads if r.ranges], times
    if all(plan.request.config.layout.timestamp_extractor != "Wallclock" for plan in plans.values()):
        return Answers({t: Answers({p: {} for p in reads}, {}) for t, (reads, _) in lookups.items()}, {})
    return admin.offsets_for_times_of(lookups)


def build_tasks(
    plans: Iterable[ReservedPlan], hour_offsets: Mapping[str, Mapping[int, HourOffsets]], runner: TaskRunner
) -> list[ScanTask]:
    """Return the ranges of the plans as tasks of about `archive.task.size` offsets each.

    `hour_offsets` are by topic and kafka partition. What is missing there is not read. A limit of the connector's
    speed is shared out to the tasks that run at the same time.
    """
    parts: list[tuple[ReservedPlan, ReadPlan, tuple[OffsetRange, ...]]] = []
    for reserved in plans:
        task_size = reserved.request.config.archive.task_size
        for read in reserved.plan.reads:
            if read.kafka_partition in hour_offsets[reserved.request.topic]:
                parts += ((reserved, read, ranges) for ranges in _group_ranges(read, reserved.state, task_size))
    if not parts:
        return []
    concurrent = min(runner.at_once(parts[0][0].request.config.tasks_max), len(parts))
    tasks: list[ScanTask] = []
    for reserved, read, ranges in parts:
        offsets = hour_offsets[reserved.request.topic][read.kafka_partition]
        tasks.append(_build_task(reserved, offsets, read, ranges, concurrent))
    return tasks


TASK_COST = 20_000
"""Fixed cost of a task, in offsets: connecting, and beginning and ending a segment."""


def group_tasks(tasks: Sequence[ScanTask], at_once: int) -> list[tuple[ScanTask, ...]]:
    """Deal out the tasks into groups of about the same cost. A task that fails in a group is tried again alone."""
    return deal_out(tasks, lambda task: task.size + TASK_COST, at_once)


def _group_ranges(read: ReadPlan, state: IndexState, task_size: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Group the new ranges, and apart from them the unresolved ones.

    If too much fails again, a task gives up the rest of its ranges: no new range should be among them.
    """
    unresolved = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == read.kafka_partition)
    for is_retry in (False, True):
        ranges = [r for r in read.ranges if unresolved.covers(r.start_offset, r.end_offset) is is_retry]
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
    reserved: ReservedPlan,
    hour_offsets: HourOffsets,
    read: ReadPlan,
    ranges: tuple[OffsetRange, ...],
    concurrent: int,
) -> ScanTask:
    config = reserved.request.config
    start_offset = ranges[0].start_offset
    return ScanTask(
        kafka=config.kafka,
        store=config.store,
        layout=config.layout,
        archive=config.archive,
        records=config.records,
        writer=reserved.writer,
        kafka_partition=read.kafka_partition,
        ranges=ranges,
        epoch_marks=tuple(_find_epoch_mark(reserved, read.kafka_partition, r.start_offset) for r in ranges),
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


def _find_epoch_mark(reserved: ReservedPlan, kafka_partition: int, start_offset: int) -> EpochMark | None:
    """Find the mark to check that the log was not truncated before this offset. Return None if there is none.

    Return None also if the leader has an earlier epoch now. Epochs only grow, but the checksum of a batch does not
    protect its epoch. For an epoch that never existed, a broker would report for ever that the log was truncated.

    Return None also before the end of an accepted truncation. If unresolved offsets split a scan, each piece has the
    epoch of the range's end, and the log may have lost that epoch.
    """
    if start_offset < (reserved.state.gap_offsets(kafka_partition, "truncated").end_offset or 0):
        return None
    frontier = next((f for f in reserved.plan.frontiers if f.kafka_partition == kafka_partition), None)
    now, log_start = (frontier.leader_epoch, frontier.log_start_offset) if frontier else (None, 0)
    mark = reserved.state.find_epoch_mark(kafka_partition, log_start, start_offset)
    if mark is not None and now is not None and mark.leader_epoch > now:
        logger.warning(
            "%s-%d: what is archived below offset %d is of leader epoch %d, the leader is of epoch %d: whether the log "
            "was truncated there is not known",
            reserved.description.topic,
            kafka_partition,
            mark.offset,
            mark.leader_epoch,
            now,
        )
        return None
    return mark


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
