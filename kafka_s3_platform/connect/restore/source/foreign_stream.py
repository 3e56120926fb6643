"""Reads another sink's objects for a restore, and gives their records before filters choose among them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.connect.converters.base import STRING_SCHEMA, StringPayload, make_codes
from kafka_s3_platform.connect.sources.objects import ObjectGroup, has_record_times
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, RecordSettings
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import ConnectBatch, Payload
from kafka_s3_platform.core.model.segment import BadObject
from kafka_s3_platform.core.restore.documents import DECIDED, MENDED
from kafka_s3_platform.core.restore.request import ReadFacts
from kafka_s3_platform.core.restore.source.base import UNSENDABLE_TIMESTAMP, RecordStream, StreamFacts
from kafka_s3_platform.core.store.objects import ObjectStore


@dataclass(frozen=True)
class ForeignStreamTask(RecordStream):
    """The objects of one source kafka partition, and the selection of their records.

    A record must be in one of `times`, half-open windows (epoch ms), unless objects have no times. If there are no
    windows, every time is selected. Offsets are half-open, too; None means no bound. `to_topics` are those of
    `StreamFacts`.
    """

    config: ConnectorConfig = field(repr=False)
    group: ObjectGroup
    times: tuple[tuple[int, int], ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    allow_unsendable_timestamps: bool = False
    to_topic: str = ""
    to_topics: tuple[str, ...] = ()

    @cached_property
    def facts(self) -> StreamFacts:
        """Facts about the objects. The number of records is unknown until they are read.

        Records cannot be found by their content, because several topics may go to one target, and equal records cannot
        be told apart there. Known timestamps are checked when they are read, and unknown ones become the time of
        sending.
        """
        sets = self.group.sets
        firsts = [s.name.first_offset for s in sets if s.name.first_offset is not None]
        before = accumulate((s.size for s in sets), initial=0)
        return StreamFacts(
            topic=self.group.topic,
            kafka_partition=self.group.kafka_partition,
            store=ObjectStore(self.config.store),
            object_bytes=self.group.size,
            object_starts=tuple(zip(firsts, before, strict=False)) if len(firsts) == len(sets) else (),
            named_topic=f"{self.group.topic}+{self.to_topic}" if self.to_topics else self.group.topic,
            to_topic=self.to_topic,
            to_topics=self.to_topics,
            is_decoded=not self.config.layout.is_envelope,
            sends_any_timestamp=True,
        )

    def records(self, start_offset: int = 0) -> "ForeignRecords":
        """Return the records to be sent. Decoded ones are not encoded yet."""
        return ForeignRecords(self, self.facts.store, start_offset)

    def find_bad_objects(self) -> Iterator[BadObject]:
        """Find the bad objects of the task by reading the wanted part of each object."""
        records = WantedRecords(self, self.facts.store)
        # Bad objects are found by reading to the end.
        for _ in records:
            pass
        return (replace(bad, why=f"{bad.why}. {MENDED}") for bad in records.bad_objects)


LEAVE_OUT = (
    "If nothing of it was sent, leave it out under the same restore id with --behavior-on-error ignore or log "
    "(how.behavior_on_error). Otherwise leave it out in a restore to another topic, under another restore id. A "
    "restore sends objects as they were when it began: an object that has replaced one is sent by another restore, "
    "too"
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
        """Yield the records of all objects in the window. Errors tell how the restore can continue."""
        try:
            yield from self._stream.batches()
        except IntegrityError as err:
            raise IntegrityError(f"{err}. {LEAVE_OUT if self._task.left_out is None else DECIDED}") from err

    @property
    def bad_objects(self) -> tuple[BadObject, ...]:
        """The bad objects left out so far."""
        return tuple(self._stream.report.bad_objects.values())

    @property
    def facts(self) -> ReadFacts:
        """The records left out or missing so far, and sentences about the records."""
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

        If objects have no times, a record without a time is wanted, since the plan has chosen its object. If they have
        times, such a record is in no window.
        """
        if not self._task.times:
            return np.ones(batch.num_rows, bool)
        times = batch.timestamps
        inside = [(times >= start) & (times < end) for start, end in self._task.times]
        without_time = (times == NO_TIMESTAMP) & (not has_record_times(self._task.config))
        mask: npt.NDArray[np.bool_] = without_time | np.any(inside, axis=0)
        return mask


class ForeignRecords:
    """The wanted records to be sent: decoded ones with their text as strings, or whole ones.

    Raises (when iterated):
        IntegrityError: see `WantedRecords`.
        PreflightError: a record has a timestamp that cannot be sent, and the request does not allow it.
    """

    def __init__(self, task: ForeignStreamTask, store: ObjectStore, start_offset: int) -> None:
        self._task = task
        self._records = WantedRecords(task, store, start_offset)

    def __iter__(self) -> Iterator[pa.RecordBatch | ConnectBatch]:
        for batch in self._records:
            if not self._task.allow_unsendable_timestamps:
                self._check_times(batch)
            yield type_strings(batch, self._task.config.records) if self._task.facts.is_decoded else batch.records

    @property
    def facts(self) -> ReadFacts:
        """The same facts as in `WantedRecords`."""
        return self._records.facts

    def _check_times(self, batch: ConnectBatch) -> None:
        """Raise PreflightError if the Kafka client would not send a record's timestamp as it is."""
        unsendable = np.flatnonzero(batch.timestamps == UNSENDABLE_TIMESTAMP)
        if len(unsendable):
            raise PreflightError(
                f"{self._task.group.topic}-{self._task.group.kafka_partition}: {len(unsendable)} records from source "
                f"offset {batch.offsets[unsendable[0]]} on have timestamp 0, which the Kafka client cannot send. Let "
                "them get the time of the restore: --allow-unsendable-timestamps (how.allow_unsendable_timestamps)"
            )


def type_strings(batch: ConnectBatch, records: RecordSettings) -> ConnectBatch:
    """Return the records with keys and values as strings, if their converters read text.

    Transforms then see text, and encoders leave it as it is.
    """
    return replace(batch, key=_type_payload(batch.key, records.key), value=_type_payload(batch.value, records.value))


def _type_payload(payload: Payload, converter: ConverterSettings) -> Payload:
    """Return the bytes as strings if the converter reads them as text."""
    if converter.format != "STRING" or payload.raw is None or payload.schemas or payload.raw_is_json:
        return payload
    return StringPayload(payload.raw, make_codes(payload.raw), (STRING_SCHEMA,))
