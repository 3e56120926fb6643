"""Exactly once: records and the marker that counts them become visible in one transaction, or neither does.

Records are split into pieces that fit into the producer's room: the bytes it may have on their way to the target.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.kafka.groups import Committed, GroupOffset
from kafka_s3_platform.core.kafka.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.core.model.batches import count_record_bytes, read_offset_column
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.restore.outgoing.sent import SentBatch
from kafka_s3_platform.core.restore.replay.checkpoint import Checkpoint, Position

USUAL_OVERHEAD = 16
"""The bytes that a record takes in a log besides its key, value and headers, roughly."""

TRANSACTION_RECORDS = 500_000

TRANSACTION_BYTES = 256 * 1024 * 1024
"""A transaction ends at the first of these limits, or after a third of its timeout."""

PIECES = 4
"""The number of pieces that fit into the producer's room, so that some are under way while others are acknowledged."""

CHECKPOINT_SECONDS = 5.0
"""The interval at which the checkpoint is written. It may lag, since a run resumes from the marker."""

MARKED_KAFKA_PARTITION = 0
"""Every marker is committed for this kafka partition of the target, which each target has, wherever the records go."""

METADATA_BYTES = 4096
"""Kafka's default of offset.metadata.max.bytes. Brokers refuse longer metadata."""


@dataclass(frozen=True, slots=True)
class SizedPart:
    """Records for one kafka partition of the target. `sizes` are the bytes of each record's key, value and headers."""

    kafka_partition: int
    records: pa.RecordBatch
    sizes: Int64s

    @property
    def byte_count(self) -> int:
        """The bytes of keys, values and headers."""
        return int(self.sizes.sum())

    @property
    def log_bytes(self) -> int:
        """The bytes the records take in the target's log, roughly."""
        return self.byte_count + USUAL_OVERHEAD * len(self.sizes)

    def between(self, start_offset: int, end_offset: int) -> "SizedPart":
        """Return the records with source offsets in `[start_offset, end_offset)`."""
        start, end = np.searchsorted(read_offset_column(self.records), [start_offset, end_offset])
        return SizedPart(self.kafka_partition, self.records.slice(start, end - start), self.sizes[start:end])


@dataclass(frozen=True, slots=True)
class Piece:
    """Records to send at once. After them, everything in the stream below `next_source_offset` is sent."""

    next_source_offset: int
    parts: tuple[SizedPart, ...]

    @property
    def record_count(self) -> int:
        return sum(part.records.num_rows for part in self.parts)

    @property
    def byte_count(self) -> int:
        """The bytes of keys, values and headers."""
        return sum(part.byte_count for part in self.parts)

    @property
    def log_bytes(self) -> int:
        """The bytes the records take in the target's log, roughly."""
        return sum(part.log_bytes for part in self.parts)


def split_to_room(batch: SentBatch, room: Callable[[], int]) -> Iterator[Piece]:
    """Split a batch into pieces of about `room()` bytes in the target's log.

    `room()` is a part of the bytes that may be on their way to the target, so that one piece is queued while another is
    acknowledged. It changes with the target's speed, so it is asked again for each piece. A piece has the records of at
    least one source offset, even if these are more bytes.
    """
    # Compute sizes once for the batch: pieces get slices of them.
    sized = tuple(SizedPart(number, part, count_record_bytes(part)) for number, part in batch.parts)
    all_records = Piece(batch.next_source_offset, sized)
    if all_records.log_bytes <= room():
        yield all_records
        return
    offsets = np.concatenate([read_offset_column(part.records) for part in sized])
    sizes = np.concatenate([part.sizes for part in sized]) + USUAL_OVERHEAD
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    byte_sums = np.concatenate([[0], np.cumsum(sizes[order])])
    start = 0
    while start < len(offsets):
        # The first record that does not fit any more begins the next piece.
        end = int(np.searchsorted(byte_sums, byte_sums[start] + room(), side="right")) - 1
        is_last = end == len(offsets)
        # Several records may have one source offset. They go together, because progress is kept by source offset.
        bound = batch.next_source_offset if is_last else max(int(offsets[end]), int(offsets[start]) + 1)
        parts = (part.between(int(offsets[start]), bound) for part in sized)
        yield Piece(bound, tuple(part for part in parts if part.records.num_rows))
        start = int(np.searchsorted(offsets, bound))


def make_marker_name(restore_id: str, kafka_partition: int, *, place: str, topic: str = "") -> str:
    """Return the transactional id of a stream, which is also the name of the consumer group with its marker.

    `place` is taken from the plan. `topic` is part of the name only if a restore may have several topics. The name is
    unambiguous, since a restore id contains no slash.
    """
    named = f"{restore_id}@{place}" + (topic and f"/{topic}")
    return f"restore.{named}.{kafka_partition}"


