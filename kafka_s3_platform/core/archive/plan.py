"""Plan the offsets of a run, from the answers to ListOffsets and from the index.

o(t) is the first offset of a record with timestamp t or later, as ListOffsets reports it. It only serves to choose the
offsets to scan. Coverage (the offsets of scans and gaps) and recorded high watermarks decide if an hour is complete
(`IndexState`). o(t) cannot decide it, because compaction and retention move it, and because a single record whose time
is far ahead, or a control marker, can be o(t) of many hours.

The functions here send no requests, except through the caller's lookup.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TypeVar

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import OffsetGapError, PlatformError
from kafka_s3_platform.core.kafka.admin import TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, Untold
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import HourRange
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms

CELL = 1_000_000
"""A segment ends at every multiple of this offset, which is rounded up to a multiple of `flush.size`.

So the segments are the same, however the cells (the offsets between two multiples) are shared out to tasks
(docs/adr/0004).
"""

HOURS_AHEAD = 26
"""Hours after now to look up: a day, because a record's time may be a day ahead, and an hour at each end."""

T = TypeVar("T")

OffsetLookup = Callable[[Iterable[int], Sequence[int]], Answers[int, Mapping[int, OffsetAtTime]]]
"""A function that finds, for each kafka partition, the first offset at or after each timestamp (ms)."""


class _UnansweredError(Exception):
    """The broker does not answer for one kafka partition. An error of the whole cluster is raised as it is."""

    def __init__(self, failure: PlatformError) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class PlanInput:
    """The input of a plan: the settings, the observed logs, the index, and a function to ask ListOffsets."""

    config: ConnectorConfig
    description: TopicDescription
    frontiers: Mapping[int, Frontier]
    state: IndexState
    lookup: OffsetLookup
    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """The error of each kafka partition that has no frontier."""
    cut_off: Mapping[int, tuple[Gap, ...]] = field(default_factory=dict)
    """The offsets that each kafka partition lost before they were archived. New records at them are archived."""

    def without(self, failures: Mapping[int, PlatformError]) -> "PlanInput":
        """Return the same input without the failed kafka partitions."""
        healthy = {p: f for p, f in self.frontiers.items() if p not in failures}
        return replace(self, frontiers=healthy, failures={**self.failures, **failures})

    @property
    def now(self) -> datetime:
        return next(iter(self.frontiers.values())).observed_at

    @property
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)


@dataclass(frozen=True)
class ReadPlan:
    """The ranges of one kafka partition, split at the ends of segments, with facts for the scan.

    `marks` are pairs (offset, ms): the record at the offset has this timestamp or a later one. `failure` names the
    offsets that retention deleted before they were archived, if they may not be recorded as gaps. It is reported after
    the ranges are archived.
    """

    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    marks: tuple[tuple[int, int], ...] = ()
    gaps: tuple[Gap, ...] = ()
    failure: OffsetGapError | None = None

    @property
    def needed(self) -> RangeSet:
        return RangeSet(self.ranges)


@dataclass(frozen=True)
class ReservablePlan:
    """A topic's plan in a run: ranges to read and rows to record. Kafka partitions without a plan have no frontier."""

    reads: tuple[ReadPlan, ...]
    hours: tuple[HourRange, ...]
    frontiers: tuple[Frontier, ...]
    observed_at: datetime
    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """The error of each kafka partition that cannot be reserved, or that has lost offsets."""

    cut_off: tuple[Gap, ...] = ()

    @property
    def needed(self) -> dict[int, RangeSet]:
        return {r.kafka_partition: r.needed for r in self.reads if r.ranges}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return (*self.cut_off, *(g for r in self.reads for g in r.gaps))

    @property
    def waiting(self) -> dict[int, int]:
        """The last stable offset of each kafka partition in which an open transaction holds it back."""
        waiting = (f for f in self.frontiers if f.last_stable_offset < f.high_watermark)
        return {f.kafka_partition: f.last_stable_offset for f in waiting}


