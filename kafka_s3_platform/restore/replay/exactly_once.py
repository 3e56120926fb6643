"""Sends a stream in transactions with a progress marker."""

import logging
from contextlib import ExitStack, closing

from kafka_s3_platform.errors import PlatformError, SupersededError, TransientError
from kafka_s3_platform.kafka.group_offset import GroupOffset
from kafka_s3_platform.kafka.produce.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.restore.outgoing.pieces import split_to_room
from kafka_s3_platform.restore.outgoing.sent import SentBatch
from kafka_s3_platform.restore.replay.bad_objects import decide_left_out
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint
from kafka_s3_platform.restore.replay.read_ahead import ReadAhead
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.restore.replay.starting_marker import find_starting_marker
from kafka_s3_platform.restore.replay.transactions import MARKED_KAFKA_PARTITION, Transactions
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def replay_exactly_once(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt) -> ReplayResult:
    """Send records not counted by the progress marker, in transactions that commit the marker."""
    name = task.marker_name
    group = GroupOffset(task.kafka, name, task.to_topic, MARKED_KAFKA_PARTITION)
    producer = TransactionalReplayProducer(
        task.kafka,
        task.to_topic,
        name,
        max_message_bytes=task.max_message_bytes,
        codec=task.codec,
        allow_now=task.allow_unsendable_timestamps,
        is_limited=task.is_limited,
    )
    try:
        # The context closes the producer before the readers: an open transaction is aborted without waiting for them.
        with ExitStack() as readers, group, producer:

            def read(start_offset: int) -> ReadAhead[SentBatch]:
                decide_left_out(task, store, start_offset)
                return readers.enter_context(closing(ReadAhead(task.decided(store).sent_stream(store, start_offset))))

            # Fencing takes a while. On a first try nothing was sent, so reading from the start can begin meanwhile.
            early = read(0) if task.is_first_try(attempt) else None
            transactions = _begin_transactions(task, store, checkpoint, group, producer)
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
    store: ObjectStore,
    checkpoint: Checkpoint,
    group: GroupOffset,
    producer: TransactionalReplayProducer,
) -> Transactions:
    """Fence older tries, commit the first marker, and note it in the bucket."""
    # Fence before reading: an older try's open transaction is then aborted, and its marker cannot change any more.
    producer.begin()
    start = find_starting_marker(task, store, group, checkpoint)
    transactions = Transactions(producer, group, checkpoint, start)
    transactions.begin()
    # Write it after the marker and before the first record: from here on, a missing marker is a lost one.
    checkpoint.save(start.position)
    return transactions


def _replay_marked(task: ReplayTask, transactions: Transactions, reading: ReadAhead[SentBatch]) -> ReplayResult:
    start = transactions.committed
    try:
        sent_bytes = _send_in_transactions(task, transactions, reading)
    except SupersededError:
        # Write no checkpoint: it belongs to the newer run now.
        raise
    except Exception:
        _save_committed(task, transactions)
        raise
    transactions.save()
    end = transactions.committed
    sent = end.record_count - start.record_count
    return task.result(start, sent, sent_bytes, end)


def _send_in_transactions(task: ReplayTask, transactions: Transactions, reading: ReadAhead[SentBatch]) -> int:
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
            transactions.passed(piece.next_source_offset)
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


def _save_committed(task: ReplayTask, transactions: Transactions) -> None:
    try:
        transactions.save()
    except PlatformError as err:
        logger.warning("restore %s: how far it came is not in the bucket: %s", task.where, err)


def _explain_superseded(
    task: ReplayTask, checkpoint: Checkpoint, producer: TransactionalReplayProducer, err: SupersededError
) -> PlatformError:
    """Build the error of a fenced producer. Another run did it, or the cluster, when a transaction took too long.

    The second happens if this process stood still. The last checkpoint is then still its own.
    """
    if producer.timed_out and checkpoint.is_last:
        return TransientError(_describe_timeout(task, producer, err))
    return SupersededError(
        f"restore {task.restore_id}, {task.where}: another run of this restore id has taken over and goes on from "
        f"what was committed ({err.text}). Let that one finish, or end it and run again"
    )


def _describe_timeout(task: ReplayTask, producer: TransactionalReplayProducer, err: PlatformError) -> str:
    return (
        f"restore {task.restore_id}, {task.where}: a transaction was open for longer than its timeout of "
        f"{producer.timeout_seconds:g} s, and the cluster aborts such: {err.text}. What was committed before stays, "
        f"and the next run goes on behind it, under the same id. Where none comes further, the target is too slow: set "
        f"producer.transaction.timeout.ms of the worker's file higher (brokers take up to their "
        f"transaction.max.timeout.ms, 15 minutes by default), raise the target's quota, or run fewer tasks at once"
    )
