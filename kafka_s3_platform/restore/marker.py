"""Exactly once: what is sent and the marker that says so become visible in one transaction, or neither does."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.kafka.group_offset import GroupOffset
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.kafka.producer import TransactionalReplayProducer
from kafka_s3_platform.restore.checkpoint import Checkpoint, Position
from kafka_s3_platform.restore.sent import USUAL_OVERHEAD

TRANSACTION_RECORDS = 500_000
TRANSACTION_BYTES = 256 * 1024 * 1024
"""A transaction ends with the first of these, or when a third of its timeout is over."""

PIECES = 4

CHECKPOINT_SECONDS = 5.0

MARKED_KAFKA_PARTITION = 0
"""The target's kafka partition under which every marker is committed, whatever the records' is."""

METADATA_BYTES = 4096
"""Kafka's default of offset.metadata.max.bytes: a longer one is refused."""


def marker_name(restore_id: str, kafka_partition: int, *, place: str = "", topic: str = "") -> str:
    """The transactional id of one source kafka partition's stream, and the consumer group that holds its marker.

    `place` is the plan's. `topic` is named where a restore may have several: no restore id holds a slash.
    """
    named = restore_id + (place and f"@{place}") + (topic and f"/{topic}")
    return f"restore.{named}.{kafka_partition}"


@dataclass(frozen=True, slots=True)
class Marker:
    """All records of a stream below `next_source_offset` are committed in the target: `record_count` of them.

    `target_ends` is kafka partition of the target -> the offset after the last of them there. It is empty where an
    earlier version has committed the marker, or where a group's metadata cannot hold that many.
    """

    plan_digest: str
    next_source_offset: int
    record_count: int
    target_ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        return Position(self.next_source_offset, None, self.record_count)

    @property
    def committed(self) -> Committed:
        """As the group holds it."""
        said = {"plan": self.plan_digest, "records": self.record_count}
        with_ends = json.dumps(said | {"ends": {str(p): end for p, end in sorted(self.target_ends.items())}})
        return Committed(self.next_source_offset, with_ends if len(with_ends) <= METADATA_BYTES else json.dumps(said))

    @staticmethod
    def of(found: Committed, plan_digest: str, where: str) -> "Marker":
        """The marker that a group holds; `where` names both.

        Raises:
            PreflightError: it is another plan's, or none of ours at all.
        """
        try:
            said = json.loads(found.metadata)
            ends = {int(p): int(end) for p, end in said.get("ends", {}).items()}
            marker = Marker(str(said["plan"]), found.offset, int(said["records"]), ends)
            if min(marker.record_count, *ends, *ends.values(), 0) < 0:
                raise ValueError("a number below 0")
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as err:
            raise PreflightError(
                f"{where}: offset {found.offset} with metadata {found.metadata[:200]!r} is no progress marker: "
                f"something else has committed it. Take another restore id"
            ) from err
        if marker.plan_digest != plan_digest:
            raise PreflightError(
                f"{where}: the progress marker is that of another plan, {marker.plan_digest}; this restore's is "
                f"{plan_digest}. Another restore was run to this topic under the same id: take another one"
            )
        return marker


class Transactions:
    """Sends a stream in transactions, each of which commits the marker.

    `make_room`, `send` any number of times, then `passed` with the source offset below which everything is sent;
    `commit` at the end, and whenever there may be nothing to send for longer than `seconds_left`. Between them the
    checkpoint in the bucket is kept up, for those who watch.
    """

    def __init__(
        self,
        producer: TransactionalReplayProducer,
        group: GroupOffset,
        checkpoint: Checkpoint,
        start: Marker,
    ) -> None:
        self._producer, self._group, self._checkpoint = producer, group, checkpoint
        self._marker = start
        self.committed = self._position = self._saved = start.position
        self._patience = producer.timeout_seconds / 3
        self._records = self._bytes = 0
        self._committed_at = self._saved_at = time.monotonic()

    def begin(self) -> None:
        """Commit the marker as it is: it must be there before the first record, and for the time to come."""
        self._commit()

    @property
    def seconds_left(self) -> float | None:
        """Until the next commit is due; None when there is nothing to commit."""
        if self._position == self.committed:
            return None
        patience = max(0.0, self._patience - self._producer.delay)
        return max(0.0, self._committed_at + patience - time.monotonic())

    @property
    def piece_bytes(self) -> int:
        """How much to send at once: while a part of what there is room for is acknowledged, the next can come."""
        return self._producer.room // PIECES

    def make_room(self, size: int) -> None:
        """Wait until the target has acknowledged enough for `size` bytes more.

        A record that is larger than the room has a transaction before it ended, and with it all the time there is.
        """
        self._producer.wait_for_room(size)
        if size > self._producer.room or self.seconds_left == 0:
            self.commit()

    def send(self, batch: pa.RecordBatch, target_kafka_partition: int, size: int) -> None:
        """Queue records of `size` bytes."""
        self._producer.send(batch, target_kafka_partition, size + USUAL_OVERHEAD * batch.num_rows)
        self._records += batch.num_rows
        self._bytes += size

    def passed(self, next_source_offset: int) -> None:
        """What the stream holds below this offset is sent, or was left out; commit if it is time."""
        count = self.committed.record_count + self._records
        self._position = Position(next_source_offset, None, count)
        full = self._records >= TRANSACTION_RECORDS or self._bytes >= TRANSACTION_BYTES
        if full or self.seconds_left == 0:
            self.commit()

    def commit(self) -> None:
        """End the transaction if anything came since the last."""
        if self._position != self.committed:
            self._commit()
        if time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Bring the checkpoint up to what is committed."""
        if self._saved != self.committed:
            self._checkpoint.save(self.committed)
        self._saved, self._saved_at = self.committed, time.monotonic()

    def _commit(self) -> None:
        position = self._position
        delivered = self._producer.flush()
        reached = {p: d.target_offset + 1 for p, d in delivered.items() if d.target_offset is not None}
        self._marker = Marker(
            self._marker.plan_digest,
            position.next_source_offset,
            position.record_count,
            {**self._marker.target_ends, **reached},
        )
        self._producer.commit(self._group, self._marker.committed)
        self.committed, self._committed_at = position, time.monotonic()
        self._records = self._bytes = 0
