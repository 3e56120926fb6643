"""The archive's state per kafka partition, and the rules for `scanned` and `complete`. Pure."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.model.frontier import UNTIMED, Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import (
    MAINTENANCE_LEASE,
    CommittedOffset,
    Compaction,
    Condemned,
    HourRange,
    Maintenance,
    Reservation,
    Scan,
    TopicGeneration,
)
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.model.unresolved import Unresolved, subtract_offsets


@dataclass(frozen=True)
class IndexState:
    """All that planning needs from one version of a topic's index. Rows are in the order of recording."""

    version: int = -1
    scans: tuple[Scan, ...] = ()
    gaps: tuple[Gap, ...] = ()
    frontiers: tuple[Frontier, ...] = ()
    hours: tuple[HourRange, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    condemned: tuple[Condemned, ...] = ()
    generations: tuple[TopicGeneration, ...] = ()
    groups: tuple[CommittedOffset, ...] = ()
    schemas: tuple[ArchivedSchema, ...] = ()
    failures: tuple[Unresolved, ...] = ()
    commit_ids: frozenset[str] = field(default_factory=frozenset)

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
        scanned = (s for s in self.scans if s.kafka_partition == kafka_partition)
        return _collect_ranges(gone) - _collect_ranges(scanned)

    def accepted_end(self, kafka_partition: int) -> int:
        """Return the offset up to which an accepted truncation lets the archive reach beyond the log. 0 without one."""
        found = (g for g in self.gaps if g.kafka_partition == kafka_partition and g.reason == "truncated")
        return max((g.end_offset for g in found), default=0)

    def taken_over_in(self, hour: datetime) -> int:
        """Count the offsets of the hour, as it was planned, that another sink archived."""
        count = 0
        for kafka_partition, (start, end) in self._hours.get(hour, {}).items():
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

        It is the epoch of a scan that ends at this offset. If its reader did not know the epoch, it is the one of the
        first observation of a log that ended there: the epoch of a shorter log may be too low, and a later observation
        may have seen the log after a truncation. None if a truncation at this offset was accepted.
        """
        if end_offset and end_offset == self.accepted_end(kafka_partition):
            return None
        scans = (s for s in self.scans if s.kafka_partition == kafka_partition and s.end_offset == end_offset)
        known = [s.leader_epoch for s in scans]
        if known:
            place = (kafka_partition, end_offset)
            looks = [f for f in self.frontiers if (f.kafka_partition, f.last_stable_offset) == place]
            known += [f.leader_epoch for f in sorted(looks, key=lambda f: f.observed_at)]
        return next((epoch for epoch in known if epoch is not None), None)

    def hour_start(self, kafka_partition: int, hour: datetime) -> int | None:
        """Return the lowest offset at which the hour was ever planned to begin."""
        return self._hours.get(hour, {}).get(kafka_partition, (None, None))[0]

    def hour_of(self, kafka_partition: int, offset: int) -> datetime | None:
        """Return the latest hour whose planned range holds the offset."""
        planned = self._planned.get(kafka_partition, [])
        at = bisect_right(planned, offset, key=lambda hour: self.hour_start(kafka_partition, hour) or 0)
        if not at:
            return None
        end = self._hours[planned[at - 1]][kafka_partition][1]
        return planned[at - 1] if end is None or offset < end else None

    def promised_start(self, kafka_partition: int, hour: datetime | None) -> int | None:
        """Return the first offset that archiving up to `hour` is responsible for. None before archiving began.

        This is the start of the latest planned hour before `hour`. Without such an hour, or if `hour` is None, it is
        where the log began when archiving began.
        """
        first = self._first_log_start(kafka_partition)
        planned = self._planned.get(kafka_partition, [])
        before = bisect_left(planned, hour) if hour else 0
        if first is None or not before:
            return first
        return max(first, self.hour_start(kafka_partition, planned[before - 1]) or 0)

    def is_scanned(self, hour: datetime) -> bool:
        """Whether the hour was requested, and coverage holds all offsets that ListOffsets then reported for it."""
        ranges = self._hours.get(hour, {})
        return bool(ranges) and all(
            end is not None and self.coverage(p).covers(start or 0, end) for p, (start, end) in ranges.items()
        )

    def is_complete(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Whether coverage runs without a hole from the hour's start to a high watermark that was seen late enough.

        Late enough means at or after the hour's end plus the allowed lateness. The kafka partitions are those of that
        observation, so a kafka partition that is added later does not reopen the hour. A kafka partition counts from
        its offset 0 if the hour was not planned for it, or if the hour's start there is unknown.
        """
        watermarks = self._watermarks_at(hour + HOUR + allowed_lateness)
        if not watermarks:
            return False
        return all(self.coverage(p).covers(min(self.hour_start(p, hour) or 0, hw), hw) for p, hw in watermarks.items())

    def complete_hours(self, hours: Iterable[datetime], allowed_lateness: timedelta) -> set[datetime]:
        """Return those of `hours` that are complete."""
        return {hour for hour in hours if self.is_complete(hour, allowed_lateness)}

    def refuse_during_maintenance(self, topic: str, now: datetime) -> None:
        """Raise BusyError while a vacuum of an earlier version may be at work on the topic's objects."""
        for other in self.maintenance:
            if other.holds(now):
                until = other.reserved_at + MAINTENANCE_LEASE
                raise BusyError(
                    f"topic {topic}: run {other.run_id}, a vacuum of an earlier version, is at work on its objects "
                    f"since {other.reserved_at:%H:%M:%S} UTC; run again when it has ended, or, if it was "
                    f"killed, after {until:%H:%M:%S} UTC"
                )

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
        return self._first_log_starts.get(kafka_partition, 0 if self.coverage(kafka_partition) else None)

    def _watermarks_at(self, moment: datetime) -> Mapping[int, int]:
        """Return the high watermarks of the first observation at or after `moment`. No lower ones prove it complete.

        If no later observation reaches a high watermark, the log was truncated later, or the broker reported too much.
        Then the end that was seen later is all that can be archived. This takes two later observations: a single one
        may report too little itself.
        """
        times = self._observed
        at = bisect_left(times, moment)
        if at == len(times):
            return {}
        later = self._highest_after[at] if at + 2 < len(times) else {}
        return {p: min(hw, later.get(p, hw)) for p, hw in self._observations[times[at]].items()}

    @cached_property
    def _coverage(self) -> dict[int, RangeSet]:
        found: dict[int, list[OffsetRange]] = defaultdict(list)
        items: list[Scan | Gap] = [*self.scans, *self.gaps]
        for item in items:
            found[item.kafka_partition].append(item.offsets)
        return {p: RangeSet(ranges) for p, ranges in found.items()}

    @cached_property
    def _hours(self) -> dict[datetime, dict[int, tuple[int | None, int | None]]]:
        """For each hour and kafka partition the lowest start and the highest end ever planned. None: still unknown.

        What ListOffsets reports for an hour only moves up.
        """
        found: dict[datetime, dict[int, tuple[int | None, int | None]]] = defaultdict(dict)
        for item in self.hours:
            start, end = found[item.hour].get(item.kafka_partition, (None, None))
            starts = [s for s in (start, item.start_offset) if s is not None]
            ends = [e for e in (end, item.end_offset) if e is not None]
            found[item.hour][item.kafka_partition] = (min(starts, default=None), max(ends, default=None))
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
        for item in self.frontiers:
            found[item.observed_at][item.kafka_partition] = item.high_watermark
            counts[item.observed_at] = max(counts[item.observed_at], item.kafka_partition_count or 0)
        return {at: seen for at, seen in found.items() if len(seen) >= counts[at]}

    @cached_property
    def _first_log_starts(self) -> dict[int, int]:
        """Where each log began when it was first observed. Rows without a time may have been recorded again later."""
        found: dict[int, int] = {}
        for item in self.frontiers:
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
