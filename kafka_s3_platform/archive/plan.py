"""Which offsets a run reads: from ListOffsets and the index to ranges. Pure but for the lookup it is given.

o(t) is the first offset whose record has timestamp t or later. It only chooses what to scan; that an hour is complete
is told by coverage and recorded high watermarks (`IndexState`), because o(t) moves under compaction and retention, and
one record far ahead in time, or a control marker, holds o(t) of many hours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from kafka_s3_platform.archive.failures import resolve_command
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    LogTruncatedError,
    OffsetGapError,
    PlatformError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import TopicDescription
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime, Untold
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, span
from kafka_s3_platform.model.segment import HourRange
from kafka_s3_platform.model.state import HOUR, IndexState

CELL = 1_000_000
"""Offsets after which a segment always ends, rounded up to whole `flush.size`: what lets tasks be cut anywhere."""

T = TypeVar("T")

OffsetLookup = Callable[[Iterable[int], Sequence[int]], Answers[int, Mapping[int, OffsetAtTime]]]
"""Kafka partitions, and timestamps in ms -> by both the first offset at or after it."""


class _UnansweredError(Exception):
    """One kafka partition does not answer; an error of the whole cluster is raised as it is."""

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
    """Of kafka partitions that have no frontier."""

    def without(self, failures: Mapping[int, PlatformError]) -> "PlanInput":
        """What is known of the others."""
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
    """The ranges of one kafka partition, cut where segments end, with what the scan must know of them.

    `marks` are (offset, ms): records at and after the offset follow one with that timestamp or a later one. `failure`
    says what retention took before them, where that is no recorded gap: it is told once they are archived.
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
class ArchivePlan:
    """What one run reserves. `frontiers` are those of kafka partitions that did not fail."""

    reads: tuple[ReadPlan, ...]
    hours: tuple[HourRange, ...]
    frontiers: tuple[Frontier, ...]
    observed_at: datetime
    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """Kafka partition -> why nothing of it is reserved, or what it has lost."""

    @property
    def needed(self) -> dict[int, RangeSet]:
        return {r.kafka_partition: r.needed for r in self.reads if r.ranges}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(g for r in self.reads for g in r.gaps)

    @property
    def waiting(self) -> dict[int, int]:
        """Kafka partition -> last stable offset, where an open transaction holds it back."""
        held = (f for f in self.frontiers if f.last_stable_offset < f.high_watermark)
        return {f.kafka_partition: f.last_stable_offset for f in held}


def plan_hours(given: PlanInput, hours: Sequence[datetime]) -> ArchivePlan:
    """Plan the contiguous, ascending `hours`. Raises what `check_topic` does.

    A kafka partition whose log was truncated, or lost what was to be archived, is among the plan's failures. What is
    left of the latter is read all the same, unless nothing of it was archived before: retention goes on taking it.
    """
    check_topic(given.description, given.state)
    times = sorted({ms(t) for hour in hours for t in (hour, hour + HOUR + given.lateness)})
    answers = given.lookup(given.frontiers, times)
    found, given = answers.some(), given.without(answers.failures)

    def plan(frontier: Frontier) -> tuple[ReadPlan, list[HourRange]]:
        offsets = _Offsets(given, frontier, found[frontier.kafka_partition])
        return offsets.read(hours), [offsets.hour_range(hour) for hour in hours]

    planned, failed = _each(given, plan)
    reads = [read for read, _ in planned.values()]
    failures = {**failed, **_losses(reads)}
    asked = [h for p, (_, of_one) in planned.items() if p not in failures for h in of_one]
    asked += [_unknown_range(given.state, p, hour) for p in failures for hour in hours]
    return _plan(given, reads, asked, failures)


def plan_until_now(given: PlanInput) -> ArchivePlan:
    """Plan all that is readable now and not archived, whatever its hour. Raises and fails as `plan_hours` does."""
    check_topic(given.description, given.state)
    planned, failed = _each(given, lambda frontier: _read_until_now(given, frontier))
    reads = list(planned.values())
    return _plan(given, reads, (), {**failed, **_losses(reads)})


