"""Mappers: a user's own transforms. They work on whole batches or, with RecordMapper, on one record at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.avro.json_values import require_exact
from kafka_s3_platform.connect.transforms.edits import RowNumbers, replace_payload
from kafka_s3_platform.connect.transforms.headers import HEADERS
from kafka_s3_platform.core.config.plugins import mask_options, name_fault
from kafka_s3_platform.core.errors import PermanentError, PlatformError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA, replace_column
from kafka_s3_platform.core.model.connect import (
    NO_SCHEMA,
    ConnectBatch,
    Int32s,
    Mask,
    Outcome,
    Payload,
    RecordFailure,
    Schema,
    Side,
)


@dataclass(frozen=True)
class MappedRecord:
    """The input of RecordMapper.map, and a possible output: `dataclasses.replace(record, value=...)`.

    `key` and `value` are decoded: bytes, str, a number, a list or dict, or None. A value of a union of several types is
    a tuple `(branch, value)`. A changed key or value must fit `key_schema` or `value_schema`, which is None if there is
    no schema. The kafka partition, offset and timestamp (epoch ms) identify the source record and must not change.
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
    """Base class of mappers that see one record at a time, like Zooz's `KafkaMessageMapper`.

    `transforms.<alias>.type` is the dotted name of the subclass. It gets the other options of the alias. Zooz's own
    example, and the two that its documents describe:

        class UpperCaseMapper(RecordMapper):
            def map(self, record):
                return [record.value.decode().upper()]

        class LinesMapper(RecordMapper):                      # one to many
            def map(self, record):
                return record.value.splitlines()

        class DebugFilter(RecordMapper):                      # filter
            def map(self, record):
                return [] if b"DEBUG" in record.value else [record]

    If `map` raises an exception, only its record fails. An error of `kafka_s3_platform.plugins` ends the run. The same
    record must always give the same outputs, whatever other records are in the batch.

    All options except `public_options` are secret, so plans and reports hold only a digest of them.
    """

    public_options: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abstractmethod
    def map(self, record: MappedRecord) -> Iterable[Any]:
        """Return any number of outputs. Each is a MappedRecord, or a new value without a schema."""

    def apply(self, batch: ConnectBatch) -> Outcome:
        """Map all records of a batch, in order."""
        sources: list[int] = []
        mapped: list[MappedRecord] = []
        failures: list[RecordFailure] = []
        for position, record in enumerate(_iterate_records(batch)):
            results = self._map(record)
            if isinstance(results, RecordFailure):
                failures.append(results)
            else:
                sources += [position] * len(results)
                mapped += results
        return Outcome(_build_batch(batch, np.array(sources, np.intp), mapped), tuple(failures))

    def _map(self, record: MappedRecord) -> list[MappedRecord] | RecordFailure:
        """Return the outputs of one record, or its failure."""
        try:
            require_exact(record.key)
            require_exact(record.value)
            return [_check_output(record, output) for output in self.map(record)]
        except PlatformError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises is this record's fault
            return RecordFailure(
                record.offset, "TRANSFORMATION", _qualify_class(type(self)), _qualify_class(type(error)), str(error)
            )


class MapperStep:
    """Runs a user's class, checks its result, and merges it with the records that did not pass through the class.

    Masks the class's secret options in messages.
    """

    def __init__(self, mapper_class: type, options: Mapping[str, str], topic: str, secrets: Sequence[str] = ()) -> None:
        self.executing_class = _qualify_class(mapper_class)
        self._topic = topic
        self._secrets = secrets
        with name_fault(mapper_class, f"made for the transform of topic {topic}", secrets):
            self._mapper = mapper_class(options)

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Map the selected records, and merge the results with all others, in the order of offsets."""
        outcome = self._apply_mapper(batch.take(np.flatnonzero(selected)))
        if selected.all():
            return outcome
        merged = _merge_batches(batch.take(np.flatnonzero(~selected)), outcome.batch)
        return replace(outcome, batch=merged)

    def _apply_mapper(self, batch: ConnectBatch) -> Outcome:
        """Map a batch with the user's class. Raise PermanentError if its result is not a batch of these records."""
        where = f"on topic {self._topic}, offsets {_describe_offsets(batch)}"
        with name_fault(type(self._mapper), f"as a transform {where}", self._secrets):
            outcome: Outcome = self._mapper.apply(batch)
        if reason := _find_flaw(batch, outcome.batch):
            raise PermanentError(f"the transform {self.executing_class} {where} gave back {reason}")
        failures = (replace(f, message=mask_options(f.message, self._secrets)) for f in outcome.failures)
        return replace(outcome, failures=tuple(failures))


def number_ordinals(offsets: Sequence[int] | Any) -> Int32s:
    """Return the ordinals of records in order: 0, 1, ... within each offset."""
    if not len(offsets):
        return np.empty(0, np.int32)
    is_first = np.concatenate([[True], np.diff(offsets) != 0])
    firsts = np.flatnonzero(is_first)
    ordinals: Int32s = (np.arange(len(offsets)) - firsts[np.cumsum(is_first) - 1]).astype(np.int32)
    return ordinals


def _qualify_class(class_: type) -> str:
    """Return the module and name of a class, as failures name it."""
    if class_.__module__ == "builtins":
        return class_.__qualname__
    return f"{class_.__module__}.{class_.__qualname__}"


def _describe_offsets(batch: ConnectBatch) -> str:
    """Return the first and the last offset of a batch, for errors."""
    if batch.num_rows:
        return f"{batch.offsets[0]} to {batch.offsets[-1]}"
    return "of an empty batch"


