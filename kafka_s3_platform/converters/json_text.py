"""JSON without a schema: checked, and put on one line a record."""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.converters.base import BadRecordError, Converted, Origin, spread
from kafka_s3_platform.converters.plain import is_utf8
from kafka_s3_platform.converters.wire import extents
from kafka_s3_platform.model.connect import MISSING, NO_SCHEMA, Int64s, Payload
from kafka_s3_platform.model.json_values import decoded, is_deeper, may_be_deeper

MAX_DEPTH = 250
"""Objects and arrays inside each other. Fixed, because msgspec's own limit is what is left of Python's stack."""

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CHUNK = 4096
SPACE = 0x20
MAX_NULL_BYTES = 64
"""A literal null with more space around it is not looked for."""

_whole = msgspec.json.Decoder(msgspec.Raw)


class JsonPayload(Payload):
    """One line of valid JSON a record."""

    raw_is_json = True

    def _decode(self) -> Sequence[Any]:
        return [None if row is None else decoded(row) for row in self._rows()]

    def field(self, path: Sequence[str]) -> list[Any]:
        """As the base class, without decoding what is beside `path`."""
        if "objects" in self.__dict__ or not path:
            return super().field(path)
        try:
            found = _fields(pa.array(self.raw).drop_null(), path)
        except msgspec.MsgspecError:
            # Something on the way is no object, or a number does not fit: seldom.
            return super().field(path)
        return found if len(found) == len(self) else spread(found, ~self.is_null, MISSING)

    def _rows(self) -> npt.NDArray[np.object_]:
        rows: npt.NDArray[np.object_] = pa.array(self.raw).to_numpy(zero_copy_only=False)
        return rows


class JsonConverter:
    """Connect's JsonConverter with `schemas.enable=false`, except that the text is kept: numbers lose no digit.

    The text `null` is a null value, as there.
    """

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, JSON_CONVERTER)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        lines, bad = one_line_each(raw)
        payload = JsonPayload(_without_literal_nulls(lines), np.full(len(raw), NO_SCHEMA, np.int32), ())
        return self._origin.converted(payload, bad, offsets)


def _without_literal_nulls(lines: pa.BinaryArray) -> pa.BinaryArray:
    is_short = pc.fill_null(pc.less_equal(pc.binary_length(lines), MAX_NULL_BYTES), fill_value=False)
    short = np.flatnonzero(is_short.to_numpy(zero_copy_only=False))
    if not short.size:
        return lines
    candidates = lines.take(pa.array(short))
    maybe = np.flatnonzero(pc.match_substring(candidates, b"null").to_numpy(zero_copy_only=False))
    nulls = [short[at] for at in maybe.tolist() if candidates[at].as_py().strip() == b"null"]
    if not nulls:
        return lines
    return pc.if_else(np.isin(np.arange(len(lines)), nulls), pa.scalar(None, lines.type), lines)


def one_line_each(raw: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
    """The same JSON on one line each, and what is wrong with the others by position. Nulls stay."""
    changed: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    for start in range(0, len(raw), CHUNK):
        chunk = raw.slice(start, CHUNK)
        if not _is_plain(chunk):
            for position, row in enumerate(chunk.to_numpy(zero_copy_only=False), start):
                _one_line(position, row, changed, bad)
    if not changed:
        return raw, bad
    rows = raw.to_numpy(zero_copy_only=False)
    for position, line in changed.items():
        rows[position] = line
    return pa.array(rows, raw.type), bad


def _is_plain(raw: pa.BinaryArray) -> bool:
    """Whether every value is for certain a JSON text on one line with nothing around it.

    The values are decoded as one text without anything between them. Each is a text of its own if and only if what is
    decoded has the lengths of the values: the first begins where its value does, and so, by its length, the next.
    """
    starts, ends, data = extents(raw)
    if raw.null_count or not len(raw):
        return not len(raw) or _is_plain(raw.drop_null())
    lengths, text = ends - starts, data[starts[0] : ends[-1]]
    # Control characters are line breaks, tabs or errors. Short texts cannot be nested deeply.
    if not len(text) or text.min() < SPACE or may_be_deeper(raw, MAX_DEPTH).size or not is_utf8(raw):
        return False
    try:
        found = _whole.decode_lines(text.data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return len(found) == len(raw) and np.array_equal(np.fromiter(map(len, found), np.int64, len(found)), lengths)


def _one_line(position: int, row: bytes | None, changed: dict[int, bytes], bad: dict[int, str]) -> None:
    if row is None:
        return
    try:
        line = one_line(row)
    except BadRecordError as err:
        bad[position] = str(err)
        return
    if line is not row:
        changed[position] = line


def one_line(row: bytes) -> bytes:
    """A JSON text without its line breaks; itself if it has none. Raises BadRecordError."""
    try:
        row.decode()
        if is_deeper(row, MAX_DEPTH):
            raise BadRecordError(f"is JSON nested deeper than {MAX_DEPTH} levels")
        _whole.decode(row)
    except UnicodeDecodeError as err:
        raise BadRecordError(f"is no JSON, because it is not UTF-8: {err}") from err
    except (msgspec.MsgspecError, RecursionError) as err:
        raise BadRecordError(f"is no JSON: {err if row.strip() else 'it is empty'}") from err
    return msgspec.json.format(row, indent=-1) if b"\n" in row or b"\r" in row else row


def _fields(raw: pa.BinaryArray, path: Sequence[str]) -> list[Any]:
    """The field at `path` of JSON texts that are known to be valid: msgspec passes over all others."""
    if not len(raw):
        return []
    starts, ends, text = extents(raw)
    found = _field_decoder(tuple(path)).decode_lines(text[starts[0] : ends[-1]].data)
    try:
        return list(map(attrgetter(".".join(["value"] * len(path))), found))
    except AttributeError:
        return [_value(each, len(path)) for each in found]


@lru_cache
def _field_decoder(path: tuple[str, ...]) -> Any:
    kind: Any = Any
    for name in reversed(path):
        kind = msgspec.defstruct("Found", [("value", kind, msgspec.field(default=MISSING, name=name))], gc=False) | None
    return msgspec.json.Decoder(kind)


def _value(found: Any, depth: int) -> Any:
    for _ in range(depth):
        if found is None or found is MISSING:
            return MISSING
        found = found.value
    return found
