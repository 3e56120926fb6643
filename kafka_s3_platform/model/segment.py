"""What the index holds of a topic's archive: segments, scans, reservations, hours and the topic itself."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from kafka_s3_platform.model.offsets import OffsetRange

Chunk = Literal["hourly", "daily"]

OUT_OF_RANGE = "__out_of_range__"
"""Encoded partition of records whose timestamp is outside [start hour, planning time + 1 day]."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the store as it was finished. `sha256` in hex."""

    key: str
    size: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One finished S3 object: records of one kafka partition and one encoded partition, in offset order.

    `start_offset` is the first record's, `end_offset` the last record's + 1. `chunk_start` is the start of the hour
    or day, None for out-of-range records. `late_count` counts records that arrived after their hour's end and the
    allowed lateness. `record_bytes` are bytes of keys, values and headers, `size` is the object's. Timestamps are epoch
    milliseconds. `settings` is the JSON of the layout that wrote it. `siblings` are the objects that belong to it:
    keys, headers, an index of its blocks. `schema_ids` are the Registry's, of the schemas of its values.
    """

    key: str
    chunk: Chunk
    chunk_start: datetime | None
    encoded_partition: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    record_count: int
    late_count: int
    record_bytes: int
    size: int
    etag: str
    sha256: str
    digest: str
    min_timestamp: int
    max_timestamp: int
    settings: str
    epoch: int
    siblings: tuple[StoredObject, ...] = ()
    schema_ids: tuple[int, ...] = ()

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)

    @property
    def format(self) -> str:
        """The format that it was written in, whatever its connector writes today."""
        return str(_layout(self.settings).get("format", "envelope.parquet"))

    @property
    def zone(self) -> ZoneInfo:
        """The timezone whose hour or day it is, whatever its connector's is today."""
        return ZoneInfo(_layout(self.settings).get("timezone", "UTC"))

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        """All its objects, the one that names it first."""
        return (StoredObject(self.key, self.size, self.etag, self.sha256), *self.siblings)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its objects."""
        return tuple(o.key for o in self.objects)


@lru_cache(maxsize=1024)
def _layout(settings: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(settings)
    return found


class SegmentTotals:
    """Sums over the `segments` of what has some."""

    segments: tuple[Segment, ...]

    @property
    def record_count(self) -> int:
        return sum(s.record_count for s in self.segments)

    @property
    def record_bytes(self) -> int:
        return sum(s.record_bytes for s in self.segments)

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)

    @property
    def late_count(self) -> int:
        return sum(s.late_count for s in self.segments)


def overlap_clusters(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Segments of one kafka partition, by first offset, in groups no two of which overlap in offset range."""
    cluster: list[Segment] = []
    end_offset = 0
    for segment in sorted(segments, key=lambda s: (s.start_offset, s.end_offset)):
        if cluster and segment.start_offset >= end_offset:
            yield cluster
            cluster = []
        cluster.append(segment)
        end_offset = max(end_offset, segment.end_offset)
    if cluster:
        yield cluster


@dataclass(frozen=True, slots=True)
class Scan:
    """An offset range of a kafka partition that was read once, whole.

    Where unresolved offsets split what was read in one go, the counts of all its pieces stand with the first.
    `record_count` records were read. `filtered_count` of them a transform or a null value left out, `dead_letter_count`
    failed and were tolerated; what the others became are `output_count` records in segments.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    record_count: int
    leader_epoch: int | None
    epoch: int
    filtered_count: int = 0
    dead_letter_count: int = 0
    output_count: int = 0

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A range that one run means to scan. Its row is present while the run may still commit."""

    kafka_partition: int
    start_offset: int
    end_offset: int
    run_id: str
    epoch: int
    reserved_at: datetime

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)


@dataclass(frozen=True, slots=True)
class HourRange:
    """Where an hour that was asked for lies in a kafka partition, as ListOffsets said when it was planned.

    `[start_offset, end_offset)` may be empty; the hour is scanned when coverage holds it. The end is None while nobody
    can tell it: the hour was not over, or a transaction was open in it. So is the start: nothing of the kafka partition
    was archived, and its leader did not answer.
    """

    hour: datetime
    kafka_partition: int
    start_offset: int | None
    end_offset: int | None

    def holds(self, offset: int) -> bool:
        """Whether the offset lies in the hour's range as far as that is known."""
        if self.start_offset is None:
            return False
        return self.start_offset <= offset and (self.end_offset is None or offset < self.end_offset)


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """Who may do what with a topic, by Kafka's names: an access control entry of its literal name."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return f"{self.permission} {self.operation} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class TopicGeneration:
    """The topic as it was archived: what a faithful restore needs of it.

    `acls` are None where they are unknown: nobody may read them, or the cluster keeps none.
    """

    topic: str
    topic_id: str
    kafka_partitions: tuple[int, ...]
    configs: tuple[tuple[str, str], ...]
    acls: tuple[TopicAcl, ...] | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a consumer group had committed of one kafka partition: `committed_offset` is the next that it reads.

    `observed_at` is UTC and before the log's end was asked for, so that the offset lies within what that run archives.
    `group_state` is Kafka's word. Of a group only the rows that were observed last are present.
    """

    group_id: str
    kafka_partition: int
    committed_offset: int
    metadata: str
    leader_epoch: int | None
    group_state: str
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Compaction:
    """The day that a run means to merge, by its start. Its row is present while the run may still commit."""

    chunk_start: datetime
    run_id: str
    epoch: int
    reserved_at: datetime


@dataclass(frozen=True, slots=True)
class Condemned:
    """An orphan that a vacuum deletes: no later run writes an object of this first offset at `key` again.

    So whenever its DELETE arrives, nothing live is there. The row stays for good. `epoch` is the version that holds it.
    """

    key: str
    kafka_partition: int
    start_offset: int
    epoch: int


MAINTENANCE_LEASE = timedelta(hours=1)
"""How long a `Maintenance` row holds off runs."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A vacuum of a version that held off other runs while it deleted; this one's does not, and writes no such row."""

    run_id: str
    epoch: int
    reserved_at: datetime

    def holds(self, now: datetime) -> bool:
        """Whether the run may still be at work; a row left behind by a killed one holds nobody off after the lease."""
        return now < self.reserved_at + MAINTENANCE_LEASE
