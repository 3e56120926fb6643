"""Which offsets a run reads: from ListOffsets and the index to ranges. Pure but for the lookup it is given.

o(t) is the first offset whose record has timestamp t or later. It only chooses what to scan; that an hour is complete
is told by coverage and recorded high watermarks (`IndexState`), because o(t) moves under compaction and retention, and
one record far ahead in time, or a control marker, holds o(t) of many hours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import LogTruncatedError, OffsetGapError, TopicRecreatedError
from kafka_s3_platform.kafka.admin import TopicDescription
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, span
from kafka_s3_platform.model.segment import HourRange
from kafka_s3_platform.model.state import HOUR, IndexState

CELL = 1_000_000
"""Offsets after which a segment always ends, rounded up to whole `flush.size`: what lets tasks be cut anywhere."""

OffsetLookup = Callable[[Sequence[int]], Mapping[int, Mapping[int, int | None]]]
"""Timestamps in ms -> timestamp -> kafka partition -> first offset at or after it, None where there is none."""


@dataclass(frozen=True)
class PlanInput:
    """What is known when a run is planned."""

    config: ConnectorConfig
    description: TopicDescription
    frontiers: Mapping[int, Frontier]
    state: IndexState
    lookup: OffsetLookup

    @property
    def now(self) -> datetime:
        return next(iter(self.frontiers.values())).observed_at

    @property
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)


@dataclass(frozen=True)
class ReadPlan:
    """The ranges of one kafka partition, cut where segments end, with what the scan must know of them.

    `marks` are (offset, ms): records at and after the offset follow one with that timestamp or a later one.
    """

    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    marks: tuple[tuple[int, int], ...] = ()
    gap: Gap | None = None

    @property
    def needed(self) -> RangeSet:
        return RangeSet(self.ranges)


@dataclass(frozen=True)
class ArchivePlan:
    """What one run reserves."""

    reads: tuple[ReadPlan, ...]
    hours: tuple[HourRange, ...]
    frontiers: tuple[Frontier, ...]

    @property
    def needed(self) -> dict[int, RangeSet]:
        return {r.kafka_partition: r.needed for r in self.reads if r.ranges}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(r.gap for r in self.reads if r.gap)

    @property
    def waiting(self) -> dict[int, int]:
        """Kafka partition -> last stable offset, where an open transaction holds it back."""
        held = (f for f in self.frontiers if f.last_stable_offset < f.high_watermark)
        return {f.kafka_partition: f.last_stable_offset for f in held}


def plan_hours(given: PlanInput, hours: Sequence[datetime]) -> ArchivePlan:
    """Plan the contiguous, ascending `hours`. Raises what `check` and `_retention_gap` raise."""
    check(given)
    times = sorted({ms(t) for hour in hours for t in (hour, hour + HOUR + given.lateness)})
    found = given.lookup(times)
    reads, asked = [], []
    for kafka_partition, frontier in sorted(given.frontiers.items()):
        offsets = _Offsets(given, frontier, {t: found[t][kafka_partition] for t in times})
        asked += [offsets.hour_range(hour) for hour in hours]
        reads.append(offsets.read(hours))
    return ArchivePlan(tuple(reads), tuple(asked), tuple(given.frontiers.values()))


def plan_until_now(given: PlanInput) -> ArchivePlan:
    """Plan all that is readable now and not archived, whatever its hour. Raises what `check` raises."""
    check(given)
    reads = [_read_until_now(given, frontier) for _, frontier in sorted(given.frontiers.items())]
    return ArchivePlan(tuple(reads), (), tuple(given.frontiers.values()))


def check(given: PlanInput) -> None:
    """Refuse a topic that is not the archived one, or whose log ends before what is archived."""
    topic, known = given.description.topic, given.state.topic
    if known and known.topic_id != given.description.topic_id:
        raise TopicRecreatedError(
            f"topic {topic} has id {given.description.topic_id}, the archive holds {known.topic_id}: it was deleted "
            f"and created again. Archive it under another connector name, lest its offsets mix with the old ones"
        )
    for kafka_partition, frontier in given.frontiers.items():
        end = given.state.coverage(kafka_partition).end_offset
        if end is not None and end > frontier.last_stable_offset:
            raise LogTruncatedError(
                f"{topic}-{kafka_partition}: the archive reaches offset {end}, the log is readable up to "
                f"{frontier.last_stable_offset}: it was truncated (unclean leader election?). Nothing is read until "
                f"somebody decides which of the two is right"
            )


@dataclass(frozen=True)
class _Offsets:
    """o(t) of one kafka partition, with the rules that turn it into ranges."""

    given: PlanInput
    frontier: Frontier
    found: Mapping[int, int | None]

    def hour_range(self, hour: datetime) -> HourRange:
        start = self.start(hour)
        end = max(start, self._at(ms(hour + HOUR + self.given.lateness)))
        return HourRange(hour, self.frontier.kafka_partition, start, end)

    def start(self, hour: datetime) -> int:
        if self.given.state.was_added(self.frontier.kafka_partition):
            return self.frontier.log_start_offset
        return self._at(ms(hour))

    def read(self, hours: Sequence[datetime]) -> ReadPlan:
        start, kafka_partition = self.start(hours[0]), self.frontier.kafka_partition
        gap = _retention_gap(self.given, self.frontier, start, f"hour {hours[0]:%Y-%m-%dT%H:%M%z}")
        needed = span(start, self._end(hours, start)) - self.given.state.coverage(kafka_partition)
        marks = [(o, t) for t, o in self.found.items() if o is not None]
        return ReadPlan(kafka_partition, _cut(self.given, needed, [o for o, _ in marks]), tuple(sorted(marks)), gap)

    def _end(self, hours: Sequence[datetime], start: int) -> int:
        last, given = hours[-1], self.given
        # the newest closed hour (and an open one) is read up to now: that is what makes it complete at once
        if last + 2 * HOUR + given.lateness > given.now:
            return self.frontier.last_stable_offset
        end = self._at(ms(last + HOUR + given.lateness))
        covered = given.state.coverage(self.frontier.kafka_partition)
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
        found = self.given.lookup(steps)
        ends = [found[t][self.frontier.kafka_partition] for t in steps]
        return next((o for o in ends if o is not None and o > reached), self.frontier.last_stable_offset)

    def _at(self, timestamp: int) -> int:
        """o(t), or the last stable offset where no readable record is that late."""
        offset = self.found[timestamp]
        return self.frontier.last_stable_offset if offset is None else min(offset, self.frontier.last_stable_offset)


def _read_until_now(given: PlanInput, frontier: Frontier) -> ReadPlan:
    covered = given.state.coverage(frontier.kafka_partition)
    start = frontier.log_start_offset
    gap = _retention_gap(given, frontier, start, "everything up to now") if covered else _before_archive(frontier)
    needed = span(start, frontier.last_stable_offset) - covered
    return ReadPlan(frontier.kafka_partition, _cut(given, needed, []), gap=gap)


def _before_archive(frontier: Frontier) -> Gap | None:
    """What was gone before archiving began: nothing was promised of it, but coverage must not look whole."""
    if frontier.log_start_offset == 0:
        return None
    return Gap(frontier.kafka_partition, 0, frontier.log_start_offset, "retention")


def _retention_gap(given: PlanInput, frontier: Frontier, start: int, what: str) -> Gap | None:
    """Uncovered offsets right before `start` that no longer exist, if what is asked for may have held them."""
    log_start, topic = frontier.log_start_offset, given.description.topic
    covered = given.state.coverage(frontier.kafka_partition)
    if log_start == 0 or start != log_start or covered.covers(log_start - 1, log_start):
        return None
    known = max((r.end_offset for r in covered if r.end_offset <= log_start), default=0)
    gap = Gap(frontier.kafka_partition, known, log_start, "retention")
    if given.config.archive.allow_gaps:
        return gap
    extent = "" if covered else " (how many of them belong to it is unknown: nothing before them is archived)"
    raise OffsetGapError(
        f"{topic}-{frontier.kafka_partition}: offsets [{known}, {log_start}) were deleted before they were archived, "
        f"and {what} may have held some of them{extent}. To record the gap and archive the rest, set "
        f"archive.allow.gaps=true"
    )


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
