"""Checks the offsets and epochs in a broker's answer as soon as it arrives.

If a broker is shutting down and does not answer for a kafka partition, librdkafka returns -1001 and no error. Such a
number, like any other impossible one, raises BrokerUnavailableError here, because the same question will get a true
answer later. After these checks no offset is negative, and no log ends before it starts.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Generic, Literal, NewType, TypeVar

from confluent_kafka import OFFSET_INVALID

from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError, TransientError
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.frontier import Frontier

LogStart = NewType("LogStart", int)
"""The first offset that a log still holds."""

LogEnd = NewType("LogEnd", int)
"""The offset after the last one of a log: its high watermark, or its last stable offset."""


class RecordOffset(int):
    """The offset of a record, which a broker returns together with the record's timestamp."""

    timestamp_ms: int = NO_TIMESTAMP

    @classmethod
    def of(cls, offset: int, timestamp_ms: int) -> "RecordOffset":
        """Return `offset` as a number that also carries the record's timestamp in epoch ms."""
        record_offset = cls(offset)
        record_offset.timestamp_ms = timestamp_ms
        return record_offset


NO_RECORD_SO_LATE = -1
"""The offset that Kafka returns if no record has the timestamp or a later one. No other negative one is an answer."""


class Untold(Enum):
    """Marks the offset of a timestamp as unknown: the broker names no record so late, but there may be one.

    From the log start on, a broker looks into the first log segment that ever had a record so late, and into no later
    one (LogSegments and `findOffsetByTimestamp` in Kafka's UnifiedLog). If the latest records of this segment were
    deleted, it finds none. This lasts for minutes if DeleteRecords deleted a whole segment, and for good if it deleted
    a record with a time in the far future. An answer is also unknown if the log has no record with the offset and
    timestamp it names.
    """

    UNTOLD = "untold"


OffsetAtTime = RecordOffset | Literal[Untold.UNTOLD] | None
"""The first record with a given timestamp or a later one, None if there is none, or UNTOLD if that is not known."""

NOTHING_COMMITTED = OFFSET_INVALID
"""A group's coordinator answers -1 if the group has committed nothing. librdkafka turns it into this number."""

UNKNOWN_EPOCH = -1

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")

AGAIN_SECONDS = 2.0
"""The time for which a question is repeated after an impossible answer. Brokers give such answers while they start."""

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Answers(Generic[K, A]):
    """The answers to the questions of one call, and the errors of the questions that have no answer."""

    results: Mapping[K, A]
    failures: Mapping[K, PlatformError]

    def convert(self, function: Callable[[K, A], B]) -> "Answers[K, B]":
        """Convert each answer by a function of key and answer. If it raises BrokerUnavailableError, the key fails."""
        results: dict[K, B] = {}
        failures = dict(self.failures)
        for key, answer in self.results.items():
            try:
                results[key] = function(key, answer)
            except BrokerUnavailableError as err:
                failures[key] = err
        return Answers(results, failures)

    def zip(self, other: "Answers[K, B]") -> "Answers[K, tuple[A, B]]":
        """Pair the answers to two questions about the same keys. A key that failed in either is a failure."""
        pairs = {key: (answer, other.results[key]) for key, answer in self.results.items() if key in other.results}
        return Answers(pairs, {**other.failures, **self.failures})

    def all_or_raise(self) -> Mapping[K, A]:
        """Return all answers, or raise the error of the first question that has none."""
        for failure in self.failures.values():
            raise failure
        return self.results

    def any_or_raise(self) -> Mapping[K, A]:
        """Return the answers, or raise the error of the first question if no question has an answer."""
        return self.results or self.all_or_raise()

    def merge_retry(self, later: "Answers[K, A]") -> "Answers[K, A]":
        """Return these answers together with `later` ones, to questions that had failed and were asked again."""
        failures = {**self.failures, **later.failures}
        unanswered = {key: err for key, err in failures.items() if key not in later.results}
        return Answers({**self.results, **later.results}, unanswered)


def ask_again(answers: Answers[K, A], ask: Callable[[Sequence[K]], Answers[K, A]]) -> Answers[K, A]:
    """Ask failed questions again, for AGAIN_SECONDS in all, as long as their errors are transient."""
    deadline = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        passing = [key for key, err in answers.failures.items() if isinstance(err, TransientError)]
        if not passing:
            break
        time.sleep(POLL_SECONDS)
        answers = answers.merge_retry(ask(passing))
    return answers


