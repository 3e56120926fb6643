"""Offsets that count as archived though this archive does not hold them, and why."""

from dataclasses import dataclass
from typing import Literal

from kafka_s3_platform.model.offsets import OffsetRange


@dataclass(frozen=True, order=True, slots=True)
class Gap:
    """Offsets `[start_offset, end_offset)` that this archive does without.

    The broker had deleted them (retention), another sink had archived them (taken over), or somebody decided it: they
    could not be archived (skipped), or the log lost them after they were archived (truncated: what is archived stays).
    Holes left by compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: Literal["retention", "taken over", "skipped", "truncated"] = "retention"

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)

    @property
    def is_lost(self) -> bool:
        """Whether records may be missing; else the sink that this one took over from wrote them."""
        return self.reason != "taken over"
