"""Reads ByteArrayFormat: values between separators, or each behind its length."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.byte_array import LENGTH
from kafka_s3_platform.formats.columns import strings
from kafka_s3_platform.formats.content import holds_no_text
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.json_reader import Ending, lines_of
from kafka_s3_platform.formats.reading import ReadBatch, batched, bytes_payload, plain_pieces
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_LENGTH_BYTES = 4
_PIECES = (
    "holds values that are no text, and nothing but the default separator, a line break, tells them apart: in such "
    "bytes it is a byte like any other, and values would come in pieces. Name the separator that the sink had; if it "
    r"was a line break, and no value holds one, say so: format.bytearray.separator=\n"
)
_OPEN = (
    r"If another tool than Connect wrote it, without one at its end, say what separates: format.bytearray.separator=\n"
)


class BytesReader:
    """Reads an object, whatever it is compressed with. `key` names it in errors.

    What stands between two separators is one value: nothing tells whether a value held the separator itself. Lengths,
    our own `length` of `format.bytearray.separator`, leave no doubt. Without `any_bytes` values have to be text, where
    a line break is most likely the end of one.
    """

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        separator: str = "\n",
        codec: str = "none",
        *,
        open_end: bool = False,
        any_bytes: bool = False,
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source, self._key, self._codec = source, key, codec
        self._separator, self._open_end, self._limits = separator, open_end, limits
        self._any_bytes = any_bytes or separator == LENGTH

    def batches(self) -> Iterator[ReadBatch]:
        """Its values. Raises IntegrityError where it is damaged or cut off, or its values may come in pieces."""
        for found in batched(self._values()):
            values = pa.array(found, pa.binary())
            if not self._any_bytes and not _are_text(values):
                raise IntegrityError(f"object {self._key} {_PIECES}")
            yield ReadBatch(bytes_payload(values))

    def _values(self) -> Iterator[bytes]:
        pieces = plain_pieces(self._source, self._key, self._codec, self._limits, as_named=self._any_bytes)
        if self._separator == LENGTH:
            return self._framed(pieces)
        return self._separated(pieces)

    def _separated(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        found = Ending(pieces, self._separator.encode())
        yield from lines_of(found, self._separator.encode(), self._key, self._limits, open_end=True)
        if found.is_open and not self._open_end:
            raise damaged(self._key, f"does not end with its separator. {_OPEN}")

    def _framed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        rest, empty = bytearray(), 0
        for piece in pieces:
            rest += piece
            at = 0
            while (end := _end_of(rest, at)) <= len(rest):
                value = bytes(rest[at + _LENGTH_BYTES : end])
                empty += not value
                yield value
                at = end
            if end - at > self._limits.record_bytes:
                raise beyond(self._key, f"has a value of {end - at:,} bytes", "record.bytes")
            if empty > self._limits.empty_records:
                raise beyond(
                    self._key, f"has more than {self._limits.empty_records:,} records without a byte", "empty.records"
                )
            del rest[:at]
        if rest:
            raise damaged(self._key, f"ends inside of a value: {len(rest)} bytes are left")


def _are_text(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return not holds_no_text(strings(values).data)


def _end_of(data: bytearray, at: int) -> int:
    """Where the value that begins at `at` ends; at least behind its length."""
    start = at + _LENGTH_BYTES
    return start if start > len(data) else start + int.from_bytes(data[at:start], "big")
