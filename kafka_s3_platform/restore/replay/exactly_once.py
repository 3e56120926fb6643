"""Sends a stream in transactions with a progress marker.

To resume, it reads the progress marker, and checks it against the target.
"""

import logging
from contextlib import ExitStack, closing

from kafka_s3_platform.errors import PlatformError, PreflightError, SupersededError, TransientError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.group_offset import GroupOffset
from kafka_s3_platform.kafka.groups import has_pending_offset
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.kafka.produce.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.kafka.record_reader import RecordReader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.restore.outgoing.pieces import split_to_room
from kafka_s3_platform.restore.outgoing.sent import SentBatch
from kafka_s3_platform.restore.replay.bad_objects import decide_left_out
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint, Position
from kafka_s3_platform.restore.replay.position import find_position
from kafka_s3_platform.restore.replay.read_ahead import ReadAhead
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.restore.replay.target_log import await_stable_logs, read_target
from kafka_s3_platform.restore.replay.transactions import MARKED_KAFKA_PARTITION, Marker, Transactions
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def find_starting_marker(task: ReplayTask, store: ObjectStore, group: GroupOffset, checkpoint: Checkpoint) -> Marker:
    """Find the marker to resume from. Older tries are fenced and their open transactions aborted: nothing changes."""
    where = f"restore {task.restore_id}, {task.where}, consumer group {group.group}"
    saved = checkpoint.load()
    if saved is not None and saved.next_target_offset is not None:
        raise PreflightError(
            f"{where}: a run with delivery=at_least_once has sent some of it, counted by no progress marker. Go on "
            f"with delivery=at_least_once"
        )
    try:
        committed = group.read()
    except TransientError:
        if not _is_marker_hidden(task, group):
            raise
        why = f"the cluster hides the progress marker of {group.group}: it has lost the end of a transaction there"
        return _find_marker_by_content(task, store, why)
    if committed is not None:
        marker = _check_marker(task, store, Marker.of(committed, task.plan_digest, where), saved)
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


def _check_marker(task: ReplayTask, store: ObjectStore, marker: Marker, saved: Position | None) -> Marker:
    """Return the marker, or a corrected one if the target holds less or more of the stream.

    The cluster notes the end of a transaction, then writes it to each kafka partition: to the target's and to the
    marker's. Brokers of Kafka 4.3 leave it out if a kafka partition has no leader at this moment (KAFKA-20734). Records
    of a transaction without an end are hidden, and end together with the next transaction: records confirmed as
    committed are aborted with it, or aborted ones are committed.

    Raises:
        OpenTransactionError: a transaction hides the records after the last one counted by the marker.
    """
    claim = f"the progress marker counts the records below source offset {marker.next_source_offset}"
    if _lacks_records(task, marker):
        return _find_marker_by_content(task, store, f"{claim}, and not all of them are there")
    if not task.is_found_by_content:
        if saved is not None and saved.next_source_offset > marker.next_source_offset:
            return _find_marker_by_content(task, store, f"{claim}, and a run before told {saved.next_source_offset}")
        return marker
    end = marker.target_ends.get(task.kafka_partition, None if marker.record_count else task.target_start)
    if end is None:
        # The group's metadata had no room for the ends of its records.
        return marker
    position = find_position(task, store, Position(marker.next_source_offset, end, marker.record_count))
    if position.next_source_offset > marker.next_source_offset:
        logger.warning(
            "restore %s: %s, and the target holds those below %d", task.where, claim, position.next_source_offset
        )
    return _make_marker(task, position)


def _find_marker_by_content(task: ReplayTask, store: ObjectStore, why: str) -> Marker:
    """Make a marker of the target's real content: compare all of it with the archive."""
    if task.is_found_by_content:
        position = find_position(task, store, Position(0, None))
        logger.warning(
            "restore %s: %s. It goes on behind what was found in the target: at source offset %d",
            task.where,
            why,
            position.next_source_offset,
        )
        return _make_marker(task, position)
    if _holds_records(task):
        raise PreflightError(
            f"restore {task.where}: {why}. Comparing finds the target's position only for our own objects whose "
            f"records keep their kafka partition's number, with behavior.on.error=fail, without mappers and without "
            f"latest_per_key. Restore to another topic under another restore id"
        )
    return Marker(task.plan_digest, 0, 0)


def _make_marker(task: ReplayTask, position: Position) -> Marker:
    ends = {} if position.next_target_offset is None else {task.kafka_partition: position.next_target_offset}
    return Marker(task.plan_digest, position.next_source_offset, position.record_count, ends)


def _lacks_records(task: ReplayTask, marker: Marker) -> bool:
    """Return True if the last record in some kafka partition was truncated or aborted, as far as can be known now."""
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
    if log.high_watermark < end:
        return True
    # Retention deleted the record, or compaction may have removed it: its absence proves nothing.
    if log.log_start_offset >= end or task.sent.records.latest_per_key:
        return False
    last = OffsetRange(end - 1, end)
    return not any(batch.num_rows for batch in reader.read(log.kafka_partition, last))


def _holds_records(task: ReplayTask) -> bool:
    """Return True if the target received committed records since this restore began."""
    for kafka_partition, start in task.reached:
        target = read_target(task.kafka, task.to_topic, kafka_partition, start)
        with closing(target):
            if next(target, None) is not None:
                return True
    return False


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
