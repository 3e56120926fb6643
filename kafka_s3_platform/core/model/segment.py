"""The rows of a topic's index: segments, scans, reservations, hours, the topic itself, and the sums of old ones.

The upkeep folds old rows: it moves them out of a topic's state, which keeps their sum.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetSpan
from kafka_s3_platform.core.model.times import HOUR, HOUR_MS, to_epoch_ms

Chunk = Literal["hourly", "daily", "monthly"]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the store, as it was when its upload ended. `sha256` is in hex."""

    key: str
    size: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object left out because of `behavior.on.error`. None of its records lies before `start_offset`."""

    key: str
    start_offset: int
    why: str


@dataclass(frozen=True, slots=True)
class Segment(OffsetSpan):
    """One finished S3 object: records of one kafka partition and one encoded partition, in offset order.

    `start_offset` is the offset of the first record, `end_offset` is one above the last record's. `chunk_start` is the
    start of the hour, day or month, or None for out-of-range records. `late_count` counts records that arrived after
    the end of their hour and the allowed lateness. `record_bytes` counts the bytes of keys, values and headers, `size`
    is the object's. Timestamps are epoch ms. `settings` is the JSON of the segment's layout. `siblings` are its other
    objects: keys, headers, an index of its blocks. `schema_ids` are the Registry's ids of the schemas of its values,
    and the GUIDs of those that headers name. `start_hour` is the connector's when out-of-range records were archived,
    None in other segments.
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
    schema_ids: tuple[int | str, ...] = ()
    start_hour: datetime | None = None

    def may_hold_apart(self, hour: datetime) -> bool:
        """Return True if records of `hour` may lie here as out of range, because the archive began after that hour."""
        if self.start_hour is None or hour >= self.start_hour:
            return False
        start = to_epoch_ms(hour)
        return self.min_timestamp < start + HOUR_MS and start <= self.max_timestamp

    @property
    def format(self) -> str:
        """The format of this segment. Its connector may write another one today."""
        return _find_format(self.settings)

    @property
    def zone(self) -> ZoneInfo:
        """The timezone of its hour or day. Its connector may have another one today."""
        return _find_zone(self.settings)

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        """All its objects. The first one gives the segment its key."""
        return (StoredObject(self.key, self.size, self.etag, self.sha256), *self.siblings)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its objects."""
        return tuple(o.key for o in self.objects)


@dataclass(frozen=True)
class StoredChunk:
    """An hour or a day with segments, and their layout."""

    chunk_start: datetime | None
    settings: str

    @property
    def format(self) -> str:
        """The format of its segments."""
        return _find_format(self.settings)

    @property
    def zone(self) -> ZoneInfo:
        """The timezone of the hour or day."""
        return _find_zone(self.settings)


def _find_format(settings: str) -> str:
    return str(_parse_layout(settings)["format"])


def _find_zone(settings: str) -> ZoneInfo:
    return ZoneInfo(_parse_layout(settings)["timezone"])


# Many segments have the same layout.
@lru_cache(maxsize=1024)
def _parse_layout(settings: str) -> Mapping[str, Any]:
    layout: Mapping[str, Any] = json.loads(settings)
    return layout


class SegmentTotals:
    """Adds sums over `segments` to a class."""

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


def cluster_overlaps(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield groups of the segments of one kafka partition, in order. Segments overlap only within a group."""
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
class Scan(OffsetSpan):
    """An offset range of a kafka partition, read once and as a whole.

    If unresolved offsets split such a range, the first piece has the counts of all pieces. `record_count` records were
    read. A transform or a setting for null values dropped `filtered_count` of them. `dead_letter_count` of them failed
    and were tolerated. The others became `output_count` records in segments.
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


@dataclass(frozen=True, slots=True)
class EpochMark:
    """A place of the archived log: it had `leader_epoch` before `offset`, and no later epoch began below it."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Reservation(OffsetSpan):
    """A range of one run's scan. Its row exists while the run may still commit."""

    kafka_partition: int
    start_offset: int
    end_offset: int
    run_id: str
    epoch: int
    reserved_at: datetime


