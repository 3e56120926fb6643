"""Records sent again as they were: same bytes, headers, timestamp and kafka partition, in order, each once."""

import logging
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from types import TracebackType
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError, PreflightError
from kafka_s3_platform.kafka.batches import collector_paused, offsets
from kafka_s3_platform.kafka.client import Reasons, producer_client
from kafka_s3_platform.kafka.failures import ENTAILED, POSSIBLY_PERSISTED, WRONG_STATE
from kafka_s3_platform.kafka.group_offset import GroupOffset
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.kafka.pace import Pace
from kafka_s3_platform.kafka.waiting import Waiting

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
SOON_SECONDS = 0.01
SETTLE_SECONDS = 10.0
SLICE_RECORDS = 1024
BATCH_BYTES = 1_000_000
BATCH_OVERHEAD = 512
"""What a record batch takes besides its records, generously."""

TRANSACTION_TIMEOUT_MS = 60_000
"""librdkafka's default of transaction.timeout.ms."""

CALL_SECONDS = 10.0
"""How long one call to the transaction coordinator may take before it is made again."""

STUCK_SECONDS = 30.0
"""After which a call that should have given up by itself is known not to return."""

_FIXED: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    # Nothing times out in the queue by itself, or later records would overtake it: `answer_seconds` bounds the wait.
    "delivery.timeout.ms": 0,
}
Headers = list[tuple[str, str | bytes | None]] | None
Row = tuple[bytes | None, bytes | None, int, Headers]


