"""The archive's state per kafka partition, and the rules for `scanned` and `complete`. Pure."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.segment import Compaction, HourRange, Maintenance, Reservation, Scan, TopicGeneration

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
    commit_ids: frozenset[str] = field(default_factory=frozenset)

    def coverage(self, kafka_partition: int) -> RangeSet:
        """Offsets scanned and committed, known gaps among them."""
        return self._coverage.get(kafka_partition, RangeSet())

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

    def is_scanned(self, hour: datetime) -> bool:
        """Whether the hour was asked for and coverage holds all that ListOffsets then said it spans."""
        ranges = self._hours.get(hour, {})
        return bool(ranges) and all(self.coverage(p).covers(start, end) for p, (start, end) in ranges.items())

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

    def conflicting(self, ranges: Mapping[int, RangeSet]) -> tuple[Reservation, ...]:
        """Reservations that share an offset with `ranges`."""
        return tuple(
            r
            for r in self.reservations
            if any(r.offsets.overlaps(o) for o in ranges.get(r.kafka_partition, RangeSet()))
        )

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
    def _hours(self) -> dict[datetime, dict[int, tuple[int, int]]]:
        """The lowest start and the highest end ever planned: ListOffsets only moves up."""
        found: dict[datetime, dict[int, tuple[int, int]]] = defaultdict(dict)
        for item in self.hours:
            start, end = found[item.hour].get(item.kafka_partition, (item.start_offset, item.end_offset))
            found[item.hour][item.kafka_partition] = (min(start, item.start_offset), max(end, item.end_offset))
        return found

    @cached_property
    def _observations(self) -> dict[datetime, dict[int, int]]:
        found: dict[datetime, dict[int, int]] = defaultdict(dict)
        for item in self.frontiers:
            found[item.observed_at][item.kafka_partition] = item.high_watermark
        return found

    @cached_property
    def _observed(self) -> list[datetime]:
        return sorted(self._observations)
