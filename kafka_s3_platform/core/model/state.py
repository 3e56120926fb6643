"""The archive's state per kafka partition: the recorded rows of the index, and their meaning for planning.

Old rows may be *folded*: moved to a file of their month, while their sum stays in `fold`. So the state does not grow
with the archive's age. All rules count both sums and rows. The few rules about a single old hour read its month's rows.

*Coverage* is the offsets of scans and gaps. None of these is to be read again. A *mark* is an offset with its leader
epoch. The range of an hour in a kafka partition is what ListOffsets answered when the hour was planned.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TypeAlias

from kafka_s3_platform.core.model.frontier import Frontier, Observations
from kafka_s3_platform.core.model.gaps import Gap, GapReason, Unresolved, subtract_offsets
from kafka_s3_platform.core.model.judge import Judge
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
    EpochMark,
    Fold,
    HourRange,
    Reservation,
    Scan,
    Segment,
    TopicGeneration,
    find_folded_month,
    list_folded_hours,
    list_months,
)

Range: TypeAlias = tuple[int | None, int | None]
"""The start and the end of an hour in a kafka partition. Each is None if it is unknown."""

Ranges: TypeAlias = Mapping[int, Range]
"""The range of each kafka partition."""

UNKNOWN: Range = (None, None)


@dataclass(frozen=True)
class IndexState:
    """The rows of one version of a topic's index, and their meaning. Rows are in the order of their recording.

    `scans`, `frontiers` and `hours` are the rows not folded yet. `read_month` returns the folded rows of a month of UTC
    (`2026-03`), as a state of their own.
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
    list_out_of_range: Callable[[datetime], Iterable[Segment]] = field(
        default_factory=lambda: _list_no_segments, compare=False, repr=False
    )
    """Lists out-of-range segments that may hold records of an hour or later ones, since the archive began after it."""

    @property
    def all_scans(self) -> tuple[Scan, ...]:
        """The folded scans and the others."""
        return (*self.fold.scans, *self.scans)

    @property
    def all_frontiers(self) -> tuple[Frontier, ...]:
        """The folded frontiers and the others, in the order of recording."""
        return (*sorted(self.fold.frontiers, key=lambda frontier: frontier.observed_at), *self.frontiers)

    @cached_property
    def observations(self) -> Observations:
        """All recorded frontiers, and the conclusions from them."""
        return Observations(self.all_frontiers)

    @cached_property
    def judge(self) -> Judge:
        """The judge of complete hours."""
        return Judge(self)

    @property
    def seen_kafka_partitions(self) -> list[int]:
        """The kafka partitions with a frontier or another row."""
        return sorted({*self.observations.highest_ends, *self._coverage, *self._gaps})

    @property
    def scanned_kafka_partitions(self) -> list[int]:
        """The kafka partitions with a scan."""
        return sorted({s.kafka_partition for s in self.all_scans})

    @property
    def folded_hours(self) -> frozenset[datetime]:
        return list_folded_hours(self.fold.hours)

    @cached_property
    def asked_hours(self) -> frozenset[datetime]:
        """Every hour ever requested."""
        return self.folded_hours.union(row.hour for row in self.hours)

    @cached_property
    def first_asked_hour(self) -> datetime | None:
        """The earliest hour ever requested, or None if none was."""
        young = min((row.hour for row in self.hours), default=None)
        return min((hour for hour in (young, *(run.hour for run in self.fold.hours)) if hour is not None), default=None)

    def is_folded(self, hour: datetime) -> bool:
        """Return True if the hour was complete when its rows were moved out of the state."""
        return any(hour in run for run in self.fold.hours)

    def read_folded(self, hours: Iterable[datetime]) -> "tuple[IndexState, ...]":
        """Return the folded rows of the months of those `hours` that are folded."""
        months = sorted({find_folded_month(hour) for hour in hours if self.is_folded(hour)})
        return tuple(self.read_month(month) for month in months)

    def coverage(self, kafka_partition: int) -> RangeSet:
        """Return the offsets scanned and committed so far, including known gaps."""
        return self._coverage.get(kafka_partition, RangeSet())

    @cached_property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """The `failures`, in order, without the offsets covered since then."""
        rows: dict[int, list[Unresolved]] = defaultdict(list)
        for item in self.failures:
            rows[item.kafka_partition].append(item)
        open_rows: list[Unresolved] = []
        for kafka_partition in sorted(rows):
            open_rows += subtract_offsets(rows[kafka_partition], self.coverage(kafka_partition))
        return tuple(open_rows)

    @cached_property
    def as_if_resolved(self) -> "IndexState":
        """This state as if unresolved offsets were archived, so plans do not try them again in vain."""
        tried = (Gap(u.kafka_partition, u.start_offset, u.end_offset, "skipped") for u in self.unresolved)
        return replace(self, gaps=(*self.gaps, *tried), failures=())

    def gaps_of(self, kafka_partition: int) -> tuple[Gap, ...]:
        """Return the gaps of one kafka partition."""
        return self._gaps.get(kafka_partition, ())

    def gap_offsets(self, kafka_partition: int, reason: GapReason) -> RangeSet:
        """Return the offsets of the gaps with this reason."""
        return self._gap_offsets.get((kafka_partition, reason), RangeSet())

    def deleted(self, kafka_partition: int) -> RangeSet:
        """Return the covered offsets that retention deleted before their records were archived."""
        # The archive holds what was scanned before retention deleted it.
        scanned = RangeSet(s.offsets for s in self.all_scans if s.kafka_partition == kafka_partition)
        return self.gap_offsets(kafka_partition, "retention") - scanned

    @property
    def contiguous_ends(self) -> dict[int, int]:
        """For each kafka partition with coverage, the end of its coverage up to the first hole."""
        return {p: covered.ranges[0].end_offset for p, covered in sorted(self._coverage.items())}

    @property
    def topic(self) -> TopicGeneration | None:
        """The topic as it was archived last."""
        return self.generations[-1] if self.generations else None

    def was_added(self, kafka_partition: int) -> bool:
        """Return True if the kafka partition was added after archiving began, and so is archived from its offset 0."""
        return bool(self.generations) and kafka_partition not in self.generations[0].kafka_partitions

    def list_epoch_marks(self, kafka_partition: int) -> list[EpochMark]:
        """List, in order, the ends of scans and gaps at which the archived log's leader epoch is known.

        A log is compared with the archive there. No later epoch began below such an end. If the reader did not know the
        epoch, it is taken from the first frontier with this end, since a shorter log's epoch may be too low, and a
        later frontier may follow a truncation. Ends inside an accepted truncation are left out.
        """
        epochs = self._leader_epochs.get(kafka_partition, {})
        lost = self.gap_offsets(kafka_partition, "truncated")
        return [
            EpochMark(offset, epochs[offset])
            for offset in sorted(epochs)
            if offset and not lost.covers(offset - 1, offset)
        ]

    def find_epoch_mark(self, kafka_partition: int, log_start: int, end_offset: int) -> EpochMark | None:
        """Return the mark at which to compare a log to detect a truncation below `end_offset`, or None without one.

        It is the highest one at or below this offset. The offset itself may have none, for instance after an unreadable
        batch. Retention may have deleted all marks: those below `log_start` do not count.
        """
        covered = self.coverage(kafka_partition)
        begin = next((r.start_offset for r in covered if r.start_offset < end_offset <= r.end_offset), end_offset)
        lowest = max(begin, log_start - 1)
        marks = [mark for mark in self.list_epoch_marks(kafka_partition) if lowest < mark.offset <= end_offset]
        return marks[-1] if marks else None

    def hour_start(self, kafka_partition: int, hour: datetime) -> int | None:
        """Return the lowest start offset ever planned for the hour, or None if it never was."""
        return self._find_ranges(hour).get(kafka_partition, UNKNOWN)[0]

    def hour_of(self, kafka_partition: int, offset: int) -> datetime | None:
        """Return the latest hour whose planned range holds the offset, or None if there is none."""
        hour = self.last_begun(kafka_partition, offset)
        end = None if hour is None else self._find_ranges(hour)[kafka_partition][1]
        return hour if end is None or offset < end else None

    def last_begun(self, kafka_partition: int, offset: int) -> datetime | None:
        """Return the latest hour, folded or not, that was planned to begin at or before the offset, or None."""
        planned = self._planned.get(kafka_partition, [])
        at = bisect_right(planned, offset, key=lambda hour: self._hours[hour][kafka_partition][0] or 0)
        last = planned[at - 1] if at else None
        if last is not None and all(run.until <= last for run in self.fold.hours):
            return last
        # a binary search: only the months that it compares are read
        months = list_months(self.fold.hours)
        at = bisect_right(months, offset, key=lambda month: self.read_month(month).first_start(kafka_partition))
        folded = self.read_month(months[at - 1]).last_begun(kafka_partition, offset) if at else None
        return max((hour for hour in (last, folded) if hour is not None), default=None)

    def first_start(self, kafka_partition: int) -> int:
        """Return the lowest planned start offset of any hour, or 0 if there is none."""
        starts = (ranges.get(kafka_partition, UNKNOWN)[0] for ranges in self._hours.values())
        return min((start for start in starts if start is not None), default=0)

    def is_scanned(self, hour: datetime) -> bool:
        """Return True if the hour was requested, and coverage holds all its offsets as ListOffsets reported them."""
        ranges = self._hours.get(hour, {})
        if not ranges:
            return self.is_folded(hour)
        return all(end is not None and self.coverage(p).covers(start or 0, end) for p, (start, end) in ranges.items())

    def list_condemned_starts(self, kafka_partition: int) -> frozenset[int]:
        """Return the start offsets of condemned objects, which a vacuum may be deleting.

        A new object with such a start offset needs a key other than the usual one, or the vacuum would delete it too.
        """
        return frozenset(c.start_offset for c in self.condemned if c.kafka_partition == kafka_partition)

    def conflicting(self, ranges: Mapping[int, RangeSet]) -> tuple[Reservation, ...]:
        """Return the reservations overlapping `ranges`."""
        conflicts: list[Reservation] = []
        for reservation in self.reservations:
            needed = ranges.get(reservation.kafka_partition, RangeSet())
            if any(map(reservation.offsets.overlaps, needed)):
                conflicts.append(reservation)
        return tuple(conflicts)

    def find_first_log_start(self, kafka_partition: int) -> int | None:
        """Return the log start at the first observation, 0 for a kafka partition added later, or None if unknown."""
        if self.was_added(kafka_partition):
            return 0
        return self.observations.first_log_starts.get(kafka_partition, 0 if self.coverage(kafka_partition) else None)

    @cached_property
    def _gaps(self) -> dict[int, tuple[Gap, ...]]:
        gaps: dict[int, list[Gap]] = defaultdict(list)
        for gap in self.gaps:
            gaps[gap.kafka_partition].append(gap)
        return {p: tuple(topic_gaps) for p, topic_gaps in gaps.items()}

    @cached_property
    def _gap_offsets(self) -> dict[tuple[int, GapReason], RangeSet]:
        """The offsets of gaps by kafka partition and reason, cached because every judged hour needs them."""
        ranges: dict[tuple[int, GapReason], list[OffsetRange]] = defaultdict(list)
        for gap in self.gaps:
            ranges[gap.kafka_partition, gap.reason].append(gap.offsets)
        return {place: RangeSet(place_ranges) for place, place_ranges in ranges.items()}

    @cached_property
    def _coverage(self) -> dict[int, RangeSet]:
        ranges_by_number: dict[int, list[OffsetRange]] = defaultdict(list)
        items: list[Scan | Gap] = [*self.all_scans, *(gap for gap in self.gaps if gap.is_covered)]
        for item in items:
            ranges_by_number[item.kafka_partition].append(item.offsets)
        return {p: RangeSet(ranges) for p, ranges in ranges_by_number.items()}

    @cached_property
    def _leader_epochs(self) -> dict[int, dict[int, int]]:
        """The known leader epochs at the ends of scans and gaps, by kafka partition.

        For truncated offsets, it is the epoch at their start, because log and archive are the same up to there.
        """
        epochs: dict[int, dict[int, int]] = defaultdict(dict)
        unknown: set[tuple[int, int]] = set()
        items: list[Scan | Gap] = [*self.all_scans, *(gap for gap in self.gaps if gap.is_covered)]
        for item in items:
            is_truncated = isinstance(item, Gap) and item.reason == "truncated"
            offset = item.start_offset if is_truncated else item.end_offset
            if item.leader_epoch is not None:
                epochs[item.kafka_partition].setdefault(offset, item.leader_epoch)
            elif not is_truncated:
                unknown.add((item.kafka_partition, offset))
        for frontier in sorted(self.all_frontiers, key=lambda f: f.observed_at):
            if (frontier.kafka_partition, frontier.last_stable_offset) in unknown and frontier.leader_epoch is not None:
                epochs[frontier.kafka_partition].setdefault(frontier.last_stable_offset, frontier.leader_epoch)
        return dict(epochs)

    def _find_ranges(self, hour: datetime) -> Ranges:
        """Return the ranges of the hour. If the hour is folded, its month is read."""
        single = self._hours.get(hour, {})
        if not self.is_folded(hour):
            return single
        folded = self.read_month(find_folded_month(hour))._hours.get(hour, {})  # noqa: SLF001 - of the same class
        return {p: _widen(single.get(p, UNKNOWN), folded.get(p, UNKNOWN)) for p in {*single, *folded}}

    @cached_property
    def _hours(self) -> dict[datetime, dict[int, Range]]:
        """For each hour and kafka partition the lowest start and the highest end ever planned, None while unknown.

        The offsets that ListOffsets reports for an hour only move up.
        """
        hours: dict[datetime, dict[int, Range]] = defaultdict(dict)
        for item in self.hours:
            earlier_scan = hours[item.hour].get(item.kafka_partition, UNKNOWN)
            hours[item.hour][item.kafka_partition] = _widen(earlier_scan, (item.start_offset, item.end_offset))
        return hours

    @cached_property
    def _planned(self) -> dict[int, list[datetime]]:
        """The planned hours with a known start, in order, by kafka partition."""
        planned: dict[int, list[datetime]] = defaultdict(list)
        for hour in sorted(self._hours):
            for kafka_partition, (start, _) in self._hours[hour].items():
                if start is not None:
                    planned[kafka_partition].append(hour)
        return planned


def _widen(first_range: Range, second_range: Range) -> Range:
    """Return the lowest start and the highest end of both."""
    starts = [start for start in (first_range[0], second_range[0]) if start is not None]
    ends = [end for end in (first_range[1], second_range[1]) if end is not None]
    return min(starts, default=None), max(ends, default=None)


def _read_no_month(month: str) -> IndexState:
    raise LookupError(f"the state has folded hours of {month}, and nothing to read their rows with")


def _list_no_segments(_: datetime) -> tuple[Segment, ...]:
    return ()
