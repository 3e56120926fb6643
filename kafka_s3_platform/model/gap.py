"""Offsets that count as archived although this archive does not hold them, and the reason."""

from dataclasses import dataclass, field
from typing import Literal

from kafka_s3_platform.model.offsets import OffsetRange


@dataclass(frozen=True, order=True, slots=True)
class Gap:
    """Offsets `[start_offset, end_offset)` that this archive leaves out, by `reason`.

    - retention: the broker had deleted them.
    - taken over: another sink had archived them.
    - skipped: they could not be archived, and somebody decided to go on without them.
    - truncated: the log lost them after they were archived, and somebody accepted it. The archived records stay.

    `leader_epoch` is that of the log before `end_offset`, as in a scan, None if it is not known. It shows later whether
    the log was truncated there.

    Holes from compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: Literal["retention", "taken over", "skipped", "truncated"] = "retention"
    leader_epoch: int | None = field(default=None, compare=False)

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)

    @property
    def is_lost(self) -> bool:
        """Whether records may be missing. If not, another sink archived them before this one took over."""
        return self.reason != "taken over"
