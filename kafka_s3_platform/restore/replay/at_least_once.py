"""Sends a stream without transactions, and resumes from the target's content."""

import logging
import time
from collections.abc import Mapping
from contextlib import closing

from kafka_s3_platform.errors import SupersededError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.produce.deliveries import Delivered
from kafka_s3_platform.kafka.produce.producer import ReplayProducer
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.batches import count_record_bytes
from kafka_s3_platform.restore.replay.bad_objects import decide_left_out
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint, Position
from kafka_s3_platform.restore.replay.position import find_position
from kafka_s3_platform.restore.replay.read_ahead import ReadAhead
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


CHECKPOINT_RECORDS = 250_000

CHECKPOINT_SECONDS = 5.0
"""A checkpoint is written after this many records or seconds. The next run compares the records sent since."""

SETTLE_SECONDS = 2.0
"""Time that the target's end must stay the same, so that no request of a killed run is in the network."""

SETTLE_LIMIT_SECONDS = 30.0
"""Longest wait for it: other writers may never stop."""

PAUSE_SECONDS = SETTLE_SECONDS / 2
"""A run that paused for longer asks the bucket for a newer one before it sends anything."""


def replay_at_least_once(
    task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt
) -> ReplayResult:
    """Send records missing in the target, and note the progress in the bucket."""
    position = _find_start(task, store, checkpoint, attempt)
    try:
        return _send_rest(task, store, checkpoint, position)
    except SupersededError:
        # Write no checkpoint: it belongs to the newer run now.
        raise
    except Exception:
        _leave_checkpoint(task, store, checkpoint)
        raise


def _find_start(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, attempt: Attempt) -> Position:
    saved = checkpoint.load()
    position = _choose_known_position(task, saved)
    # Claim the checkpoint first: an older run that is still alive fails at its next write.
    checkpoint.save(position)
    decide_left_out(task, store, position.next_source_offset)
    if saved is None and task.is_first_try(attempt):
        # Nobody has sent anything yet, so there is nothing to wait for and nothing to compare.
        return position
    _await_standstill(task)
    position_found = find_position(task, store, position)
    # Claim it again: to compare may have taken long.
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
    """Return the position to compare from: the start if there is none, or none with a target offset.

    A restore that began with exactly_once has checkpoints without target offsets.
    """
    if saved is None or saved.next_target_offset is None:
        return Position(0, task.target_start)
    return saved


def _await_standstill(task: ReplayTask) -> None:
    """Wait until the target's end does not move any more.

    Records of a killed run may still be in the network. A superseded run notices that only at its next checkpoint, and
    sends what it has queued first. Other writers may keep the end moving: then the limit ends the wait.
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


def _send_rest(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint, start: Position) -> ReplayResult:
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    progress = _CheckpointKeeper(checkpoint, start)
    sent_bytes = 0
    producer = ReplayProducer(
        task.kafka,
        task.to_topic,
        max_message_bytes=task.max_message_bytes,
        codec=task.codec,
        allow_now=task.allow_unsendable_timestamps,
        is_limited=task.is_limited,
    )
    stream = task.decided(store).sent_stream(store, start.next_source_offset)
    with producer, closing(ReadAhead(stream)) as reading:
        for batch in filter(None, reading.items(lambda: None)):
            for number, part in batch.parts:
                progress.note(producer.delivered)
                producer.send(part, number)
                size = int(count_record_bytes(part).sum())
                throttle.take(part.num_rows, size)
                sent_bytes += size
        delivered = producer.flush()
        # Only after the flush: the last position then covers all acknowledged records.
        end = progress.save(delivered)
    sent = sum(place.records for place in delivered.values())
    return task.result(start, sent, sent_bytes, end)


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
        if due or self._position(delivered).record_count - self._saved.record_count >= CHECKPOINT_RECORDS:
            # Even if nothing arrived since: writing also asks for a newer run.
            self._write(self._position(delivered))
        self._noted_at = time.monotonic()

    def save(self, delivered: Mapping[int, Delivered]) -> Position:
        position = self._position(delivered)
        if position != self._saved:
            self._write(position)
        return position

    def _write(self, position: Position) -> None:
        self._checkpoint.save(position)
        self._saved = position
        self._saved_at = time.monotonic()

    def _position(self, delivered: Mapping[int, Delivered]) -> Position:
        # There is one place at most: without transactions, records keep the number of their kafka partition.
        for place in delivered.values():
            if place.source_offset is not None and place.target_offset is not None:
                count = self._start.record_count + place.records
                return Position(place.source_offset + 1, place.target_offset + 1, count)
        return self._saved


def _leave_checkpoint(task: ReplayTask, store: ObjectStore, checkpoint: Checkpoint) -> None:
    """Find and store how far a failed try came. Best effort: the next try finds it by itself."""
    try:
        _await_standstill(task)
        checkpoint.save(find_position(task, store, _choose_known_position(task, checkpoint.position)))
    except Exception as err:  # noqa: BLE001 - the try's own error is the one to tell
        logger.warning("restore %s: how far it came is found out by the next run only: %s", task.where, err)
