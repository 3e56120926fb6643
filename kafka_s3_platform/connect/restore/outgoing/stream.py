"""The records of one source kafka partition to send: filtered, transformed, rewritten and distributed to the target's.

Sending, resuming and verifying all run this. The same archive and settings give the same records each time.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.config.keys.transforms import keeps_content
from kafka_s3_platform.connect.restore.outgoing.values import Rewritten, Values, ValueSettings
from kafka_s3_platform.connect.restore.source.foreign_stream import fill_timestamps, join_same_offsets
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.connect.transforms.headers import replace_column
from kafka_s3_platform.core.config.settings import RecordSettings, TransformSettings
from kafka_s3_platform.core.errors import ConfigError, RecordError
from kafka_s3_platform.core.model.batches import HEADER, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch, Outcome, Payload, RecordFailure, Transform, strip_branch
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.restore.filters.stage import FilteredStream
from kafka_s3_platform.core.restore.outgoing.partitioning import SOURCE, new_kafka_partitioner
from kafka_s3_platform.core.restore.request import LeftOut, OnError, Outgoing, ReadFacts, RecordFilter
from kafka_s3_platform.core.restore.source.base import RecordStream, SourceRecords, StreamFacts
from kafka_s3_platform.core.restore.target_topic import apply_routers, routes_by_record, routes_by_topic
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)

PROVENANCE = "kafka_s3.source."
PROVENANCE_HEADERS = (f"{PROVENANCE}offset", f"{PROVENANCE}partition", f"{PROVENANCE}timestamp")
"""They follow the record's own headers, in this order: whole numbers as text, the timestamp in epoch milliseconds."""

