"""Frontiers: the bounds of a kafka partition's log at the time of an observation, and conclusions from many of them.

The *observations* of a topic are its recorded frontiers. An observation of all kafka partitions at once is complete.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate, groupby

from kafka_s3_platform.core.model.times import EPOCH

UNTIMED = EPOCH
"""`observed_at` of an observation at an unknown time. It tells where the log began, but proves nothing for an hour."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The bounds of one kafka partition's log.

    `observed_at` is UTC and was taken before the request to the broker: every record appended before it lies below
    `high_watermark`. If `last_stable_offset < high_watermark`, a transaction is open. `kafka_partition_count` is the
    number of the topic's kafka partitions at that time, or None if it was not recorded. An observation that lacks some
    of them proves nothing about an hour.
    """

    kafka_partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None
    observed_at: datetime
    kafka_partition_count: int | None = None

    def __post_init__(self) -> None:
        # A last defence: `kafka.answers` checks the broker's answers, and `store.index_rows` the offsets of an index.
        if not 0 <= self.log_start_offset <= min(self.last_stable_offset, self.high_watermark):
            raise ValueError(
                f"kafka partition {self.kafka_partition}: no log starts at {self.log_start_offset}, is stable up to "
                f"{self.last_stable_offset} and ends at {self.high_watermark}"
            )


class Observations:
    """The frontiers of one topic's logs, as they were recorded: one for each kafka partition and observation.

    An observation of all kafka partitions at one time is *complete*. Only such a one proves something about an hour.
    """

    def __init__(self, frontiers: Sequence[Frontier]) -> None:
        self._frontiers = frontiers

    def of(self, kafka_partition: int) -> Sequence[Frontier]:
        """Return the frontiers of one kafka partition."""
        return self._by_kafka_partition.get(kafka_partition, ())

    @cached_property
    def complete(self) -> tuple[tuple[datetime, Mapping[int, int]], ...]:
        """The complete observations in order of time, each with the high watermarks by kafka partition."""
        ends: dict[datetime, dict[int, int]] = defaultdict(dict)
        counts: dict[datetime, int] = defaultdict(int)
        for frontier in self._frontiers:
            ends[frontier.observed_at][frontier.kafka_partition] = frontier.high_watermark
            counts[frontier.observed_at] = max(counts[frontier.observed_at], frontier.kafka_partition_count or 0)
        return tuple((at, ends[at]) for at in sorted(ends) if len(ends[at]) >= counts[at])

    def find(self, since: datetime) -> int:
        """Return the index of the first complete observation at `since` or later, or their number if there is none."""
        return bisect_left(self._times, since)

    def get_time(self, index: int) -> datetime | None:
        """Return the time of the complete observation with this index, or None beyond the last one."""
        return self._times[index] if index < len(self._times) else None

    def find_ends(self, index: int) -> Mapping[int, int]:
        """Return the proven ends of the logs in the complete observation `index`, or none beyond the last one.

        A log never gets shorter unless it is truncated. So if an earlier observation has a higher end, this one
        reported too little. If no later one reaches as far, the log was truncated later, or the broker reported too
        much. Then only the records below the later end can be archived. This needs two later ones: one may be too low.
        """
        if index == len(self.complete):
            return {}
        later = self._highest_after[index] if index + 2 < len(self.complete) else {}
        earlier = self._highest_until[index]
        return {p: min(earlier[p], later.get(p, earlier[p])) for p in self.complete[index][1]}

    def find_highest_end(self, kafka_partition: int, index: int) -> int | None:
        """Return the highest end in the complete observations up to `index`, or None beyond the last one."""
        return self._highest_until[index].get(kafka_partition, 0) if index < len(self.complete) else None

    def find_next_end(self, kafka_partition: int, index: int) -> int:
        """Return the first end of the log observed after the complete observation `index`, or 0 if there is none."""
        since = self.complete[index][0]
        frontiers = (frontier for frontier in self._by_time if frontier.kafka_partition == kafka_partition)
        return next((frontier.high_watermark for frontier in frontiers if frontier.observed_at > since), 0)

    def find_bounds_before(self, kafka_partition: int, moment: datetime) -> tuple[int, int]:
        """Return the highest log start and log end certainly observed before this moment, or (0, 0) if there are none.

        A frontier was observed no earlier than its time, but perhaps later, since its run may have slept. It was
        observed before all rows recorded after it.
        """
        since, bounds = self._bounds.get(kafka_partition, ((), ()))
        at = bisect_right(since, moment)
        return bounds[at - 1] if at else (0, 0)

    @cached_property
    def first_log_starts(self) -> Mapping[int, int]:
        """The log start of each kafka partition when it was observed first."""
        return {p: frontiers[0].log_start_offset for p, frontiers in self._by_kafka_partition.items()}

    @cached_property
    def highest_ends(self) -> Mapping[int, int]:
        """The highest end ever observed for each log, by kafka partition."""
        return {
            p: max(frontier.high_watermark for frontier in frontiers)
            for p, frontiers in self._by_kafka_partition.items()
        }

    def find_last_end(self, kafka_partition: int, otherwise: int) -> int:
        """Return the higher end of the last two observations, since one may be too low, or `otherwise` without two."""
        frontiers = self.of(kafka_partition)[-2:]
        return max(frontier.high_watermark for frontier in frontiers) if len(frontiers) > 1 else otherwise

    @cached_property
    def _by_kafka_partition(self) -> dict[int, list[Frontier]]:
        """The frontiers of each kafka partition, in the order of recording."""
        frontiers: dict[int, list[Frontier]] = defaultdict(list)
        for frontier in self._frontiers:
            frontiers[frontier.kafka_partition].append(frontier)
        return dict(frontiers)

    @cached_property
    def _times(self) -> list[datetime]:
        return [at for at, _ in self.complete]

    @cached_property
    def _bounds(self) -> dict[int, tuple[list[datetime], list[tuple[int, int]]]]:
        """For each frontier of a kafka partition, the earliest time from it on, and the highest bounds before it."""
        bounds: dict[int, tuple[list[datetime], list[tuple[int, int]]]] = {}
        for kafka_partition, frontiers in self._by_kafka_partition.items():
            timed = [frontier for frontier in frontiers if frontier.observed_at != UNTIMED]
            since = [*accumulate((frontier.observed_at for frontier in reversed(timed)), min)][::-1]
            pairs = ((frontier.log_start_offset, frontier.high_watermark) for frontier in timed)
            before = accumulate(pairs, lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), initial=(0, 0))
            bounds[kafka_partition] = since, [*before][:-1]
        return bounds

    @cached_property
    def _highest_until(self) -> list[Mapping[int, int]]:
        """The highest ends up to each complete observation, by time or by order of recording: clocks may be set back.

        Here and below, an observation of only some kafka partitions counts too, since no log gets shorter by itself.
        """
        recorded = _raise_each(self._frontiers)
        timed = _raise_each(self._by_time)
        return [_raise_to({**recorded[at]}, timed[at]) for at, _ in self.complete]

    @cached_property
    def _highest_after(self) -> list[Mapping[int, int]]:
        """The highest high watermark of each kafka partition, observed later than each `complete` observation.

        The last item is empty: there is no observation after the last one.
        """
        highest: dict[int, int] = {}
        after: dict[datetime, Mapping[int, int]] = {}
        for at, frontiers in groupby(reversed(self._by_time), key=lambda frontier: frontier.observed_at):
            after[at] = dict(highest)
            _raise_to(highest, {frontier.kafka_partition: frontier.high_watermark for frontier in frontiers})
        return [*(after[at] for at, _ in self.complete), {}]

    @cached_property
    def _by_time(self) -> list[Frontier]:
        return sorted(self._frontiers, key=lambda frontier: frontier.observed_at)


def _raise_each(frontiers: Iterable[Frontier]) -> dict[datetime, Mapping[int, int]]:
    """Return the highest ends up to the time of each observation. Frontiers of the same time follow each other."""
    highest: dict[int, int] = {}
    return {
        at: _raise_to(highest, {frontier.kafka_partition: frontier.high_watermark for frontier in frontiers})
        for at, frontiers in groupby(frontiers, key=lambda frontier: frontier.observed_at)
    }


def _raise_to(highest: dict[int, int], ends: Mapping[int, int]) -> Mapping[int, int]:
    """Raise `highest` to the higher ends. Return a copy."""
    for kafka_partition, end in ends.items():
        highest[kafka_partition] = max(end, highest.get(kafka_partition, 0))
    return dict(highest)
