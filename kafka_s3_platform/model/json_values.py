"""Measures and decodes JSON texts, in the same way for records from Kafka and for records from objects."""

import json
from typing import Any

import msgspec
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_DIGITS = 4300
"""The most digits that Python converts to an int by default."""

# Bytes that are measured at once: each byte takes several bytes of memory meanwhile.
_PIECE = 1_048_576
# How each byte changes the depth.
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1

# `{` and `[` differ in one bit. With this bit set, both are `{`, so one comparison finds both.
_OPENING = ord("{")
_CASE = ord("{") ^ ord("[")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some writers begin a text with it. Jackson, and so Connect, passes over it."""

_untyped = msgspec.json.Decoder()


def find_maybe_deeper(texts: pa.BinaryArray, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of valid JSON texts with more than `most` opening brackets. Only these can be deeper.

    Check them with `is_deeper`. Measured: 0.05 ns for each byte, counting in Python's bytes takes 0.7 ns.
    """
    _, ends, data = texts.buffers()
    if data is None:
        return np.empty(0, np.int64)
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.flatnonzero(_have_more_brackets(np.frombuffer(data, np.uint8), bounds, most))


def is_deeper(text: bytes, most: int) -> bool:
    """Whether more than `most` objects and arrays are nested in each other."""
    # Counting is quick, and nearly all texts have few brackets: only others are measured.
    return text.count(b"{") + text.count(b"[") > most and _measure_depth(text) > most


def _measure_depth(text: bytes) -> int:
    """Measure how deep brackets outside of strings are nested, piece by piece to save memory."""
    # Without escaped characters, every quote left begins or ends a string.
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
    """Decode a JSON text to plain objects. A number that is too large becomes an infinity."""
    try:
        return _untyped.decode(text)
    except msgspec.ValidationError:
        # msgspec refuses numbers that are too large. Python's decoder takes them.
        return json.loads(text, parse_int=_parse_int)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)


# Without types, numba compiles or loads it at the first call. With types, each import would take half a second.
@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _have_more_brackets(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int32], most: int
) -> npt.NDArray[np.bool_]:  # pragma: no cover - compiled
    """Return for each text whether it has more than `most` opening brackets. In valid JSON, each has a closing one."""
    found = np.zeros(len(bounds) - 1, np.bool_)
    for at in range(len(found)):
        start = bounds[at]
        end = bounds[at + 1]
        if end - start > 2 * most:
            count = np.int32(0)
            # The loop runs over a slice: with an index it would not be vectorised.
            for byte in data[start:end]:
                count += np.int32(byte | np.uint8(_CASE) == np.uint8(_OPENING))
            found[at] = count > most
    return found