@dataclass(frozen=True, slots=True)
class HourRange:
    """The offsets of a requested hour in a kafka partition, as ListOffsets reported them when the hour was planned.

    `[start_offset, end_offset)` may be empty. The hour is scanned when coverage holds this range. The end is None while
    it is unknown: the hour was not over, or a transaction was open in it. The start is None if the leader did not
    answer. The log then began at `log_start_offset`: from there to the start it held no record of the hour or later.
    """

    hour: datetime
    kafka_partition: int
    start_offset: int | None
    end_offset: int | None
    log_start_offset: int = 0


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """An access control entry for a topic's literal name, in Kafka's names."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return f"{self.permission} {self.operation} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class TopicGeneration:
    """The topic's description at archiving, for a faithful restore. `acls` are None if they could not be read."""

    topic: str
    topic_id: str
    kafka_partitions: tuple[int, ...]
    configs: tuple[tuple[str, str], ...]
    acls: tuple[TopicAcl, ...] | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A consumer group's committed offset in one kafka partition. `committed_offset` is the next offset to read.

    `observed_at` is UTC. The observation comes before the request for the end of the log, so the offset lies within the
    run's records. `group_state` is Kafka's word. Only a group's latest observation has rows.
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
    """The day that a run merges, given by its start. Its row exists while the run may still commit.

    Without a `chunk_start`, the run erases records of any days.
    """

    chunk_start: datetime | None
    run_id: str
    epoch: int
    reserved_at: datetime


@dataclass(frozen=True, slots=True)
class Condemned:
    """An object unknown to the index. No later run writes one with this first offset at `key` again.

    Either a vacuum deletes it, and nothing live lies at `key` when the DELETE arrives, however late, or the index was
    put back from a copy without it. The row stays forever. `epoch` is the version of the index that added it.
    """

    key: str
    kafka_partition: int
    start_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FoldedScan(Scan):
    """Offsets of many scans without a hole between them. Counts are sums; the leader epoch belongs to their end."""


@dataclass(frozen=True, slots=True)
class FoldedFrontier(Frontier):
    """The first frontier of a log, the last folded one, or one of the two before it."""


@dataclass(frozen=True, slots=True)
class FoldedHours:
    """`size` hours from `hour` on. Each was complete when it was folded, in every kafka partition."""

    hour: datetime
    size: int

    @property
    def until(self) -> datetime:
        """The end of the last hour."""
        return self.hour + self.size * HOUR

    def __contains__(self, hour: datetime) -> bool:
        # Hours of a timezone may begin at half past: these are other hours.
        return self.hour <= hour < self.until and not (hour - self.hour) % HOUR


@dataclass(frozen=True)
class Fold:
    """The folded rows of a topic: frontiers of each kafka partition, and a few runs of hours."""

    scans: tuple[FoldedScan, ...] = ()
    frontiers: tuple[FoldedFrontier, ...] = ()
    hours: tuple[FoldedHours, ...] = ()


@lru_cache(maxsize=64)
def list_folded_hours(runs: tuple[FoldedHours, ...]) -> frozenset[datetime]:
    """Return the single hours. Topics of one connector mostly have the same ones, and share the answer."""
    return frozenset(run.hour + n * HOUR for run in runs for n in range(run.size))


def find_folded_month(hour: datetime) -> str:
    """Return the month (UTC) of a folded hour's rows: `2026-03`."""
    return f"{hour.astimezone(timezone.utc):%Y-%m}"


@lru_cache(maxsize=64)
def list_months(runs: tuple[FoldedHours, ...]) -> tuple[str, ...]:
    """Return the months of the hours, in order."""
    return tuple(sorted({find_folded_month(hour) for hour in list_folded_hours(runs)}))
