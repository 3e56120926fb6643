"""Decodes what other sinks write: base64 in place of bytes, the line `null` in place of a null, headers, envelopes.

An *envelope* is a whole record as one value: its key, value, offset, timestamp and headers are fields.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.formats.avro import AvroReader
from kafka_s3_platform.connect.formats.json import JsonLinePayload, build_json_payload, find_fault, find_faults
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.core.formats.format_io import ReadRequest
from kafka_s3_platform.core.formats.parts import HEADER_DATA_URI, HEADERS_SCHEMA
from kafka_s3_platform.core.formats.reading import BatchReader, ReadBatch, build_bytes_payload
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import Payload
from kafka_s3_platform.core.model.limits import ReadLimits

HEADERS = RECORD_SCHEMA.field("headers").type

UNKNOWN_OFFSET = -1
_INT64 = range(-(2**63), 2**63)
_NULL = b"null"
_text = msgspec.json.Decoder(str).decode
_write = msgspec.json.Encoder(decimal_format="number").encode


def decode_text_bytes(line: bytes) -> bytes | None:
    """Decode a JSON string from base64. The line `null` becomes None.

    Any other JSON is returned unchanged, since no sink writes it for bytes. Raises ValueError if the string is not
    base64.
    """
    if line == _NULL:
        return None
    if not line.lstrip().startswith(b'"'):
        return line
    try:
        return base64.b64decode(_text(line), validate=True)
    except ValueError as err:
        raise ValueError(
            f"a text that is no base64, as which sinks write the bytes of ByteArrayConverter: {err}"
        ) from err


def encode_header_value(value: Any) -> bytes | None:
    """Return the bytes of a header's value: text as UTF-8, bytes and null unchanged, all else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return _write(value)


def read_null_lines(batches: Iterator[ReadBatch]) -> Iterator[ReadBatch]:
    """Turn each line `null` of JSON into a null value, because Aiven's sink writes tombstones in this way."""
    for batch in batches:
        raw = batch.value.raw
        nulls = pc.equal(raw, pa.scalar(_NULL, pa.binary()))
        lines = pc.if_else(nulls, pa.scalar(None, pa.binary()), raw)
        yield replace(batch, value=JsonLinePayload(lines, batch.value.codes, ()))


def parse_json_values(batches: Iterator[ReadBatch], depth: int) -> Iterator[ReadBatch]:
    """Turn values of bytes, each a text of JSON nested at most `depth` deep, into JSON. Other values are `bad`."""
    at = 0
    for batch in batches:
        lines = [b"" if line is None else line for line in pa.array(batch.value.raw).to_pylist()]
        payload = build_json_payload(lines)
        faults = find_faults(lines, payload.raw, depth)
        yield replace(
            batch, value=payload, bad={**batch.bad, **{row: f"line {at + row + 1}: {w}" for row, w in faults}}
        )
        at += len(batch)


def decode_base64_lines(batches: Iterator[ReadBatch]) -> Iterator[ReadBatch]:
    """Decode lines from base64, in which sinks write bytes in JSON. Lines that are not base64 are `bad`.

    An object of other JSON is returned unchanged. It is no sink's of bytes, so texts in it are not base64: a line of
    the other kind than the first one is `bad`.
    """
    at = 0
    are_texts: bool | None = None
    for batch in batches:
        values = list[bytes | None]()
        bad = dict(batch.bad)
        for row, line in enumerate(pa.array(batch.value.raw).to_pylist()):
            values.append(None)
            if row in bad or line == _NULL:
                continue
            is_text = line.lstrip().startswith(b'"')
            are_texts = is_text if are_texts is None else are_texts
            try:
                if is_text is not are_texts:
                    raise ValueError(
                        "a text of base64 or other JSON, but the first value is not: name the sink's converter"
                    )
                values[row] = decode_text_bytes(line)
            except ValueError as err:
                bad[row] = f"line {at + row + 1}: is {err}"
        yield replace(batch, value=build_bytes_payload(pa.array(values, pa.binary())), bad=bad)
        at += len(batch)


