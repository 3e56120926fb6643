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
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, span
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
from kafka_s3_platform.model.unresolved import Unresolved, without

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class IndexState:
    """Everything planning needs to know of one topic's index at one version, in the order in which it was recorded."""

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
        """Offsets scanned and committed, known gaps among them."""
        return self._coverage.get(kafka_partition, RangeSet())

    @cached_property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Those of `failures` that coverage does not hold, in order."""
        rows: dict[int, list[Unresolved]] = defaultdict(list)
        for item in self.failures:
            rows[item.kafka_partition].append(item)
        return tuple(u for p in sorted(rows) for u in without(rows[p], self.coverage(p)))

    @cached_property
    def settled(self) -> "IndexState":
        """This state as if what is unresolved were archived: what scanning again is no use for until somebody acts."""
        tried = (Gap(u.kafka_partition, u.start_offset, u.end_offset, "skipped") for u in self.unresolved)
        return replace(self, gaps=(*self.gaps, *tried), failures=())

    def taken_over(self, kafka_partition: int) -> RangeSet:
        """Offsets that another sink archived before this one took over; coverage holds them."""
        return _ranges(g for g in self.gaps if g.kafka_partition == kafka_partition and not g.is_lost)

    def deleted(self, kafka_partition: int) -> RangeSet:
        """Offsets that coverage holds only because retention was seen to have deleted them."""
        gone = (g for g in self.gaps if g.kafka_partition == kafka_partition and g.reason == "retention")
        scanned = (s for s in self.scans if s.kafka_partition == kafka_partition)
        return _ranges(gone) - _ranges(scanned)

    def accepted_end(self, kafka_partition: int) -> int:
        """Up to where the archive may reach beyond the log, since somebody accepted its truncation; else 0."""
        found = (g for g in self.gaps if g.kafka_partition == kafka_partition and g.reason == "truncated")
        return max((g.end_offset for g in found), default=0)

    def taken_over_in(self, hour: datetime) -> int:
        """How many offsets of the hour, as it was planned, another sink archived."""
        asked = ((self.taken_over(p), start, end) for p, (start, end) in self._hours.get(hour, {}).items())
        found = (
            taken & span(start, taken.end_offset or 0 if end is None else end)
            for taken, start, end in asked
            if start is not None
        )
        return sum(len(r) for ranges in found for r in ranges)

    @property
    def contiguous_ends(self) -> dict[int, int]:
        """Kafka partition -> the end of its coverage up to the first hole, of those that have any coverage."""
        return {p: covered.ranges[0].end_offset for p, covered in sorted(self._coverage.items())}

    @property
    def topic(self) -> TopicGeneration | None:
        """The topic as it was last archived."""
        return self.generations[-1] if self.generations else None

    def was_added(self, kafka_partition: int) -> bool:
        """Whether the kafka partition appeared after archiving began: it is then archived from its offset 0."""
        return bool(self.generations) and kafka_partition not in self.generations[0].kafka_partitions

    def leader_epoch(self, kafka_partition: int, end_offset: int) -> int | None:
        """A leader epoch of the archived log later than which none began below `end_offset`, None if nobody knows one.

        That of a scan that ends there; where its reader could not tell, that of the first look at a log that ended
        there: an earlier one may be too low, and a later look may have seen the log after it was truncated. None where
        that was accepted.
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
        """The lowest offset at which the hour was ever planned to begin."""
        return self._hours.get(hour, {}).get(kafka_partition, (None, None))[0]

    def hour_of(self, kafka_partition: int, offset: int) -> datetime | None:
        """The latest hour whose range, as it was planned, holds the offset."""
        planned = self._planned.get(kafka_partition, [])
        at = bisect_right(planned, offset, key=lambda hour: self.hour_start(kafka_partition, hour) or 0)
        if not at:
            return None
        end = self._hours[planned[at - 1]][kafka_partition][1]
        return planned[at - 1] if end is None or offset < end else None

    def promised_start(self, kafka_partition: int, hour: datetime | None) -> int | None:
        """From where on an uncovered offset may be one that archiving up to `hour` owes; None: archiving has not begun.

        That is the start of the latest hour before it that was planned, else what the log began with when archiving
        did. None as the hour: whatever the hour.
        """
        first = self._first_log_start(kafka_partition)
        planned = self._planned.get(kafka_partition, [])
        before = bisect_left(planned, hour) if hour else 0
        if first is None or not before:
            return first
        return max(first, self.hour_start(kafka_partition, planned[before - 1]) or 0)

    def is_scanned(self, hour: datetime) -> bool:
        """Whether the hour was asked for and coverage holds all that ListOffsets then said it spans."""
        ranges = self._hours.get(hour, {})
        return bool(ranges) and all(
            end is not None and self.coverage(p).covers(start or 0, end) for p, (start, end) in ranges.items()
        )

    def is_complete(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Whether coverage runs without a hole from the hour's start to a high watermark seen late enough.

        Late enough is at or after the hour's end and the allowed lateness. The kafka partitions are those of that
        observation, so that ones added afterwards do not reopen the hour. A kafka partition the hour was not asked
        of, or where nobody knows its start, counts from its offset 0.
        """
        watermarks = self._watermarks_at(hour + HOUR + allowed_lateness)
        if not watermarks:
            return False
        return all(self.coverage(p).covers(min(self.hour_start(p, hour) or 0, hw), hw) for p, hw in watermarks.items())

    def complete_hours(self, hours: Iterable[datetime], allowed_lateness: timedelta) -> set[datetime]:
        """Those of `hours` that are complete."""
        return {hour for hour in hours if self.is_complete(hour, allowed_lateness)}

    def refuse_during_maintenance(self, topic: str, now: datetime) -> None:
        """BusyError while a vacuum of an earlier version may be at work on the topic's objects."""
        for other in self.maintenance:
            if other.holds(now):
                until = other.reserved_at + MAINTENANCE_LEASE
                raise BusyError(
                    f"topic {topic}: run {other.run_id}, a vacuum of an earlier version, is at work on its objects "
                    f"since {other.reserved_at:%H:%M:%S} UTC; run again when it has ended, or, if it was "
                    f"killed, after {until:%H:%M:%S} UTC"
                )

    def condemned_offsets(self, kafka_partition: int) -> frozenset[int]:
        """First offsets whose usual key a vacuum deletes: an object that begins there gets a key of its run's own."""
        return frozenset(c.start_offset for c in self.condemned if c.kafka_partition == kafka_partition)

    def conflicting(self, ranges: Mapping[int, RangeSet]) -> tuple[Reservation, ...]:
        """Reservations that share an offset with `ranges`."""
        return tuple(
            r
            for r in self.reservations
            if any(r.offsets.overlaps(o) for o in ranges.get(r.kafka_partition, RangeSet()))
        )

    def _first_log_start(self, kafka_partition: int) -> int | None:
        if self.was_added(kafka_partition):
            return 0
        return self._first_log_starts.get(kafka_partition, 0 if self.coverage(kafka_partition) else None)

    def _watermarks_at(self, moment: datetime) -> Mapping[int, int]:
        """High watermarks of the first observation at or after `moment`: the lowest that prove anything of it.

        One that no later observation reaches is of a log that was truncated since, or was told too high: the log's end
        as it was seen later is then all that there can be. A single later one may be told too low itself.
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
        """The lowest start and the highest end ever planned: ListOffsets only moves up. None: it is not known yet."""
        found: dict[datetime, dict[int, tuple[int | None, int | None]]] = defaultdict(dict)
        for item in self.hours:
            start, end = found[item.hour].get(item.kafka_partition, (None, None))
            starts = [s for s in (start, item.start_offset) if s is not None]
            ends = [e for e in (end, item.end_offset) if e is not None]
            found[item.hour][item.kafka_partition] = (min(starts, default=None), max(ends, default=None))
        return found

    @cached_property
    def _planned(self) -> dict[int, list[datetime]]:
        """The hours that were planned in each kafka partition and whose start there is known, in order."""
        found: dict[int, list[datetime]] = defaultdict(list)
        for hour in sorted(self._hours):
            for kafka_partition, (start, _) in self._hours[hour].items():
                if start is not None:
                    found[kafka_partition].append(hour)
        return found

    @cached_property
    def _observations(self) -> dict[datetime, dict[int, int]]:
        """High watermarks by when they were seen, of the looks that saw all kafka partitions the topic had."""
        found: dict[datetime, dict[int, int]] = defaultdict(dict)
        counts: dict[datetime, int] = defaultdict(int)
        for item in self.frontiers:
            found[item.observed_at][item.kafka_partition] = item.high_watermark
            counts[item.observed_at] = max(counts[item.observed_at], item.kafka_partition_count or 0)
        return {at: seen for at, seen in found.items() if len(seen) >= counts[at]}

    @cached_property
    def _first_log_starts(self) -> dict[int, int]:
        """By the frontiers recorded first; one without a time may have been recorded anew."""
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
        """For each of `_observed` the highest high watermarks of the observations after it."""
        found: list[Mapping[int, int]] = []
        highest: dict[int, int] = {}
        for at in reversed(self._observed):
            found.append(dict(highest))
            for kafka_partition, high_watermark in self._observations[at].items():
                highest[kafka_partition] = max(high_watermark, highest.get(kafka_partition, 0))
        return found[::-1]


def _ranges(items: Iterable[Scan | Gap]) -> RangeSet:
    return RangeSet(i.offsets for i in items)