Portions = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Splits a batch into portions to be sent at once."""


def check_decoding(name: str, source: RecordSettings, outgoing: Outgoing) -> None:
    """Check that the converters of connector `name` can decode everything the restore changes.

    Raises:
        ConfigError: a converter of its file cannot be used here.
    """
    sees_all = any(map(_sees_values, outgoing.transforms))
    for side, converter, requested in (("key", source.key, outgoing.key), ("value", source.value, outgoing.value)):
        if converter.unread and (requested or sees_all):
            raise ConfigError(
                f"connector {name}: no restore can decode its {side}s, since the converter that its file (or "
                f"worker.properties) names cannot be used: {converter.unread}. `kafka-s3 check` shows why. Correct it, "
                f"or name ByteArrayConverter there, which takes them as bytes; or send the records as they are: "
                f"without converters and transforms that look into them (--outgoing, values.outgoing_file)"
            )


class OutgoingStream:
    """Makes the records to send from batches of one source kafka partition, by kafka partition of the target.

    The same batch always gives the same result, since a resumed restore and the verification run it again. `values`
    decodes before the transforms and encodes after them, as converters do in Connect. Without it keys and values are
    bytes.

    If transforms route records, only those for `to_topic` are sent. The others are left out, and `elsewhere` counts
    them by topic. `filtered_count` counts dropped records. A record that fails in a transform raises RecordError. With
    `behavior_on_error` ignore or log it counts as `failed_count` instead, and the first one is `first_failure`.
    `incomplete_count` counts re-encoded records that have lost a part.

    Raises:
        ConfigError: the settings cannot be used, or the transforms send the whole topic elsewhere than to `to_topic`.
    """

    def __init__(
        self,
        settings: Outgoing,
        topic: str,
        kafka_partition: int,
        target_kafka_partitions: int,
        to_topic: str,
        *,
        behavior_on_error: OnError = "fail",
        values: Values | None = None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._kafka_partition = kafka_partition
        self._to_topic = to_topic
        self._on_error = behavior_on_error
        self._values = values
        self._chain = _build_chain(settings.transforms, topic, to_topic)
        self._sees_values = any(map(_sees_values, settings.transforms))
        self._partitioner = new_kafka_partitioner(settings.partitioning, target_kafka_partitions)
        self.filtered_count = self.failed_count = self.incomplete_count = 0
        self._loss_notes = Notes()
        self.first_failure: RecordFailure | None = None
        self.elsewhere: Counter[str] = Counter()

    def apply(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return (kafka partition of the target, its records in source order), ascending; nothing if no record is left.

        The batches have RECORD_SCHEMA: `partition` and `offset` are the source's.
        """
        changes = self._chain is not None or (self._values is not None and not self._values.changes_nothing)
        if batch.num_rows and changes:
            moved = self._values.decode(batch, self._sees_values) if self._values else Outcome(ConnectBatch.of(batch))
            self._note(moved.failures)
            batch = self.encoded(moved.batch)
        return self.dealt(batch)

    def encoded(self, batch: ConnectBatch) -> pa.RecordBatch:
        """Transform decoded records, and write their keys and values as they are sent."""
        if self._chain is not None:
            moved = self._routed(self._moved(self._chain, batch), batch.records.column("topic"))
            self._note(moved.failures)
            batch = moved.batch
        done = self._values.encode(batch) if self._values else Rewritten(_write_bytes(batch))
        self._note(done.failures)
        self.incomplete_count += len({offset for offset, _ in done.losses})
        for _, notes in done.losses:
            self._loss_notes.join(notes)
        return done.batch

    def dealt(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Distribute final records. The result is as in `apply`."""
        if not batch.num_rows:
            return []
        if self._settings.provenance_headers:
            batch = add_provenance(batch)
        numbers = self._partitioner.kafka_partitions(batch)
        if self._settings.partitioning == SOURCE:
            # All records go to one kafka partition: nothing to sort.
            return [(int(numbers[0].as_py()), batch)]
        return _split_by_kafka_partition(batch, numbers)

    def _moved(self, chain: Transform, batch: ConnectBatch) -> Outcome:
        moved = chain.apply(batch)
        # By offset: a mapper may make several records from one.
        self.filtered_count += batch.num_rows - len(np.unique(moved.batch.offsets)) - len(moved.failures)
        return moved

    def _routed(self, moved: Outcome, before: pa.StringArray) -> Outcome:
        """Keep the records for the target: routed there, or with an unchanged topic."""
        topics = moved.batch.records.column("topic")
        mine = pc.is_in(topics, pa.array([self._to_topic, *before.unique().to_pylist()], pa.string()))
        # The common case needs no copy.
        if pc.all(mine).as_py():
            return moved
        self.elsewhere.update(topics.filter(pc.invert(mine)).to_pylist())
        return Outcome(moved.batch.take(np.flatnonzero(mine.to_numpy(zero_copy_only=False))), moved.failures)

    def _note(self, failures: Sequence[RecordFailure]) -> None:
        if not failures:
            return
        self.first_failure = self.first_failure or failures[0]
        if self._on_error == "fail":
            raise RecordError(self._said(failures[0]))
        self.failed_count += len(failures)
        if self._on_error == "log":
            for failure in failures:
                logger.error("%s", self._said(failure))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about headers with schema names, losses of re-encoded values, and failed records."""
        sentences = (*(self._values.notes if self._values else ()), *self._loss_notes.sentences)
        if self.first_failure is None:
            return sentences
        return (
            *sentences,
            f"{self.failed_count:,} records cannot be written and are left out. First, {_describe(self.first_failure)}",
        )

    def _said(self, failure: RecordFailure) -> str:
        return (
            f"restore of {self._topic}-{self._kafka_partition} to {self._to_topic}: {_describe(failure)}. The same "
            f"restore id with --behavior-on-error ignore or log (how.behavior_on_error) leaves such records out"
        )


def _describe(failure: RecordFailure) -> str:
    return (
        f"the record of source offset {failure.offset} fails in {failure.executing_class} ({failure.stage}): "
        f"{failure.exception}: {failure.message}"
    )


def _write_bytes(batch: ConnectBatch) -> pa.RecordBatch:
    """Write keys and values without a converter: bytes stay, text becomes UTF-8.

    Raises:
        ConfigError: a transform made another type of them.
    """
    records = replace_column(batch.records, "key", _encode_bytes(batch.key, "key"))
    return replace_column(records, "value", _encode_bytes(batch.value, "value"))


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
    values = pa.concat_arrays([header_values, *_make_provenance(batch)])
    elements = pa.StructArray.from_arrays([names.take(order), values.take(order)], fields=list(HEADER))
    headers = pa.ListArray.from_arrays(offsets.astype(np.int32), elements, type=RECORD_SCHEMA.field("headers").type)
    return replace_column(batch, "headers", headers)


def changes_count(outgoing: Outgoing, on_error: OnError) -> bool:
    """Return True if the number of sent records may differ from the number of passing ones."""
    has_filter = any(step.type == "Filter" for step in outgoing.transforms)
    may_fail = outgoing.transforms or outgoing.key or outgoing.value or outgoing.map_schema_ids
    leaves_out = on_error != "fail" and bool(may_fail)
    return has_filter or leaves_out or outgoing.has_mapper or routes_by_record(outgoing.transforms)


def _build_chain(transforms: Sequence[TransformSettings], topic: str, to_topic: str) -> Transform | None:
    if not transforms:
        return None
    try:
        chain = new_chain(transforms, topic)
    except ValueError as err:
        raise ConfigError(f"the transforms of the restore of {topic}: {err}") from err
    routed = apply_routers(transforms, topic) if routes_by_topic(transforms) else to_topic
    # Such a restore would leave out every record.
    if routed not in {topic, to_topic} and not routes_by_record(transforms):
        raise ConfigError(
            f"the transforms route topic {topic} to {routed}, the restore's target is {to_topic}: name only one of "
            f"them, --to-topic (to.topic) or a RegexRouter"
        )
    return chain


def _sees_values(step: TransformSettings) -> bool:
    """Return True if a step reads decoded keys or values."""
    return not keeps_content(step) or step.type in {"ExtractTopic$Key", "ExtractTopic$Value"}


def _encode_bytes(payload: Payload, side: str) -> pa.BinaryArray:
    if payload.raw is not None:
        return payload.raw
    values = [value.encode() if isinstance(value, str) else value for value in map(strip_branch, payload.objects)]
    if kinds := {type(value).__name__ for value in values if not isinstance(value, bytes | None)}:
        raise ConfigError(
            f"a transform made {' and '.join(sorted(kinds))} of the {side}, and no converter writes that: set "
            f"{side}.converter for the restore"
        )
    return pa.array(values, pa.binary())


def _make_provenance(batch: pa.RecordBatch) -> list[pa.BinaryArray]:
    columns = (batch.column("offset"), batch.column("partition"), batch.column("timestamp").cast(pa.int64()))
    return [column.cast(pa.string()).cast(pa.binary()) for column in columns]


def _split_by_kafka_partition(batch: pa.RecordBatch, numbers: pa.Int32Array) -> list[tuple[int, pa.RecordBatch]]:
    targets = numbers.to_numpy()
    # Stable: the records of one kafka partition keep their order.
    order = np.argsort(targets, kind="stable")
    kafka_partitions, starts = np.unique(targets[order], return_index=True)
    ends = np.append(starts[1:], len(targets))
    # One copy for all: each kafka partition then gets a slice of it.
    together = batch if len(starts) == 1 else batch.take(pa.array(order))
    bounds = zip(kafka_partitions.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(number, together.slice(start, end - start)) for number, start, end in bounds]


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
        self._outgoing = new_outgoing_stream(task.facts, settings)
        self._source = task.records(store, start_offset)
        # The first of two readings has an outgoing stream of its own, so that nothing is counted twice.
        first_pass = _encode_records(task.records(store, start_offset), new_outgoing_stream(task.facts, settings))
        self._filtered = FilteredStream(_encode_records(self._source, self._outgoing), settings.records, first_pass)
        self._is_encoded = task.facts.is_decoded

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
    def facts(self) -> ReadFacts:
        """Facts of the records read so far. The notes are also of failed ones."""
        facts = self._source.facts
        return replace(facts, notes=(*facts.notes, *self._outgoing.notes))

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


def _encode_records(records: SourceRecords, outgoing: OutgoingStream) -> Iterator[pa.RecordBatch]:
    for batch in records:
        encoded = outgoing.encoded(batch) if isinstance(batch, ConnectBatch) else batch
        if encoded.num_rows:
            yield encoded


def new_outgoing_stream(facts: StreamFacts, settings: SentSettings) -> OutgoingStream:
    """Make the stage from a stream's records to the sent ones."""
    return OutgoingStream(
        settings.outgoing,
        facts.topic,
        facts.kafka_partition,
        settings.target_kafka_partitions,
        settings.to_topic,
        behavior_on_error=settings.behavior_on_error,
        values=None if settings.values is None else Values(settings.values),
    )
