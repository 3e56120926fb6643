"""Sends one source kafka partition of a restore in a Spark task, from the end of an earlier try on.

`exactly_once` sends in transactions with a progress marker. A try begins by fencing earlier tries. Their records are
then either committed and counted by the marker, or aborted. A `read_committed` reader sees each record once, in order.
To resume, a try reads the marker, and checks it against the target.

`at_least_once` sends without transactions. It is a few percent faster, and every reader sees the records at once. A try
waits for requests still in the network, compares the target with the archive, and resumes from there. An older run that
wakes up later can send records a second time, until it finds the checkpoint in the bucket changed.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Generic, TypeVar

from kafka_s3_platform.core.errors import PlatformError, PreflightError, SupersededError, TransientError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import GroupOffset, has_pending_offset
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.kafka.producer import Delivered, ReplayProducer
from kafka_s3_platform.core.kafka.record_reader import RecordReader, Throttle
from kafka_s3_platform.core.kafka.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.core.model.batches import count_record_bytes
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.restore.outgoing.sent import SentBatch
from kafka_s3_platform.core.restore.replay.checkpoint import Checkpoint, Position
from kafka_s3_platform.core.restore.replay.spec import ReplayResult, ReplayTask, decide_left_out
from kafka_s3_platform.core.restore.replay.target_log import await_stable_logs, find_position, read_target
from kafka_s3_platform.core.restore.replay.transactions import (
    MARKED_KAFKA_PARTITION,
    Marker,
    Transactions,
    split_to_room,
)
from kafka_s3_platform.core.spark.runner import Attempt

T = TypeVar("T")

logger = logging.getLogger(__name__)

CHECKPOINT_RECORDS = 250_000

CHECKPOINT_SECONDS = 5.0
"""A checkpoint is written after this many records or seconds. The next run compares the records sent since then."""

SETTLE_SECONDS = 2.0
"""The time for which the target's end must stay the same, so that no request of a killed run is in the network."""

SETTLE_LIMIT_SECONDS = 30.0
"""The longest wait for this, because other writers may never stop."""

PAUSE_SECONDS = SETTLE_SECONDS / 2
"""A run that paused for longer asks the bucket for a newer run before it sends anything."""


