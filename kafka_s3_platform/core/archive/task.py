"""One Spark task of an archive run, and its result."""

from dataclasses import dataclass, field, replace
from datetime import timezone

from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ConfigError,
    PlatformError,
    RegistryUnavailableError,
    SupersededError,
)
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import EpochMark, Scan, Segment
from kafka_s3_platform.core.segments.target import SegmentTarget
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.upload import Provenance

ENDING_TOPIC = (SupersededError, AuthorizationError, ConfigError, RegistryUnavailableError)
"""Errors that every other task of the topic would get too. After one of them, no more of the topic is committed."""


@dataclass(frozen=True)
class ScanTask:
    """Ranges of one kafka partition, ascending, with everything an executor needs to archive them.

    `writer` is the archiving run; each attempt adds its own id. `condemned` is the same as in `SegmentTarget`.
    `epoch_marks` has for each range an archived offset with its leader epoch, by which the log is checked for a
    truncation before the range is read, or None if none is known. Timestamps outside [`earliest_ms`, `latest_ms`) go to
    the out-of-range folder. `watermark_ms` is the latest time of a record before the ranges, as far as it is known.
    With the Wallclock extractor, `hour_offsets` are pairs (first offset, hour start in ms) in ascending order, the
    first of them at or below the ranges.
    """

    kafka: KafkaSettings = field(repr=False)
    store: StoreSettings = field(repr=False)
    layout: LayoutSettings
    archive: ArchiveSettings
    writer: Provenance
    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    epoch_marks: tuple[EpochMark | None, ...]
    earliest_ms: int
    latest_ms: int
    watermark_ms: int
    records: RecordSettings = field(default_factory=RecordSettings, repr=False)
    hour_offsets: tuple[tuple[int, int], ...] = ()
    condemned: frozenset[int] = frozenset()
    records_per_second: float | None = None
    bytes_per_second: float | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.ranges))

    def target(self, attempt: Attempt) -> SegmentTarget:
        """Return the description of the segments this attempt writes."""
        writer = replace(self.writer, attempt=attempt.attempt_id)
        sides = {"key": self.records.key.registry, "value": self.records.value.registry}
        framed = tuple(name for name, registry in sides.items() if registry)
        return SegmentTarget(
            self.layout,
            writer.topic,
            self.kafka_partition,
            writer,
            condemned=self.condemned,
            framed=framed,  # type: ignore[arg-type]
            start_hour=self.archive.start_hour.astimezone(timezone.utc),
        )


@dataclass(frozen=True)
class ScanResult:
    """A task's result, which counts once its rows are committed. Scans, gaps and unresolved make up its `ranges`."""

    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    scans: tuple[Scan, ...]
    segments: tuple[Segment, ...]
    gaps: tuple[Gap, ...]
    unresolved: tuple[Unresolved, ...] = ()
    notes: Notes = field(default_factory=Notes)

    @property
    def size(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def record_count(self) -> int:
        """The number of records in segments."""
        return sum(s.output_count for s in self.scans)

    @property
    def record_bytes(self) -> int:
        return sum(s.record_bytes for s in self.segments)


@dataclass(frozen=True)
class FailedScan:
    """A task that failed with a permanent error, or has no tries left. Nothing of its ranges is archived."""

    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    error: PlatformError


@dataclass(frozen=True)
class ScanGroup:
    """Tasks that one Spark task runs, one after the other."""

    number: int
    tasks: tuple[ScanTask, ...]


def scan_group(group: ScanGroup, attempt: Attempt) -> tuple[int, list[ScanResult | FailedScan]]:
    """Scan the group's tasks. Return the group's number and the tasks' outcomes.

    The run passes this function by name, so it need not import the modules that scan.
    """
    from kafka_s3_platform.core.archive.scan import try_scans

    return group.number, try_scans(group.tasks, attempt)
