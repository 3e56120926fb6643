"""The reader that uses confluent-kafka. It knows all security settings and errors of Kafka, but is slower than ours.

A `MessageStream` holds the consumer's position and the messages fetched ahead; a `RangeTally` sums up one range.
"""

import time
from collections.abc import Generator, Iterator
from typing import Any, final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assignment

from kafka_s3_platform.core.collector import pause_collector
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    LogTruncatedError,
    MissingTopicError,
    OffsetGapError,
    OpenTransactionError,
    PlatformError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import LogEnd, LogStart, check_log_bounds
from kafka_s3_platform.core.kafka.client import Reasons, fetch_metadata, open_client
from kafka_s3_platform.core.kafka.failures import (
    AUTO_OFFSET_RESET,
    BAD_COMPRESSION,
    GROUP_REFUSED,
    OUTDATED,
    PARTITION_EOF,
    UNKNOWN_LOCALLY,
    WRONG_STATE,
)
from kafka_s3_platform.core.kafka.messages import (
    MessageStream,
    RangeTally,
    convert_messages,
    find_end_epoch,
    find_proof,
    get_offset,
    identify_record,
    make_disorder_error,
    make_unreadable_error,
    split_runs,
)
from kafka_s3_platform.core.kafka.record_reader import EpochEnd, RangeRead, ReadEnd, RecordReader, Throttle
from kafka_s3_platform.core.model.batches import count_record_bytes, cut_batches
from kafka_s3_platform.core.model.gaps import UNREADABLE, Gap, Unreadable
from kafka_s3_platform.core.model.offsets import OffsetRange, TopicPartition

# Python handles signals only between two calls of librdkafka, so no call waits longer than this.
POLL_SECONDS = 0.1
# Limits of one pull. The first pull is small because the size of the records is not known yet.
PULL_BYTES = 8 * 1024 * 1024
PULL_RECORDS = 4096
FIRST_PULL_RECORDS = 64

_DEFAULTS: dict[str, Any] = {
    # librdkafka's consumer needs the name of a group. Nobody joins this group or commits to it.
    "group.id": "kafka-s3-platform.reader",
    # With librdkafka's default of 1,000 ms, a reader that has emptied the queue would wait for the next fetch.
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.message.max.bytes": 4_194_304,
    # At the end of a log a broker waits for new records. A range that ends there needs none.
    "fetch.wait.max.ms": 50,
    # Off by default. A damaged record would then be archived as if it were sound.
    "check.crcs": True,
}


def limit_answers(settings: KafkaSettings) -> int:
    """Return the maximum size of an answer: at least a whole batch. It limits most decompressed sizes too."""
    return max(100_000_000, settings.batch_bytes)


