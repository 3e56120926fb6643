"""The interface between a restore and its source: our own archive with its index, or listed objects of another sink.

A source has plans and streams. Only the source itself knows the kind of its plans. A fact that is unknown before an
object is read is None.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.gaps import MissingRecords
from kafka_s3_platform.core.model.segment import BadObject, TopicAcl
from kafka_s3_platform.core.restore.documents import (
    PLAN_FORMAT,
    RestoreDocuments,
    hash_document,
    parse_document,
    read_header,
)
from kafka_s3_platform.core.restore.request import ReadFacts, RestoreRequest
from kafka_s3_platform.core.restore.source.terms import RequestFacts, check_plan_field, check_plan_place, check_terms
from kafka_s3_platform.core.store.objects import ObjectStore

EARLIEST = -(2**63)
LATEST = 2**63 - 1
"""Bounds (epoch ms) of unknown timestamps."""

RECORDS_PER_SECOND = 150_000
BYTES_PER_SECOND = 60_000_000
"""The bytes that one task sends and verifies in a second on one core of a small machine. Only estimates use it."""

UNSENDABLE_TIMESTAMP = 0
"""The timestamp (epoch ms) that the Kafka client replaces with the time of sending."""


@dataclass(frozen=True, slots=True)
class TargetStart:
    """The target topic as it was before the first record: its id, and the high watermark of each kafka partition."""

    topic_id: str
    offsets: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if any(offset < 0 for _, offset in self.offsets):
            raise ValueError(f"no log ends at one of the offsets {self.offsets}")


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """The facts about one object in a plan before anybody reads it, None if the source does not know them.

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
        """The bytes of all its records or, if they are unknown, of the object."""
        if self.record_bytes is None:
            return self.size
        return self.record_bytes


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the numbers is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


@dataclass(frozen=True)
class TargetPlan:
    """The part of a plan for one target topic, from any source. `request` is for this target and its source topics.

    `start` is None before the restore has begun. `source_kafka_partitions` belong to the source's topics. `topic_id`,
    `configs` and `acls` are the source topic's, if known. `gaps` are requested records that the source lacks. Without
    `has_timestamps` the objects hold no timestamps of their records, so the records get the time of sending.
    `restore_seconds` bounds the time of the whole restore, if it has several targets.
    """

    request: RestoreRequest
    topics: tuple[str, ...]
    facts: RequestFacts
    objects: tuple[ObjectFacts, ...]
    is_exact: bool
    start: TargetStart | None
    source_kafka_partitions: tuple[int, ...]
    topic_id: str | None = None
    configs: tuple[tuple[str, str], ...] = ()
    acls: tuple[TopicAcl, ...] | None = None
    has_timestamps: bool = True
    gaps: tuple[MissingRecords, ...] = ()
    restore_seconds: float = 0.0

    @property
    def to_topic(self) -> str:
        """The target topic."""
        return self.request.to_topic

    @property
    def name(self) -> str:
        """The source's topics, for messages and reports."""
        return ", ".join(self.topics)

    @property
    def kafka_partitions(self) -> tuple[int, ...]:
        """The source kafka partitions with records to restore."""
        return tuple(sorted({o.kafka_partition for o in self.objects}))

    def objects_of(self, kafka_partition: int) -> tuple[ObjectFacts, ...]:
        """Return the objects of one source kafka partition."""
        return tuple(o for o in self.objects if o.kafka_partition == kafka_partition)

    @property
    def record_count(self) -> int | None:
        """The number of records to restore, exact or an upper bound, or None if the source does not know it."""
        return sum_known(o.wanted_count for o in self.objects)

    @property
    def record_bytes(self) -> int | None:
        """The bytes of keys, values and headers, exact or an upper bound, or None if the source does not know them."""
        return sum_known(o.record_bytes for o in self.objects)

    @property
    def largest_bytes(self) -> int:
        """The bytes of all records or, if they are unknown, of the objects."""
        return sum(o.largest_bytes for o in self.objects)

    @property
    def object_bytes(self) -> int:
        return sum(o.size for o in self.objects)

    @property
    def out_of_range_count(self) -> int:
        """The number of records with out-of-range timestamps, exact or an upper bound."""
        return sum(o.wanted_count or 0 for o in self.objects if o.is_out_of_range)

    def bound_times(self, now_ms: int) -> tuple[int, int] | None:
        """Return bounds of the sent timestamps (EARLIEST and LATEST if unknown), or None if there is no object.

        Records without a timestamp get `now_ms`.
        """
        if not self.objects:
            return None
        if not self.has_timestamps:
            return now_ms, now_ms
        oldest = min(EARLIEST if o.oldest is None else o.oldest for o in self.objects)
        return oldest, max(LATEST if o.newest is None else o.newest for o in self.objects)


