"""Writes and reads AvroFormat: values or keys of one schema in an Avro object container file.

Each record is decoded as a check, and its bytes are returned unchanged. If a record is split into its fields, they keep
their bytes too, including the branches of unions. Sources: Avro specification, "Object Container Files" and "Required
Codecs"; Confluent S3 sink, `avro.codec`.
"""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.avro.objects import AvroObjects
from kafka_s3_platform.connect.avro.schema import encode_null, find_invalid_name
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.connect.avro.walk import Datum
from kafka_s3_platform.connect.formats.avro_records import BATCH_OBJECTS, AvroRecords, RecordSizes, build_datum_payload
from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.errors import IntegrityError, PlatformError
from kafka_s3_platform.core.formats.avro_container import AvroBlocks, AvroContainer
from kafka_s3_platform.core.formats.columns import read_strings
from kafka_s3_platform.core.formats.format_io import FormatIO, WriteRequest
from kafka_s3_platform.core.formats.parts import (
    ObjectPart,
    UnwritableRecordsError,
    UnwritableSchemaError,
    find_payload,
    list_failures,
    require_no_null,
)
from kafka_s3_platform.core.formats.reading import BATCH_BYTES, BATCH_RECORDS, ReadBatch, build_damage_error
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s, Payload, Schema
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits


class AvroFields:
    """Cuts out the fields of records of one schema.

    `schemas` maps each field's name to its schema, which is complete in itself. It is empty if values are not records.
    """

    def __init__(self, schema: Schema, limits: ReadLimits) -> None:
        avro = AvroSchema(schema.avro)
        root = avro.resolve(avro.root)
        is_record = not isinstance(root, list) and root["type"] == "record"
        self.name: str = root["name"].rpartition(".")[2] if is_record else ""
        fields = root["fields"] if is_record else ()
        self.schemas: Mapping[str, Schema] = {f["name"]: Schema(json.dumps(avro.complete(f["type"]))) for f in fields}
        self._limits = limits

    @cached_property
    def _data(self) -> Mapping[str, Datum]:
        """The walkers over the data of each field, by its name."""
        return {n: Datum(s.avro, self._limits.depth, self._limits.items) for n, s in self.schemas.items()}

    def split_records(self, records: pa.BinaryArray) -> Mapping[str, pa.BinaryArray]:
        """Return the data of each field. Raise ValueError if a record does not fit the schema."""
        columns: dict[str, list[bytes | None]] = {name: [] for name in self._data}
        nulls = {name: encode_null(schema.avro) for name, schema in self.schemas.items()}
        for record in records.to_pylist():
            view = memoryview(record)
            start = 0
            for name, datum in self._data.items():
                end = datum.end(view, start)
                one = bytes(view[start:end])
                columns[name].append(None if one == nulls[name] else one)
                start = end
        return {name: pa.array(data, pa.binary()) for name, data in columns.items()}


def decode_column(column: pa.BinaryArray, schema: Schema) -> list[Any]:
    """Decode the values of a field to Avro's physical types."""
    reader = AvroObjects(schema.avro)
    return [None if one is None else reader.read(one) for one in column.to_pylist()]


@dataclass(frozen=True)
class AvroReader:
    """Reads values, keys or headers by the schema in the object. `key` names the object in errors."""

    source: IO[bytes]
    key: str
    limits: ReadLimits = DEFAULT_LIMITS

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches. Raise IntegrityError for a damaged object. Pass on the source's own errors."""
        try:
            yield from self._read_batches()
        except PlatformError:
            raise
        except Exception as err:  # fastavro raises errors of any type for damaged data
            raise build_damage_error(self.key, f"cannot be read as Avro: {type(err).__name__}: {err}") from err

    def _read_batches(self) -> Iterator[ReadBatch]:
        """Yield batches of the container's records. A batch is bounded by bytes, records and objects after decoding."""
        container = AvroContainer(self.source, self.key, self.limits)
        schema = Schema(container.metadata["avro.schema"].decode())
        avro_records = AvroRecords(json.loads(schema.text), self.key, self.limits)
        bodies = list[bytes]()
        lengths = list[Int64s]()
        records = 0
        size = 0
        objects = 0
        for count, data in container.blocks():
            for part, sizes in _cut_block(data, avro_records.measure(data, count)):
                bodies.append(part)
                lengths.append(sizes.lengths)
                records += len(sizes.lengths)
                size += len(part)
                objects += int(sizes.objects.sum())
                if size >= BATCH_BYTES or records >= BATCH_RECORDS or objects >= BATCH_OBJECTS:
                    yield _build_batch(bodies, lengths, schema)
                    bodies = []
                    lengths = []
                    records = 0
                    size = 0
                    objects = 0
        if lengths:
            yield _build_batch(bodies, lengths, schema)


