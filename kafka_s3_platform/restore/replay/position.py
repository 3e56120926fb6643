"""Finds how far a restore came by comparing the target with the archive."""

from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.replay.checkpoint import Position
from kafka_s3_platform.restore.replay.spec import ReplayTask
from kafka_s3_platform.restore.replay.target_log import read_target
from kafka_s3_platform.store.objects import ObjectStore


def find_position(task: ReplayTask, store: ObjectStore, start_position: Position) -> Position:
    """Find the target's real position: match the archived stream from `start_position` on with the target's records."""
    last: tuple[int, int] | None = None
    count = 0
    start = task.target_start if start_position.next_target_offset is None else start_position.next_target_offset
    target = read_target(task.kafka, task.to_topic, task.kafka_partition, start)
    stream = task.decided(store).sent_stream(store, start_position.next_source_offset)
    for source, matched in SubsequenceMatch(stream.all_records(), target, task.any_timestamp):
        last = (source.column("offset")[-1].as_py(), matched.column("offset")[-1].as_py())
        count += source.num_rows
    if last is None:
        return start_position
    source_offset, target_offset = last
    return Position(source_offset + 1, target_offset + 1, start_position.record_count + count)