class ReadAhead(Generic[T]):
    """Reads the next item in a thread while the caller works on the last one. The first read begins at once.

    Iterate it once. Close it to end the thread.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._source = iter(items)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="restore-ahead")
        self._reading = self._pool.submit(next, self._source, None)

    def close(self) -> None:
        """End the thread, after its current item."""
        self._pool.shutdown()

    def items(self, patience: Callable[[], float | None]) -> Iterator[T | None]:
        """Yield each item, and None whenever the next one takes longer than `patience()` seconds (None: never)."""
        while True:
            if not wait([self._reading], patience()).done:
                yield None
                continue
            item = self._reading.result()
            if item is None:
                return
            # Before the yield: the thread reads while the caller works on this item.
            self._reading = self._pool.submit(next, self._source, None)
            yield item


def replay_at_least_once(task: ReplayTask, checkpoint: Checkpoint, attempt: Attempt) -> ReplayResult:
    """Send the records that the target lacks, without transactions, and note the progress in the bucket."""
    position = _find_start(task, checkpoint, attempt)
    try:
        return _send_rest(task, checkpoint, position)
    except SupersededError:
        # Write no checkpoint: it belongs to the newer run now.
        raise
    except Exception:
        _leave_checkpoint(task, checkpoint)
        raise


def _find_start(task: ReplayTask, checkpoint: Checkpoint, attempt: Attempt) -> Position:
    """Return the position to send from, after the last record in the target. Take the checkpoint from older runs."""
    saved = checkpoint.load()
    position = _choose_known_position(task, saved)
    # Claim the checkpoint first: an older run that is still alive fails at its next write.
    checkpoint.save(position)
    decide_left_out(task, position.next_source_offset)
    if saved is None and task.is_first_try(attempt):
        # Nobody has sent anything yet, so there is nothing to wait for and nothing to compare.
        return position
    _await_standstill(task)
    position_found = find_position(task, position)
    # Claim it again, as comparing may have taken long.
    checkpoint.save(position_found)
    logger.info(
        "restore %s goes on at source offset %d: the target holds its records below offset %d, %s of them",
        task.where,
        position_found.next_source_offset,
        position_found.next_target_offset,
        f"{position_found.record_count:,}",
    )
    return position_found


def _choose_known_position(task: ReplayTask, saved: Position | None) -> Position:
    """Return the position to compare from, which is the start if `saved` is None or has no target offset.

    A restore that began with exactly_once has checkpoints without target offsets.
    """
    if saved is None or saved.next_target_offset is None:
        return Position(0, task.target_start)
    return saved


def _await_standstill(task: ReplayTask) -> None:
    """Wait until the target's end does not move any more.

    Records of a killed run may still be in the network. A superseded run notices this only at its next checkpoint, and
    first sends what it has queued. Other writers may keep the end moving: the limit then ends the wait.
    """
    deadline = time.monotonic() + SETTLE_LIMIT_SECONDS
    last_end = -1
    with ClusterAdmin(task.kafka) as admin:
        while time.monotonic() < deadline:
            end = admin.frontiers(task.to_topic, [task.kafka_partition])[task.kafka_partition].high_watermark
            if end == last_end:
                return
            last_end = end
            time.sleep(SETTLE_SECONDS)


def _send_rest(task: ReplayTask, checkpoint: Checkpoint, start: Position) -> ReplayResult:
    """Send the records from `start` on without transactions, and note the acknowledged ones in the bucket."""
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    progress = _CheckpointKeeper(checkpoint, start)
    sent_bytes = 0
    producer = ReplayProducer(
        task.kafka,
        task.to_topic,
        max_message_bytes=task.max_message_bytes,
        codec=task.codec,
        allow_now=task.stream.facts.sends_any_timestamp,
        is_limited=task.is_limited,
    )
    stream = task.read_stream(start.next_source_offset)
    with producer, closing(ReadAhead(stream)) as reading:
        producer.connect()
        for batch in filter(None, reading.items(lambda: None)):
            for number, part in batch.parts:
                progress.note(producer.delivered)
                producer.send(part, number)
                size = int(count_record_bytes(part).sum())
                throttle.take(part.num_rows, size)
                sent_bytes += size
        delivered = producer.flush()
        # Only after the flush: the last position then covers all acknowledged records.
        progress.save(delivered)
    sent_count = sum(place.records for place in delivered.values())
    return task.make_result(start.record_count, sent_count, sent_bytes)


class _CheckpointKeeper:
    """Writes checkpoints of acknowledged records, at intervals."""

    def __init__(self, checkpoint: Checkpoint, start: Position) -> None:
        self._checkpoint = checkpoint
        self._start = start
        self._saved = start
        self._saved_at = self._noted_at = time.monotonic()

    def note(self, delivered: Mapping[int, Delivered]) -> None:
        """Write a checkpoint if one is due, before more is sent. Raises SupersededError if a newer run has begun."""
        now = time.monotonic()
        due = now - self._saved_at >= CHECKPOINT_SECONDS or now - self._noted_at >= PAUSE_SECONDS
        position = self._find_position(delivered)
        if due or position.record_count - self._saved.record_count >= CHECKPOINT_RECORDS:
            # Even if nothing arrived since: writing also asks for a newer run.
            self._write(position)
        self._noted_at = time.monotonic()

    def save(self, delivered: Mapping[int, Delivered]) -> None:
        """Write a checkpoint of what was delivered, unless the last one says the same."""
        position = self._find_position(delivered)
        if position != self._saved:
            self._write(position)

    def _write(self, position: Position) -> None:
        """Write a checkpoint, and remember when."""
        self._checkpoint.save(position)
        self._saved = position
        self._saved_at = time.monotonic()

    def _find_position(self, delivered: Mapping[int, Delivered]) -> Position:
        """Return the position after the last delivered record, or the saved one if none was delivered yet."""
        # There is one place at most: without transactions, records keep the number of their kafka partition.
        for place in delivered.values():
            if place.source_offset is not None and place.target_offset is not None:
                count = self._start.record_count + place.records
                return Position(place.source_offset + 1, place.target_offset + 1, count)
        return self._saved


def _leave_checkpoint(task: ReplayTask, checkpoint: Checkpoint) -> None:
    """Find and store how far a failed try came. If this fails, the next try finds it by itself."""
    try:
        _await_standstill(task)
        checkpoint.save(find_position(task, _choose_known_position(task, checkpoint.position)))
    except Exception as err:  # noqa: BLE001 - the try's own error is the one to tell
        logger.warning("restore %s: how far it came is found out by the next run only: %s", task.where, err)


def find_starting_marker(task: ReplayTask, group: GroupOffset, checkpoint: Checkpoint) -> Marker:
    """Find the progress marker to go on from, or make one. Older tries are fenced, so nothing changes meanwhile.

    Raises:
        PreflightError: nobody can know how many of the target's records are this restore's.
    """
    where = f"restore {task.restore_id}, {task.where}, consumer group {group.group}"
    saved = checkpoint.load()
    if saved is not None and saved.next_target_offset is not None:
        raise PreflightError(
            f"{where}: a run with delivery=at_least_once has sent some of the records, which no progress marker "
            "counts. Continue with delivery=at_least_once"
        )
    try:
        committed = group.read()
    except TransientError:
        with ClusterAdmin(task.kafka) as admin:
            if not has_pending_offset(admin, group.group, task.to_topic, MARKED_KAFKA_PARTITION):
                raise
        why = (
            f"the cluster does not show the progress marker of {group.group}, because it has lost the end of a "
            "transaction there"
        )
        return _find_marker_by_content(task, why)
    if committed is not None:
        marker = _check_marker(task, Marker.of(committed, task.plan_digest, where), saved)
        logger.info("restore %s goes on at source offset %d", task.where, marker.next_source_offset)
        return marker
    if saved is not None and _holds_records(task):
        compare = (
            "Run it again under the same id with delivery=at_least_once, which compares them with the archive, or "
            "restore"
        )
        raise PreflightError(
            f"{where}: the restore has begun before, but its progress marker is gone (Kafka deletes a group's "
            "offsets after offsets.retention.minutes, or somebody did), and the target has received records since. "
            f"Nobody can tell how many of them are this restore's. {compare if task.keeps_number else 'Restore'} to "
            "another topic under another restore id"
        )
    return Marker(task.plan_digest, 0, 0)


def _check_marker(task: ReplayTask, marker: Marker, saved: Position | None) -> Marker:
    """Return the marker, or a corrected one if the target holds less or more of the stream.

    The cluster notes the end of a transaction, then writes it to each kafka partition: to the target's and to the
    marker's. Brokers of Kafka 4.3 do not write it to a kafka partition that has no leader at this moment (KAFKA-20734).
    Records of a transaction without an end are hidden, and end together with the next transaction: records confirmed as
    committed are aborted with it, or aborted ones are committed.

    Raises:
        OpenTransactionError: a transaction hides the records after the last one the marker counts.
    """
    claim = f"the progress marker counts the records below source offset {marker.next_source_offset}"
    if _lacks_records(task, marker):
        return _find_marker_by_content(task, f"{claim}, but not all of them are in the target")
    if not task.is_found_by_content:
        if saved is not None and saved.next_source_offset > marker.next_source_offset:
            return _find_marker_by_content(task, f"{claim}, but an earlier run reported {saved.next_source_offset}")
        return marker
    end = marker.target_ends.get(task.kafka_partition, None if marker.record_count else task.target_start)
    if end is None:
        # The group's metadata had no room for the ends of its records.
        return marker
    position = find_position(task, Position(marker.next_source_offset, end, marker.record_count))
    if position.next_source_offset > marker.next_source_offset:
        logger.warning(
            "restore %s: %s, and the target holds those below %d", task.where, claim, position.next_source_offset
        )
    return _make_marker(task, position)


def _find_marker_by_content(task: ReplayTask, why: str) -> Marker:
    """Make a marker from the target's real content, by comparing all of it with the archive."""
    if task.is_found_by_content:
        position = find_position(task, Position(0, None))
        logger.warning(
            "restore %s: %s. It goes on behind what was found in the target: at source offset %d",
            task.where,
            why,
            position.next_source_offset,
        )
        return _make_marker(task, position)
    if _holds_records(task):
        raise PreflightError(
            f"restore {task.where}: {why}. The position in the target can be found by comparing only for our own "
            "objects whose records keep their kafka partition's number, with behavior.on.error=fail, without "
            "mappers and without latest_per_key. Restore to another topic under another restore id"
        )
    return Marker(task.plan_digest, 0, 0)