def _each(given: PlanInput, plan: Callable[[Frontier], T]) -> tuple[dict[int, T], dict[int, PlatformError]]:
    """The plan of each kafka partition, and the errors of those that have none."""
    planned: dict[int, T] = {}
    failures = dict(given.failures)
    for kafka_partition, frontier in sorted(given.frontiers.items()):
        try:
            check_end(given.config.name, given.description.topic, given.state, frontier)
            planned[kafka_partition] = plan(frontier)
        except (LogTruncatedError, OffsetGapError) as err:
            failures[kafka_partition] = err
        except _UnansweredError as err:
            failures[kafka_partition] = err.failure
    return dict(Answers(planned, failures).some()), failures


def _losses(reads: Sequence[ReadPlan]) -> dict[int, PlatformError]:
    return {r.kafka_partition: r.failure for r in reads if r.failure is not None}


def _plan(
    given: PlanInput, reads: Sequence[ReadPlan], hours: Sequence[HourRange], failures: Mapping[int, PlatformError]
) -> ArchivePlan:
    # without those that failed: a look that lacks a kafka partition proves nothing of any hour
    frontiers = tuple(f for p, f in given.frontiers.items() if p not in failures)
    return ArchivePlan(tuple(reads), tuple(hours), frontiers, given.now, failures)


def _unknown_range(state: IndexState, kafka_partition: int, hour: datetime) -> HourRange:
    """The hour in a kafka partition that nothing is known of now: not scanned, and it begins where it may at the least.

    Not at what is archived: that may be of later hours, and the hour would look complete without its own records. Where
    archiving of the kafka partition has not begun, nothing was promised, and not even that is known.
    """
    return HourRange(hour, kafka_partition, state.promised_start(kafka_partition, hour), None)


def check_topic(description: TopicDescription, state: IndexState) -> None:
    """Refuse a topic that is not the archived one."""
    topic, known = description.topic, state.topic
    if known and known.topic_id != description.topic_id:
        raise TopicRecreatedError(
            f"topic {topic} has id {description.topic_id}, the archive holds {known.topic_id}: it was deleted "
            f"and created again. Archive it under another connector name and another topics.dir, lest its offsets and "
            f"objects mix with the old ones"
        )
    if behind := sorted({*(known.kafka_partitions if known else ())} - {*description.kafka_partitions}):
        raise BrokerUnavailableError(
            f"topic {topic}: the broker knows nothing of kafka partitions {', '.join(map(str, behind))}, which the "
            f"archive holds of it, and a topic never loses one: the broker's metadata is behind. Run again"
        )


def check_end(connector: str, topic: str, state: IndexState, frontier: Frontier) -> None:
    """LogTruncatedError where the log ends before what is archived, and nobody has accepted that."""
    kafka_partition = frontier.kafka_partition
    end = state.coverage(kafka_partition).end_offset or 0
    if end > max(frontier.last_stable_offset, state.accepted_end(kafka_partition)):
        raise LogTruncatedError(
            f"{topic}-{kafka_partition}: the archive reaches offset {end}, the log is readable up to "
            f"{frontier.last_stable_offset}: it was truncated (unclean leader election?). Nothing of this kafka "
            f"partition is read until somebody decides. To keep what is archived and go on at offset {end}: "
            f"{resolve_command(connector, topic, kafka_partition, '--accept-truncation')}"
        )


