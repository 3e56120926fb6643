"""Reads lines of JSON: each line's bytes, as they are, after a look whether they are JSON."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.lines import LINE
from kafka_s3_platform.formats.reading import ReadBatch, batched, plain_pieces
from kafka_s3_platform.model.connect import NO_SCHEMA, Payload
from kafka_s3_platform.model.json_values import decoded, is_deeper, may_be_deeper
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_NUMBER = re.compile(rb"[-+.0-9eE]+")
_validate = msgspec.json.Decoder(msgspec.Raw).decode


class JsonLinePayload(Payload):
    """Lines of JSON, decoded when somebody looks."""

    raw_is_json = True

    def _decode(self) -> Sequence[Any]:
        return [None if line is None else decoded(line) for line in pa.array(self.raw).to_pylist()]


def json_payload(lines: Sequence[bytes | None]) -> JsonLinePayload:
    """A payload of lines, or other texts, that are JSON."""
    return JsonLinePayload(pa.array(lines, pa.binary()), np.full(len(lines), NO_SCHEMA, np.int32), ())


class JsonReader:
    """Reads an object of lines, whatever it is compressed with. `key` names it in errors.

    `open_end` allows that the last line has no line break, as tools other than Connect leave it: what is left of one
    that was cut off is no JSON then, but for a number, which is not believed either.
    """

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        codec: str = "none",
        *,
        open_end: bool = False,
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source, self._key, self._codec, self._open_end = source, key, codec, open_end
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Its lines, those that are no JSON as `bad`. Raises IntegrityError where it is damaged or cut off."""
        pieces = Ending(plain_pieces(self._source, self._key, self._codec, self._limits))
        at = 0
        depth = self._limits.depth
        for lines in batched(lines_of(pieces, LINE, self._key, self._limits, open_end=self._open_end)):
            payload = json_payload(lines)
            faults = dict(_faults(lines, payload.raw, depth))
            if pieces.is_open and (len(lines) - 1 in faults or _NUMBER.fullmatch(lines[-1])):
                what = faults.get(len(lines) - 1, "is a number, which might go on")
                raise damaged(self._key, f"has no line break behind its last line, {at + len(lines)}, which {what}")
            bad = {row: f"line {at + row + 1}: {why}" for row, why in faults.items()}
            yield ReadBatch(payload, bad)
            at += len(lines)


class Ending:
    """Pieces; `is_open` once there are no more, and the last one does not end with a separator."""

    def __init__(self, pieces: Iterator[bytes], separator: bytes = LINE) -> None:
        self._pieces, self._separator, self._last, self.is_open = pieces, separator, b"", False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            self.is_open = bool(self._last) and self._last != self._separator
            raise StopIteration
        self._last = (self._last + piece)[-len(self._separator) :]
        return piece


def lines_of(
    pieces: Iterable[bytes], separator: bytes, key: str, limits: ReadLimits, *, open_end: bool
) -> Iterator[bytes]:
    """What stands before each separator.

    Raises:
        IntegrityError: something stands behind the last one, more before one than is read, or too often nothing.
    """
    rest, empty = bytearray(), 0
    for piece in pieces:
        if len(rest) < len(piece):
            *whole, last = (bytes(rest) + piece).split(separator)
            rest = bytearray(last)
        else:
            whole = _ended(rest, piece, separator)
        if max(map(len, (rest, *whole[:1]))) > limits.record_bytes:
            raise beyond(key, f"has more than {limits.record_bytes:,} bytes without a separator", "record.bytes")
        empty += whole.count(b"")
        if empty > limits.empty_records:
            raise beyond(key, f"has more than {limits.empty_records:,} records without a byte", "empty.records")
        yield from whole
    if rest and not open_end:
        raise damaged(key, f"ends with {len(rest)} bytes and no separator after them")
    if rest:
        yield bytes(rest)


def _ended(rest: bytearray, piece: bytes, separator: bytes) -> list[bytes]:
    """What `piece` ends of a long `rest`, to which it is added. No byte is looked at, or copied, more than twice."""
    # a separator of several bytes may begin in what was there before
    start = max(len(rest) - len(separator) + 1, 0)
    rest += piece
    end = rest.find(separator, start)
    if end < 0:
        return []
    with memoryview(rest) as view:
        first, others = bytes(view[:end]), bytes(view[end + len(separator) :])
    *whole, last = others.split(separator)
    rest[:] = last
    return [first, *whole]


def _faults(lines: Sequence[bytes], raw: pa.BinaryArray, depth: int) -> Iterator[tuple[int, str]]:
    """The rows that are no JSON that is read. One by one only those are looked at that may be none."""
    doubtful: Iterable[int] = range(len(lines))
    # All at once where all are right: UTF-8 takes a fifth so.
    with suppress(msgspec.MsgspecError, pa.ArrowInvalid, RecursionError):
        raw.cast(pa.string())
        deque(map(_validate, lines), maxlen=0)
        doubtful = may_be_deeper(raw, depth).tolist()
    return ((row, why) for row in doubtful if (why := fault_of(lines[row], depth)))


def fault_of(line: bytes, depth: int) -> str:
    """Why a text is no JSON that is read, empty where it is: objects and arrays lie at most `depth` inside each other.

    Without a look at the depth it would be that of Python's stack, which differs from place to place.
    """
    if is_deeper(line, depth):
        return f"is JSON nested deeper than archive.read.max.depth={depth}"
    try:
        _validate(line)
        line.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        return f"is no JSON: {err}"
    return ""
