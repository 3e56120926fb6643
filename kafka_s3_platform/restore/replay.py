"""One Spark task sends one source kafka partition of a restore, from wherever an earlier try has left it.

`exactly_once`: in transactions that carry a progress marker. A try begins by fencing all that came before it: what a
killed or superseded one has sent is either committed and counted by the marker, or aborted. A `read_committed` reader
sees each record once, in order.

`at_least_once`: without transactions, a few percent faster, and visible at once to every reader. What it gives up: a
try goes on from what it finds by comparing the target with the archive, after having waited for requests that are still
in the network. An older run that wakes up after that can send records a second time until it meets the checkpoint in
the bucket.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.errors import (
    PlatformError,
    PreflightError,
    SupersededError,
    TransientError,
)
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.group_offset import GroupOffset
from kafka_s3_platform.kafka.groups import has_pending_offset
from kafka_s3_platform.kafka.producer import Delivered, ReplayProducer, TransactionalReplayProducer
from kafka_s3_platform.kafka.reader import RecordReader
from kafka_s3_platform.kafka.readers import new_reader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.restore.ahead import Ahead
from kafka_s3_platform.restore.checkpoint import Checkpoint, Position
from kafka_s3_platform.restore.foreign_stream import ForeignStreamTask, WantedRecords
from kafka_s3_platform.restore.left_out import MENDED, decide, left_out_objects
from kafka_s3_platform.restore.marker import MARKED_KAFKA_PARTITION, Marker, Transactions, marker_name
from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.partitioning import SOURCE
from kafka_s3_platform.restore.request import Delivery
from kafka_s3_platform.restore.sent import SentBatch, SentSettings, SentStream
from kafka_s3_platform.restore.stream import ArchivedStream, StreamTask
from kafka_s3_platform.restore.target_log import read_target, stable
from kafka_s3_platform.sources.objects import BadObject
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
    """One stream and where it goes. `target_starts` is kafka partition of the target -> where it stood before.

    `place` is the plan's, `documents` is where the checkpoint is kept, and the offset mapping.
    `resumed`: an earlier run may have sent some of it. The rates are this task's share.
    """

    restore_id: str
    plan_digest: str
    delivery: Delivery
    stream: StreamTask | ForeignStreamTask
    sent: SentSettings
    kafka: KafkaSettings = field(repr=False)
    target_starts: tuple[tuple[int, int], ...]
    documents: StoreSettings = field(repr=False)
    checkpoint_key: str
    run_id: str
    resumed: bool
    max_message_bytes: int
    allow_unsendable_timestamps: bool
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    place: str = ""

    @property
    def marker_name(self) -> str:
        """The transactional id, and the consumer group that holds the progress marker."""
        return marker_name(self.restore_id, self.kafka_partition, place=self.place, topic=self.named_topic)

    @property
    def kafka_partition(self) -> int:
        return self.stream.kafka_partition

    @property
    def to_topic(self) -> str:
        return self.sent.to_topic

    @property
    def named_topic(self) -> str:
        """The source's topic where a restore may have several, else empty."""
        return self.stream.topic if isinstance(self.stream, ForeignStreamTask) else ""

    @property
    def mapping_key(self) -> str:
        """Object key of the offset mapping."""
        return self.checkpoint_key.removesuffix(".json") + ".mapping.parquet"

    @property
    def left_out_key(self) -> str:
        """Object key of what was decided to be left out."""
        return self.checkpoint_key.removesuffix(".json") + ".left-out.json"

    @property
    def keeps_number(self) -> bool:
        """Whether records go to the kafka partition of the same number, and to no other."""
        return self.sent.outgoing.partitioning == SOURCE

    @property
    def is_found_by_content(self) -> bool:
        """Whether comparing the target with the archive tells how far the target has come.

        Not where another run may have left out other objects or records than this one does, nor of several topics of
        others that go to one target, whose equal records cannot be told apart.
        """
        is_same_each_time = self.sent.behavior_on_error == "fail" and not self.sent.records.latest_per_key
        is_ours = isinstance(self.stream, StreamTask)
        return self.keeps_number and is_ours and is_same_each_time and not self.sent.outgoing.has_mapper

    @property
    def target_start(self) -> int:
        """Where the target's kafka partition of the same number stood."""
        return dict(self.target_starts)[self.kafka_partition]

    @property
    def reached(self) -> tuple[tuple[int, int], ...]:
        """Kafka partitions of the target that records may go to, and where each stood."""
        return ((self.kafka_partition, self.target_start),) if self.keeps_number else self.target_starts

    def is_first_try(self, attempt: Attempt) -> bool:
        """Whether nothing was sent yet, as far as this run knows."""
        return not self.resumed and attempt.number == 0

    def beside(self, store: ObjectStore) -> ObjectStore:
        """Where documents are, `store` itself if it is the same."""
        return store if self.documents == store.settings else ObjectStore(self.documents)

    def sent_stream(self, store: ObjectStore, start_offset: int = 0) -> SentStream:
        """What is sent, from source offset `start_offset` on, as the stream says what is left out: see `decided`."""
        return SentStream(self.stream, self.sent, store, start_offset, partial(_portions, self))

    def decided(self, store: ObjectStore) -> "ReplayTask":
        """The task whose stream leaves out what was decided for this restore."""
        return replace(self, stream=replace(self.stream, left_out=self.left_out(store)))

    def left_out(self, store: ObjectStore) -> Mapping[str, str] | None:
        """Bad objects that are left out, and why; None before that was decided."""
        return left_out_objects(self.beside(store), self.left_out_key, self.plan_digest)

    @property
    def where(self) -> str:
        """Both ends, for messages."""
        number = f"-{self.kafka_partition}" if self.keeps_number else ""
        return f"{self.stream.topic}-{self.kafka_partition} to {self.to_topic}{number}"

    @property
    def any_timestamp(self) -> frozenset[int]:
        return UNSENDABLE_TIMESTAMPS if self.allow_unsendable_timestamps else frozenset()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`found_count` records were in the target already; `position` is the end of the stream.

    `left_out` are keys of bad objects, `topic` is the stream's `named_topic`.
    """

    kafka_partition: int
    size: int
    found_count: int
    sent_count: int
    sent_bytes: int
    position: Position
    left_out: tuple[str, ...] = ()
    topic: str = ""


def replay(task: ReplayTask, attempt: Attempt) -> ReplayResult:
    """Send what the target does not hold yet, in order. On an error the checkpoint says how far it came.

    Raises:
        IntegrityError: an object of the archive is missing, replaced or damaged.
        PreflightError: the target rejected a record, or the progress marker is gone or another's.
        SupersededError: another run of this restore id is at work.
        LogTruncatedError: the target lost records that were delivered.
    """
    store = ObjectStore(task.stream.store)
    checkpoint = Checkpoint(task.beside(store), task.checkpoint_key, f"{task.run_id}/{attempt.attempt_id}")
    send = _exactly_once if task.delivery == "exactly_once" else _at_least_once
    result = send(task, store, checkpoint, attempt)
    return replace(result, left_out=tuple(task.left_out(store) or ()))


def _decide(task: ReplayTask, store: ObjectStore, sent_below: int) -> None:
    """Read everything to find the bad objects that are left out, unless that was done before.

    Raises:
        IntegrityError: records of one may be in the target: those below `sent_below` are.
    """
    if task.sent.behavior_on_error == "fail" or task.left_out(store) is not None:
        return
    bad = _bad_objects(task.stream, store)
    decide(task.beside(store), task.left_out_key, task.plan_digest, bad, sent_below)


def _bad_objects(stream: StreamTask | ForeignStreamTask, store: ObjectStore) -> Iterable[BadObject]:
    if isinstance(stream, StreamTask):
        return ArchivedStream(stream, store).bad_objects()
    wanted = WantedRecords(stream, store)
    for _ in wanted:
        pass
    return [replace(bad, why=f"{bad.why}. {MENDED}") for bad in wanted.bad_objects]


def _exactly_once(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt) -> ReplayResult:
    name = task.marker_name
    group = GroupOffset(task.kafka, name, task.to_topic, MARKED_KAFKA_PARTITION)
    producer = TransactionalReplayProducer(
        task.kafka,
        task.to_topic,
        name,
        max_message_bytes=task.max_message_bytes,
        allow_now=task.allow_unsendable_timestamps,
    )
    try:
        # What is open is aborted before a reader is waited for.
        with ExitStack() as readers, group, producer:

            def read(start_offset: int) -> Ahead[SentBatch]:
                _decide(task, store, start_offset)
                return readers.enter_context(closing(Ahead(task.decided(store).sent_stream(store, start_offset))))

            # Begun while older runs are fenced, where none can have sent anything.
            early = read(0) if task.is_first_try(attempt) else None
            transactions = _begun(task, store, checkpoint, group, producer)
            start = transactions.committed.next_source_offset
            return _replay_marked(task, transactions, early if early and not start else read(start))
    except SupersededError as err:
        raise _superseded(task, checkpoint, producer, err) from err
    except TransientError as err:
        if producer.timed_out:
            raise type(err)(_timed_out(task, producer, err)) from err
        raise


def _begun(
    task: ReplayTask,
    store: ObjectStore,
    checkpoint: Checkpoint,
    group: GroupOffset,
    producer: TransactionalReplayProducer,
) -> Transactions:
    """Older tries are fenced, the marker is there, and the bucket knows that it is."""
    producer.begin()
    start = _starting_marker(task, store, group, checkpoint)
    transactions = Transactions(producer, group, checkpoint, start)
    transactions.begin()
    # Written after the marker and before the first record: from here on a marker that is not there has been lost.
    checkpoint.save(start.position)
    return transactions


def _replay_marked(task: ReplayTask, transactions: Transactions, reading: Ahead[SentBatch]) -> ReplayResult:
    start = transactions.committed
    try:
        sent_bytes = _send_in_transactions(task, transactions, reading)
    except SupersededError:
        raise
    except Exception:
        _leave_committed(task, transactions)
        raise
    transactions.save()
    end = transactions.committed
    sent = end.record_count - start.record_count
    return _result(task, start, sent, sent_bytes, end)


def _result(task: ReplayTask, start: Position, sent: int, sent_bytes: int, end: Position) -> ReplayResult:
    size, found = task.stream.record_count, start.record_count
    return ReplayResult(task.kafka_partition, size, found, sent, sent_bytes, end, topic=task.named_topic)


def _starting_marker(task: ReplayTask, store: ObjectStore, group: GroupOffset, checkpoint: Checkpoint) -> Marker:
    """Where to go on. Older tries are fenced by now and what they had open is aborted, so nothing moves any more."""
    where = f"restore {task.restore_id}, {task.where}, consumer group {group.group}"
    saved = checkpoint.load()
    if saved is not None and saved.next_target_offset is not None:
        raise PreflightError(
            f"{where}: a run with delivery=at_least_once has sent some of it, which no progress marker tells of. Go on "
            f"with delivery=at_least_once"
        )
    try:
        found = group.read()
    except TransientError:
        if not _is_marker_hidden(task, group):
            raise
        why = f"the cluster hides the progress marker of {group.group}: it has lost the end of a transaction there"
        return _marker_by_content(task, store, why)
    if found is not None:
        marker = _checked_marker(task, store, Marker.of(found, task.plan_digest, where), saved)
        logger.info("restore %s goes on at source offset %d", task.where, marker.next_source_offset)
        return marker
    if saved is not None and _holds_records(task):
        compare = (
            "Run it again under the same id with delivery=at_least_once, which finds out by comparing them with the "
            "archive, or restore"
        )
        raise PreflightError(
            f"{where}: it has begun before, its progress marker is gone (Kafka deletes a group's offsets after "
            f"offsets.retention.minutes, or somebody did), and the target holds records that have come since: how many "
            f"of them are this restore's cannot be known from there. {compare if task.keeps_number else 'Restore'} to "
            f"another topic under another restore id"
        )
    return Marker(task.plan_digest, 0, 0)


def _is_marker_hidden(task: ReplayTask, group: GroupOffset) -> bool:
    with ClusterAdmin(task.kafka) as admin:
        return has_pending_offset(admin, group.group, task.to_topic, MARKED_KAFKA_PARTITION)


def _checked_marker(task: ReplayTask, store: ObjectStore, marker: Marker, saved: Position | None) -> Marker:
    """The marker, or another one where the target holds less of the stream than it says, or more.

    The cluster notes that a transaction has ended, then writes its end to each kafka partition: to those of the target
    and to the one that keeps the marker. Brokers of Kafka 4.3 leave that out where a kafka partition has no leader just
    then (KAFKA-20734). What lacks its end is hidden, and ends together with the next transaction: records that were
    called committed are aborted with it, or aborted ones committed.

    Raises:
        OpenTransactionError: something is hidden behind the last record that the marker knows, ours or another's.
    """
    told = f"the progress marker tells of the records below source offset {marker.next_source_offset}"
    if _lacks_records(task, marker):
        return _marker_by_content(task, store, f"{told}, and not all of them are there")
    if not task.is_found_by_content:
        if saved is not None and saved.next_source_offset > marker.next_source_offset:
            return _marker_by_content(task, store, f"{told}, and a run before told {saved.next_source_offset}")
        return marker
    end = marker.target_ends.get(task.kafka_partition, None if marker.record_count else task.target_start)
    if end is None:
        # An earlier version has committed it: nobody knows where its records end.
        return marker
    found = find_position(task, store, Position(marker.next_source_offset, end, marker.record_count))
    if found.next_source_offset > marker.next_source_offset:
        logger.warning(
            "restore %s: %s, and the target holds those below %d", task.where, told, found.next_source_offset
        )
    return _marker_at(task, found)


def _marker_by_content(task: ReplayTask, store: ObjectStore, why: str) -> Marker:
    """The marker of what the target holds, found by comparing all of it with the archive."""
    if task.is_found_by_content:
        found = find_position(task, store, Position(0, None))
        logger.warning(
            "restore %s: %s. It goes on behind what was found in the target: at source offset %d",
            task.where,
            why,
            found.next_source_offset,
        )
        return _marker_at(task, found)
    if _holds_records(task):
        raise PreflightError(
            f"restore {task.where}: {why}. Comparing tells how far the target is only for our own objects whose "
            f"records keep their kafka partition's number, with behavior.on.error=fail, without mappers and without "
            f"latest_per_key. Restore to another topic under another restore id"
        )
    return Marker(task.plan_digest, 0, 0)


def _marker_at(task: ReplayTask, found: Position) -> Marker:
    ends = {} if found.next_target_offset is None else {task.kafka_partition: found.next_target_offset}
    return Marker(task.plan_digest, found.next_source_offset, found.record_count, ends)


def _lacks_records(task: ReplayTask, marker: Marker) -> bool:
    """Whether the last record in some kafka partition was truncated or aborted, as far as that can be known now."""
    if not marker.target_ends:
        return False
    with ClusterAdmin(task.kafka) as admin:
        logs = stable(admin, task.to_topic, marker.target_ends)
    hidden = [p for p, log in logs.items() if log.last_stable_offset < marker.target_ends[p] <= log.high_watermark]
    if hidden:
        logger.warning(
            "restore %s: an open transaction hides whether kafka partitions %s of %s hold what the progress marker "
            "tells of",
            task.where,
            hidden,
            task.to_topic,
        )
    with new_reader(task.kafka, task.to_topic) as reader:
        return any(
            _is_lost(task, logs[p], reader, end) for p, end in sorted(marker.target_ends.items()) if p not in hidden
        )


def _is_lost(task: ReplayTask, log: Frontier, reader: RecordReader, end: int) -> bool:
    if log.high_watermark < end:
        return True
    # Deleted by retention, or one that compaction may have taken: nothing is known.
    if log.log_start_offset >= end or task.sent.records.latest_per_key:
        return False
    last = OffsetRange(end - 1, end)
    return not any(batch.num_rows for batch in reader.read(log.kafka_partition, last))


def _holds_records(task: ReplayTask) -> bool:
    """Whether the target holds committed records since this restore has begun."""
    for kafka_partition, start in task.reached:
        target = read_target(task.kafka, task.to_topic, kafka_partition, start)
        with closing(target):
            if next(target, None) is not None:
                return True
    return False


def _send_in_transactions(task: ReplayTask, transactions: Transactions, reading: Ahead[SentBatch]) -> int:
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    sent_bytes = 0
    for batch in reading.items(lambda: transactions.seconds_left):
        if batch is None:
            transactions.commit()
            continue
        for piece in batch.pieces(lambda: transactions.piece_bytes):
            transactions.make_room(piece.log_bytes)
            size = _send_piece(transactions, piece)
            _rest(task, throttle, transactions, piece.record_count, size)
            sent_bytes += size
    transactions.commit()
    return sent_bytes


def _send_piece(transactions: Transactions, piece: SentBatch) -> int:
    """Bytes of keys, values and headers."""
    sent = 0
    for number, part in piece.parts:
        size = int(record_sizes(part).sum())
        transactions.send(part, number, size)
        sent += size
    transactions.passed(piece.next_source_offset)
    return sent


def _rest(task: ReplayTask, throttle: Throttle, transactions: Transactions, records: int, size: int) -> None:
    """Keep to the rates; what would take longer than a transaction may wait for is committed before."""
    limits = ((records, task.records_per_second), (size, task.bytes_per_second))
    longest = max((amount / limit for amount, limit in limits if limit), default=0.0)
    left = transactions.seconds_left
    if left is not None and longest > left:
        transactions.commit()
    throttle.take(records, size)


def _leave_committed(task: ReplayTask, transactions: Transactions) -> None:
    try:
        transactions.save()
    except PlatformError as err:
        logger.warning("restore %s: how far it came is not in the bucket: %s", task.where, err)


def _superseded(
    task: ReplayTask, checkpoint: Checkpoint, producer: TransactionalReplayProducer, err: SupersededError
) -> PlatformError:
    """A producer is fenced as well when the cluster has ended its transaction, because this process stood still."""
    if producer.timed_out and checkpoint.is_last:
        return TransientError(_timed_out(task, producer, err))
    return SupersededError(
        f"restore {task.restore_id}, {task.where}: another run of this restore id has taken over and goes on from "
        f"what was committed ({err}). Let that one finish, or end it and run again"
    )


def _timed_out(task: ReplayTask, producer: TransactionalReplayProducer, err: PlatformError) -> str:
    return (
        f"restore {task.restore_id}, {task.where}: a transaction was open for longer than its timeout of "
        f"{producer.timeout_seconds:g} s, and the cluster aborts such: {err}. What was committed before stays, and the "
        f"next run goes on behind it, under the same id. Where none comes any further, the target is too slow: set "
        f"producer.transaction.timeout.ms of the worker's file higher (brokers take up to their "
        f"transaction.max.timeout.ms, 15 minutes by default), raise the target's quota, or run fewer tasks at once"
    )


def _at_least_once(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt) -> ReplayResult:
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
    position = _known(task, saved)
    # Claimed first: an older run that is still alive fails at its next checkpoint.
    checkpoint.save(position)
    _decide(task, store, position.next_source_offset)
    if saved is None and task.is_first_try(attempt):
        return position
    _settle(task)
    found = find_position(task, store, position)
    logger.info(
        "restore %s goes on at source offset %d: the target holds its records below offset %d, %s of them",
        task.where,
        found.next_source_offset,
        found.next_target_offset,
        f"{found.record_count:,}",
    )
    return found


def _known(task: ReplayTask, saved: Position | None) -> Position:
    """What is known of the target: nothing, where the restore was begun with exactly_once."""
    if saved is None or saved.next_target_offset is None:
        return Position(0, task.target_start)
    return saved


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
    start = task.target_start if known.next_target_offset is None else known.next_target_offset
    target = read_target(task.kafka, task.to_topic, task.kafka_partition, start)
    stream = task.decided(store).sent_stream(store, known.next_source_offset)
    for source, found in SubsequenceMatch(stream.whole(), target, task.any_timestamp):
        last = (source.column("offset")[-1].as_py(), found.column("offset")[-1].as_py())
        count += source.num_rows
    return known if last is None else Position(last[0] + 1, last[1] + 1, known.record_count + count)


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
    stream = task.decided(store).sent_stream(store, start.next_source_offset)
    with producer, closing(Ahead(stream)) as reading:
        for batch in filter(None, reading.items(lambda: None)):
            for number, part in batch.parts:
                producer.send(part, number)
                size = int(record_sizes(part).sum())
                throttle.take(part.num_rows, size)
                sent_bytes += size
                progress.note(producer.delivered)
        delivered = producer.flush()
        end = progress.save(delivered)
    sent = sum(place.records for place in delivered.values())
    return _result(task, start, sent, sent_bytes, end)


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
        return self._saved


def _leave_checkpoint(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint) -> None:
    """Find out and store how far a failed try came. Best effort: the next try finds out by itself."""
    try:
        _settle(task)
        checkpoint.save(find_position(task, store, _known(task, checkpoint.position)))
    except Exception as err:  # noqa: BLE001 - the try's own error is the one to tell
        logger.warning("restore %s: how far it came is found out by the next run only: %s", task.where, err)


def _portions(task: ReplayTask, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut to about a second's worth, so that a low rate flows instead of pulsing."""
    step = float(batch.num_rows)
    if task.records_per_second:
        step = min(step, task.records_per_second)
    if task.bytes_per_second:
        step = min(step, task.bytes_per_second * batch.num_rows / max(int(record_sizes(batch).sum()), 1))
    length = max(1, int(step))
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)
