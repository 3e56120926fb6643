"""Half-open ranges of offsets, and sets of such ranges."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

MAX_OFFSET = 2**63 - 1
"""Kafka's largest offset: the largest signed number of eight bytes."""


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One kafka partition of one topic."""

    topic: str
    kafka_partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.kafka_partition}"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """Offsets `[start_offset, end_offset)`, never empty. Kafka's offsets have holes: the length is no record count."""

    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset < self.end_offset:
            raise ValueError(f"not an offset range: [{self.start_offset}, {self.end_offset})")

    def __str__(self) -> str:
        return f"[{self.start_offset}, {self.end_offset})"

    def __len__(self) -> int:
        return self.end_offset - self.start_offset

    def __contains__(self, offset: int) -> bool:
        return self.start_offset <= offset < self.end_offset

    def overlaps(self, other: "OffsetRange") -> bool:
        """Return True if the ranges share an offset."""
        return self.start_offset < other.end_offset and other.start_offset < self.end_offset

    def split(self, offsets: Iterable[int]) -> list["OffsetRange"]:
        """Split the range at each of `offsets` that lies strictly inside it."""
        inside = sorted({o for o in offsets if self.start_offset < o < self.end_offset})
        bounds = [self.start_offset, *inside, self.end_offset]
        return [OffsetRange(a, b) for a, b in pairwise(bounds)]


class OffsetSpan:
    """Adds the range `offsets` to a class with a `start_offset` and an `end_offset`."""

    __slots__ = ()

    start_offset: int
    end_offset: int

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)


class RangeSet:
    """An immutable set of offsets, kept as sorted, disjoint, non-adjacent ranges."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        merged: list[OffsetRange] = []
        for item in sorted(ranges):
            if merged and item.start_offset <= merged[-1].end_offset:
                end = max(merged[-1].end_offset, item.end_offset)
                merged[-1] = OffsetRange(merged[-1].start_offset, end)
            else:
                merged.append(item)
        self.ranges: tuple[OffsetRange, ...] = tuple(merged)

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"RangeSet({', '.join(map(str, self.ranges))})"

    def __or__(self, other: "RangeSet") -> "RangeSet":
        return RangeSet([*self.ranges, *other.ranges])

    def __sub__(self, other: "RangeSet") -> "RangeSet":
        pieces: list[OffsetRange] = []
        for item in self.ranges:
            pieces += _subtract_ranges(item, other.within(item))
        return RangeSet(pieces)

    def __and__(self, other: "RangeSet") -> "RangeSet":
        return self - (self - other)

    def within(self, bounds: OffsetRange) -> Iterator[OffsetRange]:
        """Yield the parts of the set inside `bounds`. A binary search finds the first one."""
        at = bisect_right(self.ranges, bounds.start_offset, key=lambda r: r.end_offset)
        while at < len(self.ranges) and self.ranges[at].start_offset < bounds.end_offset:
            item = self.ranges[at]
            yield OffsetRange(max(item.start_offset, bounds.start_offset), min(item.end_offset, bounds.end_offset))
            at += 1

    def covers(self, start_offset: int, end_offset: int) -> bool:
        """Return True if every offset of `[start_offset, end_offset)` is in the set. An empty span always is."""
        if start_offset >= end_offset:
            return True
        # The ranges of a set are never adjacent, so a single one has to hold the whole span.
        return any(r.start_offset <= start_offset and end_offset <= r.end_offset for r in self.ranges)

    @property
    def end_offset(self) -> int | None:
        """The offset after the last one in the set, or None if the set is empty."""
        return self.ranges[-1].end_offset if self.ranges else None


def make_span(start_offset: int, end_offset: int) -> RangeSet:
    """Return the set of the offsets `[start_offset, end_offset)`. It is empty if the start is not below the end."""
    return RangeSet([OffsetRange(start_offset, end_offset)] if start_offset < end_offset else [])


def _subtract_ranges(item: OffsetRange, holes: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the parts of `item` outside of `holes`, which lie inside it in ascending order."""
    start = item.start_offset
    for hole in holes:
        if start < hole.start_offset:
            yield OffsetRange(start, hole.start_offset)
        start = hole.end_offset
    if start < item.end_offset:
        yield OffsetRange(start, item.end_offset)