def ask_in_parts(keys: Sequence[K], size: int, ask: Callable[[Sequence[K]], Answers[K, A]]) -> Answers[K, A]:
    """Ask about `size` keys at a time, so no request is too large. Return the answers to all `keys`.

    If no broker answers for one part, the next parts are not asked about, and get the same failure. An unreachable
    cluster thus costs only one timeout, and not one for each part.
    """
    answers: Answers[K, A] = Answers({}, {})
    for start in range(0, len(keys), size):
        part = keys[start : start + size]
        try:
            part_answers = ask(part)
        except PlatformError as err:
            return answers.merge_retry(Answers({}, dict.fromkeys(keys[start:], err)))
        answers = answers.merge_retry(part_answers)
        failures = [*part_answers.failures.values()]
        if not part_answers.results and all(isinstance(err, BrokerUnavailableError) for err in failures):
            unasked = keys[start + size :]
            return answers.merge_retry(Answers({}, {key: failure for failure in failures[:1] for key in unasked}))
    return answers


def check_log_start(offset: int, where: str) -> LogStart:
    """Check a log start. Here and below, `where` names the request and its kafka partition, for errors."""
    return LogStart(_check_offset(offset, "its log start", where))


def check_log_end(offset: int, where: str) -> LogEnd:
    """Check a high watermark or a last stable offset."""
    return LogEnd(_check_offset(offset, "the end of its log", where))


def check_time_offset(offset: int, timestamp_ms: int, where: str) -> RecordOffset | None:
    """Check offset and timestamp of the first record at or after a time. Return None if no record is so late."""
    if offset == NO_RECORD_SO_LATE:
        return None
    return RecordOffset.of(_check_offset(offset, "the first record of that time", where), timestamp_ms)


def check_next_offset(offset: int, where: str) -> int | None:
    """Check a group's next offset. Return None if it has committed none for the kafka partition."""
    if offset == NOTHING_COMMITTED:
        return None
    return _check_offset(offset, "what the group consumes next", where)


def check_leader_epoch(epoch: int | None, where: str) -> int | None:
    """Check a leader epoch. Return None if the broker does not know it."""
    if epoch is None or epoch == UNKNOWN_EPOCH:
        return None
    return _check_offset(epoch, "its leader's epoch", where)


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends of a log. Its last stable offset was asked for after its high watermark.

    If records arrived in between, the last stable offset may lie above the high watermark. If so, no transaction was
    open below the high watermark.
    """

    high_watermark: LogEnd
    last_stable_offset: LogEnd
    leader_epoch: int | None
    observed_at: datetime


def check_log_ends(offsets: tuple[int, int], epoch: int | None, observed_at: datetime, where: str) -> LogEnds:
    """Check `offsets`: the high watermark and the last stable offset, in the order they were asked for.

    The log ends at the higher one, because either more records came meanwhile or the first answer was too low.
    """
    end, stable = (check_log_end(offset, where) for offset in offsets)
    return LogEnds(max(end, stable), stable, check_leader_epoch(epoch, where), observed_at)


def check_log_bounds(bounds: tuple[int, int], where: str) -> tuple[LogStart, LogEnd]:
    """Check the log start and the high watermark of one answer."""
    start = check_log_start(bounds[0], where)
    end = check_log_end(bounds[1], where)
    _check_order(start, end, "ends at", where)
    return start, end


def check_frontier(kafka_partition: int, log_start: int, ends: LogEnds, where: str) -> Frontier:
    """Return a kafka partition's frontier from the `ends` of its log and its start, which was asked for after them."""
    start = check_log_start(log_start, where)
    _check_order(start, ends.high_watermark, "ends at", where)
    _check_order(start, ends.last_stable_offset, "is stable up to", where)
    return Frontier(
        kafka_partition, start, ends.last_stable_offset, ends.high_watermark, ends.leader_epoch, ends.observed_at
    )


def _check_order(start: LogStart, end: LogEnd, verb: str, where: str) -> None:
    if end < start:
        raise _make_answer_error(f"that the log starts at offset {start} and {verb} {end}", where)


def _check_offset(number: int, what: str, where: str) -> int:
    """Return the offset or epoch. If it is negative, raise BrokerUnavailableError with `what` it is and `where`."""
    if number < 0:
        raise _make_answer_error(f"{number} as {what}", where)
    return number


def _make_answer_error(answer: str, where: str) -> BrokerUnavailableError:
    """Return the error for an impossible `answer` a broker gave to the request `where`."""
    return BrokerUnavailableError(
        f"{where}: the broker answered {answer}, which cannot be. One that is going down or coming up answers so for a "
        f"moment; the next try asks again"
    )
