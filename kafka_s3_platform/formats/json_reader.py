"""Reads lines of JSON: each line's bytes, as they are, after a look whether they are JSON."""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.formats.lines import LINE
from kafka_s3_platform.formats.reading import ReadBatch, batched, damaged, plain_pieces
from kafka_s3_platform.model.connect import NO_SCHEMA, Payload

_validate = msgspec.json.Decoder(msgspec.Raw).decode


class JsonLinePayload(Payload):
    """Lines of JSON, decoded when somebody looks."""

    raw_is_json = True

    def _decode(self) -> Sequence[Any]:
        return [None if line is None else msgspec.json.decode(line) for line in pa.array(self.raw).to_pylist()]


def json_payload(lines: Sequence[bytes | None]) -> JsonLinePayload:
    """A payload of lines, or other texts, that are JSON."""
    return JsonLinePayload(pa.array(lines, pa.binary()), np.full(len(lines), NO_SCHEMA, np.int32), ())


class JsonReader:
    """Reads an object of lines, whatever it is compressed with. `key` names it in errors.

    `open_end` allows that the last line has no line break, as tools other than Connect leave it: an object that was cut
    off there is then found only if what is left is no JSON.
    """

    def __init__(self, source: IO[bytes], key: str, codec: str = "none", *, open_end: bool = False) -> None:
        self._source, self._key, self._codec, self._open_end = source, key, codec, open_end

    def batches(self) -> Iterator[ReadBatch]:
        """Its lines, those that are no JSON as `bad`. Raises IntegrityError where it is damaged or cut off."""
        pieces = plain_pieces(self._source, self._key, self._codec)
        at = 0
        for lines in batched(lines_of(pieces, LINE, self._key, open_end=self._open_end)):
            bad = {row: f"line {at + row + 1}: {why}" for row, line in enumerate(lines) if (why := _fault(line or b""))}
            yield ReadBatch(json_payload(lines), bad)
            at += len(lines)


def lines_of(pieces: Iterator[bytes], separator: bytes, key: str, *, open_end: bool) -> Iterator[bytes]:
    """What stands before each separator. Raises IntegrityError where something stands behind the last one."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(separator)
        yield from whole
    if rest and not open_end:
        raise damaged(key, f"ends with {len(rest)} bytes and no separator after them")
    if rest:
        yield rest


def _fault(line: bytes) -> str:
    try:
        _validate(line)
        line.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError) as err:
        return f"is no JSON: {err}"
    return ""
