"""What a caller asks of a compaction, and what it gets back."""

from dataclasses import dataclass
from datetime import date

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.model.segment import Segment, SegmentTotals


@dataclass(frozen=True)
class CompactRequest:
    """Merge the hourly segments of `day`, a day of the connector's timezone, into daily ones."""

    config: ConnectorConfig
    topic: str
    day: date
    run_id: str


@dataclass(frozen=True)
class DayReport(SegmentTotals):
    """One day as the index holds it: its live segments, and where they are.

    Hourly segments among them came after the day's last compaction: the day is due again.
    """

    day: date
    segments: tuple[Segment, ...]
    uris: tuple[str, ...]

    @property
    def hourly_count(self) -> int:
        """Segments that no compaction has merged yet."""
        return sum(s.chunk == "hourly" for s in self.segments)


@dataclass(frozen=True)
class CompactReport:
    """What one run did: `merged` segments were replaced by `written` ones; both are empty when there was nothing to do.

    `seconds` is the time of merging and committing.
    """

    day: DayReport
    merged: tuple[Segment, ...]
    written: tuple[Segment, ...]
    version: int
    seconds: float

    @property
    def record_count(self) -> int:
        return sum(s.record_count for s in self.written)
