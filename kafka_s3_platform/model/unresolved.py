"""Offsets that the log holds and that nobody could archive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_s3_platform.model.offsets import OffsetRange, RangeSet


@dataclass(frozen=True, order=True, slots=True)
class Unreadable:
    """Offsets `[start_offset, end_offset)` of one kafka partition of which a reader could deliver nothing.

    `reason` is "batch": the record batch that holds them is damaged, or was written so that it cannot be believed.
    """

    start_offset: int
    end_offset: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Offsets `[start_offset, end_offset)` that a scan met and could not archive. They are no part of coverage.

    `reason` says in few words what failed, `message` what was said of the first of them. `found_at` is UTC.
    `min_timestamp` (epoch ms) is the earliest time of their records, None where it is unknown. `retention_ms` is how
    long the topic kept records when they were found, -1 where it deletes none for their age, None where nobody asked.
    A later scan that reads them, or somebody who decides (`kafka-s3 resolve`), ends them.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: str
    message: str
    found_at: datetime
    min_timestamp: int | None = None
    retention_ms: int | None = None

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)


def without(rows: Iterable[Unresolved], offsets: RangeSet) -> Iterator[Unresolved]:
    """What is left of rows of one kafka partition, which do not overlap, outside of `offsets`; in order."""
    known = sorted(rows, key=lambda u: u.start_offset)
    left = RangeSet(u.offsets for u in known) - offsets
    for item in known:
        for r in left.within(item.offsets):
            yield replace(item, start_offset=r.start_offset, end_offset=r.end_offset)
