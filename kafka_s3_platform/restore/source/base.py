"""Interface between a restore and its source: our own archive with its index, or listed objects of another sink.

A source has plans and streams. Only the source itself knows the kind of plan. A fact unknown before an object is read
is None.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.model.gaps import MissingRecords
from kafka_s3_platform.model.segment import TopicAcl
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.terms import RequestFacts
from kafka_s3_platform.sources.objects import BadObject
from kafka_s3_platform.store.objects import ObjectStore

EARLIEST = -(2**63)
LATEST = 2**63 - 1
"""Bounds (epoch ms) of unknown timestamps."""

RECORDS_PER_SECOND = 150_000
BYTES_PER_SECOND = 60_000_000
"""Bytes sent and verified by one task in a second on one core of a small machine. Only estimates use it."""


@dataclass(frozen=True, slots=True)
class TargetStart:
    """The target topic as it was before the first record: its id, and kafka partition -> high watermark."""

    topic_id: str
    offsets: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if any(offset < 0 for _, offset in self.offsets):
            raise ValueError(f"no log ends at one of the offsets {self.offsets}")

    def offset(self, kafka_partition: int) -> int:
        """Return the end of the kafka partition."""
        return dict(self.offsets)[kafka_partition]


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """Facts of one object in a plan, before anybody reads it. None: unknown to the source.

    `record_bytes` are the bytes of keys, values and headers. At most `wanted_count` of its records are restored.
    `oldest` and `newest` (epoch ms) are bounds of the timestamps of the restored records.
    """

    key: str
    kafka_partition: int
    size: int
    record_count: int | None = None
    wanted_count: int | None = None
    record_bytes: int | None = None
    oldest: int | None = None
    newest: int | None = None
    is_out_of_range: bool = False

    @property
    def largest_bytes(self) -> int:
        """Bytes of all its records; if unknown, bytes of the object."""
        if self.record_bytes is None:
            return self.size
        return self.record_bytes


@dataclass(frozen=True)
class TargetPlan:
    """The part of one target topic, from any source. The checks of a target read it.

    `start` is None before the restore has begun. `source_kafka_partitions` belong to the source's topics. `topic_id`,
    `configs` and `acls` are the source topic's, if known. Without `has_timestamps` the objects hold no timestamps of
    their records: these get the time of sending.
    """

    topics: tuple[str, ...]
    to_topic: str
    facts: RequestFacts
    objects: tuple[ObjectFacts, ...]
    is_exact: bool
    start: TargetStart | None
    source_kafka_partitions: tuple[int, ...]
    topic_id: str | None = None
    configs: tuple[tuple[str, str], ...] = ()
    acls: tuple[TopicAcl, ...] | None = None
    has_timestamps: bool = True

    @property
    def kafka_partitions(self) -> tuple[int, ...]:
        """Source kafka partitions with records to restore."""
        return tuple(sorted({o.kafka_partition for o in self.objects}))

    def objects_of(self, kafka_partition: int) -> tuple[ObjectFacts, ...]:
        return tuple(o for o in self.objects if o.kafka_partition == kafka_partition)

    @property
    def record_count(self) -> int | None:
        """Records to restore, exact or an upper bound. None if unknown to the source."""
        counts = [o.wanted_count for o in self.objects if o.wanted_count is not None]
        return sum(counts) if len(counts) == len(self.objects) else None

    @property
    def record_bytes(self) -> int | None:
        """Bytes of keys, values and headers, exact or an upper bound. None if unknown to the source."""
        sizes = [o.record_bytes for o in self.objects if o.record_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.objects) else None

    @property
    def largest_bytes(self) -> int:
        """Bytes of all records; if unknown, bytes of the objects."""
        return sum(o.largest_bytes for o in self.objects)

    @property
    def object_bytes(self) -> int:
        return sum(o.size for o in self.objects)

    @property
    def out_of_range_count(self) -> int:
        """Records with out-of-range timestamps, exact or an upper bound."""
        return sum(o.wanted_count or 0 for o in self.objects if o.is_out_of_range)

    def oldest(self, now_ms: int) -> int | None:
        """Return the earliest sent timestamp, or an earlier one: EARLIEST if unknown.

        None if there is no object. Records without a timestamp get `now_ms`.
        """
        if not self.has_timestamps:
            return now_ms if self.objects else None
        return min((EARLIEST if o.oldest is None else o.oldest for o in self.objects), default=None)

    def newest(self, now_ms: int) -> int | None:
        """Return the latest sent timestamp, or a later one: LATEST if unknown. Else as `oldest`."""
        if not self.has_timestamps:
            return now_ms if self.objects else None
        return max((LATEST if o.newest is None else o.newest for o in self.objects), default=None)


def estimate_seconds(request: RestoreRequest, plan: TargetPlan) -> float:
    """Return roughly how long sending and verifying takes: the slowest of records, bytes and rate limits decides."""
    tasks = max(1, min(request.config.tasks_max, len(plan.kafka_partitions)))
    # To find the latest record of each key, sending and verifying both read everything once before.
    passes = 2 if plan.facts.is_snapshot else 1
    count = plan.record_count or 0
    at_once = [passes * count / RECORDS_PER_SECOND / tasks, passes * plan.largest_bytes / BYTES_PER_SECOND / tasks]
    limits = ((count, request.records_per_second), (plan.largest_bytes, request.bytes_per_second))
    return max(at_once + [size / limit for size, limit in limits if limit])


class Encoder(Protocol):
    """Encodes decoded records for sending."""

    def encoded(self, batch: ConnectBatch) -> pa.RecordBatch:
        """Return the records with keys and values as bytes."""
        ...


@dataclass(frozen=True)
class ReadFacts:
    """Facts of a stream's records up to where it was read.

    `skipped` has a sentence for each bad object and bad record left out, `gaps` one for offsets between two objects but
    in none, `notes` others about facts that are unknown. The first two may be shortened: the counts are whole.
    """

    out_of_range_count: int = 0
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0
    gaps: tuple[MissingRecords, ...] = ()
    gap_count: int = 0
    notes: tuple[str, ...] = ()


class SourceRecords(Protocol):
    """The wanted records of one stream, and the facts of those read so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    @property
    def facts(self) -> ReadFacts: ...


