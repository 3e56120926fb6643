"""Measures and decodes JSON texts, in the same way for records from Kafka and for records from objects.

Decoding is *exact*: if a value is written again, it has the same numbers and texts. Otherwise it is an `InexactJson`.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.core.compiled import compile_cached
from kafka_s3_platform.core.model.connect import DataError

MAX_DIGITS = 4300
"""The most digits that Python converts to an int by default."""

# The number of bytes measured at once. Each takes several bytes of memory meanwhile.
_PIECE = 1_048_576
# How each byte changes the depth.
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1

# `{` and `[` differ in one bit. With this bit set, both are `{`, so one comparison finds both.
_OPENING = ord("{")
_CASE = ord("{") ^ ord("[")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some writers begin a text with it. Jackson ignores it, and so does Connect."""

_untyped = msgspec.json.Decoder()
_EXPONENT = frozenset("eE")
_SAFE_LENGTH = 16
"""The length of a point and 15 digits. Each such number is exactly what its double is written as."""
_HIDDEN = re.compile(rb"\\u00(22|3[aA])")
_write = msgspec.json.Encoder(decimal_format="number").encode


def read_number(text: str) -> float | Decimal:
    """Return the double of a number of JSON, or a Decimal if the double would be written as another number."""
    number = float(text)
    if (len(text) <= _SAFE_LENGTH and not _EXPONENT.intersection(text)) or Decimal(repr(number)) == (
        exact := Decimal(text)
    ):
        return number
    return exact


_by_number = msgspec.json.Decoder(float_hook=read_number)


@dataclass(frozen=True)
class InexactJson:
    """Stands for JSON that no plain object holds exactly. The value cannot be used, but its bytes are kept."""

    reason: str


def require_exact(value: Any) -> None:
    """Raise DataError if a decoded value stands for JSON that no plain object holds exactly."""
    if isinstance(value, InexactJson):
        raise DataError(value.reason)


def find_maybe_deeper(texts: pa.BinaryArray, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of the JSON texts that may be nested deeper than `most`, by counting their opening brackets.

    Check these with `is_deeper`. Measured: this takes 0.05 ns for each byte, counting in Python's bytes 0.7 ns.
    """
    _, ends, data = texts.buffers()
    if data is None:
        return np.empty(0, np.int64)
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.flatnonzero(_have_more_brackets(np.frombuffer(data, np.uint8), bounds, most))


def is_deeper(text: bytes, most: int) -> bool:
    """Return True if more than `most` objects and arrays are nested in each other."""
    # Counting is quick, and nearly all texts have few brackets. Only the others are measured.
    return text.count(b"{") + text.count(b"[") > most and _measure_depth(text) > most


def _measure_depth(text: bytes) -> int:
    """Measure how deeply brackets outside strings are nested, piece by piece to save memory."""
    # Without escaped characters, every remaining quote begins or ends a string.
    plain = np.frombuffer(text.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    quotes = depth = deepest = 0
    for at in range(0, len(plain), _PIECE):
        piece = plain[at : at + _PIECE]
        inside = np.cumsum(piece == ord('"'), dtype=np.int32) + quotes
        depths = np.cumsum(_STEPS[piece] * (inside & 1 == 0), dtype=np.int32) + depth
        quotes = int(inside[-1]) & 1
        depth = int(depths[-1])
        deepest = max(deepest, int(depths.max()))
    return deepest


def decode_json(text: bytes) -> Any:
    """Decode a valid JSON text to plain objects. A number is a Decimal if an int or float would change it.

    A text becomes an InexactJson if an object in it has a key twice, or if a number cannot be decoded.
    """
    try:
        value = _untyped.decode(text)
        # If writing the value gives the same text again, decoding lost nothing. This is quick, and true for most texts.
        written_text = _write(value)
        # First the text itself and as Python's writers space it, then with the whitespace of any other writer removed.
        if written_text == text or written_text == text.replace(b'": ', b'":').replace(b', "', b',"'):
            return value
        if written_text == (plain := msgspec.json.format(text, indent=-1)):
            return value
        if _have_same_members(plain, written_text) and b"-0" not in text:
            return _by_number.decode(text)
    except (msgspec.ValidationError, DecimalException):
        pass  # a number that is too large
    try:
        return json.loads(
            text.decode(), parse_int=_read_integer, parse_float=read_number, object_pairs_hook=build_object
        )
    except (ValueError, DecimalException) as err:
        return InexactJson(f"cannot be decoded without a change of its value: {str(err) or type(err).__name__}")


def decode_exact_json(text: bytes) -> Any:
    """Decode JSON as `decode_json` does. Raise DataError for an InexactJson, MsgspecError for text that is no JSON."""
    value = decode_json(text)
    require_exact(value)
    return value


def require_unique_keys(text: bytes) -> None:
    """Raise ValueError if an object of a valid JSON text has a key twice."""
    json.loads(text, parse_int=float, object_pairs_hook=build_object)


def _have_same_members(text: bytes, written_text: bytes) -> bool:
    """Return True if JSON without spaces certainly still has as many members once it is decoded and written again.

    Decoding keeps only the last of several members with the same key.
    """
    # Each member has these two bytes. Strings may have them too, and keep them if neither is escaped by its number.
    return not _HIDDEN.search(text) and text.count(b'":') == written_text.count(b'":')


def _read_integer(text: str) -> int | Decimal:
    """Return the number as an int, or as a Decimal if an int would lose its sign (-0) or is too long for Python."""
    return Decimal(text) if text == "-0" or len(text) > MAX_DIGITS else int(text)


def build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of its members. Raises ValueError if two have the same key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"an object has the key {twice[:100]!r} more than once")
    return members


# Without types, numba compiles or loads it at the first call. With types, each import would take half a second.
@compile_cached()  # type: ignore[untyped-decorator, unused-ignore]
def _have_more_brackets(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int32], most: int
) -> npt.NDArray[np.bool_]:  # pragma: no cover - compiled
    """Return the mask of JSON texts that may be nested too deeply, because they have more than `most` bytes `[` or `{`.

    `data` has the bytes of all texts, and text i is `data[bounds[i]:bounds[i + 1]]`. Brackets are not counted in a text
    of at most `2 * most` bytes: with their closing brackets, at most `most` have room. Brackets within strings are
    counted too, so the texts in the mask still have to be measured (`is_deeper`).
    """
    has_more = np.zeros(len(bounds) - 1, np.bool_)
    for at in range(len(has_more)):
        start = bounds[at]
        end = bounds[at + 1]
        if end - start > 2 * most:
            count = np.int32(0)
            # In ASCII, `[` | 0x20 is `{`. The loop runs over a slice, because with an index it would not be vectorised.
            for byte in data[start:end]:
                count += np.int32(byte | np.uint8(_CASE) == np.uint8(_OPENING))
            has_more[at] = count > most
    return has_more
