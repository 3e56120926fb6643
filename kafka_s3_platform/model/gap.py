"""Offsets without records in this archive, and the reason."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from kafka_s3_platform.model.offsets import OffsetRange

GapReason: TypeAlias = Literal["retention", "taken over", "skipped", "truncated", "cut off", "before archiving began"]


@dataclass(frozen=True, order=True, slots=True)
class Gap:
    """Offsets `[start_offset, end_offset)` that this archive leaves out, by `reason`.

    - retention: the broker had deleted them.
    - taken over: another sink had archived them.
    - skipped: they could not be archived, and a user decided to go on without them.
    - truncated: the log lost them after they were archived, and somebody accepted it. The archived records stay.
    - cut off: the log lost them before they were archived. Later records at these offsets are archived.
    - before archiving began: the broker had deleted them before the first look. No row says so: the first look
      does.

    `leader_epoch` is the log's epoch before `end_offset`, as in a scan, or before the `start_offset` of truncated
    offsets; None if unknown. A later run compares it to detect a truncation. `observed_at` is the time of the look that
    missed the records, None if unknown.

    Holes from compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: GapReason = "retention"
    leader_epoch: int | None = field(default=None, compare=False)
    observed_at: datetime | None = field(default=None, compare=False)

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)

    @property
    def is_lost(self) -> bool:
        """True if records may be missing. If not, another sink archived them before this one took over."""
        return self.reason != "taken over"

    @property
    def is_covered(self) -> bool:
        """True if the offsets count as archived: no run reads them any more."""
        return self.reason != "cut off"


def count_reasons(gaps: Iterable[Gap]) -> Counter[str]:
    """Count the offsets by reason."""
    counts: Counter[str] = Counter()
    for gap in gaps:
        counts[gap.reason] += len(gap.offsets)
    return counts
