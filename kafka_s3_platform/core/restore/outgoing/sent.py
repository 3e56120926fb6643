"""The records sent from one source kafka partition: filtered, changed and dealt out to the target's kafka partitions.

Sending, resuming and verifying all run this. The same archive and settings give the same records each time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.settings import RecordSettings
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.model.batches import HEADER, NO_TIMESTAMP, RECORD_SCHEMA, replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.restore.filters.stage import FilteredStream
from kafka_s3_platform.core.restore.outgoing.partitioning import SOURCE, new_kafka_partitioner
from kafka_s3_platform.core.restore.request import LeftOut, OnError, Outgoing, ReadFacts, RecordFilter
from kafka_s3_platform.core.restore.source.base import UNSENDABLE_TIMESTAMP, RecordStream, SourceRecords, StreamFacts
from kafka_s3_platform.core.restore.target_topic import routes_by_record

PROVENANCE = "kafka_s3.source."
PROVENANCE_HEADERS = (f"{PROVENANCE}offset", f"{PROVENANCE}partition", f"{PROVENANCE}timestamp")
"""These headers follow the record's own in this order. All are whole numbers as text, the timestamp in epoch ms."""

Portions = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Splits a batch into portions that are each sent at once."""


@dataclass(frozen=True)
class SchemaMapping:
    """The new id of each old id, for keys and for values. It is None if a side has no registry, and so no ids.

    `guids` maps the GUIDs of both sides in the same way. `notes` are sentences for people.
    """

    key_ids: Mapping[int, int] | None
    value_ids: Mapping[int, int] | None
    notes: tuple[str, ...] = ()
    guids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ValueSettings:
    """An executor's settings for making keys and values.

    `source` are the converters of the archived records. `schemas` come from the index and decode the records, since the
    source's registry may be gone. `mapping` is None if ids stay as they are. Without `registers` no schema is
    registered, because nothing is sent.
    """

    outgoing: Outgoing = field(repr=False)
    source: RecordSettings = field(repr=False)
    topic: str
    to_topic: str
    mapping: SchemaMapping | None = None
    schemas: tuple[ArchivedSchema, ...] = field(default=(), repr=False)
    registers: bool = True


@dataclass(frozen=True)
class SentSettings:
    """An executor's settings for changing a stream's records. `values` is None if keys and values stay as they are."""

    to_topic: str
    target_kafka_partitions: int = 1
    records: RecordFilter = field(default_factory=RecordFilter)
    outgoing: Outgoing = field(default_factory=Outgoing)
    behavior_on_error: OnError = "fail"
    values: ValueSettings | None = None


class OutgoingRecords:
    """Distributes records over the target's kafka partitions, and leaves them as they are. A subclass changes them.

    The counts are of the records so far. `filtered_count` were dropped, `failed_count` failed and are left out, and
    `incomplete_count` have lost a part. `elsewhere` counts the records routed to other topics, by topic.

    Raises:
        ConfigError: the partitioner cannot be used.
    """

    def __init__(self, settings: Outgoing, target_kafka_partitions: int) -> None:
        self._settings = settings
        self._partitioner = new_kafka_partitioner(settings.partitioning, target_kafka_partitions)
        self.filtered_count = self.failed_count = self.incomplete_count = 0
        self.elsewhere: Counter[str] = Counter()
        self.counts_all = True
        """True if it counts the records that belong to no target. Of several streams of the same records, one does."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the records so far."""
        return ()

    def apply(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return pairs of a kafka partition of the target and its records in source order, ascending by the former.

        There are no pairs if no record is left. The batches have RECORD_SCHEMA: `partition` and `offset` are the
        source's.
        """
        return self.distribute(batch)

    def encode(self, batch: ConnectBatch) -> pa.RecordBatch:
        """Write the keys and values of decoded records. Only a subclass can do this."""
        raise NotImplementedError

    def distribute(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return the final records by kafka partition of the target, as `apply` does."""
        if not batch.num_rows:
            return []
        if self._settings.provenance_headers:
            batch = add_provenance(batch)
        numbers = self._partitioner.kafka_partitions(batch)
        if self._settings.partitioning == SOURCE:
            # All records go to one kafka partition, so there is nothing to sort.
            return [(int(numbers[0].as_py()), batch)]
        return _split_by_kafka_partition(batch, numbers)


def new_outgoing_stream(facts: StreamFacts, settings: SentSettings) -> OutgoingRecords:
    """Return the stage between a stream and the target, which changes records, if asked to, and deals them out."""
    if not (facts.is_decoded or settings.values or settings.outgoing.transforms):
        return OutgoingRecords(settings.outgoing, settings.target_kafka_partitions)
    new_changing_stream = load_extension("new_changing_stream")
    stream: OutgoingRecords = new_changing_stream(facts.topic, facts.kafka_partition, settings, facts.to_topics)
    return stream


@dataclass(frozen=True, slots=True)
class SentBatch:
    """Records by kafka partition of the target. After them, all of the stream below `next_source_offset` is sent."""

    next_source_offset: int
    parts: tuple[tuple[int, pa.RecordBatch], ...]


class SentStream:
    """The records sent from a stream, from source offset `start_offset` on. Iterate it once.

    If objects hold decoded keys and values, filters see the records as they are sent.
    """

    def __init__(
        self,
        task: RecordStream,
        settings: SentSettings,
        start_offset: int = 0,
        portions: Portions = lambda batch: [batch],
    ) -> None:
        self._portions = portions
        self._outgoing = new_outgoing_stream(task.facts, settings)
        self._source = task.records(start_offset)
        # The first of two readings has an outgoing stream of its own, so that nothing is counted twice.
        first_pass = _encode_records(task.records(start_offset), new_outgoing_stream(task.facts, settings))
        self._filtered = FilteredStream(_encode_records(self._source, self._outgoing), settings.records, first_pass)
        self._is_encoded = task.facts.is_decoded

    def __iter__(self) -> Iterator[SentBatch]:
        for batch in self._filtered:
            portions = self._portions(batch)
            for portion in join_same_offsets(portions) if self._is_encoded else portions:
                next_offset = int(portion.column("offset")[-1].as_py()) + 1
                yield SentBatch(next_offset, tuple(self._make_parts(portion)))

    def _make_parts(self, portion: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        """Return the records as they are sent, by kafka partition of the target."""
        if not self._is_encoded:
            return self._outgoing.apply(portion)
        return [(number, fill_timestamps(part)) for number, part in self._outgoing.distribute(portion)]

    def select(self, kafka_partition: int) -> Iterator[pa.RecordBatch]:
        """Yield only the records for one kafka partition of the target."""
        for batch in self:
            yield from (part for number, part in batch.parts if number == kafka_partition)

    def all_records(self) -> Iterator[pa.RecordBatch]:
        """Yield all records, for any kafka partition of the target."""
        for batch in self:
            yield from (part for _, part in batch.parts)

    @property
    def facts(self) -> ReadFacts:
        """The facts about the records read so far. The notes are about failed records, too."""
        facts = self._source.facts if self._outgoing.counts_all else ReadFacts()
        return replace(facts, notes=(*facts.notes, *self._outgoing.notes))

    @property
    def left_out(self) -> LeftOut:
        """The numbers of records left out so far, by reason."""
        return LeftOut(
            self._filtered.without_key_count if self._outgoing.counts_all or self._is_encoded else 0,
            self._outgoing.filtered_count,
            self._outgoing.failed_count,
            sum(self._outgoing.elsewhere.values()),
            self._outgoing.incomplete_count,
        )


def _encode_records(records: SourceRecords, outgoing: OutgoingRecords) -> Iterator[pa.RecordBatch]:
    """Yield whole records as they are, and decoded records with keys and values encoded."""
    for batch in records:
        encoded = outgoing.encode(batch) if isinstance(batch, ConnectBatch) else batch
        if encoded.num_rows:
            yield encoded


def changes_count(outgoing: Outgoing, on_error: OnError) -> bool:
    """Return True if transforms or failures may make the numbers of sent and read records differ."""
    has_filter = any(step.type == "Filter" for step in outgoing.transforms)
    may_fail = outgoing.transforms or outgoing.key or outgoing.value or outgoing.map_schema_ids
    leaves_out = on_error != "fail" and bool(may_fail)
    return has_filter or leaves_out or outgoing.has_mapper or routes_by_record(outgoing.transforms)


def add_provenance(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add PROVENANCE_HEADERS to the records, after their own headers."""
    column = batch.column("headers")
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    header_keys, header_values = column.flatten().flatten()
    size = batch.num_rows
    added = len(PROVENANCE_HEADERS)
    offsets = np.concatenate([[0], np.cumsum(counts + added)])
    rows = np.repeat(np.arange(size), counts)
    # The place of each header in the result. A header moves by the number of headers added to the records before.
    places = np.concatenate([np.arange(len(rows)) + added * rows, *(offsets[1:] - added + n for n in range(added))])
    order = pa.array(np.argsort(places))
    names = pa.concat_arrays([header_keys, *(pa.repeat(pa.scalar(name), size) for name in PROVENANCE_HEADERS)])
    source_columns = (batch.column("offset"), batch.column("partition"), batch.column("timestamp").cast(pa.int64()))
    source_values = (column.cast(pa.string()).cast(pa.binary()) for column in source_columns)
    values = pa.concat_arrays([header_values, *source_values])
    elements = pa.StructArray.from_arrays([names.take(order), values.take(order)], fields=list(HEADER))
    headers = pa.ListArray.from_arrays(offsets.astype(np.int32), elements, type=RECORD_SCHEMA.field("headers").type)
    return replace_column(batch, "headers", headers)


def _split_by_kafka_partition(batch: pa.RecordBatch, numbers: pa.Int32Array) -> list[tuple[int, pa.RecordBatch]]:
    """Return pairs of a number and its records in source order, ascending. `numbers` has the number of each record."""
    targets = numbers.to_numpy()
    # The sort is stable, so the records of one kafka partition keep their order.
    order = np.argsort(targets, kind="stable")
    kafka_partitions, starts = np.unique(targets[order], return_index=True)
    ends = np.append(starts[1:], len(targets))
    # One copy for all: each kafka partition then gets a slice of it.
    together = batch if len(starts) == 1 else batch.take(pa.array(order))
    bounds = zip(kafka_partitions.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(number, together.slice(start, end - start)) for number, start, end in bounds]


def fill_timestamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give records without a timestamp the timestamp 0, which the Kafka client replaces with the time of sending."""
    times = batch.column("timestamp").cast(pa.int64())
    unknown = pc.equal(times, NO_TIMESTAMP)
    if not pc.any(unknown).as_py():
        return batch
    filled = pc.if_else(unknown, UNSENDABLE_TIMESTAMP, times).cast(RECORD_SCHEMA.field("timestamp").type)
    return replace_column(batch, "timestamp", filled)


def join_same_offsets(portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join portions so that none ends between records of one source offset, made from one record by a transform."""
    open_portion: pa.RecordBatch | None = None
    for portion in portions:
        if open_portion is not None and open_portion.column("offset")[-1] == portion.column("offset")[0]:
            open_portion = pa.concat_batches([open_portion, portion])
            continue
        if open_portion is not None:
            yield open_portion
        open_portion = portion
    if open_portion is not None:
        yield open_portion
