"""Converter of JSON without a schema: checks each text and puts it on one line."""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.json_values import (
    BYTE_ORDER_MARK,
    decode_json,
    find_maybe_deeper,
    is_deeper,
    read_number,
)
from kafka_s3_platform.connect.avro.wire import read_extents
from kafka_s3_platform.connect.converters.base import BadRecordError, ConvertedPayload, Origin, is_utf8, spread_values
from kafka_s3_platform.core.model.connect import MISSING, NO_SCHEMA, Int64s, Payload

MAX_DEPTH = 250
"""The deepest nesting of objects and arrays. A fixed limit, because msgspec's depends on the remaining stack."""

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
# The number of rows checked at once. If one row is bad, each row of its chunk is checked by itself.
CHUNK = 4096
SPACE = 0x20
MAX_NULL_BYTES = 64
"""The longest text that is checked for a literal null. A null with more whitespace around it is not recognized."""

_whole = msgspec.json.Decoder(msgspec.Raw)


class JsonPayload(Payload):
    """Records of valid JSON, each on one line."""

    raw_is_json = True

    def _decode(self) -> Sequence[Any]:
        rows = pa.array(self.raw).to_numpy(zero_copy_only=False)
        return [None if row is None else decode_json(row) for row in rows]

    def field(self, path: Sequence[str]) -> list[Any]:
        """Return the field at `path` of each record, or MISSING. If possible, only this field is decoded."""
        if "objects" in self.__dict__ or not path:
            return super().field(path)
        try:
            fields = _read_fields(pa.array(self.raw).drop_null(), path)
        except msgspec.MsgspecError:
            # This is rare: a value on the path is not an object.
            return super().field(path)
        if len(fields) == len(self):
            return fields
        return spread_values(fields, ~self.is_null, MISSING)


class JsonConverter:
    """Connect's JsonConverter with `schemas.enable=false`. Unlike Connect's, it keeps the text, so no digit is lost.

    The text `null` is a null value, as in Connect.
    """

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, JSON_CONVERTER)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        lines, reasons = flatten_texts(raw)
        payload = JsonPayload(_replace_literal_nulls(lines), np.full(len(raw), NO_SCHEMA, np.int32), ())
        return self._origin.split_failures(payload, reasons, offsets)


def _replace_literal_nulls(lines: pa.BinaryArray) -> pa.BinaryArray:
    """Return the texts with null in place of each JSON `null`, as Connect reads it."""
    is_short = pc.fill_null(pc.less_equal(pc.binary_length(lines), MAX_NULL_BYTES), fill_value=False)
    short = np.flatnonzero(is_short.to_numpy(zero_copy_only=False))
    if not short.size:
        return lines
    candidates = lines.take(pa.array(short))
    maybe = np.flatnonzero(pc.match_substring(candidates, b"null").to_numpy(zero_copy_only=False))
    nulls = [short[position] for position in maybe.tolist() if candidates[position].as_py().strip() == b"null"]
    if not nulls:
        return lines
    return pc.if_else(np.isin(np.arange(len(lines)), nulls), pa.scalar(None, lines.type), lines)


def flatten_texts(raw: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
    """Put each JSON text on one line. Also return the reason for each bad text, by position. Nulls stay."""
    changed_lines: dict[int, bytes] = {}
    reasons: dict[int, str] = {}
    for start in range(0, len(raw), CHUNK):
        chunk = raw.slice(start, CHUNK)
        if not _are_plain_lines(chunk):
            for position, row in enumerate(chunk.to_numpy(zero_copy_only=False), start):
                _flatten_row(position, row, changed_lines, reasons)
    if not changed_lines:
        return raw, reasons
    rows = raw.to_numpy(zero_copy_only=False)
    for position, line in changed_lines.items():
        rows[position] = line
    return pa.array(rows, raw.type), reasons


def _are_plain_lines(raw: pa.BinaryArray) -> bool:
    """Return True if every value is certainly a JSON text on one line, with nothing around it.

    All values are decoded as one text, without separators. Each value is a JSON text if and only if the decoded texts
    have the lengths of the values: the first text begins with the first value, so by its length the second one begins
    with the second value, and so on.
    """
    starts, ends, data = read_extents(raw)
    if raw.null_count or not len(raw):
        return not len(raw) or _are_plain_lines(raw.drop_null())
    lengths = ends - starts
    text = data[starts[0] : ends[-1]]
    # A control character is a line break, a tab or an error. Short texts cannot be nested deeply.
    if not len(text) or text.min() < SPACE or find_maybe_deeper(raw, MAX_DEPTH).size or not is_utf8(raw):
        return False
    try:
        texts = _whole.decode_lines(text.data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return len(texts) == len(raw) and np.array_equal(np.fromiter(map(len, texts), np.int64, len(texts)), lengths)


def _flatten_row(position: int, row: bytes | None, changed_lines: dict[int, bytes], reasons: dict[int, str]) -> None:
    """Put one text on one line. Note the line in `changed_lines` if it changed, or the reason if the text is bad."""
    if row is None:
        return
    try:
        line = flatten_text(row)
    except BadRecordError as err:
        reasons[position] = str(err)
        return
    if line is not row:
        changed_lines[position] = line


def flatten_text(row: bytes) -> bytes:
    """Return JSON text without line breaks and byte order mark. Raise BadRecordError if it is not valid."""
    row = row.removeprefix(BYTE_ORDER_MARK)
    try:
        row.decode()
        if is_deeper(row, MAX_DEPTH):
            raise BadRecordError(f"is JSON nested deeper than {MAX_DEPTH} levels")
        _whole.decode(row)
    except UnicodeDecodeError as err:
        raise BadRecordError(f"is no JSON, because it is not UTF-8: {err}") from err
    except (msgspec.MsgspecError, RecursionError) as err:
        raise BadRecordError(f"is no JSON: {err if row.strip() else 'it is empty'}") from err
    if b"\n" in row or b"\r" in row:
        return msgspec.json.format(row, indent=-1)
    return row


def _read_fields(raw: pa.BinaryArray, path: Sequence[str]) -> list[Any]:
    """Read the field at `path` of valid JSON texts. msgspec skips all other fields."""
    if not len(raw):
        return []
    starts, ends, text = read_extents(raw)
    wrapped = _compile_field_decoder(tuple(path)).decode_lines(text[starts[0] : ends[-1]].data)
    try:
        return list(map(attrgetter(".".join(["value"] * len(path))), wrapped))
    except AttributeError:
        return [_unwrap_value(wrapper, len(path)) for wrapper in wrapped]


@lru_cache
def _compile_field_decoder(path: tuple[str, ...]) -> Any:
    """Compile a decoder of nested objects that reads only the field at `path`."""
    kind: Any = Any
    for name in reversed(path):
        kind = msgspec.defstruct("Found", [("value", kind, msgspec.field(default=MISSING, name=name))], gc=False) | None
    return msgspec.json.Decoder(kind, float_hook=read_number)


def _unwrap_value(wrapper: Any, depth: int) -> Any:
    """Return the field below `depth` wrappers, or MISSING if one of them is absent or null."""
    for _ in range(depth):
        if wrapper is None or wrapper is MISSING:
            return MISSING
        wrapper = wrapper.value
    return wrapper
