"""The fate of each offset of a kafka partition, from its scans, decisions and looks."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, cast

from kafka_s3_platform.model.gap import Gap, GapReason
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, make_span

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
"""What became of an offset. `expected`: it is to be archived yet. The others: see `Gap.reason` and `Unresolved`."""

OPEN: frozenset[Fate] = frozenset({"unresolved", "expected"})
"""Fates that change when a run archives the offsets, or somebody decides about them."""

LOST: frozenset[Fate] = frozenset({"truncated", "skipped", "retention", "before archiving began", "cut off"})
"""Fates of offsets whose records are not in the archive, or not all, and never will be."""

LEFT_OUT: frozenset[Fate] = LOST | {"taken over"}
"""Fates of offsets that this archive does without."""


def make_gap(kafka_partition: int, offsets: OffsetRange, fate: Fate) -> Gap:
    """Return offsets left out as the gap they are."""
    return Gap(kafka_partition, offsets.start_offset, offsets.end_offset, cast("GapReason", fate))


class Ledger:
    """The offsets from 0 to a kafka partition's highest end. Each range has one fate."""

    __slots__ = ("lost", "open", "ranges")

    def __init__(self, end_offset: int, layers: Iterable[tuple[Fate, RangeSet]]) -> None:
        """Give each offset the fate of the first layer with it, and `expected` to the rest."""
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
        """Yield, in order, the parts of the ranges of these fates that lie inside `offsets`."""
        for item, fate in self.ranges:
            if fate in fates:
                yield from ((r, fate) for r in offsets.within(item))
