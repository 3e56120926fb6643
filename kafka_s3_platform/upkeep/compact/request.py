"""The request of a compaction, and its report."""

from dataclasses import dataclass
from datetime import date

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.model.segment import Segment, SegmentTotals, StoredChunk


@dataclass(frozen=True)
class CompactRequest:
    """Merge the hourly segments of `day`, each by its own timezone, into daily ones."""

    config: ConnectorConfig
    topic: str
    day: date
    run_id: str


def is_mergeable(segment: Segment | StoredChunk) -> bool:
    """Return True if it can be compacted: it holds whole records. Others stay as they are."""
    return find_format(segment.format).is_envelope


@dataclass(frozen=True)
class DayReport(SegmentTotals):
    """One day in the index: its live segments, and their places.

    Hourly segments among them came after the day's last compaction: the day is due again. Segments of a format for
    values only are never merged.
    """

    day: date
    segments: tuple[Segment, ...]
    uris: tuple[str, ...]

    @property
    def hourly_count(self) -> int:
        """Segments that no compaction has merged yet."""
        return sum(s.chunk == "hourly" and is_mergeable(s) for s in self.segments)

    @property
    def unmergeable(self) -> tuple[Segment, ...]:
        """Segments of formats for values only: they stay hourly, and live."""
        return tuple(s for s in self.segments if not is_mergeable(s))


@dataclass(frozen=True)
class CompactReport:
    """Result of one run: `merged` segments were replaced by `written` ones; both are empty if there was nothing to do.

    Up to `out_of_range_count` records of the day are in none of its segments: the start hour was later than theirs.
    `run_record_count` is of all days and topics of the run, which took `seconds`.
    """

    day: DayReport
    merged: tuple[Segment, ...]
    written: tuple[Segment, ...]
    version: int
    run_record_count: int
    seconds: float
    out_of_range_count: int = 0
