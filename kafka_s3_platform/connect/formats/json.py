"""Writes and reads JsonFormat: a line of JSON for each record, as Connect's JsonConverter without schemas writes it.

Values that came as JSON are written unchanged. Others are encoded by their schema: bytes and fixed as base64; decimals
as the base64 of their bytes or as numbers (`json.decimal.format`); dates and times as the numbers they are; NaN and
infinities as the strings "NaN", "Infinity" and "-Infinity"; a map with other keys than strings as an array of pairs; a
union of several types as an object with a member for each, all null but one. No line break is ever written inside a
record. Sources: Kafka Connect, JsonConverter; Confluent AvroData; Jackson's defaults.

When lines are read, their syntax is checked, and their bytes stay unchanged.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.json_values import decode_json, find_maybe_deeper, is_deeper
from kafka_s3_platform.connect.avro.plain_json import DecimalFormat, Plain, compile_plain_json
from kafka_s3_platform.connect.avro.values import is_text
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.core.formats.lines import LINE, Ending, LinesWriter, end_values, split_lines
from kafka_s3_platform.core.formats.parts import (
    ObjectPart,
    build_unwritable_error,
    encode_bytes,
    find_payload,
    require_no_null,
)
from kafka_s3_platform.core.formats.reading import ReadBatch, batch_values, build_damage_error, read_pieces
from kafka_s3_platform.core.model.connect import NO_SCHEMA, VALUE_ERRORS, ConnectBatch, Payload, Schema, strip_branch
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits

# The rest of a number that was cut off is a number too.
_NUMBER = re.compile(rb"[-+.0-9eE]+")
_validate = msgspec.json.Decoder(msgspec.Raw).decode


class JsonLinePayload(Payload):
    """Lines of JSON, which are decoded when their values are first used."""

    raw_is_json = True

    def _decode(self) -> Sequence[Any]:
        """Parse the lines. Nulls stay nulls."""
        return [None if line is None else decode_json(line) for line in pa.array(self.raw).to_pylist()]


def build_json_payload(lines: Sequence[bytes | None]) -> JsonLinePayload:
    """Build a payload of lines, or other texts, of JSON."""
    return JsonLinePayload(pa.array(lines, pa.binary()), np.full(len(lines), NO_SCHEMA, np.int32), ())


@dataclass(frozen=True)
class JsonReader:
    """Reads an object of lines, with any compression. `key` names the object in errors.

    `open_end` allows a last line without a line break, as tools other than Connect write it. If such a line is cut off,
    it is no longer JSON, except if it is a number. So a number is refused there.
    """

    source: IO[bytes]
    key: str
    codec: str = "none"
    open_end: bool = False
    limits: ReadLimits = DEFAULT_LIMITS

    def batches(self) -> Iterator[ReadBatch]:
        """Return the lines in batches; invalid JSON is `bad`. Raise IntegrityError if the object is damaged."""
        pieces = Ending(read_pieces(self.source, self.key, self.codec, self.limits))
        at = 0
        for lines in batch_values(split_lines(pieces, LINE, self.key, self.limits, open_end=self.open_end)):
            payload = build_json_payload(lines)
            faults = dict(find_faults(lines, payload.raw, self.limits.depth))
            if pieces.is_open and (len(lines) - 1 in faults or _NUMBER.fullmatch(lines[-1])):
                what = faults.get(len(lines) - 1, "is a number, which might go on")
                raise build_damage_error(
                    self.key, f"has no line break behind its last line, {at + len(lines)}, which {what}"
                )
            bad = {row: f"line {at + row + 1}: {why}" for row, why in faults.items()}
            yield ReadBatch(payload, bad)
            at += len(lines)


def find_faults(lines: Sequence[bytes], raw: pa.BinaryArray, depth: int) -> Iterator[tuple[int, str]]:
    """Find the rows that are not JSON. Rows are checked one by one only if a check of all together fails."""
    doubtful: Iterable[int] = range(len(lines))
    # All rows at once first: most batches have no fault, and UTF-8 takes a fifth of the time so.
    with suppress(msgspec.MsgspecError, pa.ArrowInvalid, RecursionError):
        raw.cast(pa.string())
        deque(map(_validate, lines), maxlen=0)
        doubtful = find_maybe_deeper(raw, depth).tolist()
    return ((row, why) for row in doubtful if (why := find_fault(lines[row], depth)))


def find_fault(line: bytes, depth: int) -> str:
    """Return why a text cannot be read as JSON, or "" if it can.

    Objects and arrays may be nested `depth` deep. Without this limit, Python's stack would be the limit, and its room
    depends on the caller.
    """
    if not line:
        return "is no JSON: it is empty"  # there may be ten million of them
    if is_deeper(line, depth):
        return f"is JSON nested deeper than archive.read.max.depth={depth}"
    try:
        _validate(line)
        line.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        return f"is no JSON: {err}"
    return ""


def new_json_framing(
    part: ObjectPart, schema: Schema | None, decimal_format: DecimalFormat
) -> Callable[[ConnectBatch], bytes | memoryview]:
    """Return a function that joins the values, keys or headers of a batch into one buffer of lines.

    A null becomes the line `null`. The headers of a record become the member `headers` of an object, as in Connect's
    sink. The function raises UnwritableRecordsError if some values cannot be JSON. In this case nothing was written.
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
    """Return a function from a batch to each value's text. Text and bytes stay unchanged, all else becomes JSON.

    A text of a union with other types becomes JSON too, because it could look like a value of another type. No value
    may be null. A value's frame is never written. A null of a text schema is an error, since it would look like the
    text `null`.
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
    """Encode values as lines. Raise UnwritableRecordsError, which names the values that JSON cannot hold."""
    try:
        return _encode(_make_plain(objects, plain))
    except VALUE_ERRORS as err:
        raise build_unwritable_error(batch, objects, "json", lambda o: _encode(_make_plain([o], plain))) from err


def _make_plain(objects: Sequence[Any], plain: Plain | None) -> Sequence[Any]:
    """Return values in JSON's types. `plain` converts one value, and is None if all have such types already."""
    if plain is None:
        return objects
    return [None if value is None else plain(value) for value in objects]


def _new_writer(request: WriteRequest) -> LinesWriter:
    """Make the writer of an object of lines."""
    framed = new_json_framing(request.part, request.schema, request.layout.decimal_format)
    return LinesWriter(request.sink, framed, request.codec, request.level)


def _new_reader(request: ReadRequest) -> JsonReader:
    """Make the reader of an object of lines."""
    # Our objects always end with a line break. One that does not is cut off, even if the number of records is right.
    return JsonReader(request.source, request.key, request.codec, open_end=not request.is_own, limits=request.limits)


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader)
