"""One Spark task sends one source kafka partition of a restore, from wherever an earlier try has left it."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import LogTruncatedError, OpenTransactionError, SupersededError
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.producer import Delivered, ReplayProducer
from kafka_s3_platform.kafka.reader import ConfluentReader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.restore.checkpoint import Checkpoint, Position
from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.stream import ArchivedStream, StreamTask
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

CHECKPOINT_RECORDS = 250_000
CHECKPOINT_SECONDS = 5.0
SETTLE_SECONDS, SETTLE_LIMIT_SECONDS = 2.0, 30.0
"""How long nothing may have arrived before the target is read, and for how long at most that is waited for."""

UNSENDABLE_TIMESTAMPS = frozenset({0})
"""Epoch ms that the Kafka client replaces by now."""


@dataclass(frozen=True)
class ReplayTask:
    """One stream and where it goes: to the kafka partition of the same number.

    `resumed`: an earlier run may have sent some of it. The rates are this task's share.
    """

    stream: StreamTask
    kafka: KafkaSettings = field(repr=False)
    to_topic: str
    target_start: int
    checkpoint_key: str
    run_id: str
    resumed: bool
    max_message_bytes: int
    allow_unsendable_timestamps: bool
    records_per_second: float | None = None
    bytes_per_second: float | None = None

    @property
    def kafka_partition(self) -> int:
        return self.stream.kafka_partition

    @property
    def where(self) -> str:
        """Both ends, for messages."""
        return f"{self.stream.topic}-{self.kafka_partition} to {self.to_topic}-{self.kafka_partition}"

    @property
    def any_timestamp(self) -> frozenset[int]:
        return UNSENDABLE_TIMESTAMPS if self.allow_unsendable_timestamps else frozenset()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`found_count` records were in the target already; `position` is the end of the stream."""

    kafka_partition: int
    size: int
    found_count: int
    sent_count: int
    sent_bytes: int
    position: Position


def replay(task: ReplayTask, attempt: Attempt) -> ReplayResult:
    """Send what the target does not hold yet, in order. On an error the checkpoint says exactly how far it came.

    Raises:
        IntegrityError: an object of the archive is missing, replaced or damaged.
        PreflightError: the target rejected a record.
        SupersededError: another run of this restore id is at work.
        LogTruncatedError: the target lost records that were delivered.
    """
    store = ObjectStore(task.stream.store)
    checkpoint = Checkpoint(store, task.checkpoint_key, f"{task.run_id}/{attempt.attempt_id}")
    position = _start(task, store, checkpoint, attempt)
    try:
        return _send(task, store, checkpoint, position)
    except SupersededError:
        raise
    except Exception:
        _leave_checkpoint(task, store, checkpoint)
        raise


def _start(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt) -> Position:
    saved = checkpoint.load()
    position = saved or Position(0, task.target_start)
    # Claimed first: an older run that is still alive fails at its next checkpoint.
    checkpoint.save(position)
    if saved is None and not task.resumed and attempt.number == 0:
        return position
    _settle(task)
    found = find_position(task, store, position)
    checkpoint.save(found)
    logger.info(
        "restore %s: goes on at source offset %d, target offset %d; %s records are in the target",
        task.where,
        found.next_source_offset,
        found.next_target_offset,
        f"{found.record_count:,}",
    )
    return found


def _settle(task: ReplayTask) -> None:
    """Wait until the target stands still.

    A killed run's records may be in the network; one that was superseded notices only at its next checkpoint, and what
    it has queued is sent first. Other writers may keep the target moving: then the limit ends the waiting.
    """
    deadline, known = time.monotonic() + SETTLE_LIMIT_SECONDS, -1
    with ClusterAdmin(task.kafka) as admin:
        while time.monotonic() < deadline:
            end = admin.frontiers(task.to_topic, [task.kafka_partition])[task.kafka_partition].high_watermark
            if end == known:
                return
            known = end
            time.sleep(SETTLE_SECONDS)


def find_position(task: ReplayTask, store: ObjectStore, known: Position) -> Position:
    """How far the target really is, found by matching the archived stream from `known` on with what follows there."""
    last: tuple[int, int] | None = None
    count = 0
    target = read_target(task.kafka, task.to_topic, task.kafka_partition, known.next_target_offset)
    archived = ArchivedStream(task.stream, store, known.next_source_offset)
    for source, found in SubsequenceMatch(archived, target, task.any_timestamp):
        last = (source.column("offset")[-1].as_py(), found.column("offset")[-1].as_py())
        count += source.num_rows
    return known if last is None else Position(last[0] + 1, last[1] + 1, known.record_count + count)