def _make_marker(task: ReplayTask, position: Position) -> Marker:
    """Return the progress marker for a position of the target found by comparing."""
    ends = {} if position.next_target_offset is None else {task.kafka_partition: position.next_target_offset}
    return Marker(task.plan_digest, position.next_source_offset, position.record_count, ends)


def _lacks_records(task: ReplayTask, marker: Marker) -> bool:
    """Return True if the target lacks records that the marker counts: its log was cut, or they were aborted.

    The last record in each kafka partition is looked for, unless an open transaction hides it.
    """
    if not marker.target_ends:
        return False
    with ClusterAdmin(task.kafka) as admin:
        logs = await_stable_logs(admin, task.to_topic, marker.target_ends)
    hidden = [p for p, log in logs.items() if log.last_stable_offset < marker.target_ends[p] <= log.high_watermark]
    if hidden:
        logger.warning(
            "restore %s: an open transaction hides whether kafka partitions %s of %s hold the records counted by "
            "the progress marker",
            task.where,
            hidden,
            task.to_topic,
        )
    with new_reader(task.kafka, task.to_topic) as reader:
        return any(
            _is_lost(task, logs[p], reader, end) for p, end in sorted(marker.target_ends.items()) if p not in hidden
        )


def _is_lost(task: ReplayTask, log: Frontier, reader: RecordReader, end: int) -> bool:
    """Return True if the record before offset `end` of the target, sent by this restore, is surely not there."""
    if log.high_watermark < end:
        return True
    # Retention deleted the record, or compaction may have removed it, so its absence proves nothing.
    if log.log_start_offset >= end or task.sent.records.latest_per_key:
        return False
    last = OffsetRange(end - 1, end)
    return not any(batch.num_rows for batch in reader.read(log.kafka_partition, last))


