"""The archive's state per kafka partition, and the rules for `scanned` and `complete`.

Old rows may be folded: `fold` has what they come to, so that the state does not grow with the age of the archive. All
rules count both. The few that need a single old hour read the rows of its month then.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import TypeAlias

from kafka_s3_platform.model.folded import Fold, find_folded_month, list_folded_hours, list_months
from kafka_s3_platform.model.frontier import UNTIMED, Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
    EpochMark,
    HourRange,
    Reservation,
    Scan,
    TopicGeneration,
)
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.model.unresolved import Unresolved, subtract_offsets

Range: TypeAlias = tuple[int | None, int | None]
"""Where an hour begins and ends in a kafka partition. None: unknown."""

Ranges: TypeAlias = Mapping[int, Range]
"""The range of each kafka partition."""

UNKNOWN: Range = (None, None)


@dataclass(frozen=True)
class IndexState:
    """All that planning needs from one version of a topic's index. Rows are in the order of recording.

    `scans`, `frontiers` and `hours` are rows that are not folded. `read_month` returns those that were folded of the
    hours of a month of UTC (`2026-03`).
    """

    version: int = -1
    scans: tuple[Scan, ...] = ()
    gaps: tuple[Gap, ...] = ()
    frontiers: tuple[Frontier, ...] = ()
    hours: tuple[HourRange, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    condemned: tuple[Condemned, ...] = ()
    generations: tuple[TopicGeneration, ...] = ()
    groups: tuple[CommittedOffset, ...] = ()
    schemas: tuple[ArchivedSchema, ...] = ()
    failures: tuple[Unresolved, ...] = ()
    fold: Fold = field(default_factory=Fold)
    read_month: "Callable[[str], IndexState]" = field(default_factory=lambda: _read_no_month, compare=False, repr=False)

    @property
    def all_scans(self) -> tuple[Scan, ...]:
        """The folded scans and the others."""
        return (*self.fold.scans, *self.scans)

    @property
    def all_looks(self) -> tuple[Frontier, ...]:
        """The folded looks and the others, in the order of recording."""
        return (*self.fold.looks, *self.frontiers)

    def list_looks(self, kafka_partition: int) -> list[Frontier]:
        """List the looks at one kafka partition."""
        return self._looks.get(kafka_partition, [])

    @cached_property
    def _looks(self) -> dict[int, list[Frontier]]:
        found: dict[int, list[Frontier]] = defaultdict(list)
        for look in self.all_looks:
            found[look.kafka_partition].append(look)
        return dict(found)

    @property
    def scanned_kafka_partitions(self) -> list[int]:
        """The kafka partitions of which something was scanned."""
        return sorted({s.kafka_partition for s in self.all_scans})

    @property
    def folded_hours(self) -> frozenset[datetime]:
        return list_folded_hours(self.fold.hours)

    @cached_property
    def asked_hours(self) -> frozenset[datetime]:
        """Every hour that was ever requested."""
        return self.folded_hours.union(row.hour for row in self.hours)

    @cached_property
    def first_asked_hour(self) -> datetime | None:
        """The earliest hour that was ever requested."""
        young = min((row.hour for row in self.hours), default=None)
        return min((hour for hour in (young, *(run.hour for run in self.fold.hours)) if hour is not None), default=None)

    def is_folded(self, hour: datetime) -> bool:
        """Whether the hour was complete when its rows were moved out of the state."""
        return any(hour in run for run in self.fold.hours)

    @cached_property
    def observations(self) -> "tuple[tuple[datetime, Mapping[int, int]], ...]":
        """The high watermarks by kafka partition of each look that has all of them, by its time, in order."""
        return tuple((at, self._observations[at]) for at in self._observed)

    def read_folded(self, hours: Iterable[datetime]) -> "tuple[IndexState, ...]":
        """Return the folded rows of the months of those `hours` that are folded."""
        months = sorted({find_folded_month(hour) for hour in hours if self.is_folded(hour)})
        return tuple(self.read_month(month) for month in months)

    def coverage(self, kafka_partition: int) -> RangeSet:
        """Return the offsets that were scanned and committed, known gaps included."""
        return self._coverage.get(kafka_partition, RangeSet())

    @cached_property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """The `failures`, in order, without the offsets that coverage holds meanwhile."""
        rows: dict[int, list[Unresolved]] = defaultdict(list)
        for item in self.failures:
            rows[item.kafka_partition].append(item)
        left: list[Unresolved] = []
        for kafka_partition in sorted(rows):
            left += subtract_offsets(rows[kafka_partition], self.coverage(kafka_partition))
        return tuple(left)

    @cached_property
    def settled(self) -> "IndexState":
        """This state as if unresolved offsets were archived. Scanning them again is useless until somebody acts."""
        tried = (Gap(u.kafka_partition, u.start_offset, u.end_offset, "skipped") for u in self.unresolved)
        return replace(self, gaps=(*self.gaps, *tried), failures=())

    def taken_over(self, kafka_partition: int) -> RangeSet:
        """Return the offsets that another sink archived before this one took over. They are part of coverage."""
        return _collect_ranges(g for g in self.gaps if g.kafka_partition == kafka_partition and not g.is_lost)

    def deleted(self, kafka_partition: int) -> RangeSet:
        """Return the offsets that are part of coverage only because retention deleted them."""
        gone = (g for g in self.gaps if g.kafka_partition == kafka_partition and g.reason == "retention")
        # The archive holds what was scanned before retention deleted it.
        scanned = (s for s in self.all_scans if s.kafka_partition == kafka_partition)
        return _collect_ranges(gone) - _collect_ranges(scanned)

    def accepted_end(self, kafka_partition: int) -> int:
        """Return the offset up to which an accepted truncation lets the archive reach beyond the log. 0 without one."""
        found = (g for g in self.gaps if g.kafka_partition == kafka_partition and g.reason == "truncated")
        return max((g.end_offset for g in found), default=0)

    def list_truncated_in(self, hour: datetime) -> list[Gap]:
        """List the accepted truncations that share offsets with the hour as it was planned.

        They begin in an earlier hour. Records of this one came to lie at their offsets later, and are not archived.
        """
        found = [gap for gap in self.gaps if gap.reason == "truncated"]
        if not found:
            return []
        planned = self._find_ranges(hour)
        return [gap for gap in found if _meets(planned.get(gap.kafka_partition, UNKNOWN), gap)]

    def taken_over_in(self, hour: datetime) -> int:
        """Count the offsets of the hour, as it was planned, that another sink archived."""
        if all(gap.is_lost for gap in self.gaps):
            return 0
        count = 0
        for kafka_partition, (start, end) in self._find_ranges(hour).items():
            if start is None:
                continue
            taken = self.taken_over(kafka_partition)
            # If the hour's end is unknown, the hour may hold all offsets that were taken over.
            known_end = (taken.end_offset or 0) if end is None else end
            count += sum(map(len, taken & make_span(start, known_end)))
        return count

    @property
    def contiguous_ends(self) -> dict[int, int]:
        """For each kafka partition with coverage, the end of its coverage up to the first hole."""
        return {p: covered.ranges[0].end_offset for p, covered in sorted(self._coverage.items())}

    @property
    def topic(self) -> TopicGeneration | None:
        """The topic as it was archived last."""
        return self.generations[-1] if self.generations else None

    def was_added(self, kafka_partition: int) -> bool:
        """Whether the kafka partition was added after archiving began. If so, it is archived from its offset 0."""
        return bool(self.generations) and kafka_partition not in self.generations[0].kafka_partitions

    def leader_epoch(self, kafka_partition: int, end_offset: int) -> int | None:
        """Return a leader epoch of the archived log such that no later one began below `end_offset`, None if unknown.

        It is the epoch of a scan or gap that ends at this offset. If its reader did not know the epoch, it is the one
        of the first observation of a log that ended there: the epoch of a shorter log may be too low, and a later
        observation may have seen the log after a truncation. None if a truncation at this offset was accepted.
        """
        if end_offset and end_offset == self.accepted_end(kafka_partition):
            return None
        return self._leader_epochs.get(kafka_partition, {}).get(end_offset)

    def find_epoch_mark(self, kafka_partition: int, log_start: int, end_offset: int) -> EpochMark | None:
        """Return where to look at a log to find out whether it still holds what lies without a hole below `end_offset`.

        It is the highest such place of which the leader epoch is known: of the end itself nobody may know it, for
        instance behind a batch that cannot be read. None if there is none, or retention deleted all below it. What lies
        below the end of an accepted truncation tells nothing: the log has lost some of that.
        """
        covered = self.coverage(kafka_partition)
        begin = next((r.start_offset for r in covered if r.start_offset < end_offset <= r.end_offset), end_offset)
        lowest = max(begin, self.accepted_end(kafka_partition), log_start - 1)
        known = self._leader_epochs.get(kafka_partition, {})
        found = max((end for end in known if lowest < end <= end_offset), default=None)
        return None if found is None else EpochMark(found, known[found])

    def list_epoch_ends(self, kafka_partition: int) -> list[int]:
        """List, in order, the ends of scans and gaps whose leader epoch is known."""
        return sorted(self._leader_epochs.get(kafka_partition, ()))

    def hour_start(self, kafka_partition: int, hour: datetime) -> int | None:
        """Return the lowest offset at which the hour was ever planned to begin."""
        return self._find_ranges(hour).get(kafka_partition, UNKNOWN)[0]

    def hour_of(self, kafka_partition: int, offset: int) -> datetime | None:
        """Return the latest hour whose planned range holds the offset."""
        hour = self.last_begun(kafka_partition, offset)
        end = None if hour is None else self._find_ranges(hour)[kafka_partition][1]
        return hour if end is None or offset < end else None

    def last_begun(self, kafka_partition: int, offset: int) -> datetime | None:
        """Return the latest hour that was planned to begin at the offset or before."""
        planned = self._planned.get(kafka_partition, [])
        at = bisect_right(planned, offset, key=lambda hour: self._hours[hour][kafka_partition][0] or 0)
        last = planned[at - 1] if at else None
        if last is not None and all(run.until <= last for run in self.fold.hours):
            return last
        # the months that a search comes by are read
        months = list_months(self.fold.hours)
        at = bisect_right(months, offset, key=lambda month: self.read_month(month).first_start(kafka_partition))
        folded = self.read_month(months[at - 1]).last_begun(kafka_partition, offset) if at else None
        return max((hour for hour in (last, folded) if hour is not None), default=None)

    def first_start(self, kafka_partition: int) -> int:
        """Return the lowest offset at which an hour was planned to begin, 0 without one."""
        starts = (ranges.get(kafka_partition, UNKNOWN)[0] for ranges in self._hours.values())
        return min((start for start in starts if start is not None), default=0)

    def promised_start(self, kafka_partition: int, hour: datetime | None) -> int | None:
        """Return the first offset that archiving up to `hour` is responsible for. None before archiving began.

        This is the start of the latest planned hour before `hour`. Without such an hour, or if `hour` is None, it is
        where the log began when archiving began.
        """
        first = self._first_log_start(kafka_partition)
        if first is None or hour is None:
            return first
        planned = self._planned.get(kafka_partition, [])
        before = bisect_left(planned, hour)
        earlier = [*planned[:before][-1:], *(last for run in self.fold.hours if (last := run.last_before(hour)))]
        starts = (self.hour_start(kafka_partition, hour) for hour in sorted(earlier, reverse=True))
        return max(first, next((start for start in starts if start is not None), 0))

    def is_scanned(self, hour: datetime) -> bool:
        """Whether the hour was requested, and coverage holds all offsets that ListOffsets then reported for it."""
        ranges = self._hours.get(hour, {})
        if not ranges:
            return self.is_folded(hour)
        return all(end is not None and self.coverage(p).covers(start or 0, end) for p, (start, end) in ranges.items())

    def is_complete(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Whether coverage runs without a hole from the hour's start to a high watermark that was seen late enough.

        Late enough means at or after the hour's end plus the allowed lateness. The kafka partitions are those of that
        observation, so a kafka partition that is added later does not reopen the hour. A kafka partition counts from
        its offset 0 if the hour was not planned for it, or if the hour's start there is unknown.
        """
        at = bisect_left(self._observed, hour + HOUR + allowed_lateness)
        if hour in self._hours:
            return self._is_covered(hour, at)
        # the same look tells the same of all other hours, or of all that are folded: there are tens of thousands
        kind = (at, self.is_folded(hour))
        if kind not in self._others_covered:
            self._others_covered[kind] = self._is_covered(hour, at)
        return self._others_covered[kind]

    def find_covered(self, hour: datetime, allowed_lateness: timedelta) -> Mapping[int, bool]:
        """Return of each kafka partition what `is_complete` asks of all. Empty if no look was late enough."""
        return self._find_covered(hour, bisect_left(self._observed, hour + HOUR + allowed_lateness))

    def _is_covered(self, hour: datetime, at: int) -> bool:
        """Whether coverage runs from the hour's start to the high watermarks of the look `at`."""
        found = self._find_covered(hour, at)
        return bool(found) and all(found.values())

    def _find_covered(self, hour: datetime, at: int) -> dict[int, bool]:
        watermarks = self._watermarks_at(at).items()
        return {p: self.coverage(p).covers(min(self._lowest_start(p, hour), hw), hw) for p, hw in watermarks}

    @cached_property
    def _others_covered(self) -> dict[tuple[int, bool], bool]:
        """What `_is_covered` says of an hour without rows, by look, and whether it is folded."""
        return {}

    def complete_hours(self, hours: Iterable[datetime], allowed_lateness: timedelta) -> set[datetime]:
        """Return those of `hours` that are complete."""
        return {hour for hour in hours if self.is_complete(hour, allowed_lateness)}

    def find_newest_complete(self, first: datetime, newest: datetime, allowed_lateness: timedelta) -> datetime | None:
        """Return the newest complete hour from `first` to `newest`, None if there is none.

        Looked at are `newest` and the day before it, each hour that was asked for, and the last ones that are folded.
        """
        candidates = chain(
            (newest - n * HOUR for n in range(25)),
            sorted({row.hour for row in self.hours}, reverse=True),
            sorted((run.until - HOUR for run in self.fold.hours), reverse=True),
        )
        hours = (hour for hour in candidates if first <= hour <= newest)
        return next((hour for hour in hours if self.is_complete(hour, allowed_lateness)), None)

    def condemned_offsets(self, kafka_partition: int) -> frozenset[int]:
        """Return the first offsets whose usual key a vacuum deletes. An object that begins there gets another key."""
        return frozenset(c.start_offset for c in self.condemned if c.kafka_partition == kafka_partition)

    def conflicting(self, ranges: Mapping[int, RangeSet]) -> tuple[Reservation, ...]:
        """Return the reservations that share an offset with `ranges`."""
        found: list[Reservation] = []
        for reservation in self.reservations:
            wanted = ranges.get(reservation.kafka_partition, RangeSet())
            if any(map(reservation.offsets.overlaps, wanted)):
                found.append(reservation)
        return tuple(found)

    def _first_log_start(self, kafka_partition: int) -> int | None:
        if self.was_added(kafka_partition):
            return 0
        return self.first_log_starts.get(kafka_partition, 0 if self.coverage(kafka_partition) else None)

    def _watermarks_at(self, at: int) -> Mapping[int, int]:
        """Return the high watermarks of the observation `at`, the first that is late enough. No lower ones prove it.

        If no later observation reaches a high watermark, the log was truncated later, or the broker reported too much.
        Then the end that was seen later is all that can be archived. This takes two later observations: a single one
        may report too little itself.
        """
        times = self._observed
        if at == len(times):
            return {}
        later = self._highest_after[at] if at + 2 < len(times) else {}
        return {p: min(hw, later.get(p, hw)) for p, hw in self._observations[times[at]].items()}

    @cached_property
    def _coverage(self) -> dict[int, RangeSet]:
        found: dict[int, list[OffsetRange]] = defaultdict(list)
        items: list[Scan | Gap] = [*self.all_scans, *self.gaps]
        for item in items:
            found[item.kafka_partition].append(item.offsets)
        return {p: RangeSet(ranges) for p, ranges in found.items()}

    @cached_property
    def _leader_epochs(self) -> dict[int, dict[int, int]]:
        """For each kafka partition the leader epochs at the ends of scans and gaps, where they are known."""
        found: dict[int, dict[int, int]] = defaultdict(dict)
        unknown: set[tuple[int, int]] = set()
        items: list[Scan | Gap] = [*self.all_scans, *self.gaps]
        for item in items:
            if item.leader_epoch is None:
                unknown.add((item.kafka_partition, item.end_offset))
            else:
                found[item.kafka_partition].setdefault(item.end_offset, item.leader_epoch)
        for look in sorted(self.all_looks, key=lambda f: f.observed_at):
            if (look.kafka_partition, look.last_stable_offset) in unknown and look.leader_epoch is not None:
                found[look.kafka_partition].setdefault(look.last_stable_offset, look.leader_epoch)
        return dict(found)

    def _find_ranges(self, hour: datetime) -> Ranges:
        """Return the ranges of the hour. Its month is read if it is folded."""
        known = self._hours.get(hour, {})
        if not self.is_folded(hour):
            return known
        folded = self.read_month(find_folded_month(hour))._hours.get(hour, {})  # noqa: SLF001 - of the same class
        return {p: _widen(known.get(p, UNKNOWN), folded.get(p, UNKNOWN)) for p in {*known, *folded}}

    def _lowest_start(self, kafka_partition: int, hour: datetime) -> int:
        """Return an offset that no record of the hour lies before.

        Of a folded hour it is where all that is folded begins: so its own rows need not be read.
        """
        known = self._hours.get(hour, {}).get(kafka_partition, UNKNOWN)[0]
        if not self.is_folded(hour):
            return known or 0
        starts = [s.start_offset for s in self.fold.scans if s.kafka_partition == kafka_partition]
        return min([*starts, *([] if known is None else [known])], default=0)

    @cached_property
    def _hours(self) -> dict[datetime, dict[int, Range]]:
        """For each hour and kafka partition the lowest start and the highest end ever planned. None: still unknown.

        What ListOffsets reports for an hour only moves up.
        """
        found: dict[datetime, dict[int, Range]] = defaultdict(dict)
        for item in self.hours:
            known = found[item.hour].get(item.kafka_partition, UNKNOWN)
            found[item.hour][item.kafka_partition] = _widen(known, (item.start_offset, item.end_offset))
        return found

    @cached_property
    def _planned(self) -> dict[int, list[datetime]]:
        """For each kafka partition, in order, the planned hours whose start there is known."""
        found: dict[int, list[datetime]] = defaultdict(list)
        for hour in sorted(self._hours):
            for kafka_partition, (start, _) in self._hours[hour].items():
                if start is not None:
                    found[kafka_partition].append(hour)
        return found

    @cached_property
    def _observations(self) -> dict[datetime, dict[int, int]]:
        """High watermarks by time of observation. Observations that lack some kafka partitions are left out."""
        found: dict[datetime, dict[int, int]] = defaultdict(dict)
        counts: dict[datetime, int] = defaultdict(int)
        for item in self.all_looks:
            found[item.observed_at][item.kafka_partition] = item.high_watermark
            counts[item.observed_at] = max(counts[item.observed_at], item.kafka_partition_count or 0)
        return {at: seen for at, seen in found.items() if len(seen) >= counts[at]}

    @cached_property
    def first_log_starts(self) -> dict[int, int]:
        """Where each log began when it was first observed. Looks without a time are in no order."""
        found: dict[int, int] = {}
        for item in self.all_looks:
            first = found.setdefault(item.kafka_partition, item.log_start_offset)
            if item.observed_at == UNTIMED:
                found[item.kafka_partition] = min(first, item.log_start_offset)
        return found

    @cached_property
    def _observed(self) -> list[datetime]:
        return sorted(self._observations)

    @cached_property
    def _highest_after(self) -> list[Mapping[int, int]]:
        """For each time in `_observed`, the highest high watermarks of all later observations."""
        found: list[Mapping[int, int]] = []
        highest: dict[int, int] = {}
        for at in reversed(self._observed):
            found.append(dict(highest))
            for kafka_partition, high_watermark in self._observations[at].items():
                highest[kafka_partition] = max(high_watermark, highest.get(kafka_partition, 0))
        return found[::-1]


def _collect_ranges(items: Iterable[Scan | Gap]) -> RangeSet:
    return RangeSet(i.offsets for i in items)


def _widen(one: Range, other: Range) -> Range:
    """Return the lowest start and the highest end of both."""
    starts = [start for start in (one[0], other[0]) if start is not None]
    ends = [end for end in (one[1], other[1]) if end is not None]
    return min(starts, default=None), max(ends, default=None)


def _meets(planned: Range, gap: Gap) -> bool:
    start, end = planned
    return start is not None and start < gap.end_offset and (end is None or gap.start_offset < end)


def _read_no_month(month: str) -> IndexState:
    raise LookupError(f"the state has folded hours of {month}, and nothing to read their rows with")
