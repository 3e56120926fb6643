"""Offsets that count as archived though this archive does not hold them, and why."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, order=True, slots=True)
class Gap:
    """Offsets `[start_offset, end_offset)` that the broker had deleted, or that another sink had archived before.

    Holes left by compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: Literal["retention", "taken over"] = "retention"

    @property
    def is_lost(self) -> bool:
        """Whether nobody has the records; else the sink that this one took over from wrote them."""
        return self.reason == "retention"
