"""Writes JsonFormat: a line of JSON for each record, as Connect's JsonConverter without schemas writes it.

Values that came as JSON are written unchanged. Others are encoded by their schema: bytes and fixed as base64; decimals
as the base64 of their bytes or as numbers (`json.decimal.format`); dates and times as the numbers they are; NaN and
infinities as the strings "NaN", "Infinity" and "-Infinity"; a map with other keys than strings as an array of pairs; a
union of several types as an object with a member for each, all null but one. No line break is ever written inside a
record. Sources: Kafka Connect, JsonConverter; Confluent AvroData; Jackson's defaults.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.avro.plain_json import DecimalFormat, Plain, compile_plain_json
from kafka_s3_platform.avro.values import VALUE_ERRORS, is_text
from kafka_s3_platform.formats.lines import end_values
from kafka_s3_platform.formats.parts import (
    ObjectPart,
    build_unwritable_error,
    encode_bytes,
    find_payload,
    require_no_null,
)
from kafka_s3_platform.model.connect import ConnectBatch, Schema, strip_branch


def new_json_framing(
    part: ObjectPart, schema: Schema | None, decimal_format: DecimalFormat
) -> Callable[[ConnectBatch], bytes | memoryview]:
    """Return a function to join the values, keys or headers of a batch into one buffer of lines.

    A null is the line `null`. The headers of a record are the member `headers` of an object, as Connect's sink writes
    them.

    Raises:
        UnwritableRecordsError: by the function: some values cannot be JSON. Nothing was written.
    """
    if part == "headers":
        return lambda batch: _encode([{"headers": o} for o in find_payload(batch, part).objects])
    plain = compile_plain_json(schema, decimal_format)

    def lines(batch: ConnectBatch) -> bytes | memoryview:
        payload = find_payload(batch, part)
        if payload.raw_is_json and payload.raw is not None:
            return end_raw_lines(payload.raw)
        return _encode_objects(batch, payload.objects, plain)

    return lines


def end_raw_lines(values: pa.BinaryArray) -> memoryview:
    """Join raw JSON values, each on one line, with a line break after each."""
    return end_values(pc.fill_null(values, b"null") if values.null_count else values)


def new_text_encoder(schema: Schema | None, decimal_format: DecimalFormat) -> Callable[[ConnectBatch], pa.BinaryArray]:
    """Return a function from a batch to the text of each value: text and bytes unchanged, all else JSON.

    A text of a union with other types is JSON too, because it could look like a value of these. No value may be null.
    A value's frame is never written. A null of a schema of text fails: it would look like the text `null`.
    """
    plain = compile_plain_json(schema, decimal_format)
    is_text_alone = schema is not None and is_text(schema)

    def text(value: Any) -> bytes:
        if value is None and is_text_alone:
            raise TypeError("a null in a schema of text would read back as the text null")
        if isinstance(strip_branch(value) if is_text_alone else value, bytes | str):
            return encode_bytes(value)
        return _ENCODER.encode(plain(value) if plain else value)

    def encode(batch: ConnectBatch) -> pa.BinaryArray:
        payload = require_no_null(batch, batch.value)
        if payload.raw is not None and payload.raw_is_value:
            return payload.raw
        try:
            return pa.array([text(value) for value in payload.objects], pa.binary())
        except VALUE_ERRORS as err:
            raise build_unwritable_error(batch, payload.objects, "block_gzip", text) from err

    return encode


_ENCODER = msgspec.json.Encoder(decimal_format="number")
_encode = _ENCODER.encode_lines


def _encode_objects(batch: ConnectBatch, objects: Sequence[Any], plain: Plain | None) -> bytes:
    try:
        return _encode(_make_plain(objects, plain))
    except VALUE_ERRORS as err:
        raise build_unwritable_error(batch, objects, "json", lambda o: _encode(_make_plain([o], plain))) from err


def _make_plain(objects: Sequence[Any], plain: Plain | None) -> Sequence[Any]:
    if plain is None:
        return objects
    return [None if value is None else plain(value) for value in objects]
