"""What a restore reads of objects that others wrote, and what their records are before filters choose among them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import ConnectorConfig, ConverterSettings, RecordSettings, StoreSettings
from kafka_s3_platform.converters.plain import STRING_SCHEMA, StringPayload, codes_of_one
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.model.connect import ConnectBatch, Payload
from kafka_s3_platform.model.record import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.restore.left_out import DECIDED
from kafka_s3_platform.restore.outgoing import OutgoingStream
from kafka_s3_platform.sources.objects import BadObject, ObjectGroup
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.store.objects import ObjectStore

NOW = 0
"""The timestamp (epoch ms) that the Kafka client replaces by the time of sending."""


@dataclass(frozen=True)
class ForeignStreamTask:
    """The objects of one source kafka partition, and which of their records are wanted.

    `times` are half-open windows (epoch ms) that a record with a timestamp is in, none where all are wanted. Offsets
    are half-open, None: open. `left_out`: objects that were decided to be bad (key -> why), None before that.
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

    def bytes_before(self, offset: int) -> int:
        """Bytes of the objects before a source offset, about; 0 where names tell no offsets."""
        firsts = [s.name.first_offset for s in self.group.sets]
        known = [first for first in firsts if first is not None]
        if not known or len(known) < len(firsts):
            return 0
        sizes = [sum(o.size for o in s.objects) for s in self.group.sets]
        return int(np.interp(offset, known, np.cumsum([0, *sizes[:-1]])))

    @property
    def is_decoded(self) -> bool:
        """Whether objects hold decoded keys and values, which are encoded for the target; else whole records."""
        return not self.config.layout.is_envelope

    @property
    def record_count(self) -> int:
        """Bytes, by which progress is told: nobody knows how many records there are before they are read."""
        return self.group.size

    @property
    def record_bytes(self) -> int:
        """Of the objects."""
        return self.group.size


LEAVE_OUT = (
    "The restore does without it under the same restore id with --behavior-on-error ignore or log (behavior_on_error). "
    "It sends objects as they were when it began: what was put in the place of one is restored to another topic, under "
    "another restore id"
)


class WantedRecords:
    """The records of a task's windows from source offset `start_offset` on, in source order, as they were read.

    Those that no object tells a timestamp of have NO_TIMESTAMP.

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
            wanted = batch.take(np.flatnonzero(self._is_wanted(batch)))
            if wanted.num_rows:
                yield wanted

    def _read(self) -> Iterator[ConnectBatch]:
        try:
            yield from self._stream.batches()
        except IntegrityError as err:
            raise IntegrityError(f"{err}. {LEAVE_OUT if self._task.left_out is None else DECIDED}") from err

    @property
    def bad_objects(self) -> tuple[BadObject, ...]:
        """Those that were left out for being bad, of what was read so far."""
        return tuple(self._stream.report.bad_objects.values())

    @property
    def skipped(self) -> tuple[str, ...]:
        """Objects and records that were left out because they are bad, of what was read so far."""
        return (*self._stream.report.skipped_objects, *self._stream.report.skipped_records)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Offsets that are in no object although they lie between two, of what was read so far."""
        return tuple(self._stream.report.gaps)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the records, of what was read so far."""
        report = replace(self._stream.report, skipped_objects=[], skipped_records=[])
        return tuple(report.notes(self._task.config))

    def _is_wanted(self, batch: ConnectBatch) -> npt.NDArray[np.bool_]:
        """Records without a timestamp are wanted whatever the windows: their folders were chosen."""
        if not self._task.times:
            return np.ones(batch.num_rows, bool)
        times = batch.timestamps
        inside = [(times >= start) & (times < end) for start, end in self._task.times]
        wanted: npt.NDArray[np.bool_] = (times == NO_TIMESTAMP) | np.any(inside, axis=0)
        return wanted


class ForeignRecords:
    """Wanted records as bytes; `outgoing` encodes decoded ones. `out_of_range_count` is 0: there are no such folders.

    Raises (when iterated):
        IntegrityError: as `WantedRecords` does.
        PreflightError: an object tells a timestamp that cannot be sent, which was not allowed.
    """

    out_of_range_count = 0

    def __init__(
        self, task: ForeignStreamTask, outgoing: OutgoingStream, store: ObjectStore, start_offset: int
    ) -> None:
        self._task, self._outgoing = task, outgoing
        self._wanted = WantedRecords(task, store, start_offset)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for wanted in self._wanted:
            self._check_times(wanted)
            records = (
                self._outgoing.encoded(typed(wanted, self._task.config.records))
                if self._task.is_decoded
                else wanted.records
            )
            if records.num_rows:
                yield records

    @property
    def skipped(self) -> tuple[str, ...]:
        """As `WantedRecords` has it."""
        return self._wanted.skipped

    @property
    def gaps(self) -> tuple[str, ...]:
        """As `WantedRecords` has it."""
        return self._wanted.gaps

    @property
    def notes(self) -> tuple[str, ...]:
        """As `WantedRecords` has it."""
        return self._wanted.notes

    def _check_times(self, batch: ConnectBatch) -> None:
        unsendable = np.flatnonzero(batch.timestamps == NOW)
        if len(unsendable) and not self._task.allow_unsendable_timestamps:
            raise PreflightError(
                f"{self._task.topic}-{self._task.kafka_partition}: {len(unsendable)} records from source offset "
                f"{batch.offsets[unsendable[0]]} on have timestamp 0, which the Kafka client cannot send: allow that "
                f"they get the time of the restore, --allow-unsendable-timestamps (allow_unsendable_timestamps)"
            )


def typed(batch: ConnectBatch, records: RecordSettings) -> ConnectBatch:
    """Records as their converters take them, so that transforms see text, and encoders let it be."""
    return replace(batch, key=_typed(batch.key, records.key), value=_typed(batch.value, records.value))


def _typed(payload: Payload, converter: ConverterSettings) -> Payload:
    """Bytes that are text to their converter as text."""
    if converter.format != "STRING" or payload.raw is None or payload.schemas or payload.raw_is_json:
        return payload
    return StringPayload(payload.raw, codes_of_one(payload.raw), (STRING_SCHEMA,))


def sent_now(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records without a timestamp with the one that the client replaces by the time of sending."""
    times = batch.column("timestamp").cast(pa.int64())
    unknown = pc.equal(times, NO_TIMESTAMP)
    if not pc.any(unknown).as_py():
        return batch
    at = batch.schema.get_field_index("timestamp")
    made = pc.if_else(unknown, NOW, times).cast(RECORD_SCHEMA.field("timestamp").type)
    return batch.set_column(at, batch.schema.field(at), made)


def whole(portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Portions that never end between records of one source offset, which a transform made of one record."""
    held: pa.RecordBatch | None = None
    for portion in portions:
        if held is not None and held.column("offset")[-1] == portion.column("offset")[0]:
            held = pa.concat_batches([held, portion])
            continue
        if held is not None:
            yield held
        held = portion
    if held is not None:
        yield held