def _holds_records(task: ReplayTask) -> bool:
    """Return True if the target received committed records since this restore began."""
    for kafka_partition, start in task.own_target_starts:
        target = read_target(task.kafka, task.to_topic, kafka_partition, start)
        with closing(target):
            if next(target, None) is not None:
                return True
    return False


def replay_exactly_once(task: ReplayTask, checkpoint: Checkpoint, attempt: Attempt) -> ReplayResult:
    """Send the records that the progress marker does not count, in transactions that include the marker."""
    name = task.marker_name
    group = GroupOffset(task.kafka, name, task.to_topic, MARKED_KAFKA_PARTITION)
    producer = TransactionalReplayProducer(
        task.kafka,
        task.to_topic,
        name,
        max_message_bytes=task.max_message_bytes,
        codec=task.codec,
        allow_now=task.stream.facts.sends_any_timestamp,
        is_limited=task.is_limited,
    )
    try:
        # The context closes the producer before the readers: an open transaction is aborted without waiting for them.
        with ExitStack() as readers, group, producer:

            def read(start_offset: int) -> ReadAhead[SentBatch]:
                """Begin to read the stream from this source offset on, in a thread."""
                decide_left_out(task, start_offset)
                return readers.enter_context(closing(ReadAhead(task.read_stream(start_offset))))

            # Fencing takes a while. On a first try nothing was sent, so reading from the start can begin meanwhile.
            early = read(0) if task.is_first_try(attempt) else None
            transactions = _begin_transactions(task, checkpoint, group, producer)
            start = transactions.committed.next_source_offset
            return _replay_marked(task, transactions, early if early and not start else read(start))
    except SupersededError as err:
        raise _explain_superseded(task, checkpoint, producer, err) from err
    except TransientError as err:
        if producer.timed_out:
            raise err.retell(_describe_timeout(task, producer, err)) from err
        raise


def _begin_transactions(
    task: ReplayTask,
    checkpoint: Checkpoint,
    group: GroupOffset,
    producer: TransactionalReplayProducer,
) -> Transactions:
    """Fence older tries, commit the first marker, and note it in the bucket."""
    # Fence before reading: an older try's open transaction is then aborted, and its marker cannot change any more.
    producer.begin()
    start = find_starting_marker(task, group, checkpoint)
    transactions = Transactions(producer, group, checkpoint, start)
    transactions.begin()
    # Write it after the marker and before the first record: from here on, a missing marker is a lost one.
    checkpoint.save(start.position)
    return transactions


