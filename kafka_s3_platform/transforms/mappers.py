"""Mappers: a user's own transforms, on whole batches or, by RecordMapper, on one record at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.plugins import chained, without_options
from kafka_s3_platform.errors import PermanentError, PlatformError, TransientError
from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int32s, Outcome, Payload, RecordFailure, Schema
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.transforms.edits import Mask, Positions, Side, with_payload
from kafka_s3_platform.transforms.headers import HEADERS, with_column


@dataclass(frozen=True)
class MappedRecord:
    """What RecordMapper.map is given, and may give back: `dataclasses.replace(record, value=...)`.

    `key` and `value` are decoded: bytes, str, a number, a list or dict, None. What comes back with another key, value,
    headers or topic must fit its `key_schema` and `value_schema`; None says that there is none. The kafka partition,
    offset and timestamp (epoch ms) say what the source record is and may not differ.
    """

    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    kafka_partition: int
    offset: int
    timestamp: int
    key_schema: Schema | None = None
    value_schema: Schema | None = None


class RecordMapper(ABC):
    """Base of mappers that see one record at a time, as Zooz's `KafkaMessageMapper` does.

    `transforms.<alias>.type` is the dotted name of the subclass; the other options of the alias are given to it. Zooz's
    own example, and the two that its documents describe:

        class UpperCaseMapper(RecordMapper):
            def map(self, record):
                return [record.value.decode().upper()]

        class LinesMapper(RecordMapper):                      # one to many
            def map(self, record):
                return record.value.splitlines()

        class DebugFilter(RecordMapper):                      # filter
            def map(self, record):
                return [] if b"DEBUG" in record.value else [record]

    An exception is a failure of that record only; an error of kafka_s3_platform.errors ends the run. The same record
    must give the same outputs each time, whatever else is in the batch.

    Options are secret but for `public_options`: a plan or report has a digest of what else they hold.
    """

    public_options: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abstractmethod
    def map(self, record: MappedRecord) -> Iterable[Any]:
        """Any number of outputs: each a MappedRecord, or an object that replaces the value and has no schema."""

    def apply(self, batch: ConnectBatch) -> Outcome:
        """What `map` makes of each record, in their order."""
        sources: list[int] = []
        mapped: list[MappedRecord] = []
        failures: list[RecordFailure] = []
        for position, record in enumerate(_records(batch)):
            made = self._map(record)
            if isinstance(made, RecordFailure):
                failures.append(made)
            else:
                sources += [position] * len(made)
                mapped += made
        return Outcome(_mapped_batch(batch, np.array(sources, np.intp), mapped), tuple(failures))

    def _map(self, record: MappedRecord) -> list[MappedRecord] | RecordFailure:
        try:
            return [_output(record, output) for output in self.map(record)]
        except PlatformError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises is this record's fault
            return RecordFailure(record.offset, "TRANSFORMATION", _name(type(self)), _name(type(error)), str(error))


class MapperStep:
    """A user's class among the steps: checks what comes back, and puts it among the records it was not given.

    What it says of failures is told without its secret options.
    """

    def __init__(self, executing_class: str, new: Callable[[], Any], topic: str, secrets: Sequence[str] = ()) -> None:
        self.executing_class = executing_class
        self._topic, self._secrets = topic, secrets
        with self._faults(f"the transform {executing_class} on topic {topic}", "check its options"):
            self._mapper = new()

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        given = batch if selected is None else batch.take(np.flatnonzero(selected))
        outcome = self._applied(given)
        if selected is None:
            return outcome
        merged = _merged(batch.take(np.flatnonzero(~selected)), outcome.batch)
        return replace(outcome, batch=merged)

    def _applied(self, batch: ConnectBatch) -> Outcome:
        where = f"the transform {self.executing_class} on topic {self._topic}, offsets {_span(batch)}"
        with self._faults(where, "a fault of one record belongs into Outcome.failures"):
            outcome: Outcome = self._mapper.apply(batch)
        if reason := _flaw(batch, outcome.batch):
            raise PermanentError(f"{where} gave back {reason}; see kafka_s3_platform.model.connect.ConnectBatch")
        return replace(outcome, failures=tuple(map(self._told, outcome.failures)))

    def _told(self, failure: RecordFailure) -> RecordFailure:
        return replace(failure, message=without_options(failure.message, self._secrets))

    @contextmanager
    def _faults(self, where: str, advice: str) -> Iterator[None]:
        """Whatever a user's class raises ends the run; its own errors of ours stay what they are."""
        try:
            yield
        except PlatformError as error:
            if chained(error, self._secrets) is not None:
                raise
            kind = TransientError if isinstance(error, TransientError) else PermanentError
            raise kind(without_options(str(error), self._secrets)) from None
        except Exception as error:  # noqa: BLE001 - a user's code
            said = without_options(f"{_name(type(error))}: {error}", self._secrets)
            raise PermanentError(f"{where} failed: {said}; {advice}") from chained(error, self._secrets)


