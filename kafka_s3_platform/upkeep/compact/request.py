"""What a caller asks of a compaction, and what it gets back."""

from dataclasses import dataclass
from datetime import date

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.model.segment import Segment, SegmentTotals, StoredChunk


@dataclass(frozen=True)
class CompactRequest:
    """Merge the hourly segments of `day`, each by the timezone that it was written in, into daily ones."""

    config: ConnectorConfig
    topic: str
    day: date
    run_id: str


def is_mergeable(segment: Segment | StoredChunk) -> bool:
    """Return whether compaction can take it: it holds whole records. Others stay as they were written."""
    return find_format(segment.format).is_envelope


@dataclass(frozen=True)
class DayReport(SegmentTotals):
    """One day as the index holds it: its live segments, and where they are.

    Hourly segments among them came after the day's last compaction: the day is due again. Those of a format that holds
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
        """Segments of formats that hold values only: they stay hourly, and live."""
        return tuple(s for s in self.segments if not is_mergeable(s))


@dataclass(frozen=True)
class CompactReport:
    """What one run did: `merged` segments were replaced by `written` ones; both are empty when there was nothing to do.

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
