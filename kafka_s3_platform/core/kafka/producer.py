"""Sends records again as they were: with the same bytes, headers, timestamp and kafka partition, in order, each once.

For each kafka partition it counts the records the target has acknowledged, and knows the offset of the last one.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import PlatformError, PreflightError
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.kafka.failures import ENTAILED, FATAL, POSSIBLY_PERSISTED
from kafka_s3_platform.core.model.batches import read_offset_column

ProducedHeaders = list[tuple[str, str | bytes | None]] | None
ProducedRow = tuple[bytes | None, bytes | None, int, ProducedHeaders]


def count_timestamp_zero(batch: pa.RecordBatch) -> int:
    """Count the records with timestamp 0. librdkafka reads it as "now"."""
    return int(pc.sum(pc.equal(read_milliseconds(batch), 0)).as_py() or 0)


def build_rows(batch: pa.RecordBatch) -> list[ProducedRow]:
    """Return key, value, timestamp and headers of each record."""
    keys, values = (batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in ("key", "value"))
    timestamps = read_milliseconds(batch).to_numpy().tolist()
    return list(zip(keys, values, timestamps, _list_headers(batch.column("headers")), strict=True))


def _list_headers(column: pa.ListArray) -> list[ProducedHeaders]:
    """Return the headers of each record as name and value pairs, or None for all if no record has any."""
    if column.null_count == len(column):
        return [None] * len(column)
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy()).tolist()
    return [pairs[start:end] for start, end in pairwise([0, *ends])]


def read_milliseconds(batch: pa.RecordBatch) -> pa.Array:
    """Return the timestamps as epoch milliseconds."""
    return batch.column("timestamp").cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Delivered:
    """The deliveries to one kafka partition of the target: the first `records` records are acknowledged.

    `source_offset` and `target_offset` are the offsets of the last acknowledged record, or None if there is none. A
    broker may acknowledge a record without its offset, in which case `target_offset` is None too. The next `in_doubt`
    records are in doubt: the cluster may hold some of them, from the first on. Later records were not delivered.
    """

    kafka_partition: int
    records: int
    source_offset: int | None
    target_offset: int | None
    in_doubt: int = 0

    def __str__(self) -> str:
        place = f"kafka partition {self.kafka_partition}: {self.records} records delivered"
        if self.source_offset is not None:
            to = "an offset that the broker did not tell" if self.target_offset is None else self.target_offset
            place += f", the last from offset {self.source_offset} to {to}"
        return place + (f", {self.in_doubt} in doubt after it" if self.in_doubt else "")


class DeliveryTrack:
    """The records sent to one kafka partition of the target, in order, and how many of them are acknowledged.

    A broker acknowledges them in order. `sent` and `acknowledged` count records; `failures` are the errors of the
    refused ones.
    """

    def __init__(self, kafka_partition: int) -> None:
        self.kafka_partition = kafka_partition
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[KafkaError] = []
        self._target_offset: int | None = None
        # the last offset that librdkafka made up, None after a real one
        self._made_up: int | None = None
        self._sources: deque[npt.NDArray[np.int64]] = deque()
        self._forgotten = 0
        self._weighed: deque[tuple[int, int, float]] = deque()

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of one record. An offset librdkafka made up counts as unknown."""
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged += 1
        offset = message.offset()
        if offset is None or offset < 0 or self._made_up is not None:
            offset = self._check_offset(offset)
        self._target_offset = offset

    def _check_offset(self, offset: int | None) -> int | None:
        """Return the offset, or None if the broker has forgotten the batch's place and librdkafka counts from -1."""
        if offset is None or offset < 0:
            self._made_up = -1
        else:
            self._made_up = offset if self._made_up is not None and offset == self._made_up + 1 else None
        return offset if self._made_up is None else None

    def note_queued(self, sources: npt.NDArray[np.int64]) -> None:
        """Remember the source offsets of queued records. Forget offsets acknowledged earlier."""
        while self._sources and self._forgotten + len(self._sources[0]) < self.acknowledged:
            self._forgotten += len(self._sources.popleft())
        self._sources.append(sources)
        self.sent += len(sources)

    def weigh(self, size: int) -> None:
        """Remember when the records since the last call, of `size` bytes in all, were queued."""
        self._weighed.append((self.sent, size, time.monotonic()))

    def take_acknowledged(self) -> Iterator[tuple[int, float]]:
        """Yield, once, the size and sending time of each part `weigh` noted that is acknowledged by now."""
        while self._weighed and self._weighed[0][0] <= self.acknowledged:
            _, size, sent_at = self._weighed.popleft()
            yield size, sent_at

    def find_source_offset(self, index: int) -> int:
        """Return the source offset of the record with this index in the order of sending."""
        index -= self._forgotten
        for sources in self._sources:
            if index < len(sources):
                return int(sources[index])
            index -= len(sources)
        raise AssertionError(f"no record {index} was sent")

    def find_cause(self) -> tuple[int, int, KafkaError]:
        """Return the first and last source offset of the first refused record batch, and its error."""
        codes = [error.code() for error in self.failures]
        first = next((i for i, code in enumerate(codes) if code not in ENTAILED), 0)
        last = first + sum(1 for _ in takewhile(lambda code: code == codes[first], codes[first:])) - 1
        # Records are acknowledged in order, so the first failure belongs to the record after the last success.
        start = self.acknowledged
        return self.find_source_offset(start + first), self.find_source_offset(start + last), self.failures[first]

    def summarize(self) -> Delivered:
        """Return the state of the deliveries, for reports and errors."""
        lost = sum(error.code() not in POSSIBLY_PERSISTED for error in self.failures)
        return Delivered(
            kafka_partition=self.kafka_partition,
            records=self.acknowledged,
            source_offset=self.find_source_offset(self.acknowledged - 1) if self.acknowledged else None,
            target_offset=self._target_offset,
            in_doubt=self.sent - self.acknowledged - lost,
        )


