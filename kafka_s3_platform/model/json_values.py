"""What is told of JSON texts, and made of them, the same for records that come from Kafka and those out of objects."""

import json
from typing import Any

import msgspec
import numpy as np

MAX_DIGITS = 4300
"""What Python turns into an int."""

_PIECE = 1_048_576
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1

_untyped = msgspec.json.Decoder()


def is_deeper(text: bytes, most: int) -> bool:
    """Whether more than `most` objects and arrays lie inside each other."""
    return text.count(b"{") + text.count(b"[") > most and _depth(text) > most


def _depth(text: bytes) -> int:
    """How deep the brackets outside of strings go, looked at in pieces: a byte takes some bytes in between."""
    plain = np.frombuffer(text.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    quotes = depth = deepest = 0
    for at in range(0, len(plain), _PIECE):
        piece = plain[at : at + _PIECE]
        inside = np.cumsum(piece == ord('"'), dtype=np.int32) + quotes
        depths = np.cumsum(_STEPS[piece] * (inside & 1 == 0), dtype=np.int32) + depth
        quotes, depth, deepest = int(inside[-1]) & 1, int(depths[-1]), max(deepest, int(depths.max()))
    return deepest


def decoded(text: bytes) -> Any:
    """A JSON text as plain objects; a number beyond what they hold is an infinity."""
    try:
        return _untyped.decode(text)
    except msgspec.ValidationError:
        return json.loads(text, parse_int=_as_int)


def _as_int(digits: str) -> int | float:
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)
