"""A bounded range of a kafka partition as record batches, read once and provably to its end."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import Any, Protocol, final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assignment

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    IntegrityError,
    LogTruncatedError,
    MissingTopicError,
    OffsetGapError,
    OpenTransactionError,
    PlatformError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import LogEnd, LogStart, log_bounds
from kafka_s3_platform.kafka.batches import collector_paused, cut, offsets, payload_bytes, record_batch, unkept
from kafka_s3_platform.kafka.client import Reasons, cluster_metadata, consumer_client
from kafka_s3_platform.kafka.failures import (
    AUTO_OFFSET_RESET,
    BAD_COMPRESSION,
    GROUP_REFUSED,
    PARTITION_EOF,
    UNKNOWN_LOCALLY,
    WRONG_STATE,
)
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, TopicPartition
from kafka_s3_platform.model.unresolved import Unreadable

POLL_SECONDS = 0.1
PULL_BYTES = 8 * 1024 * 1024
PULL_RECORDS = 4096
FIRST_PULL_RECORDS = 64

_DEFAULTS = {
    "group.id": "kafka-s3-platform.reader",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.message.max.bytes": 4_194_304,
    "fetch.wait.max.ms": 50,
    "check.crcs": True,
}


def _defaults(settings: KafkaSettings) -> dict[str, Any]:
    """Librdkafka holds what most codecs decompress to against the largest answer that it takes; 100 MB is its own."""
    return {**_DEFAULTS, "receive.message.max.bytes": max(100_000_000, settings.batch_bytes)}


_FIXED = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """How a range was read.

    `position` is the offset that proved the end: that of a record, or of the kafka partition's end, at or past it.
    `leader_epoch` is that of the batch which holds the range's last offset, a marker's too; where compaction has left
    none there, that of the next one: no later epoch begins below the end. None where it is not known: librdkafka hands
    over records only. `bytes` counts keys, values and headers. Of the offsets of
    `unreadable`, which are in order, nothing was delivered.
    """

    position: int
    leader_epoch: int | None
    gaps: tuple[Gap, ...]
    records: int
    bytes: int
    unreadable: tuple[Unreadable, ...] = ()


class RangeRead:
    """Iterate the batches of a range once; then `end` says how it was read.

    `failures` are the offsets of records that could not be delivered as they are, and the reasons. An offset is there
    before the batch with its record is yielded.
    """

    def __init__(self, batches: Generator[pa.RecordBatch, None, ReadEnd], failures: Mapping[int, str]) -> None:
        self.failures = failures
        self._batches = batches
        self._end: ReadEnd | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._end = yield from self._batches

    @property
    def end(self) -> ReadEnd:
        """ValueError before the last batch was taken."""
        if self._end is None:
            raise ValueError("the range is not read to its end")
        return self._end


class RecordReader(Protocol):
    """Reads bounded offset ranges of one topic.

    Batches have RECORD_SCHEMA and hold committed records in offset order; their bounds depend only on the range, the
    offsets and the content. Ranges of a kafka partition read one after another, each starting where the last ended, are
    read straight through.
    """

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range; `leader_epoch` is that of the record before it, to find out a truncated log."""

    def check(self, kafka_partition: int, offset: int, leader_epoch: int) -> None:
        """LogTruncatedError if the log has not `leader_epoch` before `offset`, where it may end."""

    def close(self) -> None:
        """Release connections and buffers."""


class ClosableReader(RecordReader, Protocol):
    """A reader whose connections end with a `with` block."""

    def __enter__(self) -> RecordReader: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(slots=True)
