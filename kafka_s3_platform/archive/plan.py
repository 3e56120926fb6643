"""Plan which offsets a run reads, from the answers to ListOffsets and from the index.

o(t) is the first offset whose record has timestamp t or later. It only chooses what to scan. Whether an hour is
complete is decided by coverage and by recorded high watermarks (`IndexState`). o(t) cannot decide it: compaction and
retention move it, and one record with a time far ahead, or a control marker, can be o(t) of many hours.

The functions here ask nobody, except by the lookup that the caller passes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TypeVar

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import OffsetGapError, PlatformError
from kafka_s3_platform.kafka.admin import TopicDescription
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime, Untold
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.model.segment import HourRange
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR, to_epoch_ms

CELL = 1_000_000
"""A segment ends at every multiple of this offset, rounded up to a whole number of `flush.size`.

So the segments are the same however the cells are shared out to tasks (docs/adr/0004).
"""

HOURS_AHEAD = 26
"""How far beyond now hours are looked up: a day, as a record's time may be ahead by a day, and an hour at each end."""

T = TypeVar("T")

OffsetLookup = Callable[[Iterable[int], Sequence[int]], Answers[int, Mapping[int, OffsetAtTime]]]
"""A function of kafka partitions and timestamps (ms). For each pair it finds the first offset at or after that time."""


class _UnansweredError(Exception):
    """One kafka partition does not answer. An error of the whole cluster is raised as it is."""

    def __init__(self, failure: PlatformError) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class PlanInput:
    """What is known when a run is planned."""

    config: ConnectorConfig
    description: TopicDescription
    frontiers: Mapping[int, Frontier]
    state: IndexState
    lookup: OffsetLookup
    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """Kafka partition -> why it has no frontier."""
    cut_off: Mapping[int, tuple[Gap, ...]] = field(default_factory=dict)
    """Kafka partition -> offsets that it has lost before they were archived. What lies there now is archived."""

    def without(self, failures: Mapping[int, PlatformError]) -> "PlanInput":
        """Return the same without these kafka partitions."""
        left = {p: f for p, f in self.frontiers.items() if p not in failures}
        return replace(self, frontiers=left, failures={**self.failures, **failures})

    @property
    def now(self) -> datetime:
        return next(iter(self.frontiers.values())).observed_at

    @property
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)