@dataclass(frozen=True, slots=True)
class Marker:
    """The progress of a stream: `record_count` records are committed in the target, all below `next_source_offset`.

    `target_ends` maps each kafka partition of the target to the offset after the last of these records there. It is
    empty if a group's metadata cannot hold so many.
    """

    plan_digest: str
    next_source_offset: int
    record_count: int
    target_ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        """The position for a checkpoint. The marker has no single offset of the target."""
        return Position(self.next_source_offset, None, self.record_count)

    @property
    def committed(self) -> Committed:
        """The offset and the metadata the group commits."""
        fields = {"plan": self.plan_digest, "records": self.record_count}
        ends = {str(p): end for p, end in sorted(self.target_ends.items())}
        metadata = json.dumps(fields | {"ends": ends})
        if len(metadata) > METADATA_BYTES:
            # Without the ends a run that goes on cannot check the target; a refused marker would end this one.
            metadata = json.dumps(fields)
        return Committed(self.next_source_offset, metadata)

    @staticmethod
    def of(committed: Committed, plan_digest: str, where: str) -> "Marker":
        """Read the marker of a group. `where` names the restore and the group, for messages.

        Raises:
            PreflightError: the marker belongs to another plan, or is none of ours.
        """
        try:
            fields = json.loads(committed.metadata)
            ends = {int(p): int(end) for p, end in fields.get("ends", {}).items()}
            marker = Marker(str(fields["plan"]), committed.offset, int(fields["records"]), ends)
            if min(marker.record_count, *ends, *ends.values(), 0) < 0:
                raise ValueError("a number below 0")
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as err:
            raise PreflightError(
                f"{where}: offset {committed.offset} with metadata {committed.metadata[:200]!r} is not a progress "
                "marker: something else has committed it. Use another restore id"
            ) from err
        if marker.plan_digest != plan_digest:
            raise PreflightError(
                f"{where}: the progress marker belongs to plan {marker.plan_digest}, but the plan of this restore is "
                f"{plan_digest}. Another restore to this topic had the same id: use another restore id"
            )
        return marker


class Transactions:
    """Sends a stream in transactions, each of which includes the marker.

    Call `make_room`, then `send` any number of times, then `note_passed` with the source offset below which everything
    is sent. Call `commit` at the end, and whenever there may be nothing to send for longer than `seconds_left`.
    Meanwhile the checkpoint in the bucket follows, for anybody who watches.
    """

    def __init__(
        self,
        producer: TransactionalReplayProducer,
        group: GroupOffset,
        checkpoint: Checkpoint,
        start: Marker,
    ) -> None:
        self._producer = producer
        self._group = group
        self._checkpoint = checkpoint
        self._marker = start
        self.committed = self._position = self._saved = start.position
        # A third of the timeout leaves the rest for acknowledgements, and for the commit itself, at a slow target.
        self._patience = producer.timeout_seconds / 3
        self._records = self._bytes = 0
        self._committed_at = self._saved_at = time.monotonic()

    def begin(self) -> None:
        """Commit the marker as it is, because it has to exist before the first record is sent."""
        self._commit()

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the next commit is due, or None if there is nothing to commit."""
        if self._position == self.committed:
            return None
        patience = max(0.0, self._patience - self._producer.delay)
        return max(0.0, self._committed_at + patience - time.monotonic())

    @property
    def piece_bytes(self) -> int:
        """The bytes to send at once: a part of the room, so the next piece follows while one is acknowledged."""
        return self._producer.room // PIECES

    def make_room(self, size: int) -> None:
        """Wait until the target has acknowledged enough for another `size` bytes.

        If a record is larger than the room, end the transaction first: the record then has all the time of a new one.
        """
        self._producer.wait_for_room(size)
        if size > self._producer.room or self.seconds_left == 0:
            self.commit()

    def send(self, part: SizedPart) -> None:
        """Queue records for the target, in the open transaction."""
        self._producer.send(part.records, part.kafka_partition, part.log_bytes)
        self._records += part.records.num_rows
        self._bytes += part.byte_count

    def note_passed(self, next_source_offset: int) -> None:
        """Note that everything below this offset is sent or left out. Commit if it is time."""
        count = self.committed.record_count + self._records
        self._position = Position(next_source_offset, None, count)
        full = self._records >= TRANSACTION_RECORDS or self._bytes >= TRANSACTION_BYTES
        if full or self.seconds_left == 0:
            self.commit()

    def commit(self) -> None:
        """End the transaction if anything was sent or left out since the last commit."""
        if self._position != self.committed:
            self._commit()
        if time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint of the committed records."""
        if self._saved != self.committed:
            self._checkpoint.save(self.committed)
        self._saved = self.committed
        self._saved_at = time.monotonic()

    def _commit(self) -> None:
        """Wait until all records are acknowledged, and commit them together with the marker that counts them."""
        position = self._position
        # They are flushed first: only acknowledged records have target offsets, and the marker names the last of them.
        delivered = self._producer.flush()
        ends = {p: d.target_offset + 1 for p, d in delivered.items() if d.target_offset is not None}
        self._marker = Marker(
            self._marker.plan_digest,
            position.next_source_offset,
            position.record_count,
            {**self._marker.target_ends, **ends},
        )
        self._producer.commit(self._group, self._marker.committed)
        self.committed = position
        self._committed_at = time.monotonic()
        self._records = self._bytes = 0