def _replay_marked(task: ReplayTask, transactions: Transactions, reading: ReadAhead[SentBatch]) -> ReplayResult:
    """Send the records being read. Note in the bucket how many were committed, even after an error."""
    start = transactions.committed
    try:
        sent_bytes = _send_in_transactions(task, transactions, reading)
    except SupersededError:
        # Write no checkpoint: it belongs to the newer run now.
        raise
    except Exception:
        try:
            transactions.save()
        except PlatformError as err:
            logger.warning("restore %s: how far it came is not in the bucket: %s", task.where, err)
        raise
    transactions.save()
    sent_count = transactions.committed.record_count - start.record_count
    return task.make_result(start.record_count, sent_count, sent_bytes)


def _send_in_transactions(task: ReplayTask, transactions: Transactions, reading: ReadAhead[SentBatch]) -> int:
    """Send the records being read, at the task's rates, and commit them. Return their bytes."""
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    sent_bytes = 0
    for batch in reading.items(lambda: transactions.seconds_left):
        if batch is None:
            # The next batch takes longer to read than the transaction may stay open.
            transactions.commit()
            continue
        for piece in split_to_room(batch, lambda: transactions.piece_bytes):
            transactions.make_room(piece.log_bytes)
            for part in piece.parts:
                transactions.send(part)
            transactions.note_passed(piece.next_source_offset)
            _keep_to_rates(task, throttle, transactions, piece.record_count, piece.byte_count)
            sent_bytes += piece.byte_count
    transactions.commit()
    return sent_bytes


def _keep_to_rates(task: ReplayTask, throttle: Throttle, transactions: Transactions, records: int, size: int) -> None:
    """Keep to the rates. If the wait outlasts the transaction, commit first."""
    limits = ((records, task.records_per_second), (size, task.bytes_per_second))
    longest = max((amount / limit for amount, limit in limits if limit), default=0.0)
    seconds_left = transactions.seconds_left
    if seconds_left is not None and longest > seconds_left:
        transactions.commit()
    throttle.take(records, size)


def _explain_superseded(
    task: ReplayTask, checkpoint: Checkpoint, producer: TransactionalReplayProducer, err: SupersededError
) -> PlatformError:
    """Build the error of a producer that was fenced by another run, or by the cluster after too long a transaction.

    The latter happens if this process stood still. The last checkpoint is then still its own.
    """
    if producer.timed_out and checkpoint.is_last:
        return TransientError(_describe_timeout(task, producer, err))
    return SupersededError(
        f"restore {task.restore_id}, {task.where}: another run of this restore id has taken over, and continues "
        f"after the committed records ({err.text}). Let that run finish, or stop it and run again"
    )


def _describe_timeout(task: ReplayTask, producer: TransactionalReplayProducer, err: PlatformError) -> str:
    """Explain that the cluster aborted a transaction open for too long, and give advice."""
    return (
        f"restore {task.restore_id}, {task.where}: a transaction was open for longer than its timeout of "
        f"{producer.timeout_seconds:g} s, and the cluster aborts such transactions: {err.text}. Records that were "
        "committed before stay, and the next run under the same id continues after them. If runs make no progress, the "
        "target is too slow: raise producer.transaction.timeout.ms in the worker's file (brokers allow up to their "
        "transaction.max.timeout.ms, 15 minutes by default), raise the target's quota, or run fewer tasks at once"
    )


def replay(task: ReplayTask, attempt: Attempt) -> ReplayResult:
    """Send the records that the target lacks, in order. After an error, the checkpoint records the task's progress.

    Raises:
        IntegrityError: an object of the archive is missing, replaced or damaged.
        PreflightError: the target rejected a record, or the progress marker is gone or belongs to another restore.
        SupersededError: another run of this restore id is at work.
        LogTruncatedError: the target lost delivered records.
    """
    checkpoint = Checkpoint(task.documents_store, task.documents.checkpoint, f"{task.run_id}/{attempt.attempt_id}")
    send = replay_exactly_once if task.delivery == "exactly_once" else replay_at_least_once
    result = send(task, checkpoint, attempt)
    return replace(result, left_out=tuple(task.read_left_out() or ()))
