"""The quick RecordReader. It reads FETCH responses directly into Arrow, and leaves hard cases to confluent-kafka.

It uses only answers that leave no doubt. After any other answer (an error, an offset out of range, a diverging epoch, a
batch with unknown bounds, no progress), `ConfluentReader` reads the rest of the range, because it knows what each of
these means. Both give the same batches, whose ends depend on offsets and content alone.

An unreadable or implausible record batch is not left to librdkafka, which checks less. This reader reports the batch
with its offsets, and reads on after it.
"""

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import final

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, IntegrityError, TransientError
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader, limit_answers
from kafka_s3_platform.core.kafka.failures import ERROR_CLASSES
from kafka_s3_platform.core.kafka.fetch.connection import BrokerConnection, FetchAnswer, UnsupportedError, is_supported
from kafka_s3_platform.core.kafka.fetch.log_batches import (
    Aborted,
    LogBatch,
    OpenedBatch,
    OutOfOrderError,
    build_record_batch,
    cut_at_fault,
    leaps_beyond,
    open_batch,
    parse_batches,
    select_committed,
)
from kafka_s3_platform.core.kafka.messages import make_unreadable_error
from kafka_s3_platform.core.kafka.record_reader import EpochEnd, RangeRead, ReadEnd, RecordReader, Throttle
from kafka_s3_platform.core.model.batches import count_record_bytes, cut_batches
from kafka_s3_platform.core.model.gaps import UNREADABLE, Gap, Unreadable
from kafka_s3_platform.core.model.offsets import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

# One answer. The next one is under way meanwhile, so two are in memory at a time.
FETCH_BYTES = 8 * 1024 * 1024
# Batches that are decompressed together. Arrow's offsets and memory bound it: see LARGEST_BATCH.
GROUP_BYTES = 64 * 1024 * 1024
# How long a broker may wait for records at the end of its log.
WAIT_MS = 500
# After this, confluent-kafka connects instead: it knows every bootstrap server and all their errors.
CONNECT_SECONDS = 10.0
# How often, and after how long, we ask again if the next answer may be better.
MAX_AGAIN = 3
AGAIN_SECONDS = 0.1


class PassingError(UnsupportedError):
    """The broker may answer otherwise in a moment. If it does not, confluent-kafka knows what the answer means."""


class _Progress:
    """The position in one range while it is read, and the sums for its ReadEnd.

    `leader_epoch` is the epoch of the batch before `position`. `beyond` is the offset of the first record past the
    range's end, if one was seen. `epoch_at_end` becomes `ReadEnd.leader_epoch`.
    """

    def __init__(self, offsets: OffsetRange, leader_epoch: int | None) -> None:
        self.position = self.start = offsets.start_offset
        self.end = offsets.end_offset
        self.leader_epoch = leader_epoch
        self.epoch_at_end: int | None = None
        self.beyond: int | None = None
        self.records = self.bytes = 0
        self.gaps: tuple[Gap, ...] = ()
        self.unreadable: tuple[Unreadable, ...] = ()
        self.failures: dict[int, str] = {}

    @property
    def asked_epoch(self) -> int:
        return -1 if self.leader_epoch is None else self.leader_epoch

    def count(self, records: int, size: int, last_offset: int, leader_epoch: int) -> None:
        """Count records up to `last_offset`, from a batch of `leader_epoch`."""
        self.records += records
        self.bytes += size
        self.position = last_offset + 1
        self.leader_epoch = leader_epoch

    def pass_over(self, batches: Sequence[LogBatch]) -> None:
        """Move the position past the batches of one answer, once all of them are read."""
        last = batches[-1]
        if self.epoch_at_end is None:
            reaching = (b for b in batches if b.last_offset >= self.end - 1)
            self.epoch_at_end = next((b.leader_epoch for b in reaching if not b.fault), None)
        self.leader_epoch = None if last.fault else last.leader_epoch
        self.position = max(self.position, min(last.last_offset + 1, self.beyond or last.last_offset + 1))