def read_target(kafka: KafkaSettings, topic: str, kafka_partition: int, start_offset: int) -> Iterator[pa.RecordBatch]:
    """What the target holds now from `start_offset` on.

    Raises:
        LogTruncatedError: it does not hold `start_offset` any more.
        OpenTransactionError: somebody's transaction hides part of it.
    """
    with ClusterAdmin(kafka) as admin:
        log = admin.frontiers(topic, [kafka_partition])[kafka_partition]
    _check_target(topic, log, start_offset)
    if start_offset < log.high_watermark:
        with ConfluentReader(kafka, topic) as reader:
            yield from reader.read(kafka_partition, OffsetRange(start_offset, log.high_watermark))


def _check_target(topic: str, log: Frontier, start_offset: int) -> None:
    where = f"target {topic}-{log.kafka_partition}"
    if not log.log_start_offset <= start_offset <= log.high_watermark:
        raise LogTruncatedError(
            f"{where} holds offsets [{log.log_start_offset}, {log.high_watermark}), {start_offset} and what follows "
            f"was restored to it: its retention deleted it, or its log was truncated. Restore to another topic, under "
            f"another restore id"
        )
    if start_offset < log.high_watermark and log.last_stable_offset < log.high_watermark:
        raise OpenTransactionError(
            f"{where}: a transaction is open at offset {log.last_stable_offset}, what follows cannot be read back. Run "
            f"again under the same restore id when it has ended"
        )


def _send(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, start: Position) -> ReplayResult:
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    progress = _Progress(checkpoint, start)
    sent_bytes = 0
    producer = ReplayProducer(
        task.kafka,
        task.to_topic,
        max_message_bytes=task.max_message_bytes,
        allow_now=task.allow_unsendable_timestamps,
    )
    with producer:
        for batch in ArchivedStream(task.stream, store, start.next_source_offset):
            for part in _portions(batch, throttle):
                producer.send(part, task.kafka_partition)
                sent_bytes += _take(part, throttle)
                progress.note(producer.delivered)
        producer.flush()
        end = progress.save(producer.delivered)
    sent = end.record_count - start.record_count
    return ReplayResult(task.kafka_partition, task.stream.record_count, start.record_count, sent, sent_bytes, end)


class _Progress:
    """Turns what the cluster acknowledged into checkpoints, now and then."""

    def __init__(self, checkpoint: Checkpoint, start: Position) -> None:
        self._checkpoint, self._start = checkpoint, start
        self._saved, self._saved_at = start, time.monotonic()

    def note(self, delivered: Mapping[int, Delivered]) -> None:
        due = time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS
        if due or self._position(delivered).record_count - self._saved.record_count >= CHECKPOINT_RECORDS:
            self.save(delivered)

    def save(self, delivered: Mapping[int, Delivered]) -> Position:
        position = self._position(delivered)
        if position != self._saved:
            self._checkpoint.save(position)
        self._saved, self._saved_at = position, time.monotonic()
        return position

    def _position(self, delivered: Mapping[int, Delivered]) -> Position:
        for place in delivered.values():
            if place.source_offset is not None and place.target_offset is not None:
                count = self._start.record_count + place.records
                return Position(place.source_offset + 1, place.target_offset + 1, count)
        return self._start


def _leave_checkpoint(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint) -> None:
    """Find out and store how far a failed try came. Best effort: the next try finds out by itself."""
    try:
        known = checkpoint.load()
        if known is not None:
            _settle(task)
            checkpoint.save(find_position(task, store, known))
    except Exception as err:  # noqa: BLE001 - the try's own error is the one to tell
        logger.warning("restore %s: how far it came is found out by the next run only: %s", task.where, err)


def _portions(batch: pa.RecordBatch, throttle: Throttle) -> Iterator[pa.RecordBatch]:
    step = throttle.records_at_once(batch.num_rows)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _take(batch: pa.RecordBatch, throttle: Throttle) -> int:
    """Spend the batch; its bytes of keys, values and headers."""
    size = int(record_sizes(batch).sum())
    throttle.take(batch.num_rows, size)
    return size
