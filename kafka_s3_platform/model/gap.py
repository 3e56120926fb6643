"""Offsets that no longer existed when they were to be read."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, order=True, slots=True)
class Gap:
    """Offsets `[start_offset, end_offset)` that the broker had deleted.

    Holes left by compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: Literal["retention"] = "retention"
