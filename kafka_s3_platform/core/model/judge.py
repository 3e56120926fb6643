"""The judge of hours: it alone decides if an hour is complete, and lists the offsets missing from it.

An hour is complete when none of the offsets that may hold its records is still to be archived. The judge finds the
offsets that may hold, or have held, records of the hour, and the *fate* of each (archived, lost, unresolved, ...). A
*ledger* has the fates of all offsets of a kafka partition, from its scans, decisions and observations. If knowledge is
missing, more offsets count: a range counts for every hour it may touch.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from kafka_s3_platform.core.model.gaps import UNREADABLE, Gap, GapReason, count_reasons
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import find_folded_month, list_months
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms

if TYPE_CHECKING:
    from kafka_s3_platform.core.model.state import IndexState

Fate: TypeAlias = Literal[
    "truncated",
    "archived",
    "taken over",
    "skipped",
    "retention",
    "unresolved",
    "before archiving began",
    "cut off",
    "expected",
]
"""The fate of an offset. `expected` is still to be archived. For the others see `Gap.reason` and `Unresolved`."""

OPEN: frozenset[Fate] = frozenset({"unresolved", "expected"})
"""Fates that change when a run archives the offsets, or somebody decides about them."""

LOST: frozenset[Fate] = frozenset({"truncated", "skipped", "retention", "before archiving began", "cut off"})
"""Fates of offsets whose records are not in the archive, or not all of them, and never will be."""

LEFT_OUT: frozenset[Fate] = LOST | {"taken over"}
"""Fates of offsets that this archive does without."""


def make_gap(kafka_partition: int, offsets: OffsetRange, fate: Fate) -> Gap:
    """Return the gap of left-out offsets."""
    return Gap(kafka_partition, offsets.start_offset, offsets.end_offset, cast("GapReason", fate))


class Ledger:
    """The fate of every offset from 0 to a kafka partition's highest end, as ranges with one fate each."""

    __slots__ = ("lost", "open", "ranges")

    def __init__(self, end_offset: int, layers: Iterable[tuple[Fate, RangeSet]]) -> None:
        """Give each offset the fate of the first layer that holds it, or `expected` if none does."""
        rest = make_span(0, end_offset)
        ranges: list[tuple[OffsetRange, Fate]] = []
        for fate, offsets in layers:
            ranges += ((r, fate) for r in rest & offsets)
            rest -= offsets
        ranges += ((r, "expected") for r in rest)
        self.ranges = tuple(sorted(ranges))
        self.open = RangeSet(r for r, fate in ranges if fate in OPEN)
        self.lost = RangeSet(r for r, fate in ranges if fate in LOST)

    def within(self, offsets: RangeSet, fates: frozenset[Fate]) -> Iterator[tuple[OffsetRange, Fate]]:
        """Yield, in order, the ranges with one of these fates, as far as they lie inside `offsets`."""
        for item, fate in self.ranges:
            if fate in fates:
                yield from ((r, fate) for r in offsets.within(item))


CUTS: tuple[GapReason, ...] = ("truncated", "cut off")
"""Reasons of gaps in which a log has lost its end, so that other records may lie there now."""