@final
class FetchReader(RecordReader):
    """The RecordReader that reads FETCH responses. It takes the arguments and raises the errors of ConfluentReader."""

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
        self._topic = topic
        self._throttle = throttle or Throttle()
        self._skip_unreadable = skip_unreadable
        # Created when only confluent-kafka can read. The time limits are for it, since our connection has its own.
        self._new_fallback = partial(
            ConfluentReader,
            settings,
            topic,
            self._throttle,
            allow_gaps=allow_gaps,
            skip_unreadable=skip_unreadable,
            answer_seconds=answer_seconds,
            end_seconds=end_seconds,
        )
        self._properties = {
            "receive.message.max.bytes": str(limit_answers(settings)),
            **settings.properties("consumer"),
        }
        self._batch_bytes = settings.batch_bytes
        self._connection: BrokerConnection | None = None
        self._connected_to: TopicPartition | None = None
        self._fallback: ConfluentReader | None = None

    def close(self) -> None:
        """Release connections."""
        self._disconnect()
        if self._fallback is not None:
            self._fallback.close()

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range. Iterating raises the same errors as with `ConfluentReader.read`."""
        progress = _Progress(offsets, leader_epoch)
        return RangeRead(self._read(TopicPartition(self._topic, kafka_partition), progress), progress.failures)

    def find_divergence(self, kafka_partition: int, offset: int, leader_epoch: int) -> EpochEnd | None:
        """Return the end of the epochs up to `leader_epoch` if it is below `offset` (a truncated log), else None."""
        answer = self._fetch_once(TopicPartition(self._topic, kafka_partition), offset, leader_epoch)
        if answer is not None and not answer.error_code:
            return answer.divergence if answer.divergence and answer.divergence.end_offset < offset else None
        self._disconnect()
        return self._confluent.find_divergence(kafka_partition, offset, leader_epoch)

    def find_timestamp(self, kafka_partition: int, offset: int) -> int | None:
        """Return the timestamp at this offset, which may also be an aborted record's or a marker's.

        Returns None if the log has no record there. Raises the errors of `ConfluentReader.find_timestamp`.
        """
        tp = TopicPartition(self._topic, kafka_partition)
        answer = self._fetch_once(tp, offset, -1)
        if answer is not None and answer.error_code == KafkaError.OFFSET_OUT_OF_RANGE:
            return None
        if answer is not None and not answer.error_code:
            return _find_timestamp(tp, answer, offset, self._batch_bytes)
        self._disconnect()
        return self._confluent.find_timestamp(kafka_partition, offset)

    def _fetch_once(self, tp: TopicPartition, offset: int, leader_epoch: int) -> FetchAnswer | None:
        """Fetch the batch at one offset. Return None if the broker cannot be asked, or its answer is not understood."""
        try:
            if is_supported(self._properties):
                connection = self._connect(tp)
                connection.ask(tp, offset, leader_epoch, 1, 0)
                return connection.answer()
        except (UnsupportedError, OSError, ValueError, IndexError) as err:
            logger.info("%s, offset %d: confluent-kafka asks for it (%s)", tp, offset, err)
        return None

    def _read(self, tp: TopicPartition, progress: _Progress) -> Generator[pa.RecordBatch, None, ReadEnd]:
        """Yield the range's records in the same batches as any other reader. Return the result of reading."""
        yield from cut_batches(self._read_chunks(tp, progress))
        return ReadEnd(
            progress.position,
            progress.epoch_at_end,
            progress.gaps,
            progress.records,
            progress.bytes,
            progress.unreadable,
        )

    def _read_chunks(self, tp: TopicPartition, progress: _Progress) -> Iterator[pa.RecordBatch]:
        """Yield the range's records, as they come. After anything doubtful, confluent-kafka reads the rest of them."""
        try:
            for batches, aborted in self._fetch_batches(tp, progress):
                yield from self._select_records(tp, batches, aborted, progress)
                progress.pass_over(batches)
        except (UnsupportedError, OSError, ValueError, IndexError) as err:
            logger.info("%s, offset %d: confluent-kafka reads on (%s)", tp, progress.position, err)
            self._disconnect()
            yield from self._read_rest(tp, progress)
        finally:
            if self._connection is not None and self._connection.unanswered:
                # The answer that is under way is no longer needed.
                self._disconnect()

    def _fetch_batches(self, tp: TopicPartition, progress: _Progress) -> Iterator[tuple[list[LogBatch], Aborted]]:
        """Yield the batches of each answer. While they are used, the next answer is under way."""
        if progress.position >= progress.end:
            return
        if not is_supported(self._properties):
            raise UnsupportedError("the cluster's security settings are left to it")
        self._ask(tp, progress.position, progress.asked_epoch)
        doubted = None
        while True:
            batches, aborted = self._await_credible_answer(tp, progress)
            last = batches[-1]
            if last.fault and last.base_offset != doubted:
                # Maybe it was damaged on its way. If another connection brings the same, the log holds it so.
                doubted = last.base_offset
                self._disconnect()
                self._ask(tp, progress.position, progress.asked_epoch)
                continue
            # Ask before this answer is used, so that the broker works meanwhile.
            if last.last_offset + 1 < progress.end:
                self._ask(tp, last.last_offset + 1, -1 if last.fault else last.leader_epoch)
            yield batches, aborted
            if progress.position >= progress.end:
                return

    def _await_credible_answer(self, tp: TopicPartition, progress: _Progress) -> tuple[list[LogBatch], Aborted]:
        """Return batches and aborted transactions of the next credible answer. After any other, connect and ask again.

        Raises UnsupportedError or BrokerUnavailableError if MAX_AGAIN more answers are no better.
        """
        doubt: Exception | None = None
        for _ in range(MAX_AGAIN + 1):
            if doubt is not None:
                self._disconnect()
                time.sleep(AGAIN_SECONDS)
                self._ask(tp, progress.position, progress.asked_epoch)
            try:
                batches, answer = self._await_answer(tp, progress.position)
            except (PassingError, BrokerUnavailableError) as err:
                doubt = err
                continue
            # No checksum covers a batch's own offset. But the answer also says where the log ends: an offset beyond it
            # is wrong, unless the log has grown since.
            if not leaps_beyond(batches, progress.position, progress.end, answer.last_stable_offset):
                return batches, answer.aborted
            doubt = BrokerUnavailableError(
                f"{tp}, offset {progress.position}: the broker's answer skips offsets up to beyond the end of the log "
                f"that it tells itself. The next try asks again"
            )
        raise doubt or AssertionError("an answer is credible or doubted")

    def _await_answer(self, tp: TopicPartition, position: int) -> tuple[list[LogBatch], FetchAnswer]:
        """Return the batches of the next answer, and the answer.

        Raises PassingError if the broker may give a better answer in a moment, UnsupportedError if confluent-kafka has
        to interpret the answer, and BrokerUnavailableError if no log can hold such batches.
        """
        answer = self._connect(tp).answer()
        # While a leader moves or starts, its next answer may be another. All other errors are for confluent-kafka.
        if answer.error_code in ERROR_CLASSES and issubclass(ERROR_CLASSES[answer.error_code], TransientError):
            raise PassingError(f"Kafka's error {answer.error_code}")
        if answer.error_code or answer.divergence:
            raise UnsupportedError(f"Kafka's error {answer.error_code}, {answer.divergence}")
        try:
            batches = cut_at_fault(list(parse_batches(answer.records)))
        except OutOfOrderError as err:
            # confluent-kafka would skip what comes too late, and not report it.
            raise BrokerUnavailableError(
                f"{tp}, offset {position}: the broker's answer cannot be what its log holds: {err}. The next try asks "
                f"again"
            ) from err
        if not batches or batches[-1].last_offset < position:
            raise PassingError("the broker has nothing there (yet)")
        if position < min(answer.log_start_offset, batches[0].base_offset):
            # Kafka should answer OFFSET_OUT_OF_RANGE. Records from the log start on would hide that earlier ones are
            # deleted.
            raise UnsupportedError(f"its log starts at {answer.log_start_offset}")
        return batches, answer

    def _ask(self, tp: TopicPartition, offset: int, leader_epoch: int) -> None:
        self._connect(tp).ask(tp, offset, leader_epoch, FETCH_BYTES, WAIT_MS)

    def _select_records(
        self, tp: TopicPartition, batches: Sequence[LogBatch], aborted: Aborted, progress: _Progress
    ) -> Iterator[pa.RecordBatch]:
        """Yield the committed records from the position to the end of the range."""
        for group in self._group_batches(tp, select_committed([b for b in batches if not b.fault], aborted), progress):
            records, failures = build_record_batch(tp, group)
            offsets = records.column("offset").to_numpy()
            first, last = np.searchsorted(offsets, [progress.position, progress.end])
            progress.beyond = int(offsets[last]) if last < len(offsets) else None
            if first < last:
                escaped = {o: reason for o, reason in failures.items() if offsets[first] <= o <= offsets[last - 1]}
                if escaped and not self._skip_unreadable:
                    raise make_unreadable_error(tp, escaped)
                progress.failures.update(escaped)
                records = records.slice(first, last - first)
                size = int(count_record_bytes(records).sum())
                progress.count(records.num_rows, size, int(offsets[last - 1]), group[-1].batch.leader_epoch)
                self._throttle.take(records.num_rows, size)
                yield records
        if batches[-1].fault:
            self._skip_batch(tp, batches[-1], batches[-1].fault, progress)

    def _group_batches(
        self, tp: TopicPartition, batches: Iterable[LogBatch], progress: _Progress
    ) -> Iterator[list[OpenedBatch]]:
        """Yield the batches in the range, as many at once as memory allows. An unreadable one ends its group."""
        group: list[OpenedBatch] = []
        weight = 0
        for batch in batches:
            if batch.last_offset < progress.position or batch.base_offset >= progress.end:
                continue
            try:
                opened = open_batch(batch, self._batch_bytes)
            except ValueError as err:
                yield from [group] if group else []
                group = []
                weight = 0
                self._skip_batch(tp, batch, str(err), progress)
                continue
            if group and weight + opened.weight > GROUP_BYTES:
                yield group
                group = []
                weight = 0
            group.append(opened)
            weight += opened.weight
        yield from [group] if group else []

    def _skip_batch(self, tp: TopicPartition, batch: LogBatch, fault: str, progress: _Progress) -> None:
        """Report an unreadable batch, or raise if such batches are not to be skipped."""
        start = max(batch.base_offset, progress.start)
        end = min(batch.last_offset + 1, progress.end)
        if start >= end:
            return
        message = f"the record batch at offset {batch.base_offset}, up to {batch.last_offset}, cannot be read: {fault}"
        if not self._skip_unreadable:
            raise make_unreadable_error(tp, {start: message})
        progress.unreadable += (Unreadable(start, end, UNREADABLE, message),)
        progress.position = batch.last_offset + 1
        progress.leader_epoch = None if batch.fault else batch.leader_epoch

    def _read_rest(self, tp: TopicPartition, progress: _Progress) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the range from confluent-kafka, and add its result to ours."""
        offsets = OffsetRange(progress.position, progress.end)
        range_read = self._confluent.read(tp.kafka_partition, offsets, progress.leader_epoch)
        for batch in range_read:
            progress.failures.update(range_read.failures)
            yield batch
        progress.position = range_read.end.position
        progress.epoch_at_end = range_read.end.leader_epoch
        progress.records += range_read.end.records
        progress.bytes += range_read.end.bytes
        progress.gaps += range_read.end.gaps
        progress.unreadable += range_read.end.unreadable

    @property
    def _confluent(self) -> ConfluentReader:
        if self._fallback is None:
            self._fallback = self._new_fallback()
        return self._fallback

    def _connect(self, tp: TopicPartition) -> BrokerConnection:
        """Return a connection to the leader: the open one if it is for this kafka partition, else a new one."""
        if self._connection is not None and self._connected_to == tp:
            return self._connection
        self._disconnect()
        self._connection = self._open(tp)
        self._connected_to = tp
        return self._connection

    def _open(self, tp: TopicPartition) -> BrokerConnection:
        """Ask the bootstrap servers, one by one, for the leader, and connect to it."""
        refused: OSError | None = None
        for server in self._properties["bootstrap.servers"].split(","):
            host, _, port = server.rpartition(":")
            try:
                with BrokerConnection(host, int(port), self._properties, CONNECT_SECONDS) as bootstrap:
                    leader = bootstrap.leader(tp)
                return BrokerConnection(*leader, self._properties, CONNECT_SECONDS)
            except OSError as err:
                refused = err
        raise refused or UnsupportedError("no bootstrap server is named")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._connected_to = None


def _find_timestamp(tp: TopicPartition, answer: FetchAnswer, offset: int, most: int) -> int | None:
    """Return the epoch ms of the record or marker at `offset` in a fetched answer, or None if there is none."""
    try:
        for batch in cut_at_fault([*parse_batches(answer.records)]):
            if batch.fault:
                raise IntegrityError(f"{tp}, offset {batch.base_offset}: {batch.fault}")
            if not batch.base_offset <= offset <= batch.last_offset:
                continue
            if batch.is_control:
                return batch.max_timestamp
            records, _ = build_record_batch(tp, [open_batch(batch, most)])
            times = records.column("timestamp").cast(pa.int64()).to_numpy()
            return next((int(t) for t in times[records.column("offset").to_numpy() == offset]), None)
    except ValueError as err:
        raise IntegrityError(f"{tp}, offset {offset}: {err}") from err
    return None