def _iterate_records(batch: ConnectBatch) -> Iterable[MappedRecord]:
    """Yield the records of a batch as RecordMapper gets them."""
    records = batch.records
    columns = [records.column(name).to_pylist() for name in ("headers", "topic", "partition")]
    payloads = [batch.key.objects, batch.value.objects]
    schemas = [_list_schemas(batch.key), _list_schemas(batch.value)]
    rows = zip(*payloads, *columns, batch.offsets.tolist(), batch.timestamps.tolist(), *schemas, strict=True)
    for key, value, headers, *rest in rows:
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield MappedRecord(key, value, pairs, *rest)


def _list_schemas(payload: Payload) -> list[Schema | None]:
    """Return the schema of each record, or None if it has none."""
    return [None if code == NO_SCHEMA else payload.schemas[code] for code in payload.codes.tolist()]


def _check_output(record: MappedRecord, output: Any) -> MappedRecord:
    """Return an output as a record. Raise ValueError if it changes the kafka partition, offset or timestamp."""
    if not isinstance(output, MappedRecord):
        return replace(record, value=output, value_schema=None)
    if (output.kafka_partition, output.offset, output.timestamp) != (
        record.kafka_partition,
        record.offset,
        record.timestamp,
    ):
        raise ValueError("a mapper may not change the kafka partition, offset or timestamp of a record")
    return output


def _build_batch(batch: ConnectBatch, sources: RowNumbers, mapped: list[MappedRecord]) -> ConnectBatch:
    """Build the batch of all outputs. `sources` has the row of each output's source record."""
    sources_batch = batch.take(sources)
    records = replace_column(sources_batch.records, "topic", pa.array([record.topic for record in mapped], pa.string()))
    headers = pa.array([list(map(_make_header, record.headers)) or None for record in mapped], HEADERS)
    mapped_batch = replace(
        sources_batch,
        records=replace_column(records, "headers", headers),
        ordinals=number_ordinals(sources_batch.offsets),
    )
    mapped_batch = _replace_mapped(mapped_batch, "key", [(record.key, record.key_schema) for record in mapped])
    return _replace_mapped(mapped_batch, "value", [(record.value, record.value_schema) for record in mapped])


def _make_header(header: tuple[str, bytes | None]) -> dict[str, Any]:
    return {"key": header[0], "value": header[1]}


def _replace_mapped(batch: ConnectBatch, side: Side, mapped: list[tuple[Any, Schema | None]]) -> ConnectBatch:
    """Replace a payload if a record changed it. Otherwise the payload keeps the bytes it was read from."""
    source: Payload = getattr(batch, side)
    pairs = zip(mapped, _pair_schemas(source), strict=True)
    if all(
        new_object is old_object and schema == old_schema for (new_object, schema), (old_object, old_schema) in pairs
    ):
        return batch
    return replace_payload(batch, side, _build_payload(mapped))


def _build_payload(objects: Iterable[tuple[Any, Schema | None]]) -> Payload:
    """Build a payload of values with their schemas."""
    schemas: dict[Schema, int] = {}
    values = []
    codes = []
    for value, schema in objects:
        values.append(value)
        codes.append(NO_SCHEMA if schema is None or value is None else schemas.setdefault(schema, len(schemas)))
    return Payload(None, np.array(codes, np.int32), list(schemas), values)


def _merge_batches(first: ConnectBatch, second: ConnectBatch) -> ConnectBatch:
    """Merge the records of two batches in order, and number them again within each offset."""
    records = pa.Table.from_batches([first.records, second.records]).combine_chunks()
    offsets = np.concatenate([first.offsets, second.offsets])
    ordinals = np.concatenate([_read_ordinals(first), _read_ordinals(second)])
    order = np.lexsort((ordinals, offsets))
    merged = ConnectBatch(
        records=records.to_batches()[0] if len(order) else first.records,
        key=_build_payload([*_pair_schemas(first.key), *_pair_schemas(second.key)]),
        value=_build_payload([*_pair_schemas(first.value), *_pair_schemas(second.value)]),
    ).take(order)
    return replace(merged, ordinals=number_ordinals(merged.offsets))


def _read_ordinals(batch: ConnectBatch) -> Int32s:
    """Return each record's number among the records made from one source record, or 0 if all are source records."""
    if batch.ordinals is None:
        return np.zeros(batch.num_rows, np.int32)
    return batch.ordinals


def _pair_schemas(payload: Payload) -> Iterable[tuple[Any, Schema | None]]:
    """Yield each decoded value with its schema, or with None if it has none."""
    return zip(payload.objects, _list_schemas(payload), strict=True)


def _find_flaw(source: ConnectBatch, result: ConnectBatch) -> str | None:
    """Return the reason why a user's result for a batch cannot be accepted, or None if it can."""
    if result.records.schema != RECORD_SCHEMA:
        return "records of another schema"
    if not len(result.key) == len(result.value) == result.num_rows == len(_read_ordinals(result)):
        return f"not as many keys, values and ordinals as records ({result.num_rows})"
    offsets = result.offsets
    ordinals = _read_ordinals(result)
    steps = np.diff(offsets)
    ordinal_steps = np.diff(ordinals)
    if not np.all((steps > 0) | ((steps == 0) & (ordinal_steps > 0))):
        return "records that do not ascend by offset and ordinal"
    if not np.isin(offsets, source.offsets).all():
        return "offsets that it was not given"
    return None