def decode_headers(batches: Iterator[ReadBatch], decode: Callable[[str], bytes]) -> Iterator[ReadBatch]:
    """Decode an object of headers. `decode` turns the text of each into bytes. Texts that it refuses are `bad`.

    The values of the batches are the headers of records, or objects with the member `headers`.
    """
    for batch in batches:
        headers = list[Any]()
        bad = dict(batch.bad)
        for row, one in enumerate(batch.value.objects):
            headers.append([])
            try:
                pairs = one["headers"] if isinstance(one, dict) else one
                headers[row] = [{"key": pair["key"], "value": _decode_header(pair["value"], decode)} for pair in pairs]
            except (TypeError, ValueError, LookupError) as err:
                bad[row] = f"headers of record {row + 1} are {err}"
        yield ReadBatch(Payload(None, np.zeros(len(batch), np.int32), [HEADERS_SCHEMA], headers), bad)


def _decode_header(value: Any, decode: Callable[[str], bytes]) -> bytes | None:
    """Return the bytes of a header's value. Raise TypeError if the value is not a text."""
    if not isinstance(value, str | None):
        raise TypeError(f"no texts: a value is of type {type(value).__name__}")
    return None if value is None else decode(value)


def decode_base64_header(text: str) -> bytes:
    """Decode the value of a header that the sink's ByteArrayConverter wrote."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as err:
        raise ValueError(f"no base64, as which sinks write them: {err}") from err


def encode_foreign_header(text: str) -> bytes:
    """Return a text as UTF-8. Refuse one that only this platform writes, since nothing proves its original bytes."""
    if text.startswith(HEADER_DATA_URI):
        raise ValueError(
            f"not sure: the text {HEADER_DATA_URI}... is what this platform writes for bytes, and the object lacks the "
            f"metadata by which its objects are known. Copy it again with its metadata"
        )
    return text.encode()


@dataclass(frozen=True, slots=True)
class EnvelopeRow:
    """A record read from another sink's envelope. A part is None if the record lacks it. The timestamp is in epoch ms.

    `key` and `value` are bytes or JSON texts. They are None, too, if they are in columns of the object. Raises
    ValueError if the offset or the timestamp is not a 64-bit integer.
    """

    key: Any = None
    value: Any = None
    offset: int | None = None
    timestamp: int | None = None
    headers: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        for name, number in (("offset", self.offset), ("timestamp", self.timestamp)):
            if number is not None and (type(number) is not int or number not in _INT64):
                raise ValueError(f"its {name} is {number!r:.40}")


def build_envelope_batch(
    rows: Sequence[EnvelopeRow], value: Payload, key: Payload, bad: Mapping[int, str]
) -> ReadBatch:
    """Build a batch of the records `rows`. `value` and `key` hold their values and keys, `bad` maps rows to reasons."""
    offsets = [UNKNOWN_OFFSET if row.offset is None else row.offset for row in rows]
    times = [NO_TIMESTAMP if row.timestamp is None else row.timestamp for row in rows]
    headers = pa.array([row.headers for row in rows], HEADERS)
    return ReadBatch(value, bad, key, headers, np.array(offsets, np.int64), np.array(times, np.int64))


def open_envelope_columns(request: ReadRequest, kind: str) -> BatchReader:
    """Return the reader of an object of envelopes of the `kind` avro or parquet. Its values are whole envelopes."""
    if kind == "avro":
        return AvroReader(request.source, request.key, request.limits)
    return ParquetReader(request.source, request.key, limits=request.limits)


def check_json(line: bytes, limits: ReadLimits) -> None:
    """Raise ValueError if a text is not JSON, or is nested deeper than the limits allow."""
    if why := find_fault(line, limits.depth):
        raise ValueError(f"it {why}")


def refuse_many_items(name: str, text: bytes, separator: bytes, limits: ReadLimits) -> None:
    """Raise ValueError if a text may have more items than the limits allow. Decoded, each takes some hundred bytes."""
    if text.count(separator) > limits.items:
        raise ValueError(f"its {name} have more than archive.read.max.items={limits.items:,} items")
