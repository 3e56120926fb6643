"""Read the objects of another sink for a restore: their records before filters choose among them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import ConnectorConfig, ConverterSettings, RecordSettings, StoreSettings
from kafka_s3_platform.converters.base import STRING_SCHEMA, StringPayload, make_codes
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.model.batches import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.model.connect import ConnectBatch, Payload
from kafka_s3_platform.restore.documents import DECIDED, MENDED
from kafka_s3_platform.restore.source.base import Encoder, ReadFacts
from kafka_s3_platform.sources.objects import BadObject, ObjectGroup, has_record_times
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.store.objects import ObjectStore

NOW = 0
"""The timestamp (epoch ms) replaced by the Kafka client with the time of sending."""


@dataclass(frozen=True)
class ForeignStreamTask:
    """The objects of one source kafka partition, and the selection of their records.

    A record must be in one of `times`, half-open windows (epoch ms), unless objects have no times; empty: every time.
    Offsets are half-open; None: no bound. `left_out` are the objects left out by this restore (key -> reason), None
    before the decision.
    """

    config: ConnectorConfig = field(repr=False)
    group: ObjectGroup
    times: tuple[tuple[int, int], ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    allow_unsendable_timestamps: bool = False
    left_out: Mapping[str, str] | None = None

    @property
    def store(self) -> StoreSettings:
        return self.config.store

    @property
    def topic(self) -> str:
        return self.group.topic

    @property
    def kafka_partition(self) -> int:
        return self.group.kafka_partition

    @property
    def named_topic(self) -> str:
        """The source's topic: one restore may read several topics."""
        return self.topic

    @property
    def is_found_by_content(self) -> bool:
        """Always false: several topics may go to one target, with indistinguishable equal records."""
        return False

    @property
    def sends_any_timestamp(self) -> bool:
        """Always true: known timestamps are checked when they are read, unknown ones become the time of sending."""
        return True

    @property
    def record_count(self) -> None:
        """Nobody knows how many records there are before they are read."""

    @property
    def record_bytes(self) -> None:
        """Nobody knows the bytes of the records before they are read."""

    @property
    def object_bytes(self) -> int:
        """Bytes of the objects."""
        return self.group.size

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return self.group.size

    def passed(self, record_count: int, next_source_offset: int) -> int:  # noqa: ARG002 - offsets tell it
        """Return the approximate bytes of the objects before the offset. 0 if names hold no offsets."""
        firsts = [s.name.first_offset for s in self.group.sets]
        offsets = [first for first in firsts if first is not None]
        if not offsets or len(offsets) < len(firsts):
            return 0
        sizes = [sum(o.size for o in s.objects) for s in self.group.sets]
        return int(np.interp(next_source_offset, offsets, np.cumsum([0, *sizes[:-1]])))

    @property
    def is_decoded(self) -> bool:
        """True if objects hold decoded keys and values, to be encoded for the target, False for whole records."""
        return not self.config.layout.is_envelope

    def leaving_out(self, left_out: Mapping[str, str] | None) -> "ForeignStreamTask":
        """Return the task without the objects decided to be left out."""
        return replace(self, left_out=left_out)

    def records(self, store: ObjectStore, encoder: Encoder, start_offset: int) -> "ForeignRecords":
        """Return the records as bytes: decoded ones are encoded."""
        return ForeignRecords(self, encoder, store, start_offset)

    def bad_objects(self, store: ObjectStore) -> Iterator[BadObject]:
        """Find the bad objects of the task: read the wanted part of each object."""
        records = WantedRecords(self, store)
        # Bad objects are found by reading to the end.
        for _ in records:
            pass
        return (replace(bad, why=f"{bad.why}. {MENDED}") for bad in records.bad_objects)


LEAVE_OUT = (
    "If nothing of it was sent, the restore does without it under the same restore id with --behavior-on-error ignore "
    "or log (how.behavior_on_error); else a restore to another topic does, under another restore id. A restore sends "
    "objects as they were when it began: what was put in the place of one is sent by another restore, too"
)