def plan_hours(plan_input: PlanInput, hours: Sequence[datetime]) -> ReservablePlan:
    """Plan the contiguous, ascending `hours`.

    If gaps are not allowed, the plan's failures name each kafka partition in which records were deleted before they
    were archived, but after archiving began. The remaining records are still read, because retention goes on deleting.
    """
    answers = plan_input.lookup(plan_input.frontiers, list_bounds(plan_input.config, hours))
    offsets_at = answers.any_or_raise()
    plan_input = plan_input.without(answers.failures)

    def plan(frontier: Frontier) -> tuple[ReadPlan, list[HourRange]]:
        """Plan one kafka partition: the ranges to read, and the place of each hour in it."""
        offsets = _PartitionOffsets(plan_input, frontier, offsets_at[frontier.kafka_partition])
        read_plan = offsets.plan_read(hours)
        ranges = [offsets.find_hour_range(hour) for hour in hours]
        # if records are lost, the hours stay due until somebody allows the gap
        return read_plan, ranges if read_plan.failure is None else [
            replace(hour_range, end_offset=None) for hour_range in ranges
        ]

    plans, failures = _plan_each(plan_input, plan)
    planned_hours = [hour_range for _, hour_ranges in plans.values() for hour_range in hour_ranges]
    planned_hours += [HourRange(hour, kafka_partition, None, None) for kafka_partition in failures for hour in hours]
    return _build_plan(plan_input, [read_plan for read_plan, _ in plans.values()], planned_hours, failures)


def list_bounds(config: ConnectorConfig, hours: Sequence[datetime]) -> list[int]:
    """Return the timestamps `plan_hours` looks up: starts of hours, and ends of the lateness after them."""
    starts = {to_epoch_ms(hour) for hour in hours}
    lateness = timedelta(milliseconds=config.archive.allowed_lateness_ms)
    ends = {to_epoch_ms(hour + HOUR + lateness) for hour in hours}
    return sorted(starts | ends)


def plan_until_now(plan_input: PlanInput) -> ReservablePlan:
    """Plan all readable, unarchived offsets, of any hour. Failures are as in `plan_hours`."""
    plans, failures = _plan_each(plan_input, lambda frontier: _plan_read_until_now(plan_input, frontier))
    return _build_plan(plan_input, list(plans.values()), (), failures)


def _plan_each(plan_input: PlanInput, plan: Callable[[Frontier], T]) -> tuple[dict[int, T], dict[int, PlatformError]]:
    """Plan each kafka partition. Return the plans, and the errors of kafka partitions without one."""
    plans: dict[int, T] = {}
    failures = dict(plan_input.failures)
    for kafka_partition, frontier in sorted(plan_input.frontiers.items()):
        try:
            plans[kafka_partition] = plan(frontier)
        except _UnansweredError as err:
            failures[kafka_partition] = err.failure
    return dict(Answers(plans, failures).any_or_raise()), failures


def _build_plan(
    plan_input: PlanInput, reads: Sequence[ReadPlan], hours: Sequence[HourRange], failures: Mapping[int, PlatformError]
) -> ReservablePlan:
    """Put together the plans of the kafka partitions, and the failures of kafka partitions without one."""
    # An observation that lacks a kafka partition proves nothing. Lost offsets prevent completeness by themselves.
    frontiers = tuple(f for p, f in plan_input.frontiers.items() if p not in failures)
    losses = {r.kafka_partition: r.failure for r in reads if r.failure is not None}
    # without a current frontier, the next run compares the log with the same earlier frontier
    cut_off = tuple(chain.from_iterable(gaps for p, gaps in sorted(plan_input.cut_off.items()) if p not in failures))
    return ReservablePlan(tuple(reads), tuple(hours), frontiers, plan_input.now, {**failures, **losses}, cut_off)


