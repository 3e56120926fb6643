"""Tracks how many of the records sent to each kafka partition were delivered."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message

from kafka_s3_platform.kafka.failures import ENTAILED, POSSIBLY_PERSISTED


@dataclass(frozen=True, slots=True)
class Delivered:
    """The deliveries to one kafka partition of the target: its first `records` records are acknowledged.

    `source_offset` and `target_offset` are the offsets of the last acknowledged record, None if there is none. A
    broker may acknowledge a record without its offset: then `target_offset` is None too. The next `in_doubt` records
    are in doubt: the cluster may hold some of them, from the first on. Later records were not delivered.
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
    """The records sent to one kafka partition. The broker acknowledges them in order."""

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
        """Take the delivery report of one record. librdkafka calls this."""
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged += 1
        offset = message.offset()
        if offset is None or offset < 0 or self._made_up is not None:
            offset = self._told(offset)
        self._target_offset = offset

    def _told(self, offset: int | None) -> int | None:
        """Return the offset, or None if the broker has forgotten the batch's place: librdkafka then counts from -1."""
        if offset is None or offset < 0:
            self._made_up = -1
        else:
            self._made_up = offset if self._made_up is not None and offset == self._made_up + 1 else None
        return offset if self._made_up is None else None

    def queued(self, sources: npt.NDArray[np.int64]) -> None:
        """Remember the source offsets of queued records. Forget offsets acknowledged earlier."""
        while self._sources and self._forgotten + len(self._sources[0]) < self.acknowledged:
            self._forgotten += len(self._sources.popleft())
        self._sources.append(sources)
        self.sent += len(sources)

    def weigh(self, size: int) -> None:
        """Remember the size of the records queued since the last call, and the time."""
        self._weighed.append((self.sent, size, time.monotonic()))

    def arrived(self) -> Iterator[tuple[int, float]]:
        """Yield size and time of each weighed part acknowledged since the last call."""
        while self._weighed and self._weighed[0][0] <= self.acknowledged:
            _, size, sent_at = self._weighed.popleft()
            yield size, sent_at

    def source_offset(self, index: int) -> int:
        """Return the source offset of the record with this index in the order of sending."""
        index -= self._forgotten
        for sources in self._sources:
            if index < len(sources):
                return int(sources[index])
            index -= len(sources)
        raise AssertionError(f"no record {index} was sent")

    def cause(self) -> tuple[int, int, KafkaError]:
        """Return first and last source offset of the first refused record batch, and its error, not its effects."""
        codes = [error.code() for error in self.failures]
        first = next((i for i, code in enumerate(codes) if code not in ENTAILED), 0)
        last = first + sum(1 for _ in takewhile(lambda code: code == codes[first], codes[first:])) - 1
        # Records are acknowledged in order, so the first failure belongs to the record after the last success.
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
