"""The lies of a broker: each is an answer by the protocol that a broker, a stale one or a broken one could give."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from kafka_s3_platform_tests.chaos.kafka_liar import Asked, KafkaLies
from kafka_s3_platform_tests.chaos.lies import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Hidden,
)

EARLIEST, LATEST = -2, -1
INVALID_OFFSET = -1001
PASSING_ERRORS = (5, 6, 7, 78)
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, OFFSET_NOT_AVAILABLE."""
FETCH_ERRORS = (1, 3, 6, 9, 56, 74, 76, -1)
"""OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_SERVER_ERROR."""

Tell = Callable[[KafkaLies, Asked, Any], Any]
Change = Callable[[KafkaLies, int, Any, int], bool]
"""Changes one kafka partition's answer, given what was asked of it; whether it did."""


DUPLICATE_SEQUENCE_NUMBER = 46


def said_to_be_there_already(_: KafkaLies, asked: Asked, answer: Any) -> Any:
    """Each batch that was produced is there, says the broker, and not where: so it does of one that is sent again."""
    if asked.api != PRODUCE:
        return None
    for place in (p for t in answer.responses for p in t.partition_responses):
        place.error_code, place.base_offset, place.log_append_time_ms = DUPLICATE_SEQUENCE_NUMBER, -1, -1
    return answer


def _listed(change: Change, *, of_all: bool = False) -> Tell:
    """Changes the answers of ListOffsets for one kafka partition or for all; always `of_all` of a lie that goes on."""

    def tell(liar: KafkaLies, asked: Asked, answer: Any) -> Any:
        if asked.api != LIST_OFFSETS:
            return None
        times = {(t.name, p.partition_index): p.timestamp for t in asked.request.topics for p in t.partitions}
        found = [(times[t.name, p.partition_index], p) for t in answer.topics for p in t.partitions]
        some = found if of_all or liar.random.random() < 0.5 else liar.random.sample(found, min(1, len(found)))
        committed = asked.request.isolation_level
        # all, not any at the first: each is changed
        changed = [change(liar, time, p, committed) for time, p in some if not p.error_code]
        return answer if any(changed) else None

    return tell


def _sentinel(liar: KafkaLies, _time: int, p: Any, _level: int) -> bool:
    p.offset, p.timestamp, p.leader_epoch = INVALID_OFFSET, -1, -1
    return True