_FIXED = {
    "isolation.level": "read_committed",
    # Any other value would skip deleted offsets silently.
    "auto.offset.reset": "error",
    # The event shows that a range ends with offsets that hold no record, such as a transaction's marker.
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


@final
class ConfluentReader(RecordReader):
    """The RecordReader for confluent-kafka. It has one consumer, and neither joins a group nor commits anything.

    The reader waits at most `answer_seconds` for a silent broker, and at most `end_seconds` for new records if the
    kafka partition ends before the range. With `allow_gaps` it records deleted offsets as gaps and reads on after them.
    With `skip_unreadable` it delivers a record without headers if their names are not UTF-8, skips a batch librdkafka
    cannot decompress, and reports both.
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
        defaults = {**_DEFAULTS, "receive.message.max.bytes": limit_answers(settings)}
        self._consumer = open_client(Consumer, settings, self._reasons, defaults, _FIXED)
        self._kafka_partitions: frozenset[int] = frozenset()
        self._pull_records = FIRST_PULL_RECORDS
        self._stream: MessageStream | None = None

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range.

        Iterating raises OffsetGapError for deleted offsets unless gaps are allowed, OpenTransactionError if the last
        stable offset stays below the end, IntegrityError for records it cannot deliver unchanged, or LogTruncatedError,
        BrokerUnavailableError, MissingTopicError or AuthorizationError.
        """
        tally = RangeTally(offsets.start_offset)
        tp = TopicPartition(self._topic, kafka_partition)
        return RangeRead(self._read(tp, offsets, leader_epoch, tally), tally.failures)

    def find_divergence(self, kafka_partition: int, offset: int, leader_epoch: int) -> EpochEnd | None:
        """Return an EpochEnd if the log was truncated, else None. librdkafka does not report where exactly it ends."""
        self._stream = None
        tally = RangeTally(offset)
        stream = self._open(TopicPartition(self._topic, kafka_partition), offset, leader_epoch)
        try:
            while stream.usable and not stream.at_end:
                if not stream.waiting:
                    self._pull(stream, offset)
                    continue
                message = stream.waiting.popleft()[0]
                error = message.error()
                if error is None or error.code() == BAD_COMPRESSION:
                    break
                self._handle(stream, message, offset, tally)
        except LogTruncatedError:
            return EpochEnd(None, offset - 1)
        return None

    def find_timestamp(self, kafka_partition: int, offset: int) -> int | None:
        """Return the timestamp of the committed record at this offset, or None if the log has none there.

        Raises the other errors of `read`, such as IntegrityError if the record cannot be read.
        """
        try:
            batches = list(self.read(kafka_partition, OffsetRange(offset, offset + 1)))
        except (LogTruncatedError, OffsetGapError, OpenTransactionError):
            # the log does not reach the record, no longer holds it, or may not keep it
            return None
        times = (int(t) for batch in batches for t in batch.column("timestamp").cast(pa.int64()).to_pylist())
        return next(times, None)

    def _read(
        self, tp: TopicPartition, offsets: OffsetRange, leader_epoch: int | None, tally: RangeTally
    ) -> Generator[pa.RecordBatch, None, ReadEnd]:
        """Yield the batches of one range. Return its result once no record can be missing at its start or end."""
        stream = self._stream
        self._stream = None
        is_new = stream is None or not stream.continues_with(tp, offsets.start_offset)
        if stream is None or is_new:
            stream = self._open(tp, offsets.start_offset, leader_epoch)
        yield from cut_batches(self._read_chunks(stream, offsets.end_offset, tally))
        if is_new:
            # Check this last: retention may move the log start while the range is read.
            self._check_start(stream, offsets.end_offset, tally)
        stream.read_end = offsets.end_offset
        epoch = find_end_epoch(stream, offsets.end_offset, tally)
        proof = find_proof(stream, offsets, tally)
        if proof is not None:
            self._prove_end(stream, offsets.end_offset, proof)
        self._stream = stream if stream.usable else None
        return ReadEnd(stream.reach, epoch, tuple(tally.gaps), tally.records, tally.bytes, tally.unreadable)

    def _read_chunks(self, stream: MessageStream, end: int, tally: RangeTally) -> Iterator[pa.RecordBatch]:
        """Yield the records below `end` as they come, in Arrow batches of any length. Handle events between them."""
        while stream.reach < end:
            if not stream.waiting:
                self._pull(stream, end)
            elif stream.waiting[0][0].error() is not None:
                self._handle(stream, stream.waiting.popleft()[0], end, tally)
            else:
                yield self._convert(stream, stream.take(end), tally)

    def _convert(self, stream: MessageStream, messages: list[Message], tally: RangeTally) -> pa.RecordBatch:
        """Convert a run of records, count it, and adapt the size of the next pull to the records' size."""
        with pause_collector():
            batch, failures = convert_messages(stream.tp, messages)
        if failures and not self._skip_unreadable:
            raise make_unreadable_error(stream.tp, failures)
        tally.failures.update(failures)
        stream.last = messages[-1]
        stream.position = get_offset(messages[-1]) + 1
        stream.leader_epoch = messages[-1].leader_epoch()
        stream.at_end = False
        size = int(count_record_bytes(batch).sum())
        tally.count(batch, size)
        self._pull_records = max(1, min(PULL_RECORDS, PULL_BYTES * len(batch) // max(size, 1)))
        self._throttle.take(len(batch), size)
        return batch

    def _pull(self, stream: MessageStream, end: int) -> None:
        """Wait for records or an event, and put them into the stream."""
        if stream.disorder:
            raise make_disorder_error(stream.tp, stream.disorder)
        deadline = time.monotonic() + (self._end_seconds if stream.at_end else self._answer_seconds)
        message_count = self._throttle.records_at_once(self._pull_records)
        while time.monotonic() < deadline:
            # Asked for many messages with a timeout, librdkafka waits until it has all of them. So do not wait for
            # many: take those that are there, or wait for one.
            with pause_collector():
                messages = self._consumer.consume(message_count, 0) or self._consumer.consume(1, POLL_SECONDS)
            if messages:
                self._reasons.forget()
                for run in split_runs(messages):
                    stream.add(run)
                return
        raise self._explain_stall(stream, end)

    def _prove_end(self, stream: MessageStream, end: int, proof: Message) -> None:
        """Read the range's last offset by itself. The broker has to deliver the same record again.

        A record may claim a later offset than its own, since the broker does not check this. Without this proof, such a
        record would hide the next ones, because librdkafka does not show a record's batch.
        """
        stream.usable = False
        probe = self._read_again(stream.tp, end - 1)
        message = probe.waiting[0][0]
        error = message.error()
        if error is not None and error.code() != PARTITION_EOF:
            raise BrokerUnavailableError(f"{probe}: it cannot be asked for again ({error.str()}); run again")
        if error is not None or identify_record(message) != identify_record(proof):
            raise make_disorder_error(stream.tp, f"{message.offset()} comes where {proof.offset()} came before")

    def _read_again(self, tp: TopicPartition, offset: int) -> MessageStream:
        """Seek to one offset, and return a separate stream with the first record or event from there."""
        probe = MessageStream(tp, offset, offset, None, offset)
        self._assign(probe, None)
        while not probe.waiting:
            self._pull(probe, offset + 1)
        return probe

    def _explain_stall(self, stream: MessageStream, end: int) -> PlatformError:
        """Return the error for records that do not come (silent broker, truncated log, open transaction, or other)."""
        if not stream.at_end:
            return self._reasons.explain_silence(
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

    def _handle(self, stream: MessageStream, event: Message, end: int, tally: RangeTally) -> None:
        """Handle an event that is not a record: the log's end, a lost position, an unreadable batch, or an error."""
        error = event.error()
        if error is None:
            raise AssertionError("a record is not an event")
        if error.code() == PARTITION_EOF:
            stream.position = max(stream.position, get_offset(event))
            stream.at_end = True
        elif error.code() == AUTO_OFFSET_RESET:
            self._handle_out_of_range(stream, error, end, tally)
        elif error.code() == BAD_COMPRESSION:
            self._skip_batch(
                stream, f"the Kafka client cannot read a batch: {error.str()}", get_offset(event), end, tally
            )
        # The client may lack the right to use the group. A consumer that only assigns does not need it.
        elif error.code() != GROUP_REFUSED:
            raise self._reasons.explain_failure(error, f"reading {stream}")

    def _skip_batch(self, stream: MessageStream, message: str, base_offset: int, end: int, tally: RangeTally) -> None:
        """Report a batch librdkafka cannot decompress, and read on after it. Without `skip_unreadable`, raise."""
        start = max(stream.position, base_offset)
        if not self._skip_unreadable:
            raise make_unreadable_error(stream.tp, {start: message})
        behind = stream.position = self._find_batch_end(stream.tp, base_offset, end)
        if start < behind:
            tally.unreadable += (Unreadable(start, behind, UNREADABLE, message),)
        stream.waiting.clear()
        stream.usable = behind < end
        if stream.usable:
            self._assign(stream, None)

    def _find_batch_end(self, tp: TopicPartition, base_offset: int, end: int) -> int:
        """Return the end of the batch at `base_offset`, at most `end`. All its offsets give the same error."""
        last = base_offset
        step = 1
        # Each question reads the batch again. To ask only a few, search in doubling steps, then halve the last step.
        while last + step < end and self._is_refused(tp, base_offset, last + step):
            last = last + step
            step = 2 * step
        behind = min(last + step, end)
        while last + 1 < behind:
            middle = (last + behind) // 2
            refused = self._is_refused(tp, base_offset, middle)
            last, behind = (middle, behind) if refused else (last, middle)
        return behind

    def _is_refused(self, tp: TopicPartition, base_offset: int, offset: int) -> bool:
        """Return True if `offset` is in the batch at `base_offset`, so reading there gives the same error."""
        first = self._read_again(tp, offset).waiting[0][0]
        error = first.error()
        return error is not None and error.code() == BAD_COMPRESSION and first.offset() == base_offset

    def _handle_out_of_range(self, stream: MessageStream, error: KafkaError, end: int, tally: RangeTally) -> None:
        """Read on after offsets deleted by retention, or raise if the log does not reach the position."""
        log_start, log_end = self._ask_log_bounds(stream.tp)
        if log_start > stream.position:
            self._record_gap(stream.tp, stream.position, min(log_start, end), tally)
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

    def _record_gap(self, tp: TopicPartition, start: int, end: int, tally: RangeTally) -> None:
        """Count the offsets as a gap, or raise OffsetGapError unless gaps are allowed."""
        if not self._allow_gaps:
            raise OffsetGapError(
                f"topic {tp.topic}, kafka partition {tp.kafka_partition}: offsets [{start}, {end}) were deleted from "
                "the log before they were read (retention); to archive what is left and record the gap, set "
                "archive.allow.gaps=true"
            )
        tally.gaps.append(Gap(tp.kafka_partition, start, end, "retention"))
        tally.unproven = end

    def _check_start(self, stream: MessageStream, end: int, tally: RangeTally) -> None:
        """Record a gap if no record below the log start was delivered, since retention may have deleted some."""
        log_start, _ = self._ask_log_bounds(stream.tp)
        begun = tally.first_offset is not None and tally.first_offset < log_start
        if tally.unproven < min(log_start, end) and not begun:
            self._record_gap(stream.tp, tally.unproven, min(log_start, tally.first_offset or end, end), tally)

    def _ask_log_bounds(self, tp: TopicPartition) -> tuple[LogStart, LogEnd]:
        """Ask a broker for the log's start and end."""
        what = f"reading the log start of topic {tp.topic}, kafka partition {tp.kafka_partition}"
        place = Assignment(tp.topic, tp.kafka_partition)
        try:
            bounds = self._consumer.get_watermark_offsets(place, timeout=self._answer_seconds, cached=False)
        except KafkaException as err:
            if err.args[0].code() == UNKNOWN_LOCALLY and tp.kafka_partition in self._find_topic():
                raise BrokerUnavailableError(f"{what}: the client has lost sight of it; run again") from err
            raise self._reasons.explain_failure(err, what) from err
        if bounds is None:
            raise self._reasons.explain_silence(f"{what}: no answer within {self._answer_seconds:g} s")
        return check_log_bounds(bounds, what)

    def _open(self, tp: TopicPartition, start_offset: int, leader_epoch: int | None) -> MessageStream:
        """Return a new stream beginning with the first record at `start_offset` or later."""
        if tp.kafka_partition not in self._kafka_partitions:
            self._kafka_partitions = self._find_topic()
        if tp.kafka_partition not in self._kafka_partitions:
            raise MissingTopicError(f"topic {tp.topic} has no kafka partition {tp.kafka_partition}")
        stream = MessageStream(tp, start_offset, start_offset, leader_epoch, start_offset)
        self._assign(stream, leader_epoch)
        return stream

    def _find_topic(self) -> frozenset[int]:
        """Return the numbers of the topic's kafka partitions. Raise MissingTopicError or the broker's other errors."""
        what = f"looking for topic {self._topic} at {self._settings.bootstrap_servers}"
        metadata = fetch_metadata(self._consumer, self._topic, self._answer_seconds, self._reasons, what)
        return frozenset(metadata.topics[self._topic].partitions)

    def _assign(self, stream: MessageStream, leader_epoch: int | None) -> None:
        """Make the consumer read on from the stream's position, and check the leader epoch if one is given."""
        tp = stream.tp
        epoch = -1 if leader_epoch is None else leader_epoch
        place = Assignment(tp.topic, tp.kafka_partition, stream.position, leader_epoch=epoch)
        self._consumer.assign([place])
        if leader_epoch is not None:
            self._validate(stream, place)

    def _validate(self, stream: MessageStream, place: Assignment) -> None:
        """Seek to the assigned place too, since librdkafka checks a seek's leader epoch, but not an assignment's."""
        deadline = time.monotonic() + self._answer_seconds
        while time.monotonic() < deadline:
            try:
                self._consumer.seek(place)
                return
            except KafkaException as err:
                # Under load, an event of the assignment may overtake the seek, which is then outdated.
                if err.args[0].code() not in {WRONG_STATE, OUTDATED}:
                    raise self._reasons.explain_failure(err, f"reading {stream}") from err
            # The assignment has not begun yet, or has already failed.
            events = self._consumer.consume(1, POLL_SECONDS / 10)
            failed = [m for m in events if (error := m.error()) is not None and error.code() != GROUP_REFUSED]
            if failed:
                stream.waiting.append(failed)
                return
        raise self._reasons.explain_silence(f"{stream}: not assigned within {self._answer_seconds:g} s")
