"""The request of an archive run, and its report."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.judge import HourVerdict
from kafka_s3_platform.core.model.segment import Segment, SegmentTotals


@dataclass(frozen=True)
class ArchiveRequest:
    """A request to archive `hours` of a topic (contiguous, ascending hour starts) or, if None, all readable records."""

    config: ConnectorConfig
    topic: str
    run_id: str
    hours: tuple[datetime, ...] | None


@dataclass(frozen=True)
class HourReport(SegmentTotals):
    """The facts on one hour from the index. Rows, bytes and late records are sums over the segments of all runs.

    Of the records at the hour's offsets, `filtered_count` were left out, and `dead_letter_count` failed and were
    tolerated. A run without hours counts them in the first hour of their range.
    """

    hour: datetime
    segments: tuple[Segment, ...]
    verdict: HourVerdict
    scanned: bool
    filtered_count: int = 0
    dead_letter_count: int = 0
    removed_keys: frozenset[str] = frozenset()
    """The keys of segments whose objects have been removed, so that only their numbers are left."""

    @property
    def complete(self) -> bool:
        return self.verdict.is_complete


@dataclass(frozen=True)
class ArchiveReport:
    """Result of one run.

    `hours` are the requested hours and any others with newly archived records. `record_count` is the number of records
    in segments. Of the records read, `filtered_count` were left out, and `dead_letter_count` failed and were tolerated.

    `waiting` has the last stable offset of each kafka partition in which an open transaction holds back the rest.
    `unresolved` are the offsets this run could not archive. `seconds` is the time scanning and committing took.
    `failure` is the error if something could not be archived. It is to be raised after the hours are reported;
    everything in this report is committed.
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