def _minus_one(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time >= 0:
        return False
    p.offset, p.leader_epoch = -1, -1
    return True


def _no_such_time(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time < 0 or p.offset < 0:
        return False
    liar.hidden.append(Hidden(p.partition_index, p.offset))
    p.offset, p.timestamp, p.leader_epoch = -1, -1, -1
    return True


def _time_too_late(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time < 0 or p.offset < 0:
        return False
    liar.hidden.append(Hidden(p.partition_index, p.offset, p.offset + 30))
    p.offset += liar.random.randint(1, 30)
    return True


def _time_too_early(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time < 0 or p.offset <= 0:
        return False
    # as the end of an hour that is lower than it was
    liar.hidden.append(Hidden(p.partition_index, 0))
    p.offset = liar.random.randrange(p.offset)
    return True


def _end_too_low(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time != LATEST or p.offset <= 0:
        return False
    p.offset = liar.random.randrange(p.offset)
    liar.hidden.append(Hidden(p.partition_index, p.offset))
    return True


def _end_too_high(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time != LATEST:
        return False
    p.offset += liar.random.choice((1, 5, 1000))
    return True


def _start_beyond_end(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time != EARLIEST:
        return False
    p.offset += 100_000
    return True


def _start_too_high(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    if time != EARLIEST:
        return False
    step = liar.random.randint(1, 20)
    liar.hidden.append(Hidden(p.partition_index, p.offset, p.offset + step))
    p.offset += step
    return True


def _deleted_between_two_looks(liar: KafkaLies, time: int, p: Any, _level: int) -> bool:
    """Retention moves the log start before the first look-up by time, and an honest broker tells it from then on."""
    end, start = (p.partition_index, "end"), (p.partition_index, "start")
    if time == LATEST:
        liar.memory[end] = p.offset
        return False
    if p.offset < 0 or not liar.memory.get(end):
        return False
    if time >= 0 and start not in liar.memory:
        liar.memory[start] = liar.random.randint(1, liar.memory[end])
    if p.offset >= liar.memory.get(start, 0):
        return False
    p.offset = liar.memory[start]
    return True


def _of_another_moment(liar: KafkaLies, time: int, p: Any, level: int) -> bool:
    """As another replica that is behind, or of before."""
    key = ("listed", p.partition_index, time, level)
    before = liar.memory.setdefault(key, (p.offset, p.timestamp))
    if before[0] == p.offset:
        return False
    low, high = sorted((before[0], p.offset))
    liar.hidden.append(Hidden(p.partition_index, max(low, 0), high))
    p.offset, p.timestamp = before
    return True


def _epochs(liar: KafkaLies, _time: int, p: Any, _level: int) -> bool:
    p.leader_epoch = liar.random.choice((-1, 0, 1, 7, 2_000_000_000))
    return True


def _passing_error(liar: KafkaLies, _time: int, p: Any, _level: int) -> bool:
    p.error_code, p.offset, p.timestamp = liar.random.choice(PASSING_ERRORS), -1, -1
    return True


def _topics(change: Callable[[KafkaLies, Any], bool]) -> Tell:
    def tell(liar: KafkaLies, asked: Asked, answer: Any) -> Any:
        if asked.api != METADATA or asked.request.topics is None:
            return None
        changed = [change(liar, topic) for topic in answer.topics if not topic.error_code]
        return answer if any(changed) else None

    return tell


def _fewer(liar: KafkaLies, topic: Any) -> bool:
    if len(topic.partitions) < 2:
        return False
    ascending = sorted(topic.partitions, key=lambda p: int(p.partition_index))
    kept = liar.random.randrange(1, len(ascending))
    liar.hidden += [Hidden(p.partition_index, 0) for p in ascending[kept:]]
    topic.partitions = ascending[:kept]
    return True


def _no_leader(liar: KafkaLies, topic: Any) -> bool:
    gone = liar.random.choice(topic.partitions)
    gone.error_code, gone.leader_id = 5, -1
    return True


def _old_leader(liar: KafkaLies, topic: Any) -> bool:
    for p in topic.partitions:
        p.leader_epoch = liar.random.choice((0, 3, -1))
    return True


def _no_topic(liar: KafkaLies, topic: Any) -> bool:
    topic.error_code, topic.partitions = 3, []
    return True


def _fetched(change: Callable[[KafkaLies, Any], bool]) -> Tell:
    def tell(liar: KafkaLies, asked: Asked, answer: Any) -> Any:
        if asked.api != FETCH:
            return None
        found = [p for topic in answer.responses for p in topic.partitions]
        changed = [change(liar, p) for p in found if not p.error_code]
        return answer if any(changed) else None

    return tell


def _fetch_error(liar: KafkaLies, p: Any) -> bool:
    p.error_code, p.records = liar.random.choice(FETCH_ERRORS), b""
    return True


def _empty(liar: KafkaLies, p: Any) -> bool:
    if not p.records:
        return False
    p.records = b""
    return True


def _flipped_bit(liar: KafkaLies, p: Any) -> bool:
    """Under the checksum of a batch, which begins after 21 bytes: nobody can see one in the base offset before it."""
    found = list(_batches(bytes(p.records or b"")))
    if not found:
        return False
    at = liar.random.randrange(len(found))
    damaged = bytearray(found[at])
    damaged[liar.random.randrange(17, len(damaged))] ^= 1 << liar.random.randrange(8)
    p.records = b"".join([*found[:at], bytes(damaged), *found[at + 1 :]])
    return True


def _cut_off(liar: KafkaLies, p: Any) -> bool:
    if not p.records:
        return False
    p.records = bytes(p.records)[: liar.random.randrange(len(p.records))]
    return True


def _of_elsewhere(liar: KafkaLies, p: Any) -> bool:
    """Records of an earlier answer, which lie before what was asked for."""
    if not p.records:
        return False
    before = liar.memory.setdefault(("fetched", p.partition_index), bytes(p.records))
    if before == bytes(p.records):
        return False
    p.records = before
    return True


def _batches(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + int(struct.unpack_from(">i", data, at + 8)[0])
        if end > len(data):
            return
        yield data[at:end]
        at = end


def _batches_twice(liar: KafkaLies, p: Any) -> bool:
    """Some that follow each other are sent once more."""
    found = list(_batches(bytes(p.records or b"")))
    if not found:
        return False
    first = liar.random.randrange(len(found))
    end = liar.random.randint(first + 1, len(found))
    p.records = b"".join(found[:end] + found[first:])
    return True


def _batches_shuffled(liar: KafkaLies, p: Any) -> bool:
    found = list(_batches(bytes(p.records or b"")))
    if len(found) < 2:
        return False
    p.records = b"".join(reversed(found))
    return True


def _batch_epochs(liar: KafkaLies, p: Any) -> bool:
    """The epoch of a batch is not under its checksum."""
    found = list(_batches(bytes(p.records or b"")))
    epochs = [struct.pack(">i", liar.random.choice((0, 1, 5, 90))) for _ in found]
    p.records = b"".join(b[:12] + epoch + b[16:] for b, epoch in zip(found, epochs, strict=True))
    return bool(found)


def _watermarks(liar: KafkaLies, p: Any) -> bool:
    p.high_watermark = liar.random.choice((-1, 0, 10, p.high_watermark + 50))
    p.last_stable_offset = liar.random.choice((-1, 0, p.last_stable_offset + 50))
    p.log_start_offset = liar.random.choice((-1, 0, p.log_start_offset + 15))
    return True


def _epoch_end(liar: KafkaLies, asked: Asked, answer: Any) -> Any:
    """Where an epoch ended, as a leader says that has lost some of its log."""
    if asked.api != OFFSET_FOR_LEADER_EPOCH:
        return None
    for topic in answer.topics:
        for p in topic.partitions:
            p.end_offset = liar.random.choice((-1, 0, max(0, p.end_offset - 10)))
    return answer


def _committed_offset(liar: KafkaLies, asked: Asked, answer: Any) -> Any:
    if asked.api != OFFSET_FETCH:
        return None
    groups = answer.groups or [answer]
    found = [p for group in groups for topic in group.topics for p in topic.partitions]
    for p in liar.random.sample(found, min(1, len(found))):
        p.error_code, p.committed_offset = liar.random.choice(((88, -1), (14, -1), (16, -1), (0, INVALID_OFFSET)))
    return answer if found else None


KAFKA_LIES: dict[str, Tell] = {
    "ListOffsets: -1001 without an error": _listed(_sentinel),
    "ListOffsets: -1 as a start or an end": _listed(_minus_one),
    "ListOffsets: no record so late": _listed(_no_such_time),
    "ListOffsets: a time too late": _listed(_time_too_late),
    "ListOffsets: a time too early": _listed(_time_too_early),
    "ListOffsets: an end too low": _listed(_end_too_low),
    "ListOffsets: an end too high": _listed(_end_too_high),
    "ListOffsets: a start beyond the end": _listed(_start_beyond_end),
    "ListOffsets: a start too high": _listed(_start_too_high),
    "ListOffsets: deleted between two looks": _listed(_deleted_between_two_looks, of_all=True),
    "ListOffsets: of another moment": _listed(_of_another_moment),
    "ListOffsets: epochs back and forth": _listed(_epochs),
    "ListOffsets: an error that passes": _listed(_passing_error),
    "Metadata: fewer kafka partitions": _topics(_fewer),
    "Metadata: a leader missing": _topics(_no_leader),
    "Metadata: epochs back and forth": _topics(_old_leader),
    "Metadata: no such topic": _topics(_no_topic),
    "Fetch: an error": _fetched(_fetch_error),
    "Fetch: nothing": _fetched(_empty),
    "Fetch: a flipped bit": _fetched(_flipped_bit),
    "Fetch: cut off": _fetched(_cut_off),
    "Fetch: records of elsewhere": _fetched(_of_elsewhere),
    "Fetch: batches twice": _fetched(_batches_twice),
    "Fetch: batches in another order": _fetched(_batches_shuffled),
    "Fetch: epochs of batches": _fetched(_batch_epochs),
    "Fetch: watermarks": _fetched(_watermarks),
    "OffsetForLeaderEpoch: an end too low": _epoch_end,
    "OffsetFetch: errors and sentinels": _committed_offset,
}