@dataclass(frozen=True)
class _PartitionOffsets:
    """The answers o(t) for one kafka partition, and the rules to derive the ranges to read from them."""

    plan_input: PlanInput
    frontier: Frontier
    offset_at: Mapping[int, OffsetAtTime]

    def find_hour_range(self, hour: datetime) -> HourRange:
        """Return the range of the hour in this kafka partition, for the index. Its end is None while more may come."""
        start = self.find_start(hour)
        log_start = self.frontier.log_start_offset
        return HourRange(hour, self.frontier.kafka_partition, start, self._find_end(hour, start), log_start)

    def _find_end(self, hour: datetime, start: int) -> int | None:
        """Return the end of the hour. Return None while more may come, because the hour or a transaction is open."""
        end_of_lateness = hour + HOUR + self.plan_input.lateness
        if self.plan_input.now < end_of_lateness:
            return None
        offset = self.offset_at[to_epoch_ms(end_of_lateness)]
        stable = self.frontier.last_stable_offset
        if isinstance(offset, int) and offset <= stable:
            return max(start, offset)
        if stable == self.frontier.high_watermark:
            return max(start, stable)
        return None

    def find_start(self, hour: datetime) -> int:
        """Return the first offset of the hour in this kafka partition, as far as the broker says."""
        return find_hour_start(self.plan_input.state, self.frontier, self.offset_at[to_epoch_ms(hour)])

    def plan_read(self, hours: Sequence[datetime]) -> ReadPlan:
        """Plan the ranges to read for contiguous, ascending `hours`: their readable, unarchived offsets."""
        start = self.find_start(hours[0])
        kafka_partition = self.frontier.kafka_partition
        begin = find_read_start(self.plan_input.state, kafka_partition, hours[0], start)
        lost = find_lost_offsets(self.plan_input.state, self.frontier, hours, self.plan_input.lateness)
        gaps, failure = _record_or_refuse_gaps(
            self.plan_input, self.frontier, lost, f"hour {hours[0]:%Y-%m-%dT%H:%M%z}"
        )
        readable = make_span(max(begin, self.frontier.log_start_offset), self._find_read_end(hours, start))
        needed = readable - _find_archived(self.plan_input.state, self.frontier)
        marks = [(o, t) for t, o in self.offset_at.items() if isinstance(o, int)]
        return ReadPlan(
            kafka_partition,
            _split_ranges(self.plan_input, needed, [o for o, _ in marks]),
            tuple(sorted(marks)),
            gaps,
            failure,
        )

    def _find_read_end(self, hours: Sequence[datetime], start: int) -> int:
        """Return the offset to read up to for `hours`, which begin at offset `start`."""
        last_hour = hours[-1]
        plan_input = self.plan_input
        # The newest closed hour (and an open one) is read up to now. The coverage then reaches the high watermark, and
        # the closed hour is complete at once.
        if last_hour + 2 * HOUR + plan_input.lateness > plan_input.now:
            return self.frontier.last_stable_offset
        end = find_readable_offset(self.frontier, self.offset_at[to_epoch_ms(last_hour + HOUR + plan_input.lateness)])
        covered = _find_archived(plan_input.state, self.frontier)
        if end > start and not covered.covers(start, end):
            return end
        if plan_input.state.judge.is_complete(last_hour, plan_input.lateness):
            return start
        return self._find_end_beyond(last_hour, start, covered)

    def _find_end_beyond(self, last_hour: datetime, start: int, covered: RangeSet) -> int:
        """Return the offset to read up to if an incomplete hour is archived up to the o(t) of its end.

        It is the next higher o(t) of a later time, so every run makes progress. The times are tried at doubling
        distances. If there is no such o(t), it is the last stable offset.
        """
        end_offset = next((r.end_offset for r in covered if start in r), start)
        hours_left = int((self.plan_input.now - last_hour) / HOUR) + HOURS_AHEAD
        steps = [
            to_epoch_ms(last_hour + HOUR * 2**n + self.plan_input.lateness)
            for n in range(1, hours_left.bit_length() + 1)
        ]
        # all kafka partitions at once, because the others look up the same times
        answers = self.plan_input.lookup(self.plan_input.frontiers, steps)
        if failure := answers.failures.get(self.frontier.kafka_partition):
            raise _UnansweredError(failure)
        offset_at = answers.results[self.frontier.kafka_partition]
        ends = [offset_at[t] for t in steps]
        return next((o for o in ends if isinstance(o, int) and o > end_offset), self.frontier.last_stable_offset)


def find_hour_start(state: IndexState, frontier: Frontier, answer: OffsetAtTime) -> int:
    """Return the start of an hour whose o(t) is `answer`.

    It is the log start if the kafka partition was added later, because then all of it is archived. It is also the log
    start if the broker does not report o(t), because the hour may begin there.
    """
    if answer is Untold.UNTOLD or state.was_added(frontier.kafka_partition):
        return frontier.log_start_offset
    return find_readable_offset(frontier, answer)


def _find_archived(state: IndexState, frontier: Frontier) -> RangeSet:
    """Return the offsets not to read again.

    These are all covered offsets, except offsets recorded as deleted but still in the log, because a broker once
    reported too late a log start.
    """
    log_offsets = make_span(frontier.log_start_offset, frontier.last_stable_offset)
    return state.coverage(frontier.kafka_partition) - (state.deleted(frontier.kafka_partition) & log_offsets)


def find_readable_offset(frontier: Frontier, answer: OffsetAtTime) -> int:
    """Return o(t) or, if there is none, the last stable offset.

    There is none if no readable record is so late, or if the broker does not report o(t).
    """
    if isinstance(answer, int):
        return min(answer, frontier.last_stable_offset)
    return frontier.last_stable_offset


