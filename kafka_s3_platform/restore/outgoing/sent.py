"""The records of one source kafka partition to be sent: filtered, rewritten and distributed.

Sending, resuming and verifying all run this. The same archive and settings give the same records each time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_s3_platform.restore.filters.stage import FilteredStream
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.outgoing.values import ValueSettings, new_values
from kafka_s3_platform.restore.request import LeftOut, OnError, Outgoing, RecordFilter
from kafka_s3_platform.restore.source.base import RecordStream
from kafka_s3_platform.restore.source.foreign_stream import fill_timestamps, join_same_offsets
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True)
class SentSettings:
    """Settings for changing a stream's records, for executors. `values` is None if keys and values stay as they are."""

    to_topic: str
    target_kafka_partitions: int = 1
    records: RecordFilter = field(default_factory=RecordFilter)
    outgoing: Outgoing = field(default_factory=Outgoing)
    behavior_on_error: OnError = "fail"
    values: ValueSettings | None = None


@dataclass(frozen=True, slots=True)
class SentBatch:
    """Records by kafka partition of the target. After them all of the stream below `next_source_offset` is sent."""

    next_source_offset: int
    parts: tuple[tuple[int, pa.RecordBatch], ...]


Portions = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Splits a batch into portions to be sent at once."""


class SentStream:
    """The records of a stream to send, from source offset `start_offset` on. Iterate it once.

    If objects hold decoded keys and values, filters see the records as they are sent.
    """

    def __init__(
        self,
        task: RecordStream,
        settings: SentSettings,
        store: ObjectStore,
        start_offset: int = 0,
        portions: Portions = lambda batch: [batch],
    ) -> None:
        self._portions = portions
        self._outgoing = new_outgoing_stream(task, settings)
        self._source = task.records(store, self._outgoing, start_offset)
        # The first of two readings has an outgoing stream of its own, so that nothing is counted twice.
        first_pass = task.records(store, new_outgoing_stream(task, settings), start_offset)
        self._filtered = FilteredStream(self._source, settings.records, first_pass)
        self._is_encoded = task.is_decoded

    def __iter__(self) -> Iterator[SentBatch]:
        for batch in self._filtered:
            for portion in self._cut(batch):
                after = int(portion.column("offset")[-1].as_py()) + 1
                yield SentBatch(after, tuple(self._dealt(portion)))

    def _cut(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        if self._is_encoded:
            return join_same_offsets(self._portions(batch))
        return self._portions(batch)

    def _dealt(self, portion: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        if not self._is_encoded:
            return self._outgoing.apply(portion)
        return [(number, fill_timestamps(part)) for number, part in self._outgoing.dealt(portion)]

    def of(self, kafka_partition: int) -> Iterator[pa.RecordBatch]:
        """Return only the records for one kafka partition of the target."""
        for batch in self:
            yield from (part for number, part in batch.parts if number == kafka_partition)

    def all_records(self) -> Iterator[pa.RecordBatch]:
        """Return all records, for any kafka partition of the target."""
        for batch in self:
            yield from (part for _, part in batch.parts)

    @property
    def out_of_range_count(self) -> int:
        """Number of records with out-of-range timestamps so far."""
        return self._source.out_of_range_count

    @property
    def skipped(self) -> tuple[str, ...]:
        """Bad objects left out so far, and bad records in objects of another sink."""
        return self._source.skipped

    @property
    def gaps(self) -> tuple[str, ...]:
        """Offsets between two objects of another sink, but in none, so far."""
        return self._source.gaps

    @property
    def skipped_count(self) -> int:
        """Number of the bad objects and records. `skipped` may be shortened."""
        return self._source.skipped_count

    @property
    def gap_count(self) -> int:
        """Number of the gaps. `gaps` may be shortened."""
        return self._source.gap_count

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the records so far: of another sink's records, and of failed ones."""
        return (*self._source.notes, *self._outgoing.notes)

    @property
    def left_out(self) -> LeftOut:
        """Numbers of records left out so far, by reason."""
        return LeftOut(
            self._filtered.without_key_count,
            self._outgoing.filtered_count,
            self._outgoing.failed_count,
            sum(self._outgoing.elsewhere.values()),
            self._outgoing.incomplete_count,
        )


def new_outgoing_stream(task: RecordStream, settings: SentSettings) -> OutgoingStream:
    """Make the stage from a stream's records to the sent ones."""
    return OutgoingStream(
        settings.outgoing,
        task.topic,
        task.kafka_partition,
        settings.target_kafka_partitions,
        settings.to_topic,
        behavior_on_error=settings.behavior_on_error,
        values=None if settings.values is None else new_values(settings.values),
    )
