"""What a restore sends of one source kafka partition: archived, filtered, rewritten, and dealt to the target's.

Sending, resuming and verifying all run this; the same archive and settings give the same records, however often.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.kafka.batches import offsets
from kafka_s3_platform.restore.filters import FilteredStream
from kafka_s3_platform.restore.foreign_stream import ForeignRecords, ForeignStreamTask, sent_now, whole
from kafka_s3_platform.restore.outgoing import OutgoingStream
from kafka_s3_platform.restore.request import LeftOut, OnError, Outgoing, RecordFilter
from kafka_s3_platform.restore.stream import ArchivedStream, StreamTask
from kafka_s3_platform.restore.values import ValueSettings, new_values
from kafka_s3_platform.store.objects import ObjectStore

USUAL_OVERHEAD = 16
"""About what a record takes in a log besides its key, value and headers."""


@dataclass(frozen=True)
class SentSettings:
    """What becomes of a stream's records, for executors. `values` is None where keys and values stay as they are."""

    to_topic: str
    target_kafka_partitions: int = 1
    records: RecordFilter = field(default_factory=RecordFilter)
    outgoing: Outgoing = field(default_factory=Outgoing)
    behavior_on_error: OnError = "fail"
    values: ValueSettings | None = None


@dataclass(frozen=True, slots=True)
class SentBatch:
    """Records by kafka partition of the target. With them all of the stream below `next_source_offset` is sent."""

    next_source_offset: int
    parts: tuple[tuple[int, pa.RecordBatch], ...]

    @property
    def record_count(self) -> int:
        return sum(part.num_rows for _, part in self.parts)

    @property
    def log_bytes(self) -> int:
        """About what it takes in the target's log."""
        return sum(int(_log_bytes(part).sum()) for _, part in self.parts)

    def pieces(self, room: Callable[[], int]) -> "Iterator[SentBatch]":
        """Cut to at most `room()` bytes each, asked when a piece is taken, or to the records of one source offset."""
        if self.log_bytes <= room():
            yield self
            return
        found = np.concatenate([offsets(part) for _, part in self.parts])
        order = np.argsort(found, kind="stable")
        found = found[order]
        sizes = np.concatenate([_log_bytes(part) for _, part in self.parts])
        before = np.concatenate([[0], np.cumsum(sizes[order])])
        start = 0
        while start < len(found):
            # The first record that does not fit any more begins the next piece.
            end = int(np.searchsorted(before, before[start] + room(), side="right")) - 1
            if end == len(found):
                break
            bound = max(int(found[end]), int(found[start]) + 1)
            yield SentBatch(bound, tuple(self._between(int(found[start]), bound)))
            start = int(np.searchsorted(found, bound))
        if start < len(found):
            yield SentBatch(self.next_source_offset, tuple(self._between(int(found[start]), self.next_source_offset)))

    def _between(self, start_offset: int, end_offset: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, part in self.parts:
            start, end = np.searchsorted(offsets(part), [start_offset, end_offset])
            if start < end:
                yield number, part.slice(start, end - start)


def _log_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return record_sizes(batch) + USUAL_OVERHEAD


Portions = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Cuts a batch into what is sent at once."""


class SentStream:
    """What is sent of a stream, from source offset `start_offset` on. Iterate it once.

    Of objects that hold decoded keys and values, filters see the records as they are sent.
    """

    def __init__(
        self,
        task: StreamTask | ForeignStreamTask,
        settings: SentSettings,
        store: ObjectStore,
        start_offset: int = 0,
        portions: Portions = lambda batch: [batch],
    ) -> None:
        self._portions = portions
        self._outgoing = outgoing_of(task, settings)
        self._source = _source(task, self._outgoing, store, start_offset)
        first_pass = _source(task, outgoing_of(task, settings), store, start_offset)
        self._filtered = FilteredStream(self._source, settings.records, first_pass)
        self._is_encoded = isinstance(task, ForeignStreamTask) and task.is_decoded

    def __iter__(self) -> Iterator[SentBatch]:
        for batch in self._filtered:
            for portion in self._cut(batch):
                after = int(portion.column("offset")[-1].as_py()) + 1
                yield SentBatch(after, tuple(self._dealt(portion)))

    def _cut(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return whole(self._portions(batch)) if self._is_encoded else self._portions(batch)

    def _dealt(self, portion: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        if not self._is_encoded:
            return self._outgoing.apply(portion)
        return [(number, sent_now(part)) for number, part in self._outgoing.dealt(portion)]

    def of(self, kafka_partition: int) -> Iterator[pa.RecordBatch]:
        """Only what goes to one kafka partition of the target."""
        for batch in self:
            yield from (part for number, part in batch.parts if number == kafka_partition)

    def whole(self) -> Iterator[pa.RecordBatch]:
        """All of it, whichever kafka partition of the target it goes to."""
        for batch in self:
            yield from (part for _, part in batch.parts)

    @property
    def out_of_range_count(self) -> int:
        """Records with out-of-range timestamps, of what was read so far."""
        return self._source.out_of_range_count

    @property
    def skipped(self) -> tuple[str, ...]:
        """Bad objects that were left out, and bad records of others, of what was read so far."""
        return self._source.skipped

    @property
    def gaps(self) -> tuple[str, ...]:
        """Offsets that are in none of others' objects, of what was read so far."""
        return self._source.gaps if isinstance(self._source, ForeignRecords) else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the records of others, of what was read so far."""
        return self._source.notes if isinstance(self._source, ForeignRecords) else ()

    @property
    def left_out(self) -> LeftOut:
        """Of what was read so far."""
        return LeftOut(
            self._filtered.without_key_count,
            self._outgoing.filtered_count,
            self._outgoing.failed_count,
            sum(self._outgoing.elsewhere.values()),
        )


def outgoing_of(task: StreamTask | ForeignStreamTask, settings: SentSettings) -> OutgoingStream:
    """What makes records of a stream as they are sent."""
    return OutgoingStream(
        settings.outgoing,
        task.topic,
        task.kafka_partition,
        settings.target_kafka_partitions,
        settings.to_topic,
        behavior_on_error=settings.behavior_on_error,
        values=None if settings.values is None else new_values(settings.values),
    )


def _source(
    task: StreamTask | ForeignStreamTask, outgoing: OutgoingStream, store: ObjectStore, start_offset: int
) -> ArchivedStream | ForeignRecords:
    if isinstance(task, ForeignStreamTask):
        return ForeignRecords(task, outgoing, store, start_offset)
    return ArchivedStream(task, store, start_offset)
