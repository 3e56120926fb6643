"""What a caller asks of an archive run, and what it gets back."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.judge import HourVerdict
from kafka_s3_platform.model.segment import Segment, SegmentTotals
from kafka_s3_platform.model.unresolved import Unresolved


@dataclass(frozen=True)
class ArchiveRequest:
    """Archive `hours` (contiguous, ascending hour starts) of a topic, or with None all that is readable now."""

    config: ConnectorConfig
    topic: str
    run_id: str
    hours: tuple[datetime, ...] | None


@dataclass(frozen=True)
class HourReport(SegmentTotals):
    """One hour as the index holds it. Rows, bytes and late records by segments, whichever run wrote them.

    Of the records of its offsets, `filtered_count` were left out and `dead_letter_count` failed and were tolerated; a
    run without hours counts those of a range at the hour that the range begins in.
    """

    hour: datetime
    segments: tuple[Segment, ...]
    verdict: HourVerdict
    scanned: bool
    filtered_count: int = 0
    dead_letter_count: int = 0

    @property
    def complete(self) -> bool:
        return self.verdict.is_complete


@dataclass(frozen=True)
class ArchiveReport:
    """What one run did.

    `hours` are those asked for and those covered in passing. `record_count` are records in segments; of those read,
    `filtered_count` were left out and `dead_letter_count` failed and were tolerated.

    `waiting` is kafka partition -> last stable offset where an open transaction keeps the rest from being read.
    `unresolved` are offsets that this run met and could not archive.
    `seconds` is the time of scanning and committing. `failure` is what is to be raised once the hours are reported:
    something could not be archived, and all that this report tells is committed.
    """

    hours: tuple[HourReport, ...]
    record_count: int
    record_bytes: int
    object_count: int
    filtered_count: int
    dead_letter_count: int
    out_of_range_count: int
    gaps: tuple[Gap, ...]
    waiting: Mapping[int, int]
    version: int
    seconds: float
    unresolved: tuple[Unresolved, ...] = ()
    failure: PlatformError | None = None

    def raise_failure(self) -> None:
        """Raise `failure`, if there is one."""
        if self.failure is not None:
            raise self.failure