class _Stream:
    """A place in a kafka partition that the consumer reads on from.

    Ranges up to `done` are read. Every record below `position` was taken, `last` is the last of them; `waiting` holds
    what came after them, in runs of records or single error events. What comes has to begin at `expected` or after it;
    `disorder` is what came otherwise, where `waiting` ends.
    """

    tp: TopicPartition
    done: int
    position: int
    leader_epoch: int | None
    expected: int
    last: Message | None = None
    disorder: str = ""
    at_end: bool = False
    usable: bool = True
    waiting: deque[list[Message]] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"topic {self.tp.topic}, kafka partition {self.tp.kafka_partition}, offset {self.position}"

    @property
    def reach(self) -> int:
        """The offset below which nothing is left to take."""
        if not self.waiting or self.waiting[0][0].error() is not None:
            return self.position
        return _offset(self.waiting[0][0])

    def continues_with(self, tp: TopicPartition, start_offset: int) -> bool:
        return self.tp == tp and self.done <= start_offset <= self.reach

    def add(self, run: list[Message]) -> None:
        """Records that came, up to the first whose offset is not above the one before, or an event."""
        if self.disorder:
            return
        if run[0].error() is None:
            found = np.fromiter(map(_offset, run), np.int64, len(run))
            behind = np.flatnonzero(np.diff(found, prepend=self.expected - 1) <= 0)
            good = int(behind[0]) if len(behind) else len(run)
            run = run[:good]
            self.expected = int(found[good - 1]) + 1 if good else self.expected
            if len(behind):
                self.disorder = f"{found[good]} comes where {self.expected} or more is due"
        if run:
            self.waiting.append(run)

    def take(self, end: int) -> list[Message]:
        """The next run of records below `end`; the rest of it goes on waiting."""
        run = self.waiting.popleft()
        below = bisect_left(run, end, key=_offset)
        if below < len(run):
            self.waiting.appendleft(run[below:])
        return run[:below]


@dataclass(slots=True)
class _Tally:
    """What one range has given so far; `unproven` is the first offset that retention may have taken unnoticed."""

    unproven: int
    failures: dict[int, str] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
    first_offset: int | None = None
    next_offset: int | None = None
    records: int = 0
    bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)

    def count(self, batch: pa.RecordBatch, size: int) -> None:
        if self.first_offset is None:
            self.first_offset = int(offsets(batch)[0])
        self.next_offset = int(offsets(batch)[-1]) + 1
        self.records += len(batch)
        self.bytes += size


