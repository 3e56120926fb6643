"""What happens to records between Kafka and their objects: converted, transformed, sent to their buckets.

Every stage says for each record whether it goes on, is left out, or failed; so what was read is always what was
written, filtered and dead-lettered together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.archive.bad_records import BadRecords
from kafka_s3_platform.archive.evolution import SchemaTargets, written_with
from kafka_s3_platform.archive.task import HOUR_MS, ScanTask
from kafka_s3_platform.archive.writers import Bucket, BucketPart, put_failures
from kafka_s3_platform.converters import Converter, new_converter
from kafka_s3_platform.formats.byte_array import unsafe, unsafe_keys
from kafka_s3_platform.formats.writers import WITH_SCHEMA
from kafka_s3_platform.kafka.dead_letters import DeadLetterQueue, tolerated
from kafka_s3_platform.model.connect import (
    NO_SCHEMA,
    ConnectBatch,
    Int32s,
    Int64s,
    Outcome,
    Payload,
    RecordFailure,
    Schema,
)
from kafka_s3_platform.model.segment import OUT_OF_RANGE
from kafka_s3_platform.partitioners.extractors import new_extractor
from kafka_s3_platform.partitioners.partitioners import new_partitioner
from kafka_s3_platform.partitioners.time_based import hour_starts
from kafka_s3_platform.transforms import new_chain

Mask = npt.NDArray[np.bool_]
Step = Callable[[ConnectBatch], Outcome]

TIME_BASED = ("Hourly", "Daily", "TimeBased")
_READER = "org.apache.kafka.clients.consumer.KafkaConsumer"
_SERIALIZATION = "org.apache.kafka.common.errors.SerializationException"
_NOTHING: Mapping[int, str] = {}


@dataclass
class Counts:
    """Records of one range: read, left out, failed (tolerated, or not), and what the others became."""

    read: int = 0
    filtered: int = 0
    dead_letters: int = 0
    unresolved: int = 0
    output: int = 0


@dataclass(frozen=True)
class _Places:
    """Per record: its time and hour (epoch ms; NO_HOUR out of range) and its encoded partition, as codes of `names`."""

    times: Int64s
    hours: Int64s
    names: Sequence[str]
    codes: Int32s


_NO_HOUR = -(2**63)


class Pipeline:
    """The stages for one range of a kafka partition. `dead_letters` is None where there is no such topic.

    `watermark_ms` is how far time has come before the range, to tell which records are late. Records that fail and are
    not tolerated go to `bad`.
    """

    def __init__(
        self, task: ScanTask, dead_letters: DeadLetterQueue | None, watermark_ms: int, bad: BadRecords
    ) -> None:
        self._task, self._dead_letters, self._bad = task, dead_letters, bad
        self.counts = Counts()
        self._steps = list(_steps(task))
        self._placing = _Placing(task)
        self._targets = SchemaTargets(task.layout.schema_compatibility)
        self.watermark_ms = watermark_ms

    def parts(self, records: pa.RecordBatch, spoiled: Mapping[int, str] = _NOTHING) -> Iterator[BucketPart]:
        """The records of a batch by bucket, each in offset order, without those that fail.

        Those of `spoiled` (offset -> reason) are not what they were already when they were read.
        """
        self._records = records
        outcome = _readable(ConnectBatch.of(records), spoiled)
        for step in self._steps:
            outcome = _then(outcome, step)
        places, failures = self._placing.places(outcome.batch)
        batch, failures = outcome.batch, (*outcome.failures, *failures)
        if failures:
            rows = np.flatnonzero(~np.isin(batch.offsets, [f.offset for f in failures]))
            batch, places = batch.take(rows), _places_at(places, rows)
        failed = self._left_out(failures)
        kept = batch.num_rows if batch.ordinals is None else len(np.unique(batch.offsets))
        self.counts.read += records.num_rows
        self.counts.filtered += records.num_rows - failed - kept
        self.counts.output += batch.num_rows
        if batch.num_rows:
            yield from self._by_bucket(batch, places)
        self._bad.join(records)

    def refuse(
        self,
        failures: Sequence[RecordFailure],
        left_out: int,
        *,
        is_one_of_many: bool = False,
        is_tolerable: bool = True,
    ) -> None:
        """Records of the part in hand that their format cannot hold, and how many outputs are left out with them.

        Those of a schema that the format cannot hold are not tolerated: all records of a topic may be of it.

        Raises:
            RecordError: the record is one of many that a mapper made of one, which may be written already; and errors
                are not tolerated.
        """
        task = self._task
        if is_one_of_many:
            tolerated(task.records.errors, failures, task.writer.topic, task.kafka_partition)
        self._left_out(failures, is_tolerable=is_tolerable or is_one_of_many)
        self.counts.output -= left_out

    def _left_out(self, failures: Sequence[RecordFailure], *, is_tolerable: bool = True) -> int:
        """Send records that failed to the dead letter topic, or note them as bad; how many they are."""
        failed = len({f.offset for f in failures})
        if self._task.records.errors.tolerance == "none" or not is_tolerable:
            self._bad.note(failures)
            self.counts.unresolved += failed
            return failed
        if self._dead_letters is not None:
            self._dead_letters.send(self._records, failures)
        self.counts.dead_letters += failed
        return failed

    def _by_bucket(self, batch: ConnectBatch, places: _Places) -> Iterator[BucketPart]:
        late = self._late(batch.timestamps, places.hours)
        schemas, schema_codes = self._schemas(batch)
        keys, key_codes = self._key_schemas(batch)
        topics = batch.records.column("topic").dictionary_encode()
        hours = pa.array(places.hours).dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = _combined(places.codes, hours.indices.to_numpy(), topics.indices.to_numpy(), schema_codes, key_codes)
        for rows in _groups(codes):
            first = rows[0]
            hour, topic = int(places.hours[first]), names[topics.indices[int(first)].as_py()]
            bucket = Bucket(
                None if hour == _NO_HOUR else hour,
                places.names[places.codes[first]],
                None if topic == self._task.writer.topic else topic,
                schemas[schema_codes[first]],
                keys[key_codes[first]],
            )
            part = written_with(batch.take(rows), bucket.schema)
            yield BucketPart(bucket, part, places.times[rows], int(late[rows].sum()))

    def _schemas(self, batch: ConnectBatch) -> tuple[Sequence[Schema | None], Int32s]:
        if self._task.layout.is_envelope:
            return [None], np.zeros(batch.num_rows, np.int32)
        return self._targets.choose(batch.value)

    def _key_schemas(self, batch: ConnectBatch) -> tuple[Sequence[Schema | None], Int32s]:
        if self._task.layout.keys_format is None or not batch.key.schemas:
            return [None], np.zeros(batch.num_rows, np.int32)
        return [*batch.key.schemas, None], batch.key.codes

    def _late(self, times: Int64s, hours: Int64s) -> Mask:
        """Which records came after one that was past their hour's end and the allowed lateness."""
        valid = hours != _NO_HOUR
        reached = times if self._placing.by_record_time else hours
        seen = np.maximum.accumulate(np.append(self.watermark_ms, np.where(valid, reached, self.watermark_ms)))
        self.watermark_ms = int(seen[-1])
        late: Mask = valid & (np.where(valid, hours, 0) + HOUR_MS + self._task.lateness_ms <= seen[:-1])
        return late