@dataclass(frozen=True, slots=True)
class Delivered:
    """How far one kafka partition of the target came: its first `records` records are acknowledged.

    `source_offset` and `target_offset` are those of the last of them, None before the first. A broker may say that it
    has a record, and not where: then `target_offset` is None too. Of the `in_doubt` records after it the cluster may
    hold some, from the first on; those after these were not delivered.
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


def unsendable(batch: pa.RecordBatch) -> int:
    """How many records have timestamp 0, which librdkafka takes for "now"."""
    return int(pc.sum(pc.equal(_milliseconds(batch), 0)).as_py() or 0)


class _Sender:
    """What both producers share: queueing, waiting, and knowing how far each kafka partition came."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        own: Mapping[str, Any],
        max_message_bytes: int,
        allow_now: bool,
        answer_seconds: float,
    ) -> None:
        self._topic = topic
        self._allow_now = allow_now
        self._answer_seconds = answer_seconds
        self._where = f"replaying to topic {topic} at {settings.bootstrap_servers}"
        self._reasons = Reasons()
        self._fatal: KafkaError | None = None
        self._tracks: dict[int, _Track] = {}
        defaults = {
            "linger.ms": 50,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 131_072,
            "message.max.bytes": max(1000, max_message_bytes),
            "batch.size": min(BATCH_BYTES, max(1, max_message_bytes - BATCH_OVERHEAD)),
        }
        self._producer = producer_client(settings, self._reasons, defaults, {**_FIXED, **own})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take back what is not delivered, so that `delivered` is final. Call `flush` first to deliver everything."""
        self._settle()
        self._take_back()
        try:
            self._producer.close()
        except KafkaException as err:
            # What has ended the client for good was raised when it did, and is not to be hidden by this.
            logger.debug("%s: closing: %s", self._where, err.args[0].str())

    @property
    def delivered(self) -> dict[int, Delivered]:
        """How far each kafka partition of the target came, as acknowledged until now."""
        return {p: track.delivered() for p, track in sorted(self._tracks.items())}

    def send(self, batch: pa.RecordBatch, target_kafka_partition: int) -> None:
        """Queue the records of `batch` (RECORD_SCHEMA), in order; wait while the queue is full.

        PreflightError names the source offset of a record that cannot be sent or was rejected, BrokerUnavailableError
        says that nothing was acknowledged for `answer_seconds`.
        """
        self._refuse_unsendable(batch)
        track = self._tracks.setdefault(target_kafka_partition, _Track(target_kafka_partition))
        for start in range(0, len(batch), SLICE_RECORDS):
            with collector_paused():
                self._queue(batch.slice(start, SLICE_RECORDS), track)
            self._poll(0)

    def flush(self) -> dict[int, Delivered]:
        """Wait until everything sent is acknowledged, batches that are not full too. Same errors as `send`."""
        self._wait_for(0, self._producer.flush)
        return self.delivered

    def _refuse_unsendable(self, batch: pa.RecordBatch) -> None:
        count = 0 if self._allow_now else unsendable(batch)
        if count:
            self.flush()
            first = batch.filter(pc.equal(_milliseconds(batch), 0)).column("offset")[0]
            raise PreflightError(
                f"{self._where}: {count} records from source offset {first} on have timestamp 0, which the Kafka "
                f"client would replace by the time of sending; allow that, or leave them out; {self._positions()}"
            )

    def _queue(self, part: pa.RecordBatch, track: "_Track") -> None:
        sources, rows = offsets(part), _rows(part)
        row = self._produce(rows, sources, track)
        while row < len(rows):
            self._wait_for(len(self._producer) * 3 // 4)
            row += self._produce(rows[row:], sources[row:], track)

    def _produce(self, rows: Sequence[Row], sources: npt.NDArray[np.int64], track: "_Track") -> int:
        """Queue rows until the queue is full; how many."""
        produce, topic, kafka_partition = self._producer.produce, self._topic, track.kafka_partition
        queued, refusal = 0, None
        try:
            for key, value, timestamp, headers in rows:
                produce(topic, value, key, kafka_partition, track.report, timestamp=timestamp, headers=headers)
                queued += 1
        except BufferError:
            logger.debug("%s: the queue is full", self._where)
        except KafkaException as err:
            refusal = err
        track.queued(sources[:queued])
        if refusal is not None:
            # After a fatal error produce() refuses everything: the record that led to it is named instead.
            self._poll(0)
            raise self._refused(refusal.args[0], track, int(sources[queued])) from refusal
        return queued

    def _wait_for(self, left: int, serve: "Callable[[float], int] | None" = None) -> None:
        """Poll until at most `left` records are not yet acknowledged."""
        self._wait_until(lambda: len(self._producer) <= left, serve)

    def _wait_until(self, is_reached: Callable[[], bool], serve: "Callable[[float], int] | None" = None) -> None:
        """Poll until enough is acknowledged."""
        deadline, before = time.monotonic() + self._answer_seconds, len(self._producer)
        while not is_reached():
            self._poll(POLL_SECONDS, serve)
            now = len(self._producer)
            if now < before:
                self._reasons.forget()
                deadline, before = time.monotonic() + self._answer_seconds, now
            elif time.monotonic() > deadline:
                raise self._unanswered()

    def _poll(self, seconds: float, serve: "Callable[[float], int] | None" = None) -> None:
        self._serve(seconds, serve)
        if self._fatal is not None:
            self._settle()
        for track in self._tracks.values():
            if track.failures:
                self._settle()
                first, last, error = track.cause()
                raise self._refused(error, track, first, last)
        if self._fatal is not None:
            raise self._reasons.failure(self._fatal, f"{self._where} ({self._positions()})")

    def _serve(self, seconds: float, serve: "Callable[[float], int] | None" = None) -> None:
        """Let librdkafka report deliveries."""
        try:
            (serve or self._producer.poll)(seconds)
        except KafkaException as err:
            # A fatal error is raised here once, before the reports of the records that it took along.
            self._fatal = err.args[0]

    def _refused(self, error: KafkaError, track: "_Track", first: int, last: int | None = None) -> PlatformError:
        self._settle()
        which = (
            f"the record of source offset {first}"
            if last in {None, first}
            else f"one of source offsets {first} to {last}"
        )
        to = f"for kafka partition {track.kafka_partition} was refused"
        return self._reasons.failure(error, f"{self._where}: {which} {to} ({self._positions()})")

    def _unanswered(self) -> PlatformError:
        self._settle()
        silent = f"{self._where}: nothing was acknowledged for {self._answer_seconds:g} s"
        return self._reasons.silence(f"{silent} ({self._positions()})")

    def _settle(self) -> None:
        """Take back what was not sent and learn the fate of what was, as far as the broker still answers."""
        self._producer.purge(in_queue=True, in_flight=False)
        deadline = time.monotonic() + SETTLE_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._serve(POLL_SECONDS)
        self._take_back()

    def _take_back(self) -> None:
        """Leave nothing queued or under way: closing the client waits for all that is, without end."""
        while len(self._producer):
            # Each time: what was sent to a connection that breaks meanwhile is queued again.
            self._producer.purge(in_queue=True, in_flight=True)
            self._serve(POLL_SECONDS)

    def _positions(self) -> str:
        return "; ".join(map(str, self.delivered.values())) or "nothing was sent"


@final
class ReplayProducer(_Sender):
    """An idempotent producer to one topic.

    `max_message_bytes` is the target topic's `max.message.bytes`: neither a record nor a batch exceeds it.
    `allow_now` lets records with timestamp 0 through, which get the time of sending. After an error nothing more can be
    sent; `delivered` then says how far each kafka partition of the target came.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        max_message_bytes: int = 1_048_588,
        allow_now: bool = False,
        answer_seconds: float = 120.0,
    ) -> None:
        own = {"enable.gapless.guarantee": True}
        super().__init__(settings, topic, own, max_message_bytes, allow_now, answer_seconds)

    def __enter__(self) -> "ReplayProducer":
        return self


