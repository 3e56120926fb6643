"""Collect records that a scan could not archive, as ranges of offsets. They are reported, and all else is archived."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.batches import read_offset_column
from kafka_s3_platform.model.connect import RecordFailure
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.unresolved import Unreadable, Unresolved

MAX_RANGES = 1_000
"""Number of ranges at which a task gives up: a wrong converter must not write a row for each of a million records."""

MESSAGE_CHARACTERS = 500
GIVEN_UP = "too many failures"


@dataclass
class BadRecords:
    """The unresolved ranges of one task, in order. Adjacent offsets with the same reason are one range."""

    kafka_partition: int
    found_at: datetime
    rows: list[Unresolved] = field(default_factory=list)
    _failed: list[RecordFailure] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= MAX_RANGES

    def note(self, failures: Iterable[RecordFailure]) -> None:
        """Note failures of the current batch, in any order. Several failures of one record count once."""
        self._failed += failures

    def join(self, records: pa.RecordBatch) -> None:
        """Make ranges of the failures noted for a batch. `records` is the complete batch as it was read."""
        once = {failure.offset: failure for failure in reversed(self._failed)}
        self._failed.clear()
        if not once:
            return
        failures = [once[offset] for offset in sorted(once)]
        at = np.searchsorted(read_offset_column(records), [f.offset for f in failures])
        times = records.column("timestamp").cast(pa.int64()).take(pa.array(at)).to_pylist()
        for failure, time in zip(failures, times, strict=True):
            message = f"{failure.executing_class}: {failure.exception}: {failure.message}"
            self.add(OffsetRange(failure.offset, failure.offset + 1), failure.stage, message, time)

    def add(self, bad: OffsetRange, reason: str, message: str, min_timestamp: int | None = None) -> None:
        """Add a range. It starts at or after the end of all earlier ones."""
        last = self.rows[-1] if self.rows else None
        if last is None or (last.end_offset, last.reason) != (bad.start_offset, reason):
            message = message[:MESSAGE_CHARACTERS]
            found_at = self.found_at
            end = bad.end_offset
            new = Unresolved(self.kafka_partition, bad.start_offset, end, reason, message, found_at, min_timestamp)
            self.rows.append(new)
            return
        times = [t for t in (last.min_timestamp, min_timestamp) if t is not None]
        self.rows[-1] = replace(last, end_offset=bad.end_offset, min_timestamp=min(times, default=None))

    def insert(self, unreadable: Iterable[Unreadable]) -> None:
        """Add the unreadable offsets of the last range that was read."""
        for item in unreadable:
            message = item.message[:MESSAGE_CHARACTERS]
            place = (self.kafka_partition, item.start_offset, item.end_offset)
            self.rows.append(Unresolved(*place, item.reason, message, self.found_at))
        self.rows.sort(key=lambda row: row.start_offset)

    def give_up(self, rest: OffsetRange) -> None:
        """Leave out all of `rest`, because too much failed before it."""
        first = self.rows[0]
        reason = f"not archived, because {len(self.rows)} ranges before it failed, the first at {first.start_offset}: "
        self.add(rest, GIVEN_UP, reason + first.message)

    def inside(self, offsets: OffsetRange) -> RangeSet:
        """Return the unresolved offsets in `offsets`."""
        return RangeSet(RangeSet(u.offsets for u in self.rows).within(offsets))


def list_good_ranges(offsets: OffsetRange, bad: RangeSet) -> Sequence[OffsetRange]:
    """List the archived parts of a range, in order."""
    return (RangeSet([offsets]) - bad).ranges


def count_offsets(rows: Iterable[Unresolved]) -> int:
    """Count the offsets: an upper bound of the number of records."""
    return sum(len(u.offsets) for u in rows)