def _readable(batch: ConnectBatch, spoiled: Mapping[int, str]) -> Outcome:
    bad = np.isin(batch.offsets, list(spoiled)) if spoiled else np.zeros(0, bool)
    if not bad.any():
        return Outcome(batch)
    failures = (
        RecordFailure(o, "HEADER_CONVERTER", _READER, _SERIALIZATION, spoiled[o]) for o in batch.offsets[bad].tolist()
    )
    return Outcome(batch.take(np.flatnonzero(~bad)), tuple(failures))


def _then(outcome: Outcome, step: Step) -> Outcome:
    if not outcome.batch.num_rows:
        return outcome
    done = step(outcome.batch)
    return Outcome(done.batch, (*outcome.failures, *done.failures))


def _steps(task: ScanTask) -> Iterator[Step]:
    """What the settings ask for. The envelope keeps bytes: values are understood only where something looks at them."""
    layout, records = task.layout, task.records
    looks_at_values = layout.partitioner not in {"Default", *TIME_BASED} or layout.timestamp_extractor not in {
        "Record",
        "Wallclock",
    }
    if not layout.is_envelope or looks_at_values or records.transforms:
        yield _Conversion(task).apply
    if records.transforms:
        yield new_chain(records.transforms, task.writer.topic).apply
    if not layout.is_envelope:
        yield _Writable(task).apply


