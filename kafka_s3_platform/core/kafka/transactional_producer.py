"""Commits records and a restore's progress in one transaction.

The bytes in flight are limited (the *room*), so that even a slow target acknowledges them before a transaction times
out. The limit follows what the target has acknowledged lately.
"""

import logging
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.core.kafka.failures import WRONG_STATE
from kafka_s3_platform.core.kafka.groups import Committed, GroupOffset
from kafka_s3_platform.core.kafka.producer import SETTLE_SECONDS, DeliveryTrack, ReplayProducer
from kafka_s3_platform.core.waits import Waiting

FIRST_BYTES = 64 * 1024
"""The room at first, and for the slowest target. It is small because many tasks may share one quota."""

MOST_BYTES_PER_SECOND = 64 * 1024
"""The maximum room for each second of the timeout. A minute gives about 4 MiB, which keeps a fast target busy."""

SPANS = 12
"""The number of spans in the timeout. The room is what the target acknowledged within the last span."""


class Pace:
    """Computes how many bytes may be in flight, from the bytes acknowledged lately.

    The room begins small and doubles with every answer of a fast target. A broker's quota lets the bytes of ten seconds
    pass at once. After that it delays every request, even a commit, until the average is back at the quota. The room
    therefore has an upper bound, however fast the target seems.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._span = timeout_seconds / SPANS
        self._most = max(FIRST_BYTES, int(MOST_BYTES_PER_SECOND * timeout_seconds))
        self._lately: deque[tuple[float, int]] = deque()
        self._total = 0
        self.on_its_way = 0
        self.delay = 0.0
        """Seconds between sending and acknowledgement of the last acknowledged part."""

    @property
    def room(self) -> int:
        """The limit of bytes in flight."""
        self._forget()
        return min(max(FIRST_BYTES, self._total), self._most)

    def note_sent(self, size: int) -> None:
        self.on_its_way += size

    def note_acknowledged(self, size: int, sent_at: float) -> None:
        """Note that `size` bytes, sent at `sent_at` by the monotonic clock, are acknowledged now."""
        now = time.monotonic()
        self.on_its_way -= size
        self.delay = now - sent_at
        self._lately.append((now, size))
        self._total += size

    def admits(self, size: int) -> bool:
        """Return True if `size` bytes may be sent now. If nothing is in flight, any size may."""
        # Otherwise a record larger than the whole room would never be sent.
        return not self.on_its_way or self.on_its_way + size <= self.room

    def _forget(self) -> None:
        """Drop the acknowledgements before the last span."""
        since = time.monotonic() - self._span
        while self._lately and self._lately[0][0] < since:
            self._total -= self._lately.popleft()[1]


logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.001
"""A time long enough for librdkafka to notice that batches are to be sent although they are not full."""

TRANSACTION_TIMEOUT_MS = 60_000
"""librdkafka's default of transaction.timeout.ms."""

CALL_SECONDS = 10.0
"""The time that one call to the transaction coordinator may take before it is made again."""

STUCK_SECONDS = 30.0
"""The time, longer than CALL_SECONDS, after which a call that has not returned never will."""


def read_transaction_timeout_ms(settings: KafkaSettings) -> int:
    """Return how long transactions of producers with these settings may stay open."""
    return int(settings.properties("producer").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))