@final
class ConfluentReader:
    """The RecordReader on confluent-kafka: one consumer, no group membership, no commits.

    `answer_seconds` bounds how long a silent broker is waited for, `end_seconds` how long a kafka partition may end
    before the range does. With `allow_gaps` deleted offsets are recorded as gaps and reading goes on after them.
    With `skip_unreadable` a record whose header names are not UTF-8 is delivered without headers, a batch that
    librdkafka cannot decompress is passed by, and both are told.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        throttle: Throttle | None = None,
        *,
        allow_gaps: bool = False,
        skip_unreadable: bool = False,
        answer_seconds: float = 60.0,
        end_seconds: float = 30.0,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._throttle = throttle or Throttle()
        self._allow_gaps = allow_gaps
        self._skip_unreadable = skip_unreadable
        self._answer_seconds = answer_seconds
        self._end_seconds = end_seconds
        self._reasons = Reasons()
        self._consumer: Consumer = consumer_client(settings, self._reasons, _defaults(settings), _FIXED)
        self._kafka_partitions: frozenset[int] = frozenset()
        self._pull_records = FIRST_PULL_RECORDS
        self._stream: _Stream | None = None

    def __enter__(self) -> "ConfluentReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range.

        While iterating: OffsetGapError for deleted offsets unless gaps are allowed, LogTruncatedError,
        OpenTransactionError when the last stable offset stays below the end, BrokerUnavailableError,
        MissingTopicError, AuthorizationError, and IntegrityError for what cannot be kept as it is.
        """
        tally, tp = _Tally(offsets.start_offset), TopicPartition(self._topic, kafka_partition)
        return RangeRead(self._read(tp, offsets, leader_epoch, tally), tally.failures)

    def check(self, kafka_partition: int, offset: int, leader_epoch: int) -> None:
        """LogTruncatedError if the log has not `leader_epoch` before `offset`; else raises what `read` raises."""
        self._stream, tally = None, _Tally(offset)
        stream = self._opened(TopicPartition(self._topic, kafka_partition), offset, leader_epoch)
        while stream.usable and not stream.at_end:
            if not stream.waiting:
                self._pull(stream, offset)
                continue
            found = stream.waiting.popleft()[0]
            error = found.error()
            if error is None or error.code() == BAD_COMPRESSION:
                return
            self._handle(stream, found, offset, tally)

    def _read(
        self, tp: TopicPartition, wanted: OffsetRange, leader_epoch: int | None, tally: _Tally
    ) -> Generator[pa.RecordBatch, None, ReadEnd]:
        stream, self._stream = self._stream, None
        fresh = stream is None or not stream.continues_with(tp, wanted.start_offset)
        if stream is None or fresh:
            stream = self._opened(tp, wanted.start_offset, leader_epoch)
        yield from cut(self._chunks(stream, wanted.end_offset, tally))
        if fresh:
            self._check_start(stream, wanted.end_offset, tally)
        stream.done = wanted.end_offset
        epoch = _epoch_at_end(stream, wanted.end_offset, tally)
        proof = _proof(stream, wanted, tally)
        if proof is not None:
            self._prove_end(stream, wanted.end_offset, proof)
        self._stream = stream if stream.usable else None
        return ReadEnd(stream.reach, epoch, tuple(tally.gaps), tally.records, tally.bytes, tally.unreadable)

    def _chunks(self, stream: _Stream, end: int, tally: _Tally) -> Iterator[pa.RecordBatch]:
        while stream.reach < end:
            if not stream.waiting:
                self._pull(stream, end)
            elif stream.waiting[0][0].error() is not None:
                self._handle(stream, stream.waiting.popleft()[0], end, tally)
            else:
                yield self._converted(stream, stream.take(end), tally)

    def _converted(self, stream: _Stream, messages: list[Message], tally: _Tally) -> pa.RecordBatch:
        with collector_paused():
            batch, failures = record_batch(stream.tp, messages)
        if failures and not self._skip_unreadable:
            raise unkept(stream.tp, failures)
        tally.failures.update(failures)
        stream.last = messages[-1]
        stream.position = _offset(messages[-1]) + 1
        stream.leader_epoch = messages[-1].leader_epoch()
        stream.at_end = False
        size = int(payload_bytes(batch).sum())
        tally.count(batch, size)
        self._pull_records = max(1, min(PULL_RECORDS, PULL_BYTES * len(batch) // max(size, 1)))
        self._throttle.take(len(batch), size)
        return batch

    def _pull(self, stream: _Stream, end: int) -> None:
        """Wait for records or an event, and put them into the stream."""
        if stream.disorder:
            raise _disorder(stream.tp, stream.disorder)
        deadline = time.monotonic() + (self._end_seconds if stream.at_end else self._answer_seconds)
        wanted = self._throttle.records_at_once(self._pull_records)
        while time.monotonic() < deadline:
            # Asked for many with a timeout, librdkafka waits until all have come.
            with collector_paused():
                messages = self._consumer.consume(wanted, 0) or self._consumer.consume(1, POLL_SECONDS)
            if messages:
                self._reasons.forget()
                for run in _runs(messages):
                    stream.add(run)
                return
        raise self._stalled(stream, end)

    def _prove_end(self, stream: _Stream, end: int, proof: Message) -> None:
        """Ask for the range's last offset by itself, which has to bring the same record.

        One that says it is at a later offset than it is, which the broker does not check, would else hide those of
        others that follow it: librdkafka tells nothing of the batch that a record is in.
        """
        probe = _Stream(stream.tp, end, end - 1, None, end - 1)
        stream.usable = False
        self._assign(probe, None)
        while not probe.waiting:
            self._pull(probe, end)
        found = probe.waiting[0][0]
        error = found.error()
        if error is not None and error.code() != PARTITION_EOF:
            raise BrokerUnavailableError(f"{probe}: it cannot be asked for again ({error.str()}); run again")
        if error is not None or _identity(found) != _identity(proof):
            raise _disorder(stream.tp, f"{found.offset()} comes where {proof.offset()} came before")

    def _stalled(self, stream: _Stream, end: int) -> PlatformError:
        if not stream.at_end:
            return self._reasons.silence(
                f"{stream}: no broker answered for {self._answer_seconds:g} s, the range ends at {end}"
            )
        waited = f"{stream}: nothing came for {self._end_seconds:g} s, the range ends at {end}"
        with ClusterAdmin(self._settings) as admin:
            log = admin.frontiers(stream.tp.topic, [stream.tp.kafka_partition])[stream.tp.kafka_partition]
        if log.high_watermark < end:
            return LogTruncatedError(
                f"{waited}, but the log ends at {log.high_watermark}: it was truncated, plan again"
            )
        if log.last_stable_offset < end:
            return OpenTransactionError(
                f"{waited}, and an open transaction holds the last stable offset at {log.last_stable_offset}"
            )
        return BrokerUnavailableError(f"{waited}, though the log ends at {log.high_watermark}; {self._reasons}")

    def _handle(self, stream: _Stream, event: Message, end: int, tally: _Tally) -> None:
        error = event.error()
        if error is None:
            raise AssertionError("a record is not an event")
        if error.code() == PARTITION_EOF:
            stream.position = max(stream.position, _offset(event))
            stream.at_end = True
        elif error.code() == AUTO_OFFSET_RESET:
            self._out_of_range(stream, error, end, tally)
        elif error.code() == BAD_COMPRESSION:
            self._pass_by(stream, f"the Kafka client cannot read a batch: {error.str()}", _offset(event), end, tally)
        elif error.code() != GROUP_REFUSED:
            raise self._reasons.failure(error, f"reading {stream}")

    def _pass_by(self, stream: _Stream, message: str, base_offset: int, end: int, tally: _Tally) -> None:
        """Tell of a batch that librdkafka cannot decompress, and go on behind it; or stop at it."""
        start = max(stream.position, base_offset)
        if not self._skip_unreadable:
            raise unkept(stream.tp, {start: message})
        behind = stream.position = self._end_of(stream.tp, base_offset, end)
        if start < behind:
            tally.unreadable += (Unreadable(start, behind, "batch", message),)
        stream.waiting.clear()
        stream.usable = behind < end
        if stream.usable:
            self._assign(stream, None)

    def _end_of(self, tp: TopicPartition, base_offset: int, end: int) -> int:
        """Where the batch at `base_offset` ends, or the range: every offset in it brings the same error."""
        last, step = base_offset, 1
        while last + step < end and self._is_refused(tp, base_offset, last + step):
            last, step = last + step, 2 * step
        behind = min(last + step, end)
        while last + 1 < behind:
            middle = (last + behind) // 2
            refused = self._is_refused(tp, base_offset, middle)
            last, behind = (middle, behind) if refused else (last, middle)
        return behind

    def _is_refused(self, tp: TopicPartition, base_offset: int, offset: int) -> bool:
        probe = _Stream(tp, offset, offset, None, offset)
        self._assign(probe, None)
        while not probe.waiting:
            self._pull(probe, offset + 1)
        first = probe.waiting[0][0]
        error = first.error()
        return error is not None and error.code() == BAD_COMPRESSION and first.offset() == base_offset

    def _out_of_range(self, stream: _Stream, error: KafkaError, end: int, tally: _Tally) -> None:
        log_start, log_end = self._watermarks(stream.tp)
        if log_start > stream.position:
            self._lose(stream.tp, stream.position, min(log_start, end), tally)
            stream.position = min(log_start, end)
            stream.usable = log_start < end
            if stream.usable:
                self._assign(stream, None)
        elif stream.position > log_end or "truncation" in error.str():
            raise LogTruncatedError(
                f"{stream}: the log was truncated below what was read before, it now holds "
                f"[{log_start}, {log_end}) ({error.str()})"
            )
        else:
            raise BrokerUnavailableError(
                f"{stream}: the broker does not find the offset though the log holds [{log_start}, {log_end}) "
                f"({error.str()}); {self._reasons}"
            )

    def _lose(self, tp: TopicPartition, start: int, end: int, tally: _Tally) -> None:
        if not self._allow_gaps:
            raise OffsetGapError(
                f"topic {tp.topic}, kafka partition {tp.kafka_partition}: offsets [{start}, {end}) were deleted from "
                "the log before they were read (retention); to archive what is left and record the gap, set "
                "archive.allow.gaps=true"
            )
        tally.gaps.append(Gap(tp.kafka_partition, start, end, "retention"))
        tally.unproven = end

    def _check_start(self, stream: _Stream, end: int, tally: _Tally) -> None:
        """Where nothing was delivered before the log start of now, what lay there may have been deleted unread."""
        log_start, _ = self._watermarks(stream.tp)
        begun = tally.first_offset is not None and tally.first_offset < log_start
        if tally.unproven < min(log_start, end) and not begun:
            self._lose(stream.tp, tally.unproven, min(log_start, tally.first_offset or end, end), tally)

    def _watermarks(self, tp: TopicPartition) -> tuple[LogStart, LogEnd]:
        what = f"reading the log start of topic {tp.topic}, kafka partition {tp.kafka_partition}"
        place = Assignment(tp.topic, tp.kafka_partition)
        try:
            bounds = self._consumer.get_watermark_offsets(place, timeout=self._answer_seconds, cached=False)
        except KafkaException as err:
            if err.args[0].code() == UNKNOWN_LOCALLY and tp.kafka_partition in self._find_topic():
                raise BrokerUnavailableError(f"{what}: the client has lost sight of it; run again") from err
            raise self._reasons.failure(err, what) from err
        if bounds is None:
            raise self._reasons.silence(f"{what}: no answer within {self._answer_seconds:g} s")
        return log_bounds(bounds, what)

    def _opened(self, tp: TopicPartition, start_offset: int, leader_epoch: int | None) -> _Stream:
        if tp.kafka_partition not in self._kafka_partitions:
            self._kafka_partitions = self._find_topic()
        if tp.kafka_partition not in self._kafka_partitions:
            raise MissingTopicError(f"topic {tp.topic} has no kafka partition {tp.kafka_partition}")
        stream = _Stream(tp, start_offset, start_offset, leader_epoch, start_offset)
        self._assign(stream, leader_epoch)
        return stream

    def _find_topic(self) -> frozenset[int]:
        what = f"looking for topic {self._topic} at {self._settings.bootstrap_servers}"
        found = cluster_metadata(self._consumer, self._topic, self._answer_seconds, self._reasons, what)
        return frozenset(found.topics[self._topic].partitions)

    def _assign(self, stream: _Stream, leader_epoch: int | None) -> None:
        tp = stream.tp
        epoch = -1 if leader_epoch is None else leader_epoch
        place = Assignment(tp.topic, tp.kafka_partition, stream.position, leader_epoch=epoch)
        self._consumer.assign([place])
        if leader_epoch is not None:
            self._validate(stream, place)

    def _validate(self, stream: _Stream, place: Assignment) -> None:
        """Seek there as well: librdkafka checks the epoch of a seek, not that of an assignment."""
        deadline = time.monotonic() + self._answer_seconds
        while time.monotonic() < deadline:
            try:
                self._consumer.seek(place)
                return
            except KafkaException as err:
                if err.args[0].code() != WRONG_STATE:
                    raise self._reasons.failure(err, f"reading {stream}") from err
            # The assignment is not under way yet, or has failed already.
            events = self._consumer.consume(1, POLL_SECONDS / 10)
            failed = [m for m in events if (error := m.error()) is not None and error.code() != GROUP_REFUSED]
            if failed:
                stream.waiting.append(failed)
                return
        raise self._reasons.silence(f"{stream}: not assigned within {self._answer_seconds:g} s")


def _offset(message: Message) -> int:
    offset = message.offset()
    if offset is None:
        raise AssertionError("a consumed message has an offset")
    return offset


def _runs(messages: list[Message]) -> Iterator[list[Message]]:
    """Runs of records, and each error event by itself."""
    if not any(map(Message.error, messages)):
        yield messages
        return
    for failed, group in groupby(messages, key=lambda m: m.error() is not None):
        run = list(group)
        yield from ([event] for event in run) if failed else [run]


def _proof(stream: _Stream, wanted: OffsetRange, tally: _Tally) -> Message | None:
    """The record on whose word alone the range is at its end: its offset does not follow from those before it."""
    if stream.position < wanted.end_offset:
        return stream.waiting[0][0]
    if stream.last is None or _offset(stream.last) != wanted.end_offset - 1 or tally.records == len(wanted):
        return None
    return stream.last


def _disorder(tp: TopicPartition, seen: str) -> IntegrityError:
    return IntegrityError(
        f"topic {tp.topic}, kafka partition {tp.kafka_partition}: records lie about their offsets ({seen}), so that "
        "others may be hidden behind them, and the Kafka client does not tell which batch they are in"
    )


def _identity(record: Message) -> tuple[object, ...]:
    return record.offset(), record.timestamp(), record.key(), record.value()


def _epoch_at_end(stream: _Stream, end: int, tally: _Tally) -> int | None:
    """What `ReadEnd.leader_epoch` says, of the record before the end or the first one behind it."""
    if tally.next_offset == end:
        return stream.leader_epoch
    behind = stream.waiting[0][0] if stream.waiting else None
    return behind.leader_epoch() if behind is not None and behind.error() is None else None