class WantedRecords:
    """The records of a task's windows from source offset `start_offset` on, in source order, unchanged.

    A record without a timestamp in its object has NO_TIMESTAMP.

    Raises (when iterated):
        IntegrityError: an object is missing, replaced or damaged, and `behavior.on.error` is `fail`.
    """

    def __init__(self, task: ForeignStreamTask, store: ObjectStore, start_offset: int = 0) -> None:
        self._task = task
        start = max(start_offset, task.from_offset or 0)
        by_offset = (task.from_offset, task.to_offset) != (None, None)
        self._stream = ForeignStream(
            task.config, task.group, store, start, task.to_offset, task.left_out, by_offset=by_offset
        )

    def __iter__(self) -> Iterator[ConnectBatch]:
        for batch in self._read():
            selected = batch.take(np.flatnonzero(self._is_wanted(batch)))
            if selected.num_rows:
                yield selected

    def _read(self) -> Iterator[ConnectBatch]:
        try:
            yield from self._stream.batches()
        except IntegrityError as err:
            raise IntegrityError(f"{err}. {LEAVE_OUT if self._task.left_out is None else DECIDED}") from err

    @property
    def bad_objects(self) -> tuple[BadObject, ...]:
        """Bad objects left out so far."""
        return tuple(self._stream.report.bad_objects.values())

    @property
    def facts(self) -> ReadFacts:
        """What was left out and is missing so far, and sentences about the records."""
        report = self._stream.report
        notes = replace(report, skipped_objects=[], skipped_records=[]).list_notes(self._task.config)
        return ReadFacts(
            skipped=(*report.skipped_objects, *report.skipped_records),
            skipped_count=report.skipped_object_count + report.skipped_record_count,
            gaps=tuple(report.gaps),
            gap_count=report.gap_count,
            notes=tuple(notes),
        )

    def _is_wanted(self, batch: ConnectBatch) -> npt.NDArray[np.bool_]:
        """Mark the wanted records.

        If objects have no times, a record without one is wanted: the plan has chosen its object. If they have, such a
        record is in no window.
        """
        if not self._task.times:
            return np.ones(batch.num_rows, bool)
        times = batch.timestamps
        inside = [(times >= start) & (times < end) for start, end in self._task.times]
        without_time = (times == NO_TIMESTAMP) & (not has_record_times(self._task.config))
        mask: npt.NDArray[np.bool_] = without_time | np.any(inside, axis=0)
        return mask


class ForeignRecords:
    """Wanted records as bytes. `encoder` encodes decoded ones.

    Raises (when iterated):
        IntegrityError: see `WantedRecords`.
        PreflightError: a record has an unsendable timestamp, and the request does not allow it.
    """

    def __init__(self, task: ForeignStreamTask, encoder: Encoder, store: ObjectStore, start_offset: int) -> None:
        self._task = task
        self._encoder = encoder
        self._records = WantedRecords(task, store, start_offset)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for selected in self._records:
            self._check_times(selected)
            records = (
                self._encoder.encoded(type_strings(selected, self._task.config.records))
                if self._task.is_decoded
                else selected.records
            )
            if records.num_rows:
                yield records

    @property
    def facts(self) -> ReadFacts:
        """As `WantedRecords` has them."""
        return self._records.facts

    def _check_times(self, batch: ConnectBatch) -> None:
        unsendable = np.flatnonzero(batch.timestamps == NOW)
        if len(unsendable) and not self._task.allow_unsendable_timestamps:
            raise PreflightError(
                f"{self._task.topic}-{self._task.kafka_partition}: {len(unsendable)} records from source offset "
                f"{batch.offsets[unsendable[0]]} on have timestamp 0, which the Kafka client cannot send: allow that "
                f"they get the time of the restore, --allow-unsendable-timestamps (how.allow_unsendable_timestamps)"
            )


def type_strings(batch: ConnectBatch, records: RecordSettings) -> ConnectBatch:
    """Return records with text, by their converters, as strings.

    Transforms then see text, and encoders leave it as it is.
    """
    return replace(batch, key=_type_payload(batch.key, records.key), value=_type_payload(batch.value, records.value))


def _type_payload(payload: Payload, converter: ConverterSettings) -> Payload:
    """Return bytes as strings if the converter reads them as text."""
    if converter.format != "STRING" or payload.raw is None or payload.schemas or payload.raw_is_json:
        return payload
    return StringPayload(payload.raw, make_codes(payload.raw), (STRING_SCHEMA,))


def fill_timestamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give records without a timestamp `NOW`, replaced by the client with the time of sending."""
    times = batch.column("timestamp").cast(pa.int64())
    unknown = pc.equal(times, NO_TIMESTAMP)
    if not pc.any(unknown).as_py():
        return batch
    at = batch.schema.get_field_index("timestamp")
    filled = pc.if_else(unknown, NOW, times).cast(RECORD_SCHEMA.field("timestamp").type)
    return batch.set_column(at, batch.schema.field(at), filled)


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
