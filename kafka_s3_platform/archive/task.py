"""What one Spark task of an archive run is given, and what it gives back."""

from dataclasses import dataclass, field, replace
from datetime import timezone

from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    StoreSettings,
)
from kafka_s3_platform.errors import (
    AuthorizationError,
    ConfigError,
    PlatformError,
    RegistryUnavailableError,
    SupersededError,
)
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.notes import Notes
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.segment import EpochMark, Scan, Segment
from kafka_s3_platform.model.unresolved import Unresolved
from kafka_s3_platform.segments.target import SegmentTarget
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.upload import Provenance

ENDING_TOPIC = (SupersededError, AuthorizationError, ConfigError, RegistryUnavailableError)
"""Errors that every other task of the topic would get too: nothing more of the topic is committed."""


@dataclass(frozen=True)
class ScanTask:
    """Ranges of one kafka partition, ascending, and all that an executor needs to archive them.

    `writer` is who archives; each attempt puts its own id in. `condemned` as in `SegmentTarget`. `epoch_marks`
    tell, before each of the ranges, what its log must hold if it was not truncated, None where nobody knows.
    Timestamps outside [`earliest_ms`, `latest_ms`) go to the out-of-range folder. `watermark_ms` is the latest time of
    a record before the ranges, as far as it is known. With the Wallclock extractor `hour_offsets` are (first offset,
    hour start ms), ascending, the first at or below the ranges.
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
    """What a task read and wrote; it starts to exist when its rows are committed.

    `ranges` are those of the task: `scans`, `gaps` and `unresolved` hold them together.
    """

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
        """Records in segments."""
        return sum(s.output_count for s in self.scans)

    @property
    def record_bytes(self) -> int:
        return sum(s.record_bytes for s in self.segments)


@dataclass(frozen=True)
class FailedScan:
    """A task that failed for good, or whose tries are used up: nothing of its ranges is archived."""

    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    error: PlatformError


@dataclass(frozen=True)
class ScanGroup:
    """Tasks that one task of Spark does, one after the other."""

    number: int
    tasks: tuple[ScanTask, ...]


def scan_group(group: ScanGroup, attempt: Attempt) -> tuple[int, list[ScanResult | FailedScan]]:
    """Scan the group's tasks. Return its number, and what became of each.

    The run hands this on by its name, and imports nothing of what scanning needs.
    """
    from kafka_s3_platform.archive.scan import try_scans

    return group.number, try_scans(group.tasks, attempt)