@final
class TransactionalReplayProducer(_Sender):
    """A transactional producer to one topic: what it sends and the progress that tells of it are committed as one.

    `begin` before anything else. A transaction opens with the first `send` after a commit; `close` ends one that is
    open by aborting it. After an error nothing more can be sent. SupersededError says that a later producer with this
    transactional id is at work, or that the cluster has ended the transaction because its time was up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        transactional_id: str,
        *,
        max_message_bytes: int = 1_048_588,
        allow_now: bool = False,
        answer_seconds: float = 120.0,
    ) -> None:
        own = {
            "transactional.id": transactional_id,
            "enable.gapless.guarantee": False,
            # A client that forgets all brokers when none answers is stuck in its next commit once they are back.
            "metadata.recovery.strategy": "none",
        }
        super().__init__(settings, topic, own, max_message_bytes, allow_now, answer_seconds)
        self._where += f" as {transactional_id}"
        set_timeout = settings.properties("producer").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        self.timeout_seconds = int(set_timeout) / 1000
        self.timed_out = False
        """Whether the transaction that was aborted last was open for longer than its timeout."""
        self._pace = Pace(self.timeout_seconds)
        self._opened_at: float | None = None
        self._committed: int | None = None
        self._is_stuck = False

    def __enter__(self) -> "TransactionalReplayProducer":
        return self

    def close(self) -> None:
        """Abort what is not committed."""
        if self._is_stuck:
            # Not to be ended under its call, whose thread keeps it; the next producer fences it.
            return
        with warnings.catch_warnings():
            # A fenced client cannot abort anything, tries so at its end, and warns. What happened was raised before.
            warnings.simplefilter("ignore", RuntimeWarning)
            super().close()

    def begin(self) -> None:
        """Fence older producers with this transactional id and end the transaction that one has left open."""
        self._call(self._producer.init_transactions, "fencing older runs")

    @property
    def room(self) -> int:
        """How many bytes the target acknowledges well before a transaction's time is up, by what it did lately."""
        return self._pace.room

    @property
    def delay(self) -> float:
        """Seconds that the target took for what it has acknowledged last: a commit may take as long."""
        return self._pace.delay

    def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes may be sent."""
        self._acknowledge()
        if not self._pace.admits(size):
            self._wait_until(lambda: self._pace.admits(size), self._serve_soon)

    def send(self, batch: pa.RecordBatch, target_kafka_partition: int, log_bytes: int = 0) -> None:
        """As any producer's, inside a transaction. `log_bytes`: about what it takes of the room."""
        self._open()
        super().send(batch, target_kafka_partition)
        self._tracks[target_kafka_partition].weigh(log_bytes)
        self._pace.sent(log_bytes)

    def commit(self, group: GroupOffset, progress: Committed) -> None:
        """Wait until everything sent is acknowledged, and commit it together with the group's progress."""
        self._open()
        self.flush()
        self._call(
            lambda seconds: self._send_offset(group, progress, seconds),
            f"committing offset {progress.offset} of group {group.group}",
        )
        self._call(self._producer.commit_transaction, "committing a transaction")
        self._opened_at, self._committed = None, progress.offset

    def _send_offset(self, group: GroupOffset, progress: Committed, seconds: float) -> None:
        """Never returns from librdkafka when the group's coordinator has left the cluster: its issues 5456 and 5511."""
        given = [group.place(progress)], group.metadata, seconds
        calling = Waiting(self._producer.send_offsets_to_transaction, given)
        if not calling.ended_within(STUCK_SECONDS):
            self._is_stuck = True
            raise BrokerUnavailableError(
                f"{self._where}: the client does not come back from committing the offset of group {group.group}, "
                f"whose coordinator has probably gone; a new client ends its transaction"
            )

    def _serve_soon(self, seconds: float) -> int:
        """Let librdkafka report deliveries, without waiting for batches to fill up: there is room for no more."""
        left = self._producer.flush(min(seconds, SOON_SECONDS))
        self._acknowledge()
        return left

    def _acknowledge(self) -> None:
        for track in self._tracks.values():
            for size, sent_at in track.arrived():
                self._pace.acknowledged(size, sent_at)

    def _open(self) -> None:
        if self._opened_at is None:
            self._call(lambda _: self._producer.begin_transaction(), "opening a transaction")
            self._opened_at = time.monotonic()

    def _call(self, function: Callable[[float], None], what: str) -> None:
        """Call until it succeeds: a call that is retriable goes on where the last one has ended."""
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                return function(min(CALL_SECONDS, self._answer_seconds))
            except KafkaException as err:
                if not err.args[0].retriable() or time.monotonic() > deadline:
                    self._settle()
                    raise self._reasons.failure(err, f"{self._where}: {what}") from err

    def _refused(self, error: KafkaError, track: "_Track", first: int, last: int | None = None) -> PlatformError:
        # In a transaction that has failed produce() only says that; the commit says why.
        return super()._refused(self._why() if error.code() == WRONG_STATE else error, track, first, last)

    def _positions(self) -> str:
        if self._committed is None:
            return "nothing was committed by this try"
        return f"committed are the records below source offset {self._committed}"

    def _why(self) -> KafkaError:
        try:
            self._producer.commit_transaction(CALL_SECONDS)
        except KafkaException as err:
            found: KafkaError = err.args[0]
            return found
        raise AssertionError(f"{self._where}: a transaction that takes no records was committed")

    def _settle(self) -> None:
        """Abort, so that readers need not wait until the cluster does. Best effort: the next `begin` does it too."""
        if self._opened_at is None or self._is_stuck:
            return
        self.timed_out = time.monotonic() - self._opened_at >= self.timeout_seconds
        self._opened_at = None
        try:
            if self._fatal is None and not any(track.failures for track in self._tracks.values()):
                # Aborted before the first batch is acknowledged, the cluster may not know of the transaction yet.
                self._producer.flush(SETTLE_SECONDS)
            self._producer.abort_transaction(SETTLE_SECONDS)
        except KafkaException as err:
            logger.info("%s: the transaction was left to be aborted by the cluster: %s", self._where, err.args[0].str())


