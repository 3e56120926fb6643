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
    """Archive `hours` (contiguous, ascending hour starts) of a topic, or with None all records readable now."""

    config: ConnectorConfig
    topic: str
    run_id: str
    hours: tuple[datetime, ...] | None


@dataclass(frozen=True)
class HourReport(SegmentTotals):
    """One hour in the index. Rows, bytes and late records are sums over segments of all runs.

    Of the records of its offsets, `filtered_count` were left out and `dead_letter_count` failed and were tolerated; a
    run without hours counts them at the first hour of their range.
    """

    hour: datetime
    segments: tuple[Segment, ...]
    verdict: HourVerdict
    scanned: bool
    filtered_count: int = 0
    dead_letter_count: int = 0
    removed_keys: frozenset[str] = frozenset()
    """The keys of segments whose objects retention has removed: only their numbers are there."""

    @property
    def complete(self) -> bool:
        return self.verdict.is_complete


@dataclass(frozen=True)
class ArchiveReport:
    """Result of one run.

    `hours` are the requested hours and others covered too. `record_count` are records in segments; of those read,
    `filtered_count` were left out and `dead_letter_count` failed and were tolerated.

    `waiting` is kafka partition -> last stable offset, if an open transaction holds back the rest. `unresolved` are the
    unresolved offsets of this run. `seconds` is the time of scanning and committing. `failure` is to be raised after
    the hours are reported: something could not be archived, and everything in this report is committed.
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