class RecordStream(Protocol):
    """Source of one task, for one source kafka partition. A task carries it to an executor."""

    @property
    def store(self) -> StoreSettings:
        """Settings of the objects' store."""
        ...

    @property
    def topic(self) -> str:
        """The source's topic."""
        ...

    @property
    def kafka_partition(self) -> int:
        """The source's kafka partition."""
        ...

    @property
    def named_topic(self) -> str:
        """The source's topic if one restore may read several topics, else empty."""
        ...

    @property
    def is_decoded(self) -> bool:
        """True if objects hold decoded keys and values, to be encoded for the target, False for whole records."""
        ...

    @property
    def is_found_by_content(self) -> bool:
        """True if comparing its records with the target's shows how many have arrived."""
        ...

    @property
    def sends_any_timestamp(self) -> bool:
        """True if records may be sent with a timestamp that the client replaces with the time of sending."""
        ...

    @property
    def record_count(self) -> int | None:
        """Records, exact or an upper bound. None if unknown before the objects are read."""
        ...

    @property
    def record_bytes(self) -> int | None:
        """Bytes of keys, values and headers, exact or an upper bound. None if unknown."""
        ...

    @property
    def object_bytes(self) -> int:
        """Bytes of the objects."""
        ...

    @property
    def size(self) -> int:
        """The measure of progress: records if their number is known, else bytes of the objects."""
        ...

    def passed(self, record_count: int, next_source_offset: int) -> int:
        """Return how much of `size` is done when all records below an offset, so many, were sent."""
        ...

    def leaving_out(self, left_out: Mapping[str, str] | None) -> "RecordStream":
        """Return the stream without these bad objects (key -> why). None: nothing is decided yet."""
        ...

    def records(self, store: ObjectStore, encoder: Encoder, start_offset: int) -> SourceRecords:
        """Read the wanted records from a source offset on."""
        ...

    def bad_objects(self, store: ObjectStore) -> Iterable[BadObject]:
        """Read everything to find the bad objects. Each `why` includes the restore's treatment of the object."""
        ...
