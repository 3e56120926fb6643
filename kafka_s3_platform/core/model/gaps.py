"""Offsets whose records are not in this archive: gaps with a reason, and offsets that nobody has decided about."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias

from kafka_s3_platform.core.model.offsets import OffsetRange, OffsetSpan, RangeSet

GapReason: TypeAlias = Literal["retention", "taken over", "skipped", "truncated", "cut off", "before archiving began"]


@dataclass(frozen=True, order=True, slots=True)
class Gap(OffsetSpan):
    """Offsets `[start_offset, end_offset)` that this archive leaves out, with the `reason`.

    - retention: the broker had deleted them.
    - taken over: another sink had archived them.
    - skipped: they could not be archived, and a user decided to go on without them.
    - truncated: the log lost them after they were archived, and somebody accepted it. The archived records stay.
    - cut off: the log lost them before they were archived. Later records at these offsets are archived.
    - before archiving began: the broker had deleted them before the first observation. Only its frontier shows it.

    `leader_epoch` is the log's epoch before `end_offset`, as in a scan, or before the `start_offset` of truncated
    offsets, or None if unknown. A later run compares it to detect a truncation. `observed_at` is the time of the
    observation that missed the records, or None if unknown.

    Holes from compaction, aborted transactions and control records are not gaps.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: GapReason = "retention"
    leader_epoch: int | None = field(default=None, compare=False)
    observed_at: datetime | None = field(default=None, compare=False)

    @property
    def is_lost(self) -> bool:
        """True if records may be missing. If not, another sink archived them before this one took over."""
        return self.reason != "taken over"

    @property
    def is_covered(self) -> bool:
        """True if the offsets count as archived: no run reads them any more."""
        return self.reason != "cut off"


def count_reasons(gaps: Iterable[Gap]) -> Counter[str]:
    """Count the offsets by reason."""
    counts: Counter[str] = Counter()
    for gap in gaps:
        counts[gap.reason] += len(gap.offsets)
    return counts


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """Requested records that are missing at their source, with a sentence for people.

    They are the records at `offsets` of one kafka partition, or, without `offsets`, others, such as whole hours.
    """

    text: str
    topic: str = ""
    kafka_partition: int = 0
    offsets: OffsetRange | None = None

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def of(topic: str, kafka_partition: int, offsets: OffsetRange, why: str) -> "MissingRecords":
        """Write the sentence. `why` follows the offsets in it."""
        return MissingRecords(f"{topic}-{kafka_partition}: offsets {offsets} {why}", topic, kafka_partition, offsets)


UNREADABLE = "batch"
"""The `reason` of offsets whose record batch is damaged or cannot be trusted, so that no setting makes it readable."""

FOR_EVER = -1
"""Kafka's `retention.ms` of a topic that deletes no record because of its age."""


def parse_retention_ms(configs: Mapping[str, str]) -> int:
    """Return for how many ms a topic with these configs in force keeps its records, or FOR_EVER."""
    retention_ms = int(configs.get("retention.ms", FOR_EVER))
    if retention_ms >= 0 and "delete" in configs.get("cleanup.policy", "delete"):
        return retention_ms
    return FOR_EVER


@dataclass(frozen=True, order=True, slots=True)
class Unreadable:
    """Unreadable offsets `[start_offset, end_offset)` of one kafka partition. `reason` is UNREADABLE."""

    start_offset: int
    end_offset: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unresolved(OffsetSpan):
    """Offsets `[start_offset, end_offset)` that a scan could not archive. They are not part of coverage.

    `reason` names the failure in a few words. `message` is the message for the first of these offsets. `found_at` is
    UTC. `min_timestamp` (epoch ms) is the earliest time of their records, or None if unknown. `retention_ms` is how
    long the topic kept records when they were found: -1 if it deletes none by age, None if it was not requested. The
    row has no effect after a later scan reads the offsets, or after somebody decides (`kafka-s3 resolve`).
    """

    kafka_partition: int
    start_offset: int
    end_offset: int
    reason: str
    message: str
    found_at: datetime
    min_timestamp: int | None = None
    retention_ms: int | None = None


def subtract_offsets(rows: Iterable[Unresolved], offsets: RangeSet) -> Iterator[Unresolved]:
    """Yield, in order, the rows of one kafka partition with `offsets` taken out of them. The rows do not overlap."""
    ordered = sorted(rows, key=lambda u: u.start_offset)
    remaining = RangeSet(u.offsets for u in ordered) - offsets
    for item in ordered:
        for r in remaining.within(item.offsets):
            yield replace(item, start_offset=r.start_offset, end_offset=r.end_offset)