@dataclass(frozen=True)
class ReadPlan:
    """The ranges of one kafka partition, cut where segments end, and what the scan must know about them.

    `marks` are pairs (offset, ms): the record at the offset has that timestamp or a later one. `failure` names the
    offsets that retention deleted before they were archived, where these may not be recorded as gaps. It is reported
    after the ranges are archived.
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
    """What one run reserves. `frontiers` belong to the kafka partitions that did not fail."""

    reads: tuple[ReadPlan, ...]
    hours: tuple[HourRange, ...]
    frontiers: tuple[Frontier, ...]
    observed_at: datetime
    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """Kafka partition -> why nothing of it is reserved, or which offsets it has lost."""

    cut_off: tuple[Gap, ...] = ()

    @property
    def needed(self) -> dict[int, RangeSet]:
        return {r.kafka_partition: r.needed for r in self.reads if r.ranges}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return (*self.cut_off, *(g for r in self.reads for g in r.gaps))

    @property
    def waiting(self) -> dict[int, int]:
        """Kafka partition -> last stable offset, where an open transaction holds it back."""
        held = (f for f in self.frontiers if f.last_stable_offset < f.high_watermark)
        return {f.kafka_partition: f.last_stable_offset for f in held}


def plan_hours(given: PlanInput, hours: Sequence[datetime]) -> ReservablePlan:
    """Plan the contiguous, ascending `hours`.

    The plan's failures name each kafka partition whose records were deleted before they were archived. The plan still
    reads what is left, because retention goes on deleting, unless nothing of the kafka partition was archived before.
    """
    answers = given.lookup(given.frontiers, list_bounds(given.config, hours))
    found = answers.some()
    given = given.without(answers.failures)

    def plan(frontier: Frontier) -> tuple[ReadPlan, list[HourRange]]:
        offsets = _Offsets(given, frontier, found[frontier.kafka_partition])
        read = offsets.read(hours)
        ranges = [offsets.hour_range(hour) for hour in hours]
        # where something is lost, the hours stay due until somebody allows the gap
        return read, ranges if read.failure is None else [replace(each, end_offset=None) for each in ranges]

    planned, failed = _plan_each(given, plan)
    asked = [hour_range for _, hour_ranges in planned.values() for hour_range in hour_ranges]
    asked += [HourRange(hour, kafka_partition, None, None) for kafka_partition in failed for hour in hours]
    return _build_plan(given, [read for read, _ in planned.values()], asked, failed)


def list_bounds(config: ConnectorConfig, hours: Sequence[datetime]) -> list[int]:
    """Return the timestamps that `plan_hours` looks up: where hours begin, and where the lateness after them ends."""
    starts = {to_epoch_ms(hour) for hour in hours}
    lateness = timedelta(milliseconds=config.archive.allowed_lateness_ms)
    ends = {to_epoch_ms(hour + HOUR + lateness) for hour in hours}
    return sorted(starts | ends)


def plan_until_now(given: PlanInput) -> ReservablePlan:
    """Plan all that is readable now and not archived, in any hour. Failures are those of `plan_hours`."""
    planned, failed = _plan_each(given, lambda frontier: _plan_read_until_now(given, frontier))
    return _build_plan(given, list(planned.values()), (), failed)


def _plan_each(given: PlanInput, plan: Callable[[Frontier], T]) -> tuple[dict[int, T], dict[int, PlatformError]]:
    """Plan each kafka partition. Return the plans, and the errors of the kafka partitions that have no plan."""
    planned: dict[int, T] = {}
    failures = dict(given.failures)
    for kafka_partition, frontier in sorted(given.frontiers.items()):
        try:
            planned[kafka_partition] = plan(frontier)
        except _UnansweredError as err:
            failures[kafka_partition] = err.failure
    return dict(Answers(planned, failures).some()), failures


def _build_plan(
    given: PlanInput, reads: Sequence[ReadPlan], hours: Sequence[HourRange], failures: Mapping[int, PlatformError]
) -> ReservablePlan:
    # A look that lacks a kafka partition proves nothing. Where offsets are lost, they stand in the way by themselves.
    frontiers = tuple(f for p, f in given.frontiers.items() if p not in failures)
    losses = {r.kafka_partition: r.failure for r in reads if r.failure is not None}
    # without a look of now, the next run compares with the same one of then
    cut_off = tuple(chain.from_iterable(gaps for p, gaps in sorted(given.cut_off.items()) if p not in failures))
    return ReservablePlan(tuple(reads), tuple(hours), frontiers, given.now, {**failures, **losses}, cut_off)


@dataclass(frozen=True)
class _Offsets:
    """The offsets o(t) that were found for one kafka partition, and the rules that make ranges of them."""

    given: PlanInput
    frontier: Frontier
    found: Mapping[int, OffsetAtTime]

    def hour_range(self, hour: datetime) -> HourRange:
        start = self.start(hour)
        log_start = self.frontier.log_start_offset
        return HourRange(hour, self.frontier.kafka_partition, start, self._known_end(hour, start), log_start)

    def _known_end(self, hour: datetime, start: int) -> int | None:
        """Return where the hour ends. Return None while more of it may come: the hour or a transaction is open."""
        over = hour + HOUR + self.given.lateness
        if self.given.now < over:
            return None
        offset = self.found[to_epoch_ms(over)]
        stable = self.frontier.last_stable_offset
        if isinstance(offset, int) and offset <= stable:
            return max(start, offset)
        if stable == self.frontier.high_watermark:
            return max(start, stable)
        return None

    def start(self, hour: datetime) -> int:
        return find_hour_start(self.given.state, self.frontier, self.found[to_epoch_ms(hour)])

    def read(self, hours: Sequence[datetime]) -> ReadPlan:
        start = self.start(hours[0])
        kafka_partition = self.frontier.kafka_partition
        begin = find_read_start(self.given.state, kafka_partition, hours[0], start)
        lost = find_lost_offsets(self.given.state, self.frontier, hours, self.given.lateness)
        gaps, failure = _record_or_refuse_gaps(self.given, self.frontier, lost, f"hour {hours[0]:%Y-%m-%dT%H:%M%z}")
        readable = make_span(max(begin, self.frontier.log_start_offset), self._end(hours, start))
        needed = readable - _find_archived(self.given.state, self.frontier)
        marks = [(o, t) for t, o in self.found.items() if isinstance(o, int)]
        return ReadPlan(
            kafka_partition, _cut_ranges(self.given, needed, [o for o, _ in marks]), tuple(sorted(marks)), gaps, failure
        )

    def _end(self, hours: Sequence[datetime], start: int) -> int:
        last = hours[-1]
        given = self.given
        # The newest closed hour (and an open one) is read up to now. The coverage then reaches the high watermark, and
        # the closed hour is complete at once.
        if last + 2 * HOUR + given.lateness > given.now:
            return self.frontier.last_stable_offset
        end = self._at(to_epoch_ms(last + HOUR + given.lateness))
        covered = _find_archived(given.state, self.frontier)
        if end > start and not covered.covers(start, end):
            return end
        if given.state.judge.is_complete(last, given.lateness):
            return start
        return self._beyond(last, start, covered)

    def _beyond(self, last: datetime, start: int, covered: RangeSet) -> int:
        """Return an end for an hour for which o(t) shows nothing new.

        It lies one step further, so that every run makes progress.
        """
        reached = next((r.end_offset for r in covered if start in r), start)
        hours_left = int((self.given.now - last) / HOUR) + HOURS_AHEAD
        steps = [to_epoch_ms(last + HOUR * 2**n + self.given.lateness) for n in range(1, hours_left.bit_length() + 1)]
        # all kafka partitions at once: the others look up the same
        answers = self.given.lookup(self.given.frontiers, steps)
        if failure := answers.failures.get(self.frontier.kafka_partition):
            raise _UnansweredError(failure)
        found = answers.found[self.frontier.kafka_partition]
        ends = [found[t] for t in steps]
        return next((o for o in ends if isinstance(o, int) and o > reached), self.frontier.last_stable_offset)

    def _at(self, timestamp: int) -> int:
        return find_readable_offset(self.frontier, self.found[timestamp])


def find_hour_start(state: IndexState, frontier: Frontier, found: OffsetAtTime) -> int:
    """Return where an hour begins whose o(t) is `found`.

    This is the log start if the kafka partition was added later, as all of it is archived. It is the log start also if
    the broker does not report o(t): the hour may begin there.
    """
    if found is Untold.UNTOLD or state.was_added(frontier.kafka_partition):
        return frontier.log_start_offset
    return find_readable_offset(frontier, found)


def _find_archived(state: IndexState, frontier: Frontier) -> RangeSet:
    """Return the coverage without offsets that are recorded as deleted by retention and that the log still has.

    A broker once reported a later log start for these.
    """
    there = make_span(frontier.log_start_offset, frontier.last_stable_offset)
    return state.coverage(frontier.kafka_partition) - (state.deleted(frontier.kafka_partition) & there)


def find_readable_offset(frontier: Frontier, found: OffsetAtTime) -> int:
    """Return o(t), or the last stable offset if no readable record is that late or the broker does not report o(t)."""
    if isinstance(found, int):
        return min(found, frontier.last_stable_offset)
    return frontier.last_stable_offset


def _plan_read_until_now(given: PlanInput, frontier: Frontier) -> ReadPlan:
    kafka_partition = frontier.kafka_partition
    log_start = frontier.log_start_offset
    covered = _find_archived(given.state, frontier)
    lost = find_deleted_offsets(given.state, frontier)
    gaps, failure = _record_or_refuse_gaps(given, frontier, lost, "everything up to now")
    needed = make_span(log_start, frontier.last_stable_offset) - covered
    return ReadPlan(kafka_partition, _cut_ranges(given, needed, []), gaps=gaps, failure=failure)


def find_read_start(state: IndexState, kafka_partition: int, hour: datetime, start: int) -> int:
    """Return where to begin to read for `hour`, whose o(t) is `start` now.

    Reading begins where `hour`, or the hour before it, began when it was planned. Records may have been left unread
    there: they came late, or in a transaction that was still open when the hour before was archived.
    """
    planned = (state.hour_start(kafka_partition, h) for h in (hour - HOUR, hour))
    return min([start, *(p for p in planned if p is not None)])


def find_lost_offsets(
    state: IndexState, frontier: Frontier, hours: Sequence[datetime], lateness: timedelta
) -> RangeSet:
    """Return offsets that retention deleted before they were archived, if one of `hours` may have had some of them.

    What was deleted before archiving began is told by the judge: no run could have archived it.
    """
    deleted = find_deleted_offsets(state, frontier)
    if not deleted:
        return deleted
    kafka_partition = frontier.kafka_partition
    ranges: list[OffsetRange] = []
    for hour in hours:
        end = state.judge.find_end_of(kafka_partition, hour, lateness)
        known_end = frontier.high_watermark if end is None else end
        ranges += state.judge.find_may_hold(kafka_partition, hour, known_end)
    return deleted & RangeSet(ranges)


def find_deleted_offsets(state: IndexState, frontier: Frontier) -> RangeSet:
    """Return what the log held when archiving began, or since, and has deleted before it was archived or given up."""
    kafka_partition = frontier.kafka_partition
    first = state.find_first_log_start(kafka_partition)
    began_with = frontier.log_start_offset if first is None else first
    # where a log was truncated, it may begin before that
    unresolved = RangeSet(u.offsets for u in state.unresolved if u.kafka_partition == kafka_partition)
    held = make_span(began_with, frontier.log_start_offset) | unresolved & make_span(0, frontier.log_start_offset)
    return held - state.coverage(kafka_partition)


def _record_or_refuse_gaps(
    given: PlanInput, frontier: Frontier, lost: RangeSet, what: str
) -> tuple[tuple[Gap, ...], OffsetGapError | None]:
    """Return lost offsets as gaps if gaps are allowed, else as an error."""
    if not lost or given.config.archive.allow_gaps:
        return tuple(_build_gap(frontier, r) for r in lost), None
    return (), OffsetGapError(
        f"{given.description.topic}-{frontier.kafka_partition}: offsets {', '.join(map(str, lost))} were deleted "
        f"before they were archived, and {what} may have held some of them. To record the gap and archive the rest, "
        f"set archive.allow.gaps=true"
    )


def _build_gap(frontier: Frontier, offsets: OffsetRange) -> Gap:
    return Gap(frontier.kafka_partition, offsets.start_offset, offsets.end_offset, "retention")


def _cut_ranges(given: PlanInput, needed: RangeSet, bounds: Sequence[int]) -> tuple[OffsetRange, ...]:
    """Cut at `bounds` and at every cell. So the ends of segments depend on offsets and configuration alone."""
    cell = compute_cell_size(given.config)
    cut: list[OffsetRange] = []
    for item in needed:
        for piece in item.cut(bounds):
            cut += piece.cut(range(_round_up(piece.start_offset, cell), piece.end_offset, cell))
    return tuple(cut)


def compute_cell_size(config: ConnectorConfig) -> int:
    """Round `CELL` up to a whole number of `flush.size`."""
    return _round_up(CELL, config.layout.flush_size or CELL)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