class _Conversion:
    """Keys and values as their converters understand them."""

    def __init__(self, task: ScanTask) -> None:
        records, topic = task.records, task.writer.topic
        self._value: Converter = new_converter(records.value, topic, is_key=False)
        reads_keys = task.layout.keys_format is not None or bool(records.transforms)
        self._key: Converter | None = new_converter(records.key, topic, is_key=True) if reads_keys else None

    def apply(self, batch: ConnectBatch) -> Outcome:
        values = self._value.convert(batch.records.column("value"), batch.offsets)
        batch = replace(batch.take(values.kept), value=values.payload)
        if self._key is None or not batch.num_rows:
            return Outcome(batch, values.failures)
        keys = self._key.convert(batch.records.column("key"), batch.offsets)
        return Outcome(replace(batch.take(keys.kept), key=keys.payload), (*values.failures, *keys.failures))


class _Writable:
    """What the sink itself refuses or leaves out, whatever the transforms made of it."""

    def __init__(self, task: ScanTask) -> None:
        self._layout = task.layout
        self._targets = SchemaTargets(task.layout.schema_compatibility)
        self._with_schema: bool | None = None

    def apply(self, batch: ConnectBatch) -> Outcome:
        nulls = batch.value.is_null
        if self._layout.null_values == "ignore" and nulls.any():
            batch = batch.take(np.flatnonzero(~nulls))
            nulls = np.zeros(batch.num_rows, bool)
        refusals = list(self._refusals(batch, nulls)) if batch.num_rows else []
        failures = (put_failures(batch.offsets[mask], reason) for mask, reason in refusals)
        return Outcome(batch, tuple(chain.from_iterable(failures)))

    def _refusals(self, batch: ConnectBatch, nulls: Mask) -> Iterator[tuple[Mask, str]]:
        if self._layout.null_values == "fail":
            yield nulls, "the value is null; behavior.on.null.values=ignore or write lets such records pass"
        yield (
            self._mixed(batch.value, nulls),
            "records with and without a schema cannot be mixed, and the first one of this range was of the other kind",
        )
        yield (
            self._targets.unordered(batch.value),
            f"schema.compatibility={self._layout.schema_compatibility} needs the Registry's version of its schema",
        )
        yield (
            unsafe(batch, self._layout) & ~nulls,
            "the value holds the separator of records, so it would read back as several records",
        )
        if self._layout.keys_format is not None:
            no_key = batch.key.is_null
            yield no_key, "the key is null, and an object of keys (store.kafka.keys) holds none"
            yield unsafe_keys(batch, self._layout) & ~no_key, "the key holds the separator of records"

    def _mixed(self, values: Payload, nulls: Mask) -> Mask:
        if self._layout.format in WITH_SCHEMA:
            # those without one are refused by their writer, whichever comes first
            return np.zeros(len(nulls), bool)
        has_schema = values.codes != NO_SCHEMA
        if self._with_schema is None and not nulls.all():
            self._with_schema = bool(has_schema[np.flatnonzero(~nulls)[0]])
        mixed: Mask = ~nulls & (has_schema != self._with_schema)
        return mixed