@dataclass(frozen=True)
class _Offsets:
    """o(t) of one kafka partition, with the rules that turn it into ranges."""

    given: PlanInput
    frontier: Frontier
    found: Mapping[int, OffsetAtTime]

    def hour_range(self, hour: datetime) -> HourRange:
        start = self.start(hour)
        return HourRange(hour, self.frontier.kafka_partition, start, self._known_end(hour, start))

    def _known_end(self, hour: datetime, start: int) -> int | None:
        """None while more of the hour may come before o(its end): it is open, or a transaction is."""
        over = hour + HOUR + self.given.lateness
        if self.given.now < over:
            return None
        offset, stable = self.found[ms(over)], self.frontier.last_stable_offset
        if isinstance(offset, int) and offset <= stable:
            return max(start, offset)
        return max(start, stable) if stable == self.frontier.high_watermark else None

    def start(self, hour: datetime) -> int:
        return start_of_hour(self.given.state, self.frontier, self.found[ms(hour)])

    def read(self, hours: Sequence[datetime]) -> ReadPlan:
        start, kafka_partition = self.start(hours[0]), self.frontier.kafka_partition
        begin = frontier_start(self.given.state, kafka_partition, hours[0], start)
        lost = lost_offsets(self.given.state, self.frontier, hours[0], start)
        gaps, failure = _gaps(self.given, self.frontier, lost, f"hour {hours[0]:%Y-%m-%dT%H:%M%z}")
        readable = span(max(begin, self.frontier.log_start_offset), self._end(hours, start))
        needed = readable - _archived(self.given.state, self.frontier)
        marks = [(o, t) for t, o in self.found.items() if isinstance(o, int)]
        return ReadPlan(
            kafka_partition, _cut(self.given, needed, [o for o, _ in marks]), tuple(sorted(marks)), gaps, failure
        )

    def _end(self, hours: Sequence[datetime], start: int) -> int:
        last, given = hours[-1], self.given
        # the newest closed hour (and an open one) is read up to now: that is what makes it complete at once
        if last + 2 * HOUR + given.lateness > given.now:
            return self.frontier.last_stable_offset
        end = self._at(ms(last + HOUR + given.lateness))
        covered = _archived(given.state, self.frontier)
        if end > start and not covered.covers(start, end):
            return end
        if given.state.is_complete(last, given.lateness):
            return start
        return self._beyond(last, start, covered)

    def _beyond(self, last: datetime, start: int, covered: RangeSet) -> int:
        """The end of a hour that o(t) shows nothing new of: a step further, so that asking again makes progress."""
        reached = next((r.end_offset for r in covered if start in r), start)
        hours_left = int((self.given.now - last) / HOUR) + 26
        steps = [ms(last + HOUR * 2**n + self.given.lateness) for n in range(1, hours_left.bit_length() + 1)]
        answers = self.given.lookup([self.frontier.kafka_partition], steps)
        if failure := answers.failures.get(self.frontier.kafka_partition):
            raise _UnansweredError(failure)
        found = answers.found[self.frontier.kafka_partition]
        ends = [found[t] for t in steps]
        return next((o for o in ends if isinstance(o, int) and o > reached), self.frontier.last_stable_offset)

    def _at(self, timestamp: int) -> int:
        return readable_offset(self.frontier, self.found[timestamp])


def start_of_hour(state: IndexState, frontier: Frontier, found: OffsetAtTime) -> int:
    """Where an hour whose o(t) is `found` begins. A kafka partition added later is archived from its log start.

    Where the broker does not tell o(t), the hour may begin there too.
    """
    if found is Untold.UNTOLD or state.was_added(frontier.kafka_partition):
        return frontier.log_start_offset
    return readable_offset(frontier, found)


def _archived(state: IndexState, frontier: Frontier) -> RangeSet:
    """Coverage, less what counts as deleted by retention though the log has it: once, another log start was told."""
    there = span(frontier.log_start_offset, frontier.last_stable_offset)
    return state.coverage(frontier.kafka_partition) - (state.deleted(frontier.kafka_partition) & there)


def readable_offset(frontier: Frontier, found: OffsetAtTime) -> int:
    """o(t), or the last stable offset where no readable record is that late, or nobody knows."""
    return min(found, frontier.last_stable_offset) if isinstance(found, int) else frontier.last_stable_offset


