"""The quick RecordReader: FETCH responses straight into Arrow, and confluent-kafka for whatever is not plain sailing.

Only answers that leave no doubt are used here. At the first other one (an error, an offset out of range, a diverging
epoch, a batch that does not parse, no progress) the rest of the range is read by `ConfluentReader`, which knows what
each of these means. Both give the same batches: where they end depends on offsets and content alone.
"""

import logging
from collections.abc import Generator, Iterator
from functools import partial
from types import TracebackType
from typing import final

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka.batches import cut, payload_bytes
from kafka_s3_platform.kafka.fetch_connection import BrokerConnection, UnsupportedError, is_supported
from kafka_s3_platform.kafka.reader import ConfluentReader, RangeRead, ReadEnd
from kafka_s3_platform.kafka.record_batches import LogBatch, committed, log_batches, record_batch
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 500
CONNECT_SECONDS = 10.0


class _Progress:
    """What one range has given so far. `beyond` is the offset of the first record past its end, once one was seen."""

    def __init__(self, start_offset: int) -> None:
        self.position = start_offset
        self.last_offset: int | None = None
        self.beyond: int | None = None
        self.leader_epoch: int | None = None
        self.records = self.bytes = 0
        self.gaps: tuple[Gap, ...] = ()


@final
class FetchReader:
    """The RecordReader on FETCH responses. Its arguments and the errors it raises are those of `ConfluentReader`."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        throttle: Throttle | None = None,
        *,
        allow_gaps: bool = False,
        answer_seconds: float = 60.0,
        end_seconds: float = 30.0,
    ) -> None:
        self._topic = topic
        self._throttle = throttle or Throttle()
        self._new_fallback = partial(
            ConfluentReader,
            settings,
            topic,
            self._throttle,
            allow_gaps=allow_gaps,
            answer_seconds=answer_seconds,
            end_seconds=end_seconds,
        )
        self._properties = settings.properties("consumer")
        self._connection: BrokerConnection | None = None
        self._connected_to: TopicPartition | None = None
        self._fallback: ConfluentReader | None = None

    def __enter__(self) -> "FetchReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release connections."""
        self._disconnect()
        if self._fallback is not None:
            self._fallback.close()

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range; raises while it is iterated what `ConfluentReader.read` raises."""
        return RangeRead(self._read(TopicPartition(self._topic, kafka_partition), offsets, leader_epoch))

    def _read(
        self, tp: TopicPartition, wanted: OffsetRange, leader_epoch: int | None
    ) -> Generator[pa.RecordBatch, None, ReadEnd]:
        progress = _Progress(wanted.start_offset)
        yield from cut(self._chunks(tp, wanted.end_offset, leader_epoch, progress))
        epoch = progress.leader_epoch if progress.last_offset == wanted.end_offset - 1 else None
        return ReadEnd(progress.position, epoch, progress.gaps, progress.records, progress.bytes)

    def _chunks(
        self, tp: TopicPartition, end: int, leader_epoch: int | None, progress: _Progress
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batches in self._fetched(tp, progress, end, leader_epoch):
                yield from self._records(tp, batches, progress, end)
        except (UnsupportedError, OSError, ValueError, IndexError) as err:
            logger.info("%s, offset %d: confluent-kafka reads on (%s)", tp, progress.position, err)
            self._disconnect()
            first = leader_epoch if progress.last_offset is None else None
            yield from self._rest(tp, OffsetRange(progress.position, end), first, progress)
        finally:
            if self._connection is not None and self._connection.unanswered:
                # nobody wants the answer that is under way any more
                self._disconnect()

    def _fetched(
        self, tp: TopicPartition, progress: _Progress, end: int, leader_epoch: int | None
    ) -> Iterator[list[LogBatch]]:
        """The committed batches of one answer after the other; the next one is on its way while one is used."""
        if progress.position >= end:
            return
        if not is_supported(self._properties):
            raise UnsupportedError("the cluster's security settings are left to it")
        connection = self._connected(tp)
        connection.ask(tp, progress.position, _epoch(leader_epoch), FETCH_BYTES, WAIT_MS)
        while True:
            found = connection.answer()
            if found.error_code or found.diverges:
                raise UnsupportedError(f"Kafka's error {found.error_code}, diverging epoch: {found.diverges}")
            batches = list(log_batches(found.records))
            if not batches:
                raise UnsupportedError("the broker has nothing there (yet)")
            following = batches[-1].last_offset + 1
            if following < end:
                connection.ask(tp, following, batches[-1].leader_epoch, FETCH_BYTES, WAIT_MS)
            yield list(committed(batches, found.aborted))
            progress.position = max(progress.position, min(following, progress.beyond or following))
            if following >= end:
                return

    def _records(
        self, tp: TopicPartition, batches: list[LogBatch], progress: _Progress, end: int
    ) -> Iterator[pa.RecordBatch]:
        """The records from the position on and below `end`."""
        if not batches:
            return
        try:
            records = record_batch(tp, batches)
        except IntegrityError as err:
            raise UnsupportedError("a header name is not UTF-8") from err
        offsets = records.column("offset").to_numpy()
        first, last = np.searchsorted(offsets, [progress.position, end])
        progress.beyond = int(offsets[last]) if last < len(offsets) else None
        records = records.slice(first, last - first)
        if not records.num_rows:
            return
        self._count(records, batches, progress)
        yield records

    def _count(self, records: pa.RecordBatch, batches: list[LogBatch], progress: _Progress) -> None:
        size = int(payload_bytes(records).sum())
        progress.last_offset = int(records.column("offset")[-1].as_py())
        progress.position = progress.last_offset + 1
        holder = next(b for b in reversed(batches) if b.base_offset <= progress.last_offset)
        progress.leader_epoch = holder.leader_epoch
        progress.records += records.num_rows
        progress.bytes += size
        self._throttle.take(records.num_rows, size)

    def _rest(
        self, tp: TopicPartition, wanted: OffsetRange, leader_epoch: int | None, progress: _Progress
    ) -> Iterator[pa.RecordBatch]:
        if self._fallback is None:
            self._fallback = self._new_fallback()
        read = self._fallback.read(tp.kafka_partition, wanted, leader_epoch)
        for batch in read:
            progress.last_offset = int(batch.column("offset")[-1].as_py())
            yield batch
        progress.position, progress.leader_epoch = read.end.position, read.end.leader_epoch
        progress.records += read.end.records
        progress.bytes += read.end.bytes
        progress.gaps += read.end.gaps

    def _connected(self, tp: TopicPartition) -> BrokerConnection:
        if self._connection is not None and self._connected_to == tp:
            return self._connection
        self._disconnect()
        self._connection = self._open(tp)
        self._connected_to = tp
        return self._connection

    def _open(self, tp: TopicPartition) -> BrokerConnection:
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


def _epoch(leader_epoch: int | None) -> int:
    return -1 if leader_epoch is None else leader_epoch
