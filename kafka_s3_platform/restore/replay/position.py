"""Finds how far a restore came by comparing the target with the archive."""

from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.replay.checkpoint import Position
from kafka_s3_platform.restore.replay.spec import ReplayTask
from kafka_s3_platform.restore.replay.target_log import read_target
from kafka_s3_platform.store.objects import ObjectStore


def find_position(task: ReplayTask, store: ObjectStore, known: Position) -> Position:
    """Find how far the target really is: match the archived stream from `known` on with what follows in the target."""
    last: tuple[int, int] | None = None
    count = 0
    start = task.target_start if known.next_target_offset is None else known.next_target_offset
    target = read_target(task.kafka, task.to_topic, task.kafka_partition, start)
    stream = task.decided(store).sent_stream(store, known.next_source_offset)
    for source, found in SubsequenceMatch(stream.whole(), target, task.any_timestamp):
        last = (source.column("offset")[-1].as_py(), found.column("offset")[-1].as_py())
        count += source.num_rows
    if last is None:
        return known
    source_offset, target_offset = last
    return Position(source_offset + 1, target_offset + 1, known.record_count + count)