class _Placing:
    """Where records belong: the hour of their timestamp, and their encoded partition."""

    def __init__(self, task: ScanTask) -> None:
        self._task = task
        layout = task.layout
        self._partitioner = new_partitioner(layout)
        self.by_record_time = layout.timestamp_extractor != "Wallclock"
        self._extractor = None if layout.timestamp_extractor in {"Record", "Wallclock"} else new_extractor(layout)
        # a record out of range has no folder of its own time, unless another time than its own decides the folder
        self._sets_apart = self._extractor is None and layout.partitioner in TIME_BASED

    def places(self, batch: ConnectBatch) -> tuple[_Places, tuple[RecordFailure, ...]]:
        """Each record's place, and which ones have none: those stand at a place without meaning."""
        hours = self._hours(batch)
        times, failures = self._times(batch, hours)
        found = self._partitioner.encode(batch, times)
        names, codes = [*found.names, OUT_OF_RANGE, self._task.layout.tombstone_partition], found.codes
        if self._sets_apart:
            codes = np.where(hours == _NO_HOUR, len(names) - 2, codes)
        if self._writes_tombstones:
            codes = np.where(batch.value.is_null, len(names) - 1, codes)
        return _Places(times, hours, names, codes), (*failures, *found.failures)

    @property
    def _writes_tombstones(self) -> bool:
        layout = self._task.layout
        return layout.null_values == "write" and not layout.is_envelope

    def _hours(self, batch: ConnectBatch) -> Int64s:
        """Per record: the start of the hour it is archived in, _NO_HOUR outside of the archive's span."""
        task = self._task
        if not self.by_record_time:
            starts, hours = (np.array(c, np.int64) for c in zip(*task.hour_offsets, strict=True))
            planned: Int64s = hours[np.searchsorted(starts, batch.offsets, side="right") - 1]
            return planned
        times = batch.timestamps
        valid = (times >= task.earliest_ms) & (times < task.latest_ms)
        inside = times if valid.all() else np.where(valid, times, task.earliest_ms)
        return np.where(valid, hour_starts(inside, task.layout.timezone), _NO_HOUR)

    def _times(self, batch: ConnectBatch, hours: Int64s) -> tuple[Int64s, list[RecordFailure]]:
        if not self.by_record_time:
            return hours, []
        if self._extractor is None:
            return np.where(hours == _NO_HOUR, self._task.earliest_ms, batch.timestamps), []
        found = self._extractor.extract(batch)
        missing = found.times.is_null().to_numpy(zero_copy_only=False)
        if self._writes_tombstones:
            missing &= ~batch.value.is_null
        offsets, name = batch.offsets, type(self._extractor).__name__
        failures = [
            RecordFailure(
                int(offsets[row]),
                "TASK_PUT",
                name,
                "org.apache.kafka.connect.errors.DataException",
                found.reasons.get(row, "the timestamp extractor has no answer"),
            )
            for row in np.flatnonzero(missing).tolist()
        ]
        return found.times.fill_null(self._task.earliest_ms).to_numpy(), failures


def _places_at(places: _Places, rows: npt.NDArray[np.int64]) -> _Places:
    return replace(places, times=places.times[rows], hours=places.hours[rows], codes=places.codes[rows])


def _combined(*codes: npt.NDArray[np.integer]) -> Int64s:
    """One code for each combination that occurs."""
    found = np.zeros(len(codes[0]), np.int64)
    for other in codes:
        if len(other) and (other == other[0]).all():
            continue
        # numbered anew each time, so that the product of two stays small
        pair = found * (int(other.max()) + 2) + other + 1
        found = pa.array(pair).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _groups(codes: Int64s) -> Iterator[npt.NDArray[np.int64]]:
    """The rows of each code, ascending; the codes in their order."""
    if (codes == codes[0]).all():
        yield np.arange(len(codes))
        return
    order = np.argsort(codes, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
