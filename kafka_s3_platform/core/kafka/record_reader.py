"""The contract of readers, which read a bounded range of a kafka partition once, to its end, and a limit on their rate.

An *end* is proven once the reader has seen that no other record of the range can come.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kafka_s3_platform.core.model.gaps import Gap, Unreadable
from kafka_s3_platform.core.model.offsets import OffsetRange

BURST_SECONDS = 1.0
"""The unused budget that is kept, in seconds."""


class Throttle:
    """Token buckets that limit how many records and bytes a task handles per second. None means no limit.

    A task has its own share: the caller divides a limit by the number of concurrent tasks.
    """

    def __init__(self, records_per_second: float | None = None, bytes_per_second: float | None = None) -> None:
        self._records = _Bucket(records_per_second) if records_per_second else None
        self._bytes = _Bucket(bytes_per_second) if bytes_per_second else None

    def take(self, records: int, size: int) -> None:
        """Spend `records` and `size` bytes, and sleep until any overdraft is earned."""
        # Both buckets are charged even if one alone makes the task wait.
        wait = max(self._records.spend(records) if self._records else 0, self._bytes.spend(size) if self._bytes else 0)
        if wait > 0:
            time.sleep(wait)

    def records_at_once(self, most: int) -> int:
        """Return `most`, or the records of one second if those are fewer, so a low rate flows evenly."""
        if self._records:
            return min(most, max(1, int(self._records.rate)))
        return most


class _Bucket:
    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._tokens = rate * BURST_SECONDS
        self._filled_at = time.monotonic()

    def spend(self, amount: int) -> float:
        """Spend tokens, even more than there are. Return the seconds until the overdraft is earned, or less than 0."""
        now = time.monotonic()
        earned = (now - self._filled_at) * self.rate
        self._tokens = min(self._tokens + earned, self.rate * BURST_SECONDS) - amount
        self._filled_at = now
        return -self._tokens / self.rate


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """The result of reading a range.

    `position` is the offset that proved the end: the offset of a record or of the kafka partition's end, at or past the
    range's end. `leader_epoch` is the epoch of the batch that has the range's last offset, which may be only a
    marker's. If compaction has left no batch there, it is the epoch of the next batch, since no later epoch begins
    below the end. It is None if unknown, since librdkafka delivers records only. `bytes` counts keys, values and
    headers. `unreadable` lists, in ascending order, the offsets of which nothing was delivered.
    """

    position: int
    leader_epoch: int | None
    gaps: tuple[Gap, ...]
    records: int
    bytes: int
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of a leader epoch and of all earlier ones in a log: at `end_offset` a later epoch begins.

    `leader_epoch` is the latest of these epochs in the log. If it is None, both are unknown: the end is at `end_offset`
    or before.
    """

    leader_epoch: int | None
    end_offset: int


class RangeRead:
    """The batches of a range, which can be iterated once. After that, `end` has the result.

    `failures` gives by offset the reason why a record is not delivered unchanged. An offset is added before the batch
    that holds its record is yielded.
    """

    def __init__(self, batches: Generator[pa.RecordBatch, None, ReadEnd], failures: Mapping[int, str]) -> None:
        self.failures = failures
        self._batches = batches
        self._end: ReadEnd | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._end = yield from self._batches

    @property
    def end(self) -> ReadEnd:
        """The result. Raises ValueError until the last batch has been taken."""
        if self._end is None:
            raise ValueError("the range is not read to its end")
        return self._end


class RecordReader(ABC):
    """Reads bounded offset ranges of one topic. Use it in a `with` block, which ends its connections.

    Batches have RECORD_SCHEMA and hold committed records in offset order; the bounds of the batches depend only on the
    range, the offsets and the content. If ranges of a kafka partition follow one another, each from the end of the
    last, they are read straight through.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        """Read one range. `leader_epoch` is the epoch of the record before it, and serves to detect a truncated log."""

    @abstractmethod
    def find_divergence(self, kafka_partition: int, offset: int, leader_epoch: int) -> EpochEnd | None:
        """Return the end of the epochs up to `leader_epoch` if it is below `offset` (a truncated log), else None."""

    @abstractmethod
    def find_timestamp(self, kafka_partition: int, offset: int) -> int | None:
        """Return the timestamp in epoch ms at this offset, or None if the reader sees nothing there.

        librdkafka shows committed records only. Our own reader also sees aborted records and the markers that end
        transactions. Raises IntegrityError if the record cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections and buffers."""