@dataclass(frozen=True)
class HourVerdict:
    """The verdict on an hour.

    `kafka_partitions` are those in the first observation after the hour and its lateness; it is empty without such an
    observation. `open` has, by kafka partition, the unarchived ranges that may hold records of the hour, with their
    fates. `lacking` are lost ranges that may have held some. `taken_over_count` of the offsets that may hold some were
    archived by another sink. Up to `out_of_range_count` of its records are archived as out of range, since the archive
    began after it: only segments show this.
    """

    hour: datetime
    kafka_partitions: frozenset[int] = frozenset()
    open: Mapping[int, tuple[tuple[OffsetRange, Fate], ...]] = field(default_factory=dict)
    lacking: tuple[Gap, ...] = ()
    taken_over_count: int = 0
    out_of_range_count: int = 0

    @property
    def is_complete(self) -> bool:
        """True if the archive holds all records that Kafka had at the end of the lateness, except `lacking`."""
        return bool(self.kafka_partitions) and not self.open and not self.out_of_range_count

    def is_complete_in(self, kafka_partition: int) -> bool:
        """Return True if the hour is complete in this kafka partition."""
        is_archived = kafka_partition in self.kafka_partitions and kafka_partition not in self.open
        return is_archived and not self.out_of_range_count

    @property
    def open_counts(self) -> Counter[Fate]:
        """The number of open offsets by fate."""
        counts: Counter[Fate] = Counter()
        for offsets, fate in chain.from_iterable(self.open.values()):
            counts[fate] += len(offsets)
        return counts

    def __str__(self) -> str:
        """Describe the verdict: `complete, but for offsets that may be of it: 250 before archiving began`."""
        if self.is_complete:
            lacking = ", ".join(f"{count:,} {reason}" for reason, count in count_reasons(self.lacking).items())
            return f"complete, but for offsets that may be of it: {lacking}" if lacking else "complete"
        waiting = ", ".join(f"{count:,} offsets {fate}" for fate, count in self.open_counts.items())
        why = "" if self.kafka_partitions else "the log was not looked at since it was over"
        count = self.out_of_range_count
        apart = f"{count:,} records of it may be archived as out of range" if count else ""
        return f"not complete: {'; '.join(filter(None, (why, waiting, apart)))}"


