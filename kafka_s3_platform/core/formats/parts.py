"""Makes the three objects of Connect's S3 sink from records: their values, their keys, their headers.

Source: Confluent S3 sink, `store.kafka.keys` and `store.kafka.headers`.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.errors import ErrorCode, IntegrityError, PermanentError
from kafka_s3_platform.core.model.connect import (
    DATA_EXCEPTION,
    VALUE_ERRORS,
    ConnectBatch,
    Payload,
    RecordFailure,
    Schema,
    strip_branch,
)

ObjectPart = Literal["value", "key", "headers"]

HEADERS_SCHEMA = Schema(
    '{"type":"array","items":{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro",'
    '"fields":[{"name":"key","type":"string"},{"name":"value","type":["null","string"],"default":null}]}}'
)
"""The schema of a record's headers: key and value as text, as the sink writes them. It is the same for all topics."""

HEADER_DATA_URI = "data:application/x-kafka-header;base64,"
"""Prefix of a header's value in our objects if it was not UTF-8, or had this prefix already: a URI of RFC 2397."""


class UnwritableRecordsError(PermanentError):
    """The format cannot hold some records. Nothing of their batch was written: leave them out and write the rest."""

    code = ErrorCode.ARCHIVE_RECORD

    def __init__(self, failures: tuple[RecordFailure, ...]) -> None:
        super().__init__(f"{len(failures)} records cannot be written: {'; '.join(f.message for f in failures[:3])}")
        self.failures = failures


class UnwritableSchemaError(PermanentError):
    """The format cannot hold values of this schema. Records of other schemas are not affected."""

    code = ErrorCode.ARCHIVE_RECORD


def build_unwritable_error(
    batch: ConnectBatch, objects: Sequence[Any], format_name: str, encode: Callable[[Any], object]
) -> UnwritableRecordsError:
    """Build the error for objects that `encode` refused together, after trying each alone to find the bad ones."""
    reasons: dict[int, str] = {}
    for row, value in enumerate(objects):
        try:
            encode(value)
        except VALUE_ERRORS as err:
            reasons[row] = f"cannot be written as {format_name}: {type(err).__name__}: {err}"
    return UnwritableRecordsError(list_failures(batch, format_name, reasons))


def list_failures(batch: ConnectBatch, format_name: str, reasons: Mapping[int, str]) -> tuple[RecordFailure, ...]:
    """List the failures of the records at these rows, each with its reason."""
    known_class = find_format(format_name).known_class
    return tuple(
        RecordFailure(
            int(batch.offsets[row]), "TASK_PUT", known_class, DATA_EXCEPTION, f"{_describe_place(batch, row)} {reason}"
        )
        for row, reason in reasons.items()
    )


def _describe_place(batch: ConnectBatch, row: int) -> str:
    """Name the record of a row by topic, kafka partition and offset, for errors."""
    topic = batch.records.column("topic")[row]
    kafka_partition = batch.records.column("partition")[row]
    return f"the record at offset {batch.offsets[row]} of {topic}-{kafka_partition}"


def require_no_null(batch: ConnectBatch, payload: Payload) -> Payload:
    """Return the payload. Raises IntegrityError if it has nulls, which its format would show as empty values."""
    nulls = payload.is_null
    if nulls.any():
        raise IntegrityError(
            f"{_describe_place(batch, int(np.argmax(nulls)))} is null where its format has no null: "
            f"`behavior.on.null.values` has to leave such records out before"
        )
    return payload


def find_payload(batch: ConnectBatch, part: ObjectPart) -> Payload:
    """Return the payload for an object of this part. Headers are converted as Connect's sink writes them."""
    match part:
        case "value":
            return batch.value
        case "key":
            return batch.key
    objects = [_convert_headers(headers) for headers in batch.records.column("headers").to_pylist()]
    return Payload(None, np.zeros(batch.num_rows, np.int32), [HEADERS_SCHEMA], objects)


def read_part_bytes(batch: ConnectBatch, part: ObjectPart) -> pa.BinaryArray:
    """Return the bytes of each value or key, unframed. Raises UnwritableRecordsError unless all are bytes or text."""
    payload = require_no_null(batch, find_payload(batch, part))
    if payload.raw is not None and payload.raw_is_value:
        return payload.raw
    try:
        return pa.array([encode_bytes(value) for value in payload.objects], pa.binary())
    except TypeError as err:
        raise build_unwritable_error(batch, payload.objects, "bytes", encode_bytes) from err


def read_plain_bytes(payload: Payload) -> pa.BinaryArray:
    """Return the values to write unchanged: bytes and text. All others are null here, and become JSON or fail later."""
    if payload.raw is not None and payload.raw_is_value:
        return payload.raw
    values = map(strip_branch, payload.objects)
    return pa.array([encode_bytes(o) if isinstance(o, bytes | str) else None for o in values], pa.binary())


def encode_bytes(value: Any) -> bytes:
    """Return bytes unchanged, and text as UTF-8."""
    value = strip_branch(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"a value of type {type(value).__name__} is neither bytes nor text")


def _convert_headers(headers: list[dict[str, Any]] | None) -> list[dict[str, str | None]]:
    """Return a record's headers as Connect's S3 sink writes them: values as text."""
    return [{"key": header["key"], "value": _make_header_text(header["value"])} for header in headers or ()]


def _make_header_text(value: bytes | None) -> str | None:
    """Return the text of a header's value, from which `decode_header_text` gets its bytes back. None stays None."""
    if value is None:
        return None
    with suppress(UnicodeDecodeError):
        if not (text := value.decode()).startswith(HEADER_DATA_URI):
            return text
    return HEADER_DATA_URI + base64.b64encode(value).decode()


def decode_header_text(text: str) -> bytes:
    """Return the bytes of a header's value from its text. Raises ValueError if this platform did not write the text."""
    if text.startswith(HEADER_DATA_URI):
        return base64.b64decode(text.removeprefix(HEADER_DATA_URI), validate=True)
    return text.encode()