def estimate_seconds(request: RestoreRequest, plan: TargetPlan) -> float:
    """Return roughly how long sending and verifying takes: the slowest of records, bytes and rate limits decides."""
    tasks = max(1, min(request.config.tasks_max, len(plan.kafka_partitions)))
    # To find the latest record of each key, sending and verifying both read everything once before.
    passes = 2 if plan.facts.is_snapshot else 1
    count = plan.record_count or 0
    at_once = [passes * count / RECORDS_PER_SECOND / tasks, passes * plan.largest_bytes / BYTES_PER_SECOND / tasks]
    limits = ((count, request.records_per_second), (plan.largest_bytes, request.bytes_per_second))
    return max(at_once + [size / limit for size, limit in limits if limit])


class SourceRecords(Protocol):
    """The wanted records of one stream, whole or decoded, and the facts of the records read so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch | ConnectBatch]: ...

    @property
    def facts(self) -> ReadFacts: ...


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """The facts of a stream that are known before its objects are read.

    `topic` and `kafka_partition` are the source's, `store` has the objects. `named_topic` is the topic if one restore
    may read several, else empty. `to_topic` is its target. If transforms route the records, `to_topics` are the targets
    of all streams of the same records, and `named_topic` names the target, too. `record_count`, and `record_bytes` of
    keys, values and headers, are exact or upper bounds, or None if unknown. `object_starts` are pairs of an object's
    first offset and the bytes of the objects before it.
    """

    topic: str
    kafka_partition: int
    store: ObjectStore = field(repr=False)
    object_bytes: int
    record_count: int | None = None
    record_bytes: int | None = None
    object_starts: tuple[tuple[int, int], ...] = ()
    named_topic: str = ""
    to_topic: str = ""
    to_topics: tuple[str, ...] = ()
    is_decoded: bool = False
    """True if objects hold decoded keys and values, which are encoded for the target, and not whole records."""
    is_found_by_content: bool = False
    """True if comparing its records with the target's shows how many have arrived."""
    sends_any_timestamp: bool = False
    """True if records may be sent with a timestamp that the client replaces with the time of sending."""

    @property
    def size(self) -> int:
        """The measure of progress: the number of records if it is known, else the bytes of the objects."""
        return self.object_bytes if self.record_count is None else self.record_count

    @property
    def bytes_to_send(self) -> int:
        """The bytes of keys, values and headers or, if they are unknown, of the objects."""
        return self.object_bytes if self.record_bytes is None else self.record_bytes

    @property
    def any_timestamp(self) -> frozenset[int]:
        """Timestamps (epoch ms) of records that may have any other timestamp in the target."""
        return frozenset({UNSENDABLE_TIMESTAMP}) if self.sends_any_timestamp else frozenset()

    def passed_bytes(self, next_source_offset: int) -> int:
        """Return the approximate bytes of the objects before the offset, or 0 if there are no `object_starts`."""
        if not self.object_starts:
            return 0
        offsets, earlier_bytes = zip(*self.object_starts, strict=True)
        return int(np.interp(next_source_offset, offsets, earlier_bytes))


@dataclass(frozen=True, kw_only=True)
class RecordStream(ABC):
    """The source of one task, for one source kafka partition. The task carries it to an executor.

    `left_out` maps the key of each object left out by this restore to the reason. It is None before the decision.
    """

    left_out: Mapping[str, str] | None = None

    @property
    @abstractmethod
    def facts(self) -> StreamFacts:
        """The facts of the stream as planned."""

    @abstractmethod
    def records(self, start_offset: int = 0) -> SourceRecords:
        """Read the wanted records from a source offset on."""

    @abstractmethod
    def find_bad_objects(self) -> Iterable[BadObject]:
        """Read everything to find the bad objects. Each `why` includes the restore's treatment of the object."""


