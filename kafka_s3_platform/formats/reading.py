"""What readers of value-only objects give: payloads batch by batch, and how the damage of an object is told."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from kafka_s3_platform.formats.compression import SUFFIXES, decompressed
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Positions, Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

BATCH_RECORDS = 8_192
BATCH_BYTES = 8_388_608

_Value = TypeVar("_Value", bytes, bytes | None, tuple[Any, ...])


@dataclass(frozen=True)
class ReadBatch:
    """Records of an object in their order: what it holds of them, None for what it does not.

    `bad` are the rows that could not be read, each with its reason; their payloads mean nothing. `offsets` are real
    ones, -1 where one is not known; `timestamps` are epoch ms, -1 for none. `headers` and `timestamp_types` are columns
    of RECORD_SCHEMA.
    """

    value: Payload
    bad: Mapping[int, str] = field(default_factory=dict)
    key: Payload | None = None
    headers: pa.Array | None = None
    offsets: Int64s | None = None
    timestamps: Int64s | None = None
    timestamp_types: pa.Int32Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and headers, about."""
        columns = (self.value.raw, None if self.key is None else self.key.raw, self.headers)
        return sum(column.nbytes for column in columns if column is not None)

    def take(self, positions: Positions) -> "ReadBatch":
        """The records at ascending `positions`."""
        rows = {row: i for i, row in enumerate(positions.tolist())} if self.bad else {}
        return ReadBatch(
            self.value.take(positions),
            {rows[row]: why for row, why in self.bad.items() if row in rows},
            None if self.key is None else self.key.take(positions),
            None if self.headers is None else self.headers.take(pa.array(positions)),
            None if self.offsets is None else self.offsets[positions],
            None if self.timestamps is None else self.timestamps[positions],
            None if self.timestamp_types is None else self.timestamp_types.take(pa.array(positions)),
        )


class BatchReader(Protocol):
    """Reads the records of one object."""

    def batches(self) -> Iterator[ReadBatch]:
        """Its records. Raises IntegrityError where it is damaged as a whole; a single record's fault is `bad`."""
        ...


class DatumPayload(Payload):
    """Avro data of one schema, as bytes without any frame; decoded when somebody looks."""

    raw_is_value = False
    avro_start = 0

    def _decode(self) -> Sequence[object]:
        parsed = [parse_schema(physical(schema.avro), _ignore_default_error=True) for schema in self.schemas]
        rows = pa.array(self.raw).to_pylist()
        return [
            None if row is None else schemaless_reader(io.BytesIO(row), parsed[code], None)
            for row, code in zip(rows, self.codes.tolist(), strict=True)
        ]


def datum_payload(data: pa.BinaryArray, schema: Schema) -> Payload:
    """Avro data as a payload: of text and bytes what they hold, which is what was in Kafka."""
    codes = np.zeros(len(data), np.int32)
    codes[data.is_null().to_numpy(zero_copy_only=False)] = NO_SCHEMA
    return DatumPayload(data, codes, [schema])


def bytes_payload(values: pa.BinaryArray) -> Payload:
    """Bytes without a schema."""
    return Payload(values, np.full(len(values), NO_SCHEMA, np.int32), ())


def physical(avro: Any) -> Any:
    """An Avro schema without its logical types, so that data are decoded as Avro's own types, and without defaults."""
    if isinstance(avro, list):
        return [physical(branch) for branch in avro]
    if not isinstance(avro, Mapping):
        return avro
    inner = {name: physical(avro[name]) for name in ("type", "items", "values") if name in avro}
    if "fields" in avro:
        # Without defaults: a large one would be written for each record that lacks the field.
        fields = ({name: value for name, value in f.items() if name != "default"} for f in avro["fields"])
        inner["fields"] = [{**f, "type": physical(f["type"])} for f in fields]
    return {name: value for name, value in avro.items() if name != "logicalType"} | inner


def plain_pieces(
    source: IO[bytes], key: str, codec: str, limits: ReadLimits = NO_KEYS, *, as_named: bool = False
) -> Iterator[bytes]:
    """What an object of lines or bytes holds, piece by piece: its content tells how it is compressed.

    What the end of its key says has to be true, and where that says nothing, `codec`, the file's own word. `as_named`:
    its values may begin like anything, see `decompressed`.

    Raises:
        IntegrityError: the stream is damaged, cut off, not compressed as it says, or holds no lines.
    """
    named = next((name for name, suffix in SUFFIXES.items() if suffix and key.endswith(suffix)), codec)
    return decompressed(source, key, limits, named, as_named=as_named)


def batched(
    values: Iterable[_Value], size_of: Callable[[Any], int] = lambda value: 0 if value is None else len(value)
) -> Iterator[list[_Value]]:
    """Values in lists of at most BATCH_RECORDS, or as many as come to BATCH_BYTES."""
    held: list[_Value] = []
    size = 0
    for value in values:
        held.append(value)
        size += size_of(value)
        if len(held) == BATCH_RECORDS or size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
