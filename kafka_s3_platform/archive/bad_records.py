"""What a scan met and could not archive, as ranges of offsets: left out and told, so that all else is archived."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from kafka_s3_platform.kafka.batches import offsets
from kafka_s3_platform.model.connect import RecordFailure
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.unresolved import Unreadable, Unresolved

MAX_RANGES = 1_000
"""Ranges after which a task gives up: a wrong converter must not write a row for each of a million records."""

MESSAGE_CHARACTERS = 500
GIVEN_UP = "too many failures"


@dataclass
class BadRecords:
    """The unresolved ranges of one task, in order. What fails alike and lies side by side is one range."""

    kafka_partition: int
    found_at: datetime
    rows: list[Unresolved] = field(default_factory=list)
    _failed: list[RecordFailure] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= MAX_RANGES

    def note(self, failures: Iterable[RecordFailure]) -> None:
        """Failures of the batch at work, in any order; several of one record count once."""
        self._failed += failures

    def join(self, records: pa.RecordBatch) -> None:
        """The batch, whose `records` are as they were read, is done: make ranges of what failed in it."""
        once = {failure.offset: failure for failure in reversed(self._failed)}
        self._failed.clear()
        if not once:
            return
        found = [once[offset] for offset in sorted(once)]
        at = np.searchsorted(offsets(records), [f.offset for f in found])
        times = records.column("timestamp").cast(pa.int64()).take(pa.array(at)).to_pylist()
        for failure, time in zip(found, times, strict=True):
            self.add(OffsetRange(failure.offset, failure.offset + 1), failure.stage, _said(failure), time)

    def add(self, bad: OffsetRange, reason: str, message: str, min_timestamp: int | None = None) -> None:
        """A range at or after all that were added before."""
        last = self.rows[-1] if self.rows else None
        if last is None or (last.end_offset, last.reason) != (bad.start_offset, reason):
            message = message[:MESSAGE_CHARACTERS]
            found_at, end = self.found_at, bad.end_offset
            new = Unresolved(self.kafka_partition, bad.start_offset, end, reason, message, found_at, min_timestamp)
            self.rows.append(new)
            return
        times = [t for t in (last.min_timestamp, min_timestamp) if t is not None]
        self.rows[-1] = replace(last, end_offset=bad.end_offset, min_timestamp=min(times, default=None))

    def insert(self, unreadable: Iterable[Unreadable]) -> None:
        """What could not even be read, of the range that was read last."""
        for item in unreadable:
            message = item.message[:MESSAGE_CHARACTERS]
            place = (self.kafka_partition, item.start_offset, item.end_offset)
            self.rows.append(Unresolved(*place, item.reason, message, self.found_at))
        self.rows.sort(key=lambda row: row.start_offset)

    def give_up(self, rest: OffsetRange) -> None:
        """Leave `rest` out whole, since too much failed before it."""
        first = self.rows[0]
        said = f"not archived, because {len(self.rows)} ranges before it failed, the first at {first.start_offset}: "
        self.add(rest, GIVEN_UP, said + first.message)

    def inside(self, wanted: OffsetRange) -> RangeSet:
        """Their offsets in `wanted`."""
        return RangeSet(RangeSet(u.offsets for u in self.rows).within(wanted))


def good_pieces(wanted: OffsetRange, bad: RangeSet) -> Sequence[OffsetRange]:
    """What of a range was archived, in order."""
    return (RangeSet([wanted]) - bad).ranges


def _said(failure: RecordFailure) -> str:
    return f"{failure.executing_class}: {failure.exception}: {failure.message}"


def offset_count(rows: Iterable[Unresolved]) -> int:
    """How many offsets they are: an upper bound of records."""
    return sum(len(u.offsets) for u in rows)
