"""Assign the records read from Kafka to their buckets, after converting and transforming them if so configured.

A *bucket* is what the records of one segment have in common: their hour, topic, folder and schema. At every stage, each
record passes, is left out, or fails. So each record is counted as written, as filtered, or as failed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.core.archive.failures import BadRecords
from kafka_s3_platform.core.archive.task import ScanTask
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.kafka.dead_letters import DeadLetterQueue, build_record_error, check_tolerance
from kafka_s3_platform.core.model.connect import (
    DATA_EXCEPTION,
    NO_SCHEMA,
    ConnectBatch,
    Int32s,
    Int64s,
    Mask,
    Outcome,
    Payload,
    RecordFailure,
    Schema,
)
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.times import HOUR_MS, TIME_BASED
from kafka_s3_platform.core.partitioners.extractors import extract_times, new_extractor
from kafka_s3_platform.core.partitioners.partitioners import find_hour_starts, new_partitioner
from kafka_s3_platform.core.segments.target import Bucket, BucketPart

Step = Callable[[ConnectBatch], Outcome]

_READER = "org.apache.kafka.clients.consumer.KafkaConsumer"
_SERIALIZATION = "org.apache.kafka.common.errors.SerializationException"
_NOTHING: Mapping[int, str] = {}

_NO_HOUR = -(2**63)


@dataclass
class Counts:
    """The numbers of records of one range.

    `filtered` were left out. `dead_letters` failed and are tolerated; `unresolved` failed and are not. `output` counts
    written records, because a transform may make several of one.
    """

    read: int = 0
    filtered: int = 0
    dead_letters: int = 0
    unresolved: int = 0
    output: int = 0


@dataclass(frozen=True)
class _Places:
    """The place of each record: its time and its hour (epoch ms), and its encoded partition as an index into `names`.

    The hour is `_NO_HOUR` if the time is out of range.
    """

    times: Int64s
    hours: Int64s
    names: Sequence[str]
    codes: Int32s


class Pipeline:
    """The stages for one range of a kafka partition. The scan calls it with each batch the reader yields.

    `dead_letters` is None if failed records are not tolerated, or are neither sent to a dead letter topic nor logged.
    `watermark_ms` is the latest time before the range, by which late records are recognised. `bad` collects the failed
    records that are not tolerated.
    """

    def __init__(
        self, task: ScanTask, dead_letters: DeadLetterQueue | None, watermark_ms: int, bad: BadRecords
    ) -> None:
        self._task = task
        self._dead_letters = dead_letters
        self._bad = bad
        self.counts = Counts()
        self.notes = Notes()
        self._steps = _list_steps(task, self.notes)
        self._placer = _Placer(task)
        self._project_values = _find_projection(task.layout, self.notes)
        self.watermark_ms = watermark_ms

    def group_by_bucket(
        self, records: pa.RecordBatch, unreadable: Mapping[int, str] = _NOTHING
    ) -> Iterator[BucketPart]:
        """Yield the records of a batch by bucket, in offset order within each bucket, without failed ones.

        The `unreadable` records (offset -> reason), whose headers the reader could not parse, fail too.
        """
        self._records = records
        outcome = _set_unreadable_aside(ConnectBatch.of(records), unreadable)
        for step in self._steps:
            outcome = _apply_step(outcome, step)
        places, failures = self._placer.find_places(outcome.batch)
        batch = outcome.batch
        failures = (*outcome.failures, *failures)
        if failures:
            rows = np.flatnonzero(~np.isin(batch.offsets, [f.offset for f in failures]))
            batch = batch.take(rows)
            places = replace(places, times=places.times[rows], hours=places.hours[rows], codes=places.codes[rows])
        self._handle_failures(failures)
        failed_count = len({f.offset for f in failures})
        passed_count = batch.num_rows if batch.ordinals is None else len(np.unique(batch.offsets))
        self.counts.read += records.num_rows
        self.counts.filtered += records.num_rows - failed_count - passed_count
        self.counts.output += batch.num_rows
        if batch.num_rows:
            yield from self._split_by_bucket(batch, places)
        self._bad.join(records)

    def refuse(
        self,
        failures: Sequence[RecordFailure],
        output_count: int,
        *,
        is_one_of_many: bool = False,
        is_tolerable: bool = True,
    ) -> None:
        """Note records of the current part that their format cannot hold. Their `output_count` outputs are not written.

        If the format cannot hold the schema itself (`is_tolerable` is false), the records are not tolerated, because
        all records of a topic may have this schema. If a mapper made several records of one (`is_one_of_many`), others
        of them may be written already. In this case, raises RecordError if errors are not tolerated, or if the record's
        dead letter was refused.
        """
        task = self._task
        if is_one_of_many:
            check_tolerance(task.records.errors, failures, task.writer.topic, task.kafka_partition)
        unresolved = self._handle_failures(failures, is_tolerable=is_tolerable or is_one_of_many)
        if is_one_of_many and unresolved:
            raise build_record_error(unresolved, task.writer.topic, task.kafka_partition)
        self.counts.output -= output_count

    def _handle_failures(
        self, failures: Sequence[RecordFailure], *, is_tolerable: bool = True
    ) -> Sequence[RecordFailure]:
        """Send failed records to the dead letter topic, or note them as unresolved. Return the unresolved ones."""
        failed_count = len({f.offset for f in failures})
        if self._task.records.errors.tolerance == "none" or not is_tolerable:
            unresolved_failures = failures
        elif self._dead_letters is not None:
            unresolved_failures = self._dead_letters.send(self._records, failures)
        else:
            unresolved_failures = ()
        self._bad.note(unresolved_failures)
        unresolved_count = len({f.offset for f in unresolved_failures})
        self.counts.unresolved += unresolved_count
        self.counts.dead_letters += failed_count - unresolved_count
        return unresolved_failures

    def _split_by_bucket(self, batch: ConnectBatch, places: _Places) -> Iterator[BucketPart]:
        """Yield the rows of each bucket, with the values projected to the schemas they are written with."""
        late = self._find_late(batch.timestamps, places.hours)
        values = self._project_values(batch.value)
        schemas, schema_codes = _list_schemas(values, is_needed=not self._task.layout.is_envelope)
        keys, key_codes = _list_schemas(batch.key, is_needed=self._task.layout.keys_format is not None)
        topics = batch.records.column("topic").dictionary_encode()
        hours = pa.array(places.hours).dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = _combine_codes(
            places.codes, hours.indices.to_numpy(), topics.indices.to_numpy(), schema_codes, key_codes
        )
        for rows in _group_rows(codes):
            first = rows[0]
            hour = int(places.hours[first])
            topic = names[topics.indices[int(first)].as_py()]
            bucket = Bucket(
                None if hour == _NO_HOUR else hour,
                places.names[places.codes[first]],
                None if topic == self._task.writer.topic else topic,
                schemas[schema_codes[first]],
                keys[key_codes[first]],
            )
            part = batch.take(rows)
            if values is not batch.value and (values.codes[rows] != batch.value.codes[rows]).any():
                part = replace(part, value=values.take(rows))
            yield BucketPart(bucket, part, places.times[rows], int(late[rows].sum()))

    def _find_late(self, times: Int64s, hours: Int64s) -> Mask:
        """Return the mask of late records. A record is late if one before it was past its hour and the lateness."""
        is_in_range = hours != _NO_HOUR
        times_reached = times if self._placer.by_record_time else hours
        latest = np.maximum.accumulate(
            np.append(self.watermark_ms, np.where(is_in_range, times_reached, self.watermark_ms))
        )
        self.watermark_ms = int(latest[-1])
        late: Mask = is_in_range & (
            np.where(is_in_range, hours, 0) + HOUR_MS + self._task.archive.allowed_lateness_ms <= latest[:-1]
        )
        return late


def _set_unreadable_aside(batch: ConnectBatch, unreadable: Mapping[int, str]) -> Outcome:
    """Return the batch without the records of the `unreadable` offsets, and these as failures with their reason."""
    is_unreadable = np.isin(batch.offsets, list(unreadable)) if unreadable else np.zeros(0, bool)
    if not is_unreadable.any():
        return Outcome(batch)
    failures = (
        RecordFailure(o, "HEADER_CONVERTER", _READER, _SERIALIZATION, unreadable[o])
        for o in batch.offsets[is_unreadable].tolist()
    )
    return Outcome(batch.take(np.flatnonzero(~is_unreadable)), tuple(failures))


def _apply_step(outcome: Outcome, step: Step) -> Outcome:
    """Apply the next step to the records that have passed so far. Its failures are added to the earlier ones."""
    if not outcome.batch.num_rows:
        return outcome
    step_outcome = step(outcome.batch)
    return Outcome(step_outcome.batch, (*outcome.failures, *step_outcome.failures))


def _list_steps(task: ScanTask, notes: Notes) -> Sequence[Step]:
    """List the steps for the settings. An envelope whose values nothing reads keeps their bytes, so it has no steps."""
    layout = task.layout
    looks_at_values = layout.partitioner not in {"Default", *TIME_BASED} or layout.timestamp_extractor not in {
        "Record",
        "Wallclock",
    }
    if layout.is_envelope and not looks_at_values and not task.records.transforms:
        return ()
    list_record_steps = load_extension("list_record_steps")
    return [*list_record_steps(layout, task.records, task.writer.topic, notes)]


def _find_projection(layout: LayoutSettings, notes: Notes) -> Callable[[Payload], Payload]:
    """Return the function that projects values to the schemas they are written with. An envelope keeps the bytes."""
    if layout.is_envelope:
        return lambda values: values
    new_schema_targets = load_extension("new_schema_targets")
    project: Callable[[Payload], Payload] = new_schema_targets(layout.schema_compatibility, notes).project
    return project


class _Placer:
    """Finds the place of each record: its hour in the archive, and its encoded partition."""

    def __init__(self, task: ScanTask) -> None:
        self._task = task
        layout = task.layout
        self._partitioner = new_partitioner(layout)
        self.by_record_time = layout.timestamp_extractor != "Wallclock"
        self._extractor = None if layout.timestamp_extractor in {"Record", "Wallclock"} else new_extractor(layout)
        # A record's own time, if out of range, cannot name its folder. The time of an extractor can.
        self._sets_apart = self._extractor is None and layout.partitioner in TIME_BASED

    def find_places(self, batch: ConnectBatch) -> tuple[_Places, tuple[RecordFailure, ...]]:
        """Return the place of each record, and failures for records without one, whose place has no meaning."""
        hours = self._find_hours(batch)
        times, failures = self._extract_times(batch, hours)
        encoding = self._partitioner.encode(batch, times)
        layout = self._task.layout
        names = [*encoding.names, layout.out_of_range_folder, layout.tombstone_partition]
        codes = encoding.codes
        if self._sets_apart:
            codes = np.where(hours == _NO_HOUR, len(names) - 2, codes)
        if self._writes_tombstones:
            codes = np.where(batch.value.is_null, len(names) - 1, codes)
        return _Places(times, hours, names, codes), (*failures, *encoding.failures)

    @property
    def _writes_tombstones(self) -> bool:
        layout = self._task.layout
        return layout.null_values == "write" and not layout.is_envelope

    def _find_hours(self, batch: ConnectBatch) -> Int64s:
        """Return for each record the start of its hour in epoch ms, or `_NO_HOUR` outside the archive's span."""
        task = self._task
        if not self.by_record_time:
            starts, hours = (np.array(c, np.int64) for c in zip(*task.hour_offsets, strict=True))
            planned: Int64s = hours[np.searchsorted(starts, batch.offsets, side="right") - 1]
            return planned
        times = batch.timestamps
        valid = (times >= task.earliest_ms) & (times < task.latest_ms)
        inside = times if valid.all() else np.where(valid, times, task.earliest_ms)
        return np.where(valid, find_hour_starts(inside, task.layout.timezone), _NO_HOUR)

    def _extract_times(self, batch: ConnectBatch, hours: Int64s) -> tuple[Int64s, list[RecordFailure]]:
        """Return for each record the time (epoch ms) that chooses its folder, and failures for records without one."""
        if not self.by_record_time:
            return hours, []
        if self._extractor is None:
            return np.where(hours == _NO_HOUR, self._task.earliest_ms, batch.timestamps), []
        extracted = extract_times(self._extractor, batch)
        missing = extracted.times.is_null().to_numpy(zero_copy_only=False)
        if self._writes_tombstones:
            missing &= ~batch.value.is_null
        offsets = batch.offsets
        name = type(self._extractor).__name__
        failures = [
            RecordFailure(
                int(offsets[row]),
                "TASK_PUT",
                name,
                DATA_EXCEPTION,
                extracted.reasons.get(row, "the timestamp extractor has no answer"),
            )
            for row in np.flatnonzero(missing).tolist()
        ]
        return extracted.times.fill_null(self._task.earliest_ms).to_numpy(), failures


def _list_schemas(payload: Payload, *, is_needed: bool) -> tuple[Sequence[Schema | None], Int32s]:
    """List the schemas of objects, with None for records without one, and each record's index in the list."""
    if not is_needed or not payload.schemas:
        return [None], np.zeros(len(payload), np.int32)
    return [*payload.schemas, None], np.where(payload.codes == NO_SCHEMA, len(payload.schemas), payload.codes)


def _combine_codes(*codes: npt.NDArray[np.integer]) -> Int64s:
    """Return for each row one code of its combination of `codes`: two rows have the same if they agree in all."""
    combined = np.zeros(len(codes[0]), np.int64)
    for other in codes:
        if len(other) and (other == other[0]).all():
            continue
        # numbered anew each time: the product of all the counts could overflow 64 bits
        pair = combined * (int(other.max()) + 2) + other + 1
        combined = pa.array(pair).dictionary_encode().indices.to_numpy().astype(np.int64)
    return combined


def _group_rows(codes: Int64s) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of each code. The codes ascend, and so do the rows of one code."""
    if (codes == codes[0]).all():
        yield np.arange(len(codes))
        return
    order = np.argsort(codes, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