def _read_until_now(given: PlanInput, frontier: Frontier) -> ReadPlan:
    kafka_partition, log_start = frontier.kafka_partition, frontier.log_start_offset
    covered = _archived(given.state, frontier)
    promised = given.state.promised_start(kafka_partition, None)
    began_with = log_start if promised is None else min(promised, log_start)
    # nothing was promised of what was gone before archiving began, but coverage must not look whole
    before = [_lost_to_retention(frontier, r) for r in span(0, began_with) - covered]
    gaps, failure = _gaps(given, frontier, span(began_with, log_start) - covered, "everything up to now")
    needed = span(log_start, frontier.last_stable_offset) - covered
    return ReadPlan(kafka_partition, _cut(given, needed, []), gaps=(*before, *gaps), failure=failure)


def frontier_start(state: IndexState, kafka_partition: int, hour: datetime, start: int) -> int:
    """Where reading for `hour`, which begins at `start` now, begins: with what the hour before it left unread.

    That are records that came late, or in a transaction that was open, after the hour before was archived.
    """
    planned = (state.hour_start(kafka_partition, h) for h in (hour - HOUR, hour))
    return min([start, *(p for p in planned if p is not None)])


def lost_offsets(state: IndexState, frontier: Frontier, hour: datetime, start: int) -> RangeSet:
    """Offsets that retention took before they were archived, if `hour`, which begins at `start` now, may have had some.

    All that was gone before archiving began is among them where it has not begun.
    """
    kafka_partition, log_start = frontier.kafka_partition, frontier.log_start_offset
    begin = frontier_start(state, kafka_partition, hour, start)
    if begin > log_start or log_start == 0:
        return RangeSet()
    owed = begin if begin < log_start else state.promised_start(kafka_partition, hour) or 0
    return span(owed, log_start) - state.coverage(kafka_partition)


def _gaps(
    given: PlanInput, frontier: Frontier, lost: RangeSet, what: str
) -> tuple[tuple[Gap, ...], OffsetGapError | None]:
    """What is lost as gaps where these are allowed, else as an error; raised where archiving has not begun."""
    if not lost or given.config.archive.allow_gaps:
        return tuple(_lost_to_retention(frontier, r) for r in lost), None
    place = f"{given.description.topic}-{frontier.kafka_partition}"
    begun = given.state.coverage(frontier.kafka_partition)
    unknown = (
        " (how many of them belong to it is unknown: nothing before them is archived. A first run up to now records "
        "them as gone before archiving began, and archives the rest)"
    )
    failure = OffsetGapError(
        f"{place}: offsets {', '.join(map(str, lost))} were deleted before they were archived, and {what} may have "
        f"held some of them{'' if begun else unknown}. To record the gap and archive the rest, set "
        f"archive.allow.gaps=true"
    )
    if given.state.promised_start(frontier.kafka_partition, None) is None:
        raise failure
    return (), failure


def _lost_to_retention(frontier: Frontier, offsets: OffsetRange) -> Gap:
    return Gap(frontier.kafka_partition, offsets.start_offset, offsets.end_offset, "retention")


def _cut(given: PlanInput, needed: RangeSet, bounds: Sequence[int]) -> tuple[OffsetRange, ...]:
    """Cut at `bounds` and at every cell: where segments end depends on offsets and configuration alone."""
    cell = cell_size(given.config)
    pieces = [piece for item in needed for piece in item.cut(bounds)]
    return tuple(
        part for piece in pieces for part in piece.cut(range(_up(piece.start_offset, cell), piece.end_offset, cell))
    )


def cell_size(config: ConnectorConfig) -> int:
    """`CELL` rounded up to a whole number of `flush.size`."""
    return _up(CELL, config.layout.flush_size or CELL)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def ms(moment: datetime) -> int:
    """Epoch milliseconds."""
    return round(moment.timestamp() * 1000)