class Judge:
    """Judges the hours of one state. In the methods, `index` counts the complete observations, oldest first."""

    def __init__(self, state: "IndexState") -> None:
        self._state = state
        self._observations = state.observations
        self._ledgers: dict[int, Ledger] = {}
        self._clear_observations: dict[int, bool] = {}
        self._unfolded: dict[tuple[str, ...], Judge] = {}

    def find_verdict(self, hour: datetime, allowed_lateness: timedelta) -> HourVerdict:
        """Judge an hour by the fates of the offsets that may hold its records, up to a late enough high watermark.

        Late enough means at or after the hour's end plus the allowed lateness. The kafka partitions come from that
        observation, so one added later does not reopen the hour. Without such an observation, all known ones count.
        """
        over = hour + HOUR + allowed_lateness
        index = self._observations.find(over)
        ends = self._observations.find_ends(index)
        if self._is_old(over):
            is_done = self._is_clear(index) or (self._state.is_folded(hour) and self._is_archived_since_fold(index))
            if is_done and not self._may_lack(hour, index):
                return HourVerdict(hour, frozenset(ends), out_of_range_count=self._count_out_of_range(hour))
            return self._read_single_rows(hour, over).find_verdict(hour, allowed_lateness)
        waiting: dict[int, tuple[tuple[OffsetRange, Fate], ...]] = {}
        lacking: list[Gap] = []
        taken_over_count = 0
        for kafka_partition, end in sorted((ends or self._observations.highest_ends).items()):
            may_hold = self.find_may_hold(kafka_partition, hour, end)
            may_hold |= self._find_unwitnessed(kafka_partition, index, to_epoch_ms(hour + HOUR))
            ledger = self.get_ledger(kafka_partition)
            if ranges := tuple(ledger.within(may_hold, OPEN)):
                waiting[kafka_partition] = ranges
            gaps = [make_gap(kafka_partition, *lost) for lost in ledger.within(may_hold, LOST)]
            for reason in CUTS:
                since = self._find_lost_since(kafka_partition, hour, index, reason)
                gaps += (make_gap(kafka_partition, r, reason) for r in since - RangeSet(g.offsets for g in gaps))
            lacking += sorted(gaps)
            taken_over_count += sum(map(len, self._state.gap_offsets(kafka_partition, "taken over") & may_hold))
        out_of_range_count = self._count_out_of_range(hour)
        return HourVerdict(hour, frozenset(ends), waiting, tuple(lacking), taken_over_count, out_of_range_count)

    def is_complete(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Return True if the hour is judged complete. For most of tens of thousands, the observation is enough."""
        if self._count_out_of_range(hour):
            return False
        index = self._observations.find(hour + HOUR + allowed_lateness)
        if self._is_clear(index):
            return True
        if self._state.is_folded(hour):
            return self._is_archived_since_fold(index)
        return index < len(self._observations.complete) and self.find_verdict(hour, allowed_lateness).is_complete

    def list_complete(self, hours: Iterable[datetime], allowed_lateness: timedelta) -> set[datetime]:
        """Return the complete ones of `hours`."""
        return {hour for hour in hours if self.is_complete(hour, allowed_lateness)}

    def find_newest_complete(self, first: datetime, newest: datetime, allowed_lateness: timedelta) -> datetime | None:
        """Return the newest complete hour from `first` to `newest`, or None if there is none.

        It looks at `newest` and the day before it, each requested hour, and the last hour of each folded run.
        """
        candidates = chain(
            (newest - n * HOUR for n in range(25)),
            sorted({row.hour for row in self._state.hours}, reverse=True),
            sorted((run.until - HOUR for run in self._state.fold.hours), reverse=True),
        )
        hours = (hour for hour in candidates if first <= hour <= newest)
        return next((hour for hour in hours if self.is_complete(hour, allowed_lateness)), None)

    def may_lack(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Return True if lost or taken-over offsets may touch the hour. No folded row is read."""
        over = hour + HOUR + allowed_lateness
        if self._is_old(over):
            return self._may_lack(hour, self._observations.find(over))
        verdict = self.find_verdict(hour, allowed_lateness)
        return bool(verdict.lacking or verdict.taken_over_count)

    def find_may_hold(self, kafka_partition: int, hour: datetime, end_offset: int) -> RangeSet:
        """Return the offsets below `end_offset` that may hold, or have held, records of the hour.

        Left out are those that ListOffsets passed over when the hour was planned, and those deleted before the hour
        began. The first rule does not hold after a truncation, nor for unreadable batches, which may lie about their
        offsets, unless these were there before the hour began.
        """
        start, log_start = self._planned_starts.get((kafka_partition, hour), (0, 0))
        start = self._bound_by_cuts(kafka_partition, start)
        unread_offsets = self._unread.get(kafka_partition, RangeSet())
        if unread_offsets:
            # the clock of the observation may have been behind
            _, seen_end = self._observations.find_bounds_before(kafka_partition, hour - HOUR)
            unread_offsets -= make_span(0, self._bound_by_cuts(kafka_partition, seen_end))
        none_there = make_span(log_start, start) - unread_offsets
        return make_span(self._find_deleted_end(kafka_partition, hour), end_offset) - none_there

    def find_end_of(self, kafka_partition: int, hour: datetime, allowed_lateness: timedelta) -> int | None:
        """Return an offset above all records of the hour that came in time, or None if none is known."""
        return self._observations.find_ends(self._observations.find(hour + HOUR + allowed_lateness)).get(
            kafka_partition
        )

    def _count_out_of_range(self, hour: datetime) -> int:
        """Count the records of the out-of-range segments that may hold records of this hour."""
        return sum(s.record_count for s in self._state.list_out_of_range(hour) if s.may_hold_apart(hour))

    def _find_deleted_end(self, kafka_partition: int, hour: datetime) -> int:
        """Return the highest log start observed before the hour began, but none above the start of a truncation."""
        log_start, _ = self._observations.find_bounds_before(kafka_partition, hour)
        return self._bound_by_cuts(kafka_partition, log_start)

    def _bound_by_cuts(self, kafka_partition: int, offset: int) -> int:
        """Return `offset`, or the start of a truncation of it, up to which the log still holds its earlier records."""
        cuts = (gap for gap in self._state.gaps_of(kafka_partition) if gap.reason in CUTS)
        return min([offset, *(gap.start_offset for gap in cuts if gap.start_offset < offset <= gap.end_offset)])

    def get_ledger(self, kafka_partition: int) -> Ledger:
        """Return the fate of each offset below the kafka partition's highest end ever observed."""
        if kafka_partition not in self._ledgers:
            self._ledgers[kafka_partition] = self._make_ledger(kafka_partition)
        return self._ledgers[kafka_partition]

    @cached_property
    def left_out(self) -> tuple[Gap, ...]:
        """All offsets lost to this archive for good, including another sink's offsets."""
        gaps: list[Gap] = []
        for kafka_partition in self._state.seen_kafka_partitions:
            left_out = [(r, fate) for r, fate in self.get_ledger(kafka_partition).ranges if fate in LEFT_OUT]
            gaps += (make_gap(kafka_partition, *lost) for lost in left_out)
            cut_off = self._state.gap_offsets(kafka_partition, "cut off") - RangeSet(r for r, _ in left_out)
            gaps += (make_gap(kafka_partition, r, "cut off") for r in cut_off)
        return tuple(gaps)

    def _make_ledger(self, kafka_partition: int) -> Ledger:
        """Make the ledger. Its layers are in order: if several reasons apply to an offset, the first one decides."""
        state = self._state
        unresolved = RangeSet(u.offsets for u in state.failures if u.kafka_partition == kafka_partition)
        covered = state.coverage(kafka_partition)
        highest = self._observations.highest_ends.get(kafka_partition, 0)
        end = max(highest, covered.end_offset or 0, unresolved.end_offset or 0)
        layers: list[tuple[Fate, RangeSet]] = [
            ("truncated", state.gap_offsets(kafka_partition, "truncated")),
            # a scan goes on over what was deleted while it read
            ("retention", state.gap_offsets(kafka_partition, "retention")),
            ("taken over", state.gap_offsets(kafka_partition, "taken over")),
            ("skipped", state.gap_offsets(kafka_partition, "skipped")),
            ("archived", covered),
            # beyond the end by the last two observations is nothing that could be archived
            ("cut off", make_span(self._observations.find_last_end(kafka_partition, end), end)),
            ("unresolved", unresolved),
            ("before archiving began", make_span(0, state.find_first_log_start(kafka_partition) or 0)),
        ]
        return Ledger(end, layers)

    def _find_lost_since(self, kafka_partition: int, hour: datetime, index: int, reason: GapReason) -> RangeSet:
        """Return the offsets that the log has lost since the hour began, as far as they may belong to it.

        Neither an end nor a ListOffsets answer observed later shows the records that were there before.
        """
        observed_at = self._observations.get_time(index)
        ranges: list[OffsetRange] = []
        for gap in self._state.gaps_of(kafka_partition):
            lost_at = gap.observed_at
            if gap.reason == reason and (lost_at is None or lost_at > hour):
                # clocks may differ
                was_before = observed_at is not None and lost_at is not None and observed_at + HOUR < lost_at
                end = self._observations.find_highest_end(kafka_partition, index) if was_before else None
                ranges += make_span(gap.start_offset, gap.end_offset if end is None else min(gap.end_offset, end))
        return RangeSet(ranges)

    def _find_unwitnessed(self, kafka_partition: int, index: int, until_ms: int | None = None) -> RangeSet:
        """Return the unresolved offsets that only the observation `index` places after the hour.

        A broker's single answer may be too low, so these offsets may still belong to the hour, unless their timestamps
        are known to be `until_ms` or later.
        """
        items = [item for item in self._state.unresolved if item.kafka_partition == kafka_partition]
        end = self._observations.find_highest_end(kafka_partition, index) if items else None
        if end is None:
            return RangeSet()
        next_end = self._observations.find_next_end(kafka_partition, index)
        return RangeSet(
            item.offsets
            for item in items
            if end <= item.start_offset < next_end
            and (until_ms is None or item.min_timestamp is None or item.min_timestamp < until_ms)
        )

    def _is_clear(self, index: int) -> bool:
        """Return True if all offsets below the observed ends are archived or lost, so its hours are complete."""
        if index not in self._clear_observations:
            ends = self._observations.find_ends(index)
            waiting = {p: self.get_ledger(p).open.ranges for p in ends}
            self._clear_observations[index] = bool(ends) and all(
                (not waiting[p] or end <= waiting[p][0].start_offset) and not self._find_unwitnessed(p, index)
                for p, end in ends.items()
            )
        return self._clear_observations[index]

    def _is_old(self, over: datetime) -> bool:
        """Return True if the first observation after `over` may be folded."""
        fold = self._state.fold
        return bool(fold.hours) and over <= max(frontier.observed_at for frontier in fold.frontiers)

    def _may_lack(self, hour: datetime, index: int) -> bool:
        """Return True if lost or taken-over offsets may touch the hour, judged without its rows."""
        for kafka_partition, end in self._observations.find_ends(index).items():
            lost = self.get_ledger(kafka_partition).lost | self._state.gap_offsets(kafka_partition, "taken over")
            if lost & make_span(self._find_deleted_end(kafka_partition, hour), end):
                return True
            if any(self._find_lost_since(kafka_partition, hour, index, reason) for reason in CUTS):
                return True
        return False

    def _is_archived_since_fold(self, index: int) -> bool:
        """Return True if no offset is open between the start of the folded scans and the observed ends."""
        starts: dict[int, int] = {}
        for item in self._state.fold.scans:
            starts[item.kafka_partition] = min(item.start_offset, starts.get(item.kafka_partition, item.start_offset))
        ends = self._observations.find_ends(index)
        return bool(ends) and not any(
            self.get_ledger(p).open & make_span(starts.get(p, 0), end) for p, end in ends.items()
        )

    def _read_single_rows(self, hour: datetime, over: datetime) -> "Judge":
        """Return a judge with the hour's folded single rows as well, read from their months' files."""
        state = self._state
        months = tuple(dict.fromkeys((find_folded_month(hour), find_folded_month(over))))
        if months not in self._unfolded:
            rows = [state.read_month(month) for month in months if month in list_months(state.fold.hours)]
            frontiers_read = [frontier for r in rows for frontier in r.frontiers]
            times = {frontier.observed_at for frontier in frontiers_read}
            others = sorted(
                (f for f in state.fold.frontiers if f.observed_at not in times), key=lambda f: f.observed_at
            )
            later = [frontier for frontier in others if times and frontier.observed_at > min(times)]
            unfolded = replace(
                state,
                frontiers=(*others[: len(others) - len(later)], *frontiers_read, *later, *state.frontiers),
                hours=(*chain.from_iterable(r.hours for r in rows), *state.hours),
                fold=replace(state.fold, hours=(), frontiers=()),
            )
            self._unfolded[months] = unfolded.judge
        return self._unfolded[months]

    @cached_property
    def _planned_starts(self) -> dict[tuple[int, datetime], tuple[int, int]]:
        """The lowest planned start by kafka partition and hour, and the log start when it was planned."""
        starts: dict[tuple[int, datetime], tuple[int, int]] = {}
        for row in self._state.hours:
            if row.start_offset is not None:
                place = (row.kafka_partition, row.hour)
                planned = (row.start_offset, row.log_start_offset)
                starts[place] = min(planned, starts.get(place, planned))
        return starts

    @cached_property
    def _unread(self) -> dict[int, RangeSet]:
        """The offsets whose records nobody has read, by kafka partition: unreadable batches, and skipped offsets."""
        ranges: dict[int, list[OffsetRange]] = defaultdict(list)
        for item in self._state.failures:
            if item.reason == UNREADABLE:
                ranges[item.kafka_partition].append(item.offsets)
        numbers = self._state.seen_kafka_partitions
        return {p: RangeSet(ranges[p]) | self._state.gap_offsets(p, "skipped") for p in numbers}