class BegunElsewhereError(PreflightError):
    """A restore with this id was begun with another connector first, and its plan is in that connector's bucket."""


@dataclass(frozen=True)
class PlanPointer:
    """The document at the key of a plan in the buckets of a restore's other connectors, to reserve its id there.

    `connector` is the first one. Its plan is the object `plan`, and `place` is the `hash_place` of its documents.
    """

    kind: ClassVar[str] = "a restore begun with another connector"

    connector: str
    plan: str
    place: str = ""

    def to_json(self) -> bytes:
        """Write the pointer, its format and its kind."""
        return json.dumps({"format": PLAN_FORMAT, "kind": self.kind} | asdict(self), indent=1).encode()

    def make_refusal(self, restore_id: str) -> BegunElsewhereError:
        """Make the error for a request whose first connector is another one."""
        return BegunElsewhereError(
            f"restore id {restore_id} was begun with connector {self.connector} first ({self.plan}). Name that "
            "connector first, and the same others, to continue, or use another restore id"
        )

    @classmethod
    def from_json(cls, content: bytes, key: str) -> Self | None:
        """Read a pointer. Return None if the document is a plan. Raises IntegrityError if it is neither."""
        if read_header(content, key, "restore plan", PLAN_FORMAT).kind != cls.kind:
            return None
        return parse_document(content, cls, key)


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """The plan of a restore as the bucket stores it. A subclass has the objects of one kind of source.

    `terms` is the original request, with which a later request is compared. `place` is the `hash_place` of its
    connector: restores of the same id whose documents are at two places are two restores. `skipped` are sentences about
    the parts left out: bad objects, topics without an archive. `skipped` may be shortened, `skipped_count` is not.
    `starts` has the targets, by topic, as they were before the first record. It is None before the restore has begun.
    """

    kind: ClassVar[str]

    restore_id: str
    terms: Mapping[str, Any]
    created_at: str
    place: str
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0
    starts: Mapping[str, TargetStart] | None = None

    @cached_property
    def facts(self) -> RequestFacts:
        """The facts of `terms`, with types."""
        return RequestFacts.of(self.terms, self.restore_id)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the plan. Equal plans have equal digests."""
        return hash_document(asdict(self))

    def to_json(self) -> bytes:
        """Write the plan, its format, its kind and its digest."""
        header = {"format": PLAN_FORMAT, "kind": self.kind, "digest": self.digest}
        return json.dumps(header | asdict(self), indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes, key: str) -> Self:
        """Read a plan written by `to_json`.

        Raises:
            IntegrityError: the plan has another format, or somebody changed it.
            BegunElsewhereError: it is no plan, but a pointer to one.
            PreflightError: the plan is of another kind.
        """
        if (pointer := PlanPointer.from_json(content, key)) is not None:
            raise pointer.make_refusal(RestoreDocuments.of_plan(key).restore_id)
        header = read_header(content, key, "restore plan", PLAN_FORMAT)
        if header.kind != cls.kind:
            raise PreflightError(
                f"restore plan {key} is for {header.kind or 'no kind'}, but this connector has {cls.kind}. Use "
                "another restore id"
            )
        plan = parse_document(content, cls, key)
        if plan.digest != header.digest:
            raise IntegrityError(
                f"restore plan {key} was changed by somebody: its digest is {plan.digest}, but {header.digest} is "
                "stored with it. Restore to another topic under another restore id"
            )
        # Check the terms now: `facts` parses them only when it is used.
        RequestFacts.of(plan.terms, key)
        return plan

    def check_same(
        self, request: RestoreRequest, terms: Mapping[str, Any], to_topics: Collection[str], **expected: object
    ) -> None:
        """Check that the stored plan belongs to a request with these terms and targets.

        Raises:
            PreflightError: the restore id was used for something else before. Each difference is named.
            IntegrityError: one of the `expected` fields differs from the request's: somebody changed the plan.
        """
        # The terms come first: if they are equal and other fields are not, somebody has changed the document.
        check_terms(request, terms, self.terms, self.created_at)
        check_plan_field(request, "restore_id", self.restore_id, request.restore_id)
        for name, value in expected.items():
            check_plan_field(request, name, getattr(self, name), value)
        check_plan_place(request, self.place)
        # A plan has no starts before its restore has begun.
        check_plan_field(request, "starts", sorted(self.starts or to_topics), sorted(to_topics))
