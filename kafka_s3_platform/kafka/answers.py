"""What a broker says of offsets and epochs, checked where it comes in.

librdkafka gives -1001 where a broker that is going down has answered nothing of a kafka partition, without any error.
Such a number, and every other that no log can have, raises BrokerUnavailableError here: the same question gets a true
answer later. Behind these functions no offset is negative, and no log ends before it starts.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Generic, Literal, NewType, TypeVar

from confluent_kafka import OFFSET_INVALID

from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError, TransientError
from kafka_s3_platform.model.frontier import Frontier

LogStart = NewType("LogStart", int)
"""The first offset that a log still has."""

LogEnd = NewType("LogEnd", int)
"""The offset after the last one that a log has: its high watermark, or its last stable offset."""

RecordOffset = NewType("RecordOffset", int)
"""The offset of a record that is there."""

NextOffset = NewType("NextOffset", int)
"""The offset that a consumer group consumes next."""

NO_RECORD_SO_LATE = -1
"""The one negative offset that Kafka answers to a timestamp, and what it means."""


class Untold(Enum):
    """What is known of a timestamp's offset where a broker says that no record is so late, and there may be one.

    A broker looks into the first log segment that ever had a record so late, from the log start on, and not into the
    next one. So it says that as long as it has a segment whose latest records were deleted (LogSegments and
    `findOffsetByTimestamp` in Kafka's UnifiedLog): for minutes where DeleteRecords took all of a segment, for good
    where a record of the far future was among what it took.
    """

    UNTOLD = "untold"


OffsetAtTime = RecordOffset | Literal[Untold.UNTOLD] | None
"""The first record with a timestamp or a later one, None where there is none."""

NOTHING_COMMITTED = OFFSET_INVALID
"""What librdkafka makes of the -1 that a group's coordinator answers where the group has committed nothing."""

UNKNOWN_EPOCH = -1

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")

AGAIN_SECONDS, POLL_SECONDS = 2.0, 0.1
"""How long a question is asked again that a broker has answered with what cannot be, and how often."""


@dataclass(frozen=True)
class Answers(Generic[K, A]):
    """What was answered to the questions of one call, and why some have no answer."""

    found: Mapping[K, A]
    failures: Mapping[K, PlatformError]

    def checked(self, check: Callable[[K, A], B]) -> "Answers[K, B]":
        """What `check` makes of each answer. Where it raises BrokerUnavailableError, there is none."""
        found: dict[K, B] = {}
        failures = dict(self.failures)
        for key, answer in self.found.items():
            try:
                found[key] = check(key, answer)
            except BrokerUnavailableError as err:
                failures[key] = err
        return Answers(found, failures)

    def and_of(self, other: "Answers[K, B]") -> "Answers[K, tuple[A, B]]":
        """The answers to both of two questions, of what has both."""
        both = {key: (answer, other.found[key]) for key, answer in self.found.items() if key in other.found}
        return Answers(both, {**other.failures, **self.failures})

    def get(self) -> Mapping[K, A]:
        """All answers. Raises the error of the first question that has none."""
        for failure in self.failures.values():
            raise failure
        return self.found

    def some(self) -> Mapping[K, A]:
        """The answers that there are. Raises the error of the first question where none has one."""
        return self.found or self.get()

    def completed(self, later: "Answers[K, A]") -> "Answers[K, A]":
        """With what failed questions were answered when they were asked again."""
        failures = {**self.failures, **later.failures}
        left = {key: err for key, err in failures.items() if key not in later.found}
        return Answers({**self.found, **later.found}, left)


def asked_again(answers: Answers[K, A], ask: Callable[[Sequence[K]], Answers[K, A]]) -> Answers[K, A]:
    """`answers`, after what may be answered in a moment was asked again for a short time."""
    deadline = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        passing = [key for key, err in answers.failures.items() if isinstance(err, TransientError)]
        if not passing:
            break
        time.sleep(POLL_SECONDS)
        answers = answers.completed(ask(passing))
    return answers


def log_start(offset: int, where: str) -> LogStart:
    """`where` names what was tried and the kafka partition, for errors, as it does everywhere here."""
    return LogStart(_offset(offset, "its log start", where))


def log_end(offset: int, where: str) -> LogEnd:
    """A high watermark or a last stable offset."""
    return LogEnd(_offset(offset, "the end of its log", where))


def offset_for_time(offset: int, where: str) -> RecordOffset | None:
    """None: there is no record so late."""
    if offset == NO_RECORD_SO_LATE:
        return None
    return RecordOffset(_offset(offset, "the first record of that time", where))


def next_offset(offset: int, where: str) -> NextOffset | None:
    """None: the group has committed nothing of the kafka partition."""
    if offset == NOTHING_COMMITTED:
        return None
    return NextOffset(_offset(offset, "what the group consumes next", where))


def leader_epoch(epoch: int | None, where: str) -> int | None:
    """None where the broker does not know it."""
    if epoch is None or epoch == UNKNOWN_EPOCH:
        return None
    return _offset(epoch, "its leader's epoch", where)


def log_bounds(bounds: tuple[int, int], where: str) -> tuple[LogStart, LogEnd]:
    """The log start and the high watermark of one answer."""
    start, end = log_start(bounds[0], where), log_end(bounds[1], where)
    _check_order(start, end, "ends at", where)
    return start, end


def frontier(
    kafka_partition: int, offsets: tuple[int, int, int], epoch: int | None, observed_at: datetime, where: str
) -> Frontier:
    """`offsets` are log start, high watermark and last stable offset, the last of which was asked for after the others.

    So it is above the high watermark where records came in between, and then no transaction was open below that.
    """
    start, end = log_bounds(offsets[:2], where)
    stable = log_end(offsets[2], where)
    _check_order(start, stable, "is stable up to", where)
    return Frontier(kafka_partition, start, min(stable, end), end, leader_epoch(epoch, where), observed_at)


def _check_order(start: LogStart, end: LogEnd, verb: str, where: str) -> None:
    if end < start:
        raise _unusable(f"that the log starts at offset {start} and {verb} {end}", where)


def _offset(number: int, what: str, where: str) -> int:
    if number < 0:
        raise _unusable(f"{number} as {what}", where)
    return number


def _unusable(said: str, where: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"{where}: the broker answered {said}, which cannot be. One that is going down or coming up answers so for a "
        f"moment; the next try asks again"
    )