logger = logging.getLogger(__name__)

# No call that serves callbacks waits longer. Python handles signals only between two calls of librdkafka. And a call
# that waits for 0.2 s or more goes on with callbacks after a fatal error, while its exception is already set: that then
# comes out as a SystemError, or as a bare KafkaError, which neither `except KafkaException` nor `except BaseException`
# catches.
POLL_SECONDS = 0.1
# After an error, wait this long for the reports of records in flight, to know how much was delivered.
SETTLE_SECONDS = 10.0
# After each slice, librdkafka serves delivery reports.
SLICE_RECORDS = 1024
# librdkafka's default of batch.size. It is made smaller if the target topic accepts less.
BATCH_BYTES = 1_000_000
LINGER_MS = 1000
"""The time that records wait for a batch to fill.

An idempotent producer of librdkafka has one request under way for each kafka partition. While records wait behind it
for longer than `linger.ms`, or during a flush, its thread checks without a pause if it may go on. At 30 ms of latency,
this took three times the CPU of everything else.
"""

CONNECT_SECONDS = 0.5

LIMITED_LINGER_MS = 50
"""The value for records that come at a limited rate: no batch fills, and each is sent soon."""

LARGEST_MESSAGE = 1_000_000_000
"""The largest message that librdkafka takes. It counts the bytes before compression, but brokers those after it."""

BATCH_OVERHEAD = 512
"""A generous estimate of the bytes that a record batch has besides its records."""

_FIXED: Mapping[str, Any] = {
    # A retry neither doubles nor reorders records.
    "enable.idempotence": True,
    # If only the leader has a record, it is lost with the leader.
    "acks": "all",
    # No record may time out in the queue, or later records would overtake it. `answer_seconds` limits the wait.
    "delivery.timeout.ms": 0,
}


def find_sent_codec(settings: KafkaSettings) -> str | None:
    """Return the codec in the worker file, or None if there is none."""
    properties = settings.properties("producer")
    named = properties.get("compression.type", properties.get("compression.codec"))
    return None if named is None else str(named)


COMPRESS = (
    "Raise max.message.bytes of the topic. Or, since brokers count compressed bytes: set "
    "producer.compression.type=zstd in the target's worker file"
)
"""The advice about a record that is too large uncompressed."""


GAPLESS: Mapping[str, Any] = {"enable.gapless.guarantee": True}
"""The properties of a producer without transactions: no record is sent after one that failed."""


