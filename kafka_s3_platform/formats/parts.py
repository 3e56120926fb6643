"""The three objects that Connect's S3 sink can make of records: their values, their keys, their headers.

Source: Confluent S3 sink, `store.kafka.keys` and `store.kafka.headers`.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError, PermanentError
from kafka_s3_platform.model.connect import ConnectBatch, Payload, RecordFailure, Schema

ObjectPart = Literal["value", "key", "headers"]

HEADERS_SCHEMA = Schema(
    '{"type":"array","items":{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro",'
    '"fields":[{"name":"key","type":"string"},{"name":"value","type":["null","string"],"default":null}]}}'
)
"""Headers of a record: key and value as text, as the sink writes them. The same for all records of all topics."""


VALUE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)
"""What a value raises that is not of its schema, or that a format cannot hold."""


CLASSES: Mapping[str, str] = {
    "avro": "io.confluent.connect.s3.format.avro.AvroFormat",
    "json": "io.confluent.connect.s3.format.json.JsonFormat",
    "bytes": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
    "parquet": "io.confluent.connect.s3.format.parquet.ParquetFormat",
    "block_gzip": "com.deviantart.kafka_connect_s3.BlockGZIPFileWriter",
}
"""The class that people know each format by, for dead letters."""


class UnwritableRecordsError(PermanentError):
    """Records that the format cannot hold. Nothing of their batch was written: leave them out and write the rest."""

    def __init__(self, failures: tuple[RecordFailure, ...]) -> None:
        super().__init__(f"{len(failures)} records cannot be written: {'; '.join(f.message for f in failures[:3])}")
        self.failures = failures


class UnwritableSchemaError(PermanentError):
    """No object of the format can be of this schema. One record may name it, so it is no matter of the others."""


def unwritable(
    batch: ConnectBatch, objects: Sequence[Any], format_name: str, encode: Callable[[Any], object]
) -> UnwritableRecordsError:
    """The error that names the records whose object `encode` refuses, after it refused some of all."""
    reasons: dict[int, str] = {}
    for row, value in enumerate(objects):
        try:
            encode(value)
        except VALUE_ERRORS as err:
            reasons[row] = f"cannot be written as {format_name}: {type(err).__name__}: {err}"
    return UnwritableRecordsError(failures_of(batch, format_name, reasons))


def failures_of(batch: ConnectBatch, format_name: str, reasons: Mapping[int, str]) -> tuple[RecordFailure, ...]:
    """The failures of the records at these rows, each with its reason."""
    return tuple(
        RecordFailure(
            int(batch.offsets[row]), "TASK_PUT", CLASSES[format_name], _DATA_EXCEPTION, f"{_where(batch, row)} {reason}"
        )
        for row, reason in reasons.items()
    )


_DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"


def _where(batch: ConnectBatch, row: int) -> str:
    topic, partition = (batch.records.column(name)[row].as_py() for name in ("topic", "partition"))
    return f"the record at offset {batch.offsets[row]} of {topic}-{partition}"


def without_null(batch: ConnectBatch, payload: Payload) -> Payload:
    """The payload, which has to be without nulls.

    Raises:
        IntegrityError: it has some, and its format cannot tell them from what is empty.
    """
    nulls = payload.is_null
    if nulls.any():
        raise IntegrityError(
            f"{_where(batch, int(np.argmax(nulls)))} is null where its format has no null: "
            f"`behavior.on.null.values` has to leave such records out before"
        )
    return payload


def payload_of(batch: ConnectBatch, part: ObjectPart) -> Payload:
    """What an object of this part holds of the records."""
    match part:
        case "value":
            return batch.value
        case "key":
            return batch.key
    objects = [_headers_of(found) for found in batch.records.column("headers").to_pylist()]
    return Payload(None, np.zeros(batch.num_rows, np.int32), [HEADERS_SCHEMA], objects)


def bytes_of(batch: ConnectBatch, part: ObjectPart) -> pa.BinaryArray:
    """The bytes of each record's value or key, without the frame they came in. None is null.

    Raises:
        UnwritableRecordsError: a value is neither bytes nor text.
    """
    payload = without_null(batch, payload_of(batch, part))
    if payload.raw is not None and payload.raw_is_value:
        return payload.raw
    try:
        return pa.array([as_bytes(value) for value in payload.objects], pa.binary())
    except TypeError as err:
        raise unwritable(batch, payload.objects, "bytes", as_bytes) from err


def as_bytes(value: Any) -> bytes:
    """Bytes as they are, text as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"a value of type {type(value).__name__} is neither bytes nor text")


def _headers_of(found: list[dict[str, Any]] | None) -> list[dict[str, str | None]]:
    return [{"key": header["key"], "value": _text(header["value"])} for header in found or ()]


def _text(value: bytes | None) -> str | None:
    """Text where the bytes are UTF-8, else base64, which is how Connect turns a header of bytes into text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