def _plan_read_until_now(plan_input: PlanInput, frontier: Frontier) -> ReadPlan:
    """Plan all readable, unarchived offsets of one kafka partition."""
    kafka_partition = frontier.kafka_partition
    log_start = frontier.log_start_offset
    archived = _find_archived(plan_input.state, frontier)
    lost = find_deleted_offsets(plan_input.state, frontier)
    gaps, failure = _record_or_refuse_gaps(plan_input, frontier, lost, "everything up to now")
    needed = make_span(log_start, frontier.last_stable_offset) - archived
    return ReadPlan(kafka_partition, _split_ranges(plan_input, needed, []), gaps=gaps, failure=failure)


def find_read_start(state: IndexState, kafka_partition: int, hour: datetime, start: int) -> int:
    """Return the offset to begin reading at for `hour`. `start` is the hour's o(t) now.

    Reading begins at the lowest of `start`, the planned start of `hour`, and the planned start of the hour before it.
    Records may have been left unread from there on, because they came late, or in a transaction that was still open
    when the hour before was archived.
    """
    planned_starts = (state.hour_start(kafka_partition, h) for h in (hour - HOUR, hour))
    return min([start, *(p for p in planned_starts if p is not None)])


def find_lost_offsets(
    state: IndexState, frontier: Frontier, hours: Sequence[datetime], lateness: timedelta
) -> RangeSet:
    """Return the offsets that retention deleted before they were archived, as far as `hours` may have held them.

    Records that were deleted before archiving began are not among them, because no run could have archived them.
    """
    deleted_offsets = find_deleted_offsets(state, frontier)
    if not deleted_offsets:
        return deleted_offsets
    kafka_partition = frontier.kafka_partition
    ranges: list[OffsetRange] = []
    for hour in hours:
        end = state.judge.find_end_of(kafka_partition, hour, lateness)
        known_end = frontier.high_watermark if end is None else end
        ranges += state.judge.find_may_hold(kafka_partition, hour, known_end)
    return deleted_offsets & RangeSet(ranges)


def find_deleted_offsets(state: IndexState, frontier: Frontier) -> RangeSet:
    """Return the offsets that were deleted before they were archived or given up, since archiving began."""
    kafka_partition = frontier.kafka_partition
    first_start = state.find_first_log_start(kafka_partition)
    archive_start = frontier.log_start_offset if first_start is None else first_start
    # a truncated log may begin before that
    unresolved = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == kafka_partition)
    log_offsets = make_span(archive_start, frontier.log_start_offset) | unresolved & make_span(
        0, frontier.log_start_offset
    )
    return log_offsets - state.coverage(kafka_partition)


def _record_or_refuse_gaps(
    plan_input: PlanInput, frontier: Frontier, lost: RangeSet, purpose: str
) -> tuple[tuple[Gap, ...], OffsetGapError | None]:
    """Return lost offsets as gaps if gaps are allowed, else as an error."""
    if not lost or plan_input.config.archive.allow_gaps:
        number = frontier.kafka_partition
        return tuple(Gap(number, r.start_offset, r.end_offset, "retention") for r in lost), None
    return (), OffsetGapError(
        f"{plan_input.description.topic}-{frontier.kafka_partition}: offsets {', '.join(map(str, lost))} were deleted "
        f"before they were archived, and {purpose} may have held some of them. To record the gap and archive the rest, "
        f"set archive.allow.gaps=true"
    )


def _split_ranges(plan_input: PlanInput, needed: RangeSet, bounds: Sequence[int]) -> tuple[OffsetRange, ...]:
    """Split needed offsets at `bounds` and at each multiple of the cell size.

    So segments end there, whatever is archived.
    """
    cell = compute_cell_size(plan_input.config)
    pieces: list[OffsetRange] = []
    for item in needed:
        for piece in item.split(bounds):
            pieces += piece.split(range(_round_up(piece.start_offset, cell), piece.end_offset, cell))
    return tuple(pieces)


def compute_cell_size(config: ConnectorConfig) -> int:
    """Return `CELL`, rounded up to a multiple of `flush.size`."""
    return _round_up(CELL, config.layout.flush_size or CELL)


def _round_up(value: int, step: int) -> int:
    """Return the lowest multiple of `step` at or above `value`."""
    return -(-value // step) * step