def _cut_block(data: bytes, sizes: RecordSizes) -> Iterator[tuple[bytes, RecordSizes]]:
    """Cut a block into portions for batches. Each has at least one record."""
    count = len(sizes.lengths)
    object_count = np.cumsum(sizes.objects)
    if count <= BATCH_RECORDS and object_count[-1:].sum() <= BATCH_OBJECTS:
        yield data, sizes
        return
    ends = np.concatenate([[0], np.cumsum(sizes.lengths)])
    start = 0
    while start < count:
        objects_before = object_count[start] - sizes.objects[start]
        fitting = int(np.searchsorted(object_count, objects_before + BATCH_OBJECTS, "right"))
        stop = min(max(fitting, start + 1), start + BATCH_RECORDS, count)
        yield data[ends[start] : ends[stop]], RecordSizes(sizes.lengths[start:stop], sizes.objects[start:stop])
        start = stop


def _build_batch(bodies: list[bytes], lengths: list[Int64s], schema: Schema) -> ReadBatch:
    """Join the parts of blocks into one batch. `lengths` are the bytes of the records in each part."""
    sizes = np.concatenate(lengths)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(bodies))]
    return ReadBatch(build_datum_payload(pa.Array.from_buffers(pa.binary(), len(sizes), buffers), schema))


class AvroWriter(AvroBlocks):
    """Writes values, keys or headers of one schema. Data already encoded by this schema are copied without decoding."""

    def __init__(
        self, sink: Sink, schema: Schema, codec: str, level: int | None = None, part: ObjectPart = "value"
    ) -> None:
        super().__init__(sink, schema.text, codec, level)
        self._schema = schema
        self._part = part
        self._objects = AvroObjects(schema.avro)

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch, none of them null.

        Raises:
            UnwritableRecordsError: objects do not fit the schema.
            IntegrityError: a record is null, or shorter than the frame before its body.
        """
        payload = require_no_null(batch, find_payload(batch, self._part))
        self.add(
            *(self._copy_data(payload) if self._holds_schema_alone(payload) else self._encode_objects(batch, payload))
        )

    def _holds_schema_alone(self, payload: Payload) -> bool:
        """Return True if all records hold data of exactly this schema."""
        if payload.raw is None or payload.avro_start is None or self._schema.schema_id is None:
            return False
        same = [code for code, s in enumerate(payload.schemas) if s.schema_id == self._schema.schema_id]
        return bool(np.isin(payload.codes, same).all())

    def _copy_data(self, payload: Payload) -> tuple[memoryview, Int64s]:
        """Return the joined data of all records, without schema ids in front, and the length of each in bytes."""
        strings = read_strings(_strip_prefixes(payload.raw, payload.avro_start or 0))
        return strings.data, strings.lengths

    def _encode_objects(self, batch: ConnectBatch, payload: Payload) -> tuple[memoryview, Int64s]:
        """Encode each value. Return the joined data, and the length of each value in bytes."""
        body = io.BytesIO()
        ends = [0]
        reasons = {}
        for row, value in enumerate(payload.objects):
            try:
                self._objects.write(body, value)
            # All that fastavro raises for a value that does not fit.
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError, IndexError) as err:
                reasons[row] = f"cannot be written as avro: {type(err).__name__}: {err}"
            ends.append(body.tell())
        if reasons:
            raise UnwritableRecordsError(list_failures(batch, "avro", reasons))
        bounds = np.array(ends, np.int64)
        return body.getbuffer(), bounds[1:] - bounds[:-1]


def _strip_prefixes(column: pa.BinaryArray, size: int) -> pa.BinaryArray:
    """Return the values without their first `size` bytes. No value may be null."""
    if not len(column):
        return column
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if (np.diff(bounds) < size).any():
        raise IntegrityError(
            f"a value has less than the {size} bytes before its Avro datum: it was to be refused before"
        )
    # Kept and dropped ranges take turns, and every second one is taken. binary_slice of pyarrow 26 fails here.
    turns = np.empty(2 * len(column), np.int32)
    turns[0::2] = bounds[:-1] + size
    turns[1::2] = bounds[1:]
    spaced = pa.Array.from_buffers(column.type, len(turns) - 1, [None, pa.py_buffer(turns), column.buffers()[2]])
    return spaced.take(pa.array(np.arange(0, len(turns), 2)))


def _new_writer(request: WriteRequest) -> AvroWriter:
    """Make the writer of an object. Raise UnwritableSchemaError if a name in the schema is not allowed in Avro."""
    schema = request.required_schema
    if (name := find_invalid_name(schema.avro)) is not None:
        raise UnwritableSchemaError(
            f"{name!r} is no name that Avro allows: rename it with the transform ReplaceField, or write JsonFormat"
        )
    return AvroWriter(request.sink, schema, request.codec, request.level, request.part)


FORMAT_IO = FormatIO(
    new_writer=_new_writer,
    new_reader=lambda request: AvroReader(request.source, request.key, request.limits),
)