@final
class TransactionalReplayProducer(ReplayProducer):
    """A transactional producer to one topic. It commits records and the progress of their restore in one transaction.

    Call `begin` first. The first `send` after a commit opens a transaction. `close` aborts an open one. After an error
    nothing more can be sent. SupersededError means a later producer with this transactional id is at work, or the
    cluster has ended the transaction after its timeout. The other arguments are those of `ReplayProducer`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        transactional_id: str,
        *,
        max_message_bytes: int = 1_048_588,
        codec: str = "none",
        allow_now: bool = False,
        answer_seconds: float = 120.0,
        is_limited: bool = False,
    ) -> None:
        mode = {
            "transactional.id": transactional_id,
            # A transaction that lacks a record is aborted as a whole. So a gap need not end the producer.
            "enable.gapless.guarantee": False,
            # If no broker answers, the default makes the client forget all of them. Its next commit is then stuck
            # even when they are back.
            "metadata.recovery.strategy": "none",
        }
        super().__init__(
            settings,
            topic,
            max_message_bytes=max_message_bytes,
            codec=codec,
            allow_now=allow_now,
            answer_seconds=answer_seconds,
            is_limited=is_limited,
            mode=mode,
        )
        self._where += f" as {transactional_id}"
        self.timeout_seconds = read_transaction_timeout_ms(settings) / 1000
        self.timed_out = False
        """True if the last aborted transaction was open for its timeout or longer."""
        self._pace = Pace(self.timeout_seconds)
        self._opened_at: float | None = None
        self._committed: int | None = None
        self._is_stuck = False

    def close(self) -> None:
        """Abort the open transaction."""
        if self._is_stuck:
            # A thread still uses the client, so do not close it. The next producer fences it.
            return
        with warnings.catch_warnings():
            # At its end, a fenced client tries to abort, fails and warns. Its real error was raised before.
            warnings.simplefilter("ignore", RuntimeWarning)
            super().close()

    def begin(self) -> None:
        """Fence older producers with this transactional id, and end their open transaction."""
        self._call(self._producer.init_transactions, "fencing older runs")

    @property
    def room(self) -> int:
        """The bytes that the target, at its recent speed, probably acknowledges well before a transaction times out."""
        return self._pace.room

    @property
    def delay(self) -> float:
        """The seconds the target took for its last acknowledgement. A commit may take as long."""
        return self._pace.delay

    def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes may be sent."""
        self._note_acknowledged()
        if not self._pace.admits(size):
            self._wait_until(lambda: self._pace.admits(size), self._serve_soon)

    def send(self, batch: pa.RecordBatch, target_kafka_partition: int, log_bytes: int = 0) -> None:
        """Queue the records in a transaction. `log_bytes` is their approximate size in the target's log."""
        self._open()
        super().send(batch, target_kafka_partition)
        self._tracks[target_kafka_partition].weigh(log_bytes)
        self._pace.note_sent(log_bytes)

    def commit(self, group: GroupOffset, progress: Committed) -> None:
        """Wait until all sent records are acknowledged, and commit them together with the group's progress."""
        self._open()
        self.flush()
        self._call(
            lambda seconds: self._send_offset(group, progress, seconds),
            f"committing offset {progress.offset} of group {group.group}",
        )
        self._call(self._producer.commit_transaction, "committing a transaction")
        self._opened_at = None
        self._committed = progress.offset

    def _send_offset(self, group: GroupOffset, progress: Committed, seconds: float) -> None:
        """Send the group's offset in a thread, since the call may never return (librdkafka's issues 5456 and 5511)."""
        send = self._producer.send_offsets_to_transaction
        if not Waiting(lambda: send([group.place(progress)], group.metadata, seconds)).ended_within(STUCK_SECONDS):
            self._is_stuck = True
            raise BrokerUnavailableError(
                f"{self._where}: the client does not come back from committing the offset of group {group.group}, "
                f"whose coordinator has probably gone; a new client ends its transaction"
            )

    def _serve_soon(self, seconds: float) -> int:
        """Have librdkafka send partly filled batches, and report deliveries. Return how many reports it served."""
        self._producer.flush(FLUSH_SECONDS)
        queued = self._producer.poll(seconds)
        self._note_acknowledged()
        return queued

    def _note_acknowledged(self) -> None:
        """Tell the pace which sizes were acknowledged since the last call, and when they were sent."""
        for track in self._tracks.values():
            for size, sent_at in track.take_acknowledged():
                self._pace.note_acknowledged(size, sent_at)

    def _open(self) -> None:
        """Open a transaction, unless one is open."""
        if self._opened_at is None:
            self._call(lambda _: self._producer.begin_transaction(), "opening a transaction")
            self._opened_at = time.monotonic()

    def _call(self, function: Callable[[float], None], what: str) -> None:
        """Call until it succeeds. After a retriable error, the next call continues the last one."""
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                return function(min(CALL_SECONDS, self._answer_seconds))
            except KafkaException as err:
                if not err.args[0].retriable() or time.monotonic() > deadline:
                    self._settle()
                    raise self._reasons.explain_failure(err, f"{self._where}: {what}") from err

    def _build_refusal(
        self, error: KafkaError, track: DeliveryTrack, first: int, last: int | None = None
    ) -> PlatformError:
        # In a failed transaction produce() reports only that it failed. The commit reports why.
        return super()._build_refusal(self._find_cause() if error.code() == WRONG_STATE else error, track, first, last)

    def _describe_deliveries(self) -> str:
        if self._committed is None:
            return "nothing was committed by this try"
        return f"committed are the records below source offset {self._committed}"

    def _find_cause(self) -> KafkaError:
        """Return the open transaction's error, which only a commit reports."""
        try:
            self._producer.commit_transaction(CALL_SECONDS)
        except KafkaException as err:
            error: KafkaError = err.args[0]
            return error
        raise AssertionError(f"{self._where}: a transaction that takes no records was committed")

    def _settle(self) -> None:
        """Try to abort, so readers need not wait for the timeout. If this fails, the next `begin` aborts."""
        if self._opened_at is None or self._is_stuck:
            return
        self.timed_out = time.monotonic() - self._opened_at >= self.timeout_seconds
        self._opened_at = None
        try:
            if self._fatal is None and not any(track.failures for track in self._tracks.values()):
                # Flush first: before the first batch is acknowledged, the cluster may not know of the transaction.
                self._serve_all(self._producer.flush)
            self._producer.abort_transaction(SETTLE_SECONDS)
        except KafkaException as err:
            logger.info("%s: the transaction was left to be aborted by the cluster: %s", self._where, err.args[0].str())


def try_transactions(settings: KafkaSettings, topic: str, transactional_id: str) -> None:
    """Raise, before a restore, the error that its transactional producer would meet: missing rights, or its timeout."""
    with TransactionalReplayProducer(settings, topic, transactional_id) as producer:
        producer.begin()