def renumbered(offsets: Sequence[int] | Any) -> Int32s:
    """Ordinals of records in order: 0, 1, .. within each offset."""
    if not len(offsets):
        return np.empty(0, np.int32)
    is_first = np.concatenate([[True], np.diff(offsets) != 0])
    firsts = np.flatnonzero(is_first)
    ordinals: Int32s = (np.arange(len(offsets)) - firsts[np.cumsum(is_first) - 1]).astype(np.int32)
    return ordinals


def _name(class_: type) -> str:
    return class_.__qualname__ if class_.__module__ == "builtins" else f"{class_.__module__}.{class_.__qualname__}"


def _span(batch: ConnectBatch) -> str:
    return f"{batch.offsets[0]} to {batch.offsets[-1]}" if batch.num_rows else "of an empty batch"


def _records(batch: ConnectBatch) -> Iterable[MappedRecord]:
    records = batch.records
    columns = [records.column(name).to_pylist() for name in ("headers", "topic", "partition")]
    payloads = [batch.key.objects, batch.value.objects]
    schemas = [_schemas(batch.key), _schemas(batch.value)]
    rows = zip(*payloads, *columns, batch.offsets.tolist(), batch.timestamps.tolist(), *schemas, strict=True)
    for key, value, headers, *rest in rows:
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield MappedRecord(key, value, pairs, *rest)


def _schemas(payload: Payload) -> list[Schema | None]:
    return [None if code == NO_SCHEMA else payload.schemas[code] for code in payload.codes.tolist()]


def _output(record: MappedRecord, output: Any) -> MappedRecord:
    if not isinstance(output, MappedRecord):
        return replace(record, value=output, value_schema=None)
    if (output.kafka_partition, output.offset, output.timestamp) != (
        record.kafka_partition,
        record.offset,
        record.timestamp,
    ):
        raise ValueError("a mapper may not change the kafka partition, offset or timestamp of a record")
    return output


def _mapped_batch(batch: ConnectBatch, sources: Positions, mapped: list[MappedRecord]) -> ConnectBatch:
    taken = batch.take(sources)
    records = with_column(taken.records, "topic", pa.array([record.topic for record in mapped], pa.string()))
    headers = pa.array([[_header(h) for h in record.headers] or None for record in mapped], HEADERS)
    made = replace(taken, records=with_column(records, "headers", headers), ordinals=renumbered(taken.offsets))
    made = _with_mapped(made, "key", [(record.key, record.key_schema) for record in mapped])
    return _with_mapped(made, "value", [(record.value, record.value_schema) for record in mapped])


def _header(header: tuple[str, bytes | None]) -> dict[str, Any]:
    return {"key": header[0], "value": header[1]}


def _with_mapped(batch: ConnectBatch, side: Side, mapped: list[tuple[Any, Schema | None]]) -> ConnectBatch:
    """Payloads that no record changed stay as they are, with the bytes they came as."""
    source: Payload = getattr(batch, side)
    before = zip(source.objects, _schemas(source), strict=True)
    if all(new is old and schema == known for (new, schema), (old, known) in zip(mapped, before, strict=True)):
        return batch
    return with_payload(batch, side, _payload(mapped))


def _payload(objects: Iterable[tuple[Any, Schema | None]]) -> Payload:
    known: dict[Schema, int] = {}
    values, codes = [], []
    for value, schema in objects:
        values.append(value)
        codes.append(NO_SCHEMA if schema is None or value is None else known.setdefault(schema, len(known)))
    return Payload(None, np.array(codes, np.int32), list(known), values)


def _merged(one: ConnectBatch, other: ConnectBatch) -> ConnectBatch:
    """The records of both in order, numbered anew within each offset."""
    records = pa.Table.from_batches([one.records, other.records]).combine_chunks()
    offsets = np.concatenate([one.offsets, other.offsets])
    ordinals = np.concatenate([_ordinals(one), _ordinals(other)])
    order = np.lexsort((ordinals, offsets))
    merged = ConnectBatch(
        records=records.to_batches()[0] if len(order) else one.records,
        key=_payload([*_pairs(one.key), *_pairs(other.key)]),
        value=_payload([*_pairs(one.value), *_pairs(other.value)]),
    ).take(order)
    return replace(merged, ordinals=renumbered(merged.offsets))


def _ordinals(batch: ConnectBatch) -> Int32s:
    return np.zeros(batch.num_rows, np.int32) if batch.ordinals is None else batch.ordinals


def _pairs(payload: Payload) -> Iterable[tuple[Any, Schema | None]]:
    return zip(payload.objects, _schemas(payload), strict=True)


def _flaw(given: ConnectBatch, made: ConnectBatch) -> str | None:
    """What is wrong with what a user's class made of a batch."""
    if made.records.schema != RECORD_SCHEMA:
        return "records of another schema"
    if not len(made.key) == len(made.value) == made.num_rows == len(_ordinals(made)):
        return f"not as many keys, values and ordinals as records ({made.num_rows})"
    offsets, ordinals = made.offsets, _ordinals(made)
    steps, within = np.diff(offsets), np.diff(ordinals)
    if not np.all((steps > 0) | ((steps == 0) & (within > 0))):
        return "records that do not ascend by offset and ordinal"
    if not np.isin(offsets, given.offsets).all():
        return "offsets that it was not given"
    return None
