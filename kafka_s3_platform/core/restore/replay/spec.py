"""One stream of a restore and its target: the input of a task, the objects it leaves out, and its result."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.model.batches import count_record_bytes
from kafka_s3_platform.core.restore.documents import StreamDocuments, read_left_out, save_left_out
from kafka_s3_platform.core.restore.outgoing.partitioning import SOURCE
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, SentStream
from kafka_s3_platform.core.restore.replay.transactions import make_marker_name
from kafka_s3_platform.core.restore.request import Delivery
from kafka_s3_platform.core.restore.source.base import RecordStream
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.objects import ObjectStore


@dataclass(frozen=True)
class ReplayTask:
    """One stream and its target. `target_starts` are the target's kafka partitions with their ends before the restore.

    `place` is taken from the plan. `documents` are the keys of the stream's documents in `documents_store`. If it is
    `resumed`, an earlier run may have sent some of the stream. The rates are this task's share of the restore's. If
    `is_read_back_early`, the stream is read back as soon as it is sent.
    """

    restore_id: str
    plan_digest: str
    delivery: Delivery
    stream: RecordStream
    sent: SentSettings
    kafka: KafkaSettings = field(repr=False)
    target_starts: tuple[tuple[int, int], ...]
    documents_store: ObjectStore = field(repr=False)
    documents: StreamDocuments
    run_id: str
    resumed: bool
    max_message_bytes: int
    codec: str
    place: str
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    is_read_back_early: bool = False

    @property
    def marker_name(self) -> str:
        """The transactional id, which is also the name of the consumer group with the progress marker."""
        return make_marker_name(self.restore_id, self.kafka_partition, place=self.place, topic=self.named_topic)

    @property
    def kafka_partition(self) -> int:
        return self.stream.facts.kafka_partition

    @property
    def to_topic(self) -> str:
        return self.sent.to_topic

    @property
    def named_topic(self) -> str:
        """The source's topic if a restore may have several, else empty."""
        return self.stream.facts.named_topic

    @property
    def keeps_number(self) -> bool:
        """True if records go to the kafka partition of the same number, and to no other."""
        return self.sent.outgoing.partitioning == SOURCE

    @property
    def is_found_by_content(self) -> bool:
        """True if comparing the target with the archive shows how many records have arrived.

        This is unknown if another run may have left out other objects or records than this one. It is also unknown if
        several topics of another sink go to one target, because their equal records cannot be told apart.
        """
        is_same_each_time = self.sent.behavior_on_error == "fail" and not self.sent.records.latest_per_key
        is_comparable = self.keeps_number and self.stream.facts.is_found_by_content
        return is_comparable and is_same_each_time and not self.sent.outgoing.has_mapper

    @property
    def is_limited(self) -> bool:
        """True if the stream is sent at a limited rate."""
        return bool(self.records_per_second or self.bytes_per_second)

    @property
    def target_start(self) -> int:
        """The end that the target's kafka partition of the same number had before the restore."""
        return dict(self.target_starts)[self.kafka_partition]

    @property
    def own_target_starts(self) -> tuple[tuple[int, int], ...]:
        """The `target_starts` of the target's kafka partitions that may get records of this stream."""
        if self.keeps_number:
            return ((self.kafka_partition, self.target_start),)
        return self.target_starts

    def is_first_try(self, attempt: Attempt) -> bool:
        """Return True if no earlier run, and no earlier try of this one, may have sent anything."""
        return not self.resumed and attempt.number == 0

    def read_stream(self, start_offset: int = 0) -> SentStream:
        """Read the records to send from source offset `start_offset` on, without the bad objects left out."""
        stream = replace(self.stream, left_out=self.read_left_out())
        return SentStream(stream, self.sent, start_offset, partial(_split_portions, self))

    def read_left_out(self) -> Mapping[str, str] | None:
        """Return the reason for each bad object left out, by key, or None if no run has decided yet."""
        if self.sent.behavior_on_error == "fail" and not self.resumed:
            # without a decision nothing has to be read
            return None
        return read_left_out(self.documents_store, self.documents.left_out, self.plan_digest)

    @property
    def where(self) -> str:
        """The stream and its target, for messages: `orders-3 to orders-copy-3`."""
        number = f"-{self.kafka_partition}" if self.keeps_number else ""
        return f"{self.stream.facts.topic}-{self.kafka_partition} to {self.to_topic}{number}"

    def make_result(self, found_count: int, sent_count: int, sent_bytes: int) -> "ReplayResult":
        """Make the result of sending the stream to its end."""
        return ReplayResult(
            kafka_partition=self.kafka_partition,
            size=self.stream.facts.size,
            found_count=found_count,
            sent_count=sent_count,
            sent_bytes=sent_bytes,
            topic=self.named_topic,
        )


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a stream sent to its end. `found_count` of its records were in the target already.

    `left_out` are the keys of bad objects, `topic` is the stream's `named_topic`.
    """

    kafka_partition: int
    size: int
    found_count: int
    sent_count: int
    sent_bytes: int
    left_out: tuple[str, ...] = ()
    topic: str = ""


def _split_portions(task: ReplayTask, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into portions for about a second at the rates, so a low rate flows instead of pulsing."""
    step = float(batch.num_rows)
    if task.records_per_second:
        step = min(step, task.records_per_second)
    if task.bytes_per_second:
        step = min(step, task.bytes_per_second * batch.num_rows / max(int(count_record_bytes(batch).sum()), 1))
    length = max(1, int(step))
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)


def decide_left_out(task: ReplayTask, sent_below: int) -> None:
    """Read the whole stream to find the bad objects to leave out, unless an earlier try has done so.

    Raises:
        IntegrityError: the target may hold records of a bad object, since it holds those below `sent_below`.
    """
    if task.sent.behavior_on_error == "fail" or task.read_left_out() is not None:
        return
    bad_objects = task.stream.find_bad_objects()
    save_left_out(task.documents_store, task.documents.left_out, task.plan_digest, bad_objects, sent_below)