class _Track:
    """The records on their way to one kafka partition; the broker acknowledges them in order."""

    def __init__(self, kafka_partition: int) -> None:
        self.kafka_partition = kafka_partition
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[KafkaError] = []
        self._target_offset: int | None = None
        self._made_up: int | None = None
        self._sources: deque[npt.NDArray[np.int64]] = deque()
        self._forgotten = 0
        self._weighed: deque[tuple[int, int, float]] = deque()

    def report(self, error: KafkaError | None, message: Message) -> None:
        """The delivery callback."""
        if error is None:
            self.acknowledged += 1
            self._target_offset = self._told(message.offset())
        else:
            self.failures.append(error)

    def _told(self, offset: int | None) -> int | None:
        """None in a batch that the broker has already, and has forgotten where: librdkafka counts on from -1 there."""
        if offset is None or offset < 0:
            self._made_up = -1
        else:
            self._made_up = offset if self._made_up is not None and offset == self._made_up + 1 else None
        return offset if self._made_up is None else None

    def queued(self, sources: npt.NDArray[np.int64]) -> None:
        """Remember the source offsets of queued records, and forget those long acknowledged."""
        while self._sources and self._forgotten + len(self._sources[0]) < self.acknowledged:
            self._forgotten += len(self._sources.popleft())
        self._sources.append(sources)
        self.sent += len(sources)

    def weigh(self, size: int) -> None:
        """Remember the size of what was queued since the last call, and when."""
        self._weighed.append((self.sent, size, time.monotonic()))

    def arrived(self) -> Iterator[tuple[int, float]]:
        """Size and time of what was weighed, and has been acknowledged since the last call."""
        while self._weighed and self._weighed[0][0] <= self.acknowledged:
            _, size, sent_at = self._weighed.popleft()
            yield size, sent_at

    def source_offset(self, index: int) -> int:
        """The source offset of the record with this index in the order of sending."""
        index -= self._forgotten
        for sources in self._sources:
            if index < len(sources):
                return int(sources[index])
            index -= len(sources)
        raise AssertionError(f"no record {index} was sent")

    def cause(self) -> tuple[int, int, KafkaError]:
        """First and last source offset of the first refused record batch, and why; not what that entailed."""
        codes = [error.code() for error in self.failures]
        first = next((i for i, code in enumerate(codes) if code not in ENTAILED), 0)
        last = first + sum(1 for _ in takewhile(lambda code: code == codes[first], codes[first:])) - 1
        start = self.acknowledged
        return self.source_offset(start + first), self.source_offset(start + last), self.failures[first]

    def delivered(self) -> Delivered:
        lost = sum(error.code() not in POSSIBLY_PERSISTED for error in self.failures)
        return Delivered(
            kafka_partition=self.kafka_partition,
            records=self.acknowledged,
            source_offset=self.source_offset(self.acknowledged - 1) if self.acknowledged else None,
            target_offset=self._target_offset,
            in_doubt=self.sent - self.acknowledged - lost,
        )


def _rows(batch: pa.RecordBatch) -> list[Row]:
    keys, values = (batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in ("key", "value"))
    timestamps = _milliseconds(batch).to_pylist()
    return list(zip(keys, values, timestamps, _headers(batch.column("headers")), strict=True))


def _headers(column: pa.ListArray) -> list[Headers]:
    if column.null_count == len(column):
        return [None] * len(column)
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy()).tolist()
    return [pairs[start:end] for start, end in pairwise([0, *ends])]


def _milliseconds(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("timestamp").cast(pa.int64())
