"""The archive's state per kafka partition, and the rules for `scanned` and `complete`. Pure."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, span
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import (
    CommittedOffset,
    Compaction,
    HourRange,
    Maintenance,
    Reservation,
    Scan,
    TopicGeneration,
)

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class IndexState:
    """Everything planning needs to know of one topic's index at one version."""

    version: int = -1
    scans: tuple[Scan, ...] = ()
    gaps: tuple[Gap, ...] = ()
    frontiers: tuple[Frontier, ...] = ()
    hours: tuple[HourRange, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    generations: tuple[TopicGeneration, ...] = ()
    groups: tuple[CommittedOffset, ...] = ()
    schemas: tuple[ArchivedSchema, ...] = ()
    commit_ids: frozenset[str] = field(default_factory=frozenset)

    def coverage(self, kafka_partition: int) -> RangeSet:
        """Offsets scanned and committed, known gaps among them."""
        return self._coverage.get(kafka_partition, RangeSet())

    def taken_over(self, kafka_partition: int) -> RangeSet:
        """Offsets that another sink archived before this one took over; coverage holds them."""
        found = (g for g in self.gaps if g.kafka_partition == kafka_partition and not g.is_lost)
        return RangeSet(OffsetRange(g.start_offset, g.end_offset) for g in found)

    def taken_over_in(self, hour: datetime) -> int:
        """How many offsets of the hour, as it was planned, another sink archived."""
        asked = ((self.taken_over(p), start, end) for p, (start, end) in self._hours.get(hour, {}).items())
        found = (taken & span(start, taken.end_offset or 0 if end is None else end) for taken, start, end in asked)
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
        """Leader epoch of the last record before `end_offset`, if a scan that ends there saw one."""
        ends = (s for s in self.scans if s.kafka_partition == kafka_partition and s.end_offset == end_offset)
        return next((s.leader_epoch for s in ends), None)

    def hour_start(self, kafka_partition: int, hour: datetime) -> int | None:
        """The lowest offset at which the hour was ever planned to begin."""
        return self._hours.get(hour, {}).get(kafka_partition, (None, None))[0]

    def hour_of(self, kafka_partition: int, offset: int) -> datetime | None:
        """The latest hour whose range, as it was planned, holds the offset."""
        planned = self._planned.get(kafka_partition, [])
        at = bisect_right(planned, offset, key=lambda hour: self._hours[hour][kafka_partition][0])
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
        return max(first, self._hours[planned[before - 1]][kafka_partition][0])

    def is_scanned(self, hour: datetime) -> bool:
        """Whether the hour was asked for and coverage holds all that ListOffsets then said it spans."""
        ranges = self._hours.get(hour, {})
        return bool(ranges) and all(
            end is not None and self.coverage(p).covers(start, end) for p, (start, end) in ranges.items()
        )

    def is_complete(self, hour: datetime, allowed_lateness: timedelta) -> bool:
        """Whether coverage runs without a hole from the hour's start to a high watermark seen late enough.

        Late enough is at or after the hour's end and the allowed lateness. The kafka partitions are those of that
        observation, so that ones added afterwards do not reopen the hour. A kafka partition the hour was not asked
        of counts from its offset 0.
        """
        watermarks = self._watermarks_at(hour + HOUR + allowed_lateness)
        if not watermarks:
            return False
        asked = self._hours.get(hour, {})
        return all(self.coverage(p).covers(min(asked.get(p, (0, 0))[0], hw), hw) for p, hw in watermarks.items())

    def complete_hours(self, hours: Iterable[datetime], allowed_lateness: timedelta) -> set[datetime]:
        """Those of `hours` that are complete."""
        return {hour for hour in hours if self.is_complete(hour, allowed_lateness)}

    def refuse_during_maintenance(self, topic: str, now: datetime) -> None:
        """BusyError while a vacuum is at work on the topic's objects."""
        for other in self.maintenance:
            if other.holds(now):
                raise BusyError(
                    f"topic {topic}: run {other.run_id} is vacuuming its objects since {other.reserved_at:%H:%M:%S} "
                    f"UTC; run again when it has ended"
                )

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
        """High watermarks of the first observation at or after `moment`: the lowest that prove anything of it."""
        times = self._observed
        at = bisect_left(times, moment)
        return self._observations[times[at]] if at < len(times) else {}

    @cached_property
    def _coverage(self) -> dict[int, RangeSet]:
        found: dict[int, list[OffsetRange]] = defaultdict(list)
        items: list[Scan | Gap] = [*self.scans, *self.gaps]
        for item in items:
            found[item.kafka_partition].append(OffsetRange(item.start_offset, item.end_offset))
        return {p: RangeSet(ranges) for p, ranges in found.items()}

    @cached_property
    def _hours(self) -> dict[datetime, dict[int, tuple[int, int | None]]]:
        """The lowest start and the highest end ever planned: ListOffsets only moves up. None: no end is known yet."""
        found: dict[datetime, dict[int, tuple[int, int | None]]] = defaultdict(dict)
        for item in self.hours:
            start, end = found[item.hour].get(item.kafka_partition, (item.start_offset, None))
            ends = [e for e in (end, item.end_offset) if e is not None]
            found[item.hour][item.kafka_partition] = (min(start, item.start_offset), max(ends, default=None))
        return found

    @cached_property
    def _planned(self) -> dict[int, list[datetime]]:
        """The hours that were planned in each kafka partition, in order."""
        found: dict[int, list[datetime]] = defaultdict(list)
        for hour in sorted(self._hours):
            for kafka_partition in self._hours[hour]:
                found[kafka_partition].append(hour)
        return found

    @cached_property
    def _observations(self) -> dict[datetime, dict[int, int]]:
        found: dict[datetime, dict[int, int]] = defaultdict(dict)
        for item in self.frontiers:
            found[item.observed_at][item.kafka_partition] = item.high_watermark
        return found

    @cached_property
    def _first_log_starts(self) -> dict[int, int]:
        latest_first = sorted(self.frontiers, key=lambda f: f.observed_at, reverse=True)
        return {f.kafka_partition: f.log_start_offset for f in latest_first}

    @cached_property
    def _observed(self) -> list[datetime]:
        return sorted(self._observations)