class ReplayProducer:
    """An idempotent producer to one topic. It queues records, waits, and tracks deliveries by kafka partition.

    `max_message_bytes` is the target topic's `max.message.bytes`. Before compression by `codec` or the worker file's
    codec, no batch of several records exceeds it. A single record may exceed it only if it is compressed. With
    `allow_now` the producer also sends records with timestamp 0, which get the time of sending. It waits
    `answer_seconds` for an acknowledgement. `is_limited` is True if records come at a limited rate. `mode` holds client
    properties that nothing overrides.

    After an error nothing more can be sent. `delivered` then shows the deliveries to each kafka partition.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        max_message_bytes: int = 1_048_588,
        codec: str = "none",
        allow_now: bool = False,
        answer_seconds: float = 120.0,
        is_limited: bool = False,
        mode: Mapping[str, Any] = GAPLESS,
    ) -> None:
        self._topic = topic
        self._allow_now = allow_now
        self._answer_seconds = answer_seconds
        self._is_plain = (find_sent_codec(settings) or codec) == "none"
        self._where = f"replaying to topic {topic} at {settings.bootstrap_servers}"
        self._reasons = Reasons()
        self._fatal: KafkaError | None = None
        self._tracks: dict[int, DeliveryTrack] = {}
        defaults = {
            "linger.ms": LIMITED_LINGER_MS if is_limited else LINGER_MS,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 131_072,
            "compression.type": codec,
            "message.max.bytes": max(1000, max_message_bytes if self._is_plain else LARGEST_MESSAGE),
            "batch.size": min(BATCH_BYTES, max(1, max_message_bytes - BATCH_OVERHEAD)),
        }
        self._producer = open_client(Producer, settings, self._reasons, defaults, {**_FIXED, **mode})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take back undelivered records, so that `delivered` is final. Call `flush` first to deliver all records."""
        self._settle()
        self._take_back()
        try:
            self._producer.close()
        except KafkaException as err:
            # A fatal error of the client was raised when it happened. An error of closing must not hide it.
            logger.debug("%s: closing: %s", self._where, err.args[0].str())

    @property
    def delivered(self) -> dict[int, Delivered]:
        """The acknowledged deliveries to each kafka partition of the target."""
        return {p: track.summarize() for p, track in sorted(self._tracks.items())}

    def connect(self) -> None:
        """Connect to a broker, unless that takes longer than CONNECT_SECONDS.

        A client that gets records first asks for its producer id before it has a broker, and not again for 0.5 s.
        """
        with suppress(KafkaException):
            self._producer.list_topics(self._topic, timeout=CONNECT_SECONDS)

    def send(self, batch: pa.RecordBatch, target_kafka_partition: int) -> None:
        """Queue the records of `batch` (RECORD_SCHEMA), in order; wait while the queue is full.

        Raises PreflightError with the source offset of a rejected or unsendable record, and
        BrokerUnavailableError if nothing was acknowledged for `answer_seconds`.
        """
        self._refuse_unsendable(batch)
        track = self._tracks.setdefault(target_kafka_partition, DeliveryTrack(target_kafka_partition))
        for start in range(0, len(batch), SLICE_RECORDS):
            self._queue(batch.slice(start, SLICE_RECORDS), track)
            self._poll(0)

    def flush(self) -> dict[int, Delivered]:
        """Wait until all sent records are acknowledged. Also sends partly filled batches. Raises as `send` does."""
        self._wait_for(0, self._producer.flush)
        return self.delivered

    def _refuse_unsendable(self, batch: pa.RecordBatch) -> None:
        """Raise PreflightError for records with timestamp 0, unless they may get the time of sending.

        Records sent before are delivered first, so the error says how far the target is.
        """
        count = 0 if self._allow_now else count_timestamp_zero(batch)
        if count:
            self.flush()
            first = batch.filter(pc.equal(read_milliseconds(batch), 0)).column("offset")[0]
            raise PreflightError(
                f"{self._where}: {count} records from source offset {first} on have timestamp 0, which the Kafka "
                f"client would replace by the time of sending; allow that, or leave them out; "
                f"{self._describe_deliveries()}"
            )

    def _queue(self, part: pa.RecordBatch, track: DeliveryTrack) -> None:
        """Queue all records of `part`. While the queue is full, wait until a quarter of it was acknowledged."""
        sources = read_offset_column(part)
        rows = build_rows(part)
        row = self._produce(rows, sources, track)
        while row < len(rows):
            self._wait_for(len(self._producer) * 3 // 4)
            row += self._produce(rows[row:], sources[row:], track)

    def _produce(self, rows: Sequence[ProducedRow], sources: npt.NDArray[np.int64], track: DeliveryTrack) -> int:
        """Queue rows until the queue is full. Return the number of queued rows."""
        produce = self._producer.produce
        # One object for all rows. One for each would live until its record is acknowledged: 100,000 for the collector.
        report = track.report
        topic = self._topic
        kafka_partition = track.kafka_partition
        queued = 0
        refusal = None
        try:
            for key, value, timestamp, headers in rows:
                produce(topic, value, key, kafka_partition, report, timestamp=timestamp, headers=headers)
                queued += 1
        except BufferError:
            logger.debug("%s: the queue is full", self._where)
        except KafkaException as err:
            refusal = err
        track.note_queued(sources[:queued])
        if refusal is not None:
            self._raise_fatal_error(refusal.args[0])
            raise self._build_refusal(refusal.args[0], track, int(sources[queued])) from refusal
        return queued

    def _raise_fatal_error(self, refusal: KafkaError) -> None:
        """Raise the fatal error after which produce() refuses every record, or the error of the record that caused it.

        librdkafka may refuse records a moment before it reports the fatal error.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        self._poll(0)
        while refusal.code() == FATAL and time.monotonic() < deadline:
            self._poll(POLL_SECONDS)

    def _wait_for(self, most: int, serve: Callable[[float], int] | None = None) -> None:
        """Poll until at most `most` records are not yet acknowledged."""
        self._wait_until(lambda: len(self._producer) <= most, serve)

    def _wait_until(self, is_reached: Callable[[], bool], serve: Callable[[float], int] | None = None) -> None:
        """Poll until `is_reached`. Raise BrokerUnavailableError if nothing is acknowledged for `answer_seconds`."""
        deadline = time.monotonic() + self._answer_seconds
        unacknowledged = len(self._producer)
        while not is_reached():
            self._poll(POLL_SECONDS, serve)
            now = len(self._producer)
            if now < unacknowledged:
                self._reasons.forget()
                deadline = time.monotonic() + self._answer_seconds
                unacknowledged = now
            elif time.monotonic() > deadline:
                self._settle()
                silent = f"{self._where}: nothing was acknowledged for {self._answer_seconds:g} s"
                raise self._reasons.explain_silence(f"{silent} ({self._describe_deliveries()})")

    def _poll(self, seconds: float, serve: Callable[[float], int] | None = None) -> None:
        """Serve delivery reports, for `seconds` at most. Raise the error of a refused record or of the client."""
        self._serve(seconds, serve)
        if self._fatal is not None:
            self._settle()
        for track in self._tracks.values():
            if track.failures:
                self._settle()
                first, last, error = track.find_cause()
                raise self._build_refusal(error, track, first, last)
        if self._fatal is not None:
            raise self._reasons.explain_failure(self._fatal, f"{self._where} ({self._describe_deliveries()})")

    def _serve(self, seconds: float, serve: Callable[[float], int] | None = None) -> None:
        """Let librdkafka report deliveries."""
        try:
            (serve or self._producer.poll)(seconds)
        except KafkaException as err:
            # librdkafka raises a fatal error here once, before it reports the records that failed with it.
            self._fatal = err.args[0]

    def _build_refusal(
        self, error: KafkaError, track: DeliveryTrack, first: int, last: int | None = None
    ) -> PlatformError:
        """Return the error for a refused record, or for one of a refused batch from source offset `first` to `last`."""
        self._settle()
        which = (
            f"the record of source offset {first}"
            if last in {None, first}
            else f"one of source offsets {first} to {last}"
        )
        to = f"for kafka partition {track.kafka_partition} was refused"
        failure = self._reasons.explain_failure(error, f"{self._where}: {which} {to} ({self._describe_deliveries()})")
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and self._is_plain:
            failure.args = (f"{failure.text}. {COMPRESS}",)
        return failure

    def _settle(self) -> None:
        """Take back unsent records. Wait for the reports of sent ones, SETTLE_SECONDS at most."""
        self._producer.purge(in_queue=True, in_flight=False)
        self._serve_all()
        self._take_back()

    def _serve_all(self, serve: Callable[[float], int] | None = None) -> None:
        """Let librdkafka report until it has no more to report, for SETTLE_SECONDS at most."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._serve(POLL_SECONDS, serve)

    def _take_back(self) -> None:
        """Take back all records, queued or in flight. Otherwise closing the client would wait for them for ever."""
        while len(self._producer):
            # Purge each time: librdkafka queues records again if their connection breaks meanwhile.
            self._producer.purge(in_queue=True, in_flight=True)
            self._serve(POLL_SECONDS)

    def _describe_deliveries(self) -> str:
        return "; ".join(map(str, self.delivered.values())) or "nothing was sent"
