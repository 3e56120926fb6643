"""Reads ByteArrayFormat: values between separators, or each behind its length."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from kafka_s3_platform.formats.byte_array import LENGTH
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.json_reader import lines_of
from kafka_s3_platform.formats.reading import ReadBatch, batched, bytes_payload, plain_pieces
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_LENGTH_BYTES = 4


class BytesReader:
    """Reads an object, whatever it is compressed with. `key` names it in errors.

    What stands between two separators is one value: nothing tells whether a value held the separator itself. Lengths,
    our own `length` of `format.bytearray.separator`, leave no doubt.
    """

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        separator: str = "\n",
        codec: str = "none",
        *,
        open_end: bool = False,
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source, self._key, self._codec = source, key, codec
        self._separator, self._open_end, self._limits = separator, open_end, limits

    def batches(self) -> Iterator[ReadBatch]:
        """Its values. Raises IntegrityError where it is damaged or cut off."""
        for found in batched(self._values()):
            yield ReadBatch(bytes_payload(pa.array(found, pa.binary())))

    def _values(self) -> Iterator[bytes]:
        pieces = plain_pieces(self._source, self._key, self._codec)
        if self._separator == LENGTH:
            return self._framed(pieces)
        return lines_of(pieces, self._separator.encode(), self._key, self._limits, open_end=self._open_end)

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


def _end_of(data: bytearray, at: int) -> int:
    """Where the value that begins at `at` ends; at least behind its length."""
    start = at + _LENGTH_BYTES
    return start if start > len(data) else start + int.from_bytes(data[at:start], "big")
