"""Reads ByteArrayFormat: values, each ended by a separator or preceded by its length."""

from collections.abc import Callable, Iterator
from typing import IO

import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.byte_array.write import LENGTH
from kafka_s3_platform.formats.columns import read_strings
from kafka_s3_platform.formats.damage import build_damage_error, build_limit_error
from kafka_s3_platform.formats.json.read import Ending, split_lines
from kafka_s3_platform.formats.magic_bytes import holds_no_text
from kafka_s3_platform.formats.reading import ReadBatch, batch_values, build_bytes_payload, read_pieces
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_LENGTH_BYTES = 4
_PIECES = (
    "holds values that are no text, and nothing but the default separator, a line break, tells them apart: in such "
    "bytes it is a byte like any other, and values would come in pieces. Name the separator that the sink had; if it "
    r"was a line break, and no value holds one, set format.bytearray.separator=\n"
)
_OPEN = (
    r"If another tool than Connect wrote it, without one at its end, name the separator: format.bytearray.separator=\n"
)


class BytesReader:
    """Reads an object with any compression. `key` names the object in errors.

    The bytes between two separators are one value: separators inside of values cannot be recognized. Lengths (our own
    value `length` of `format.bytearray.separator`) leave no such doubt. Without `any_bytes`, values have to be text: a
    line break most likely ends a value there.
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
        ends_open: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._key = key
        self._codec = codec
        self._separator = separator
        self._open_end = open_end
        self._limits = limits
        self._ends_open = ends_open
        self._any_bytes = any_bytes or separator == LENGTH

    def batches(self) -> Iterator[ReadBatch]:
        """Return the values in batches.

        Raises:
            IntegrityError: the object is damaged or cut off, or a separator may be part of a value.
        """
        for batch in batch_values(self._values()):
            values = pa.array(batch, pa.binary())
            if not self._any_bytes and not _are_text(values):
                raise IntegrityError(f"object {self._key} {_PIECES}")
            yield ReadBatch(build_bytes_payload(values))

    def _values(self) -> Iterator[bytes]:
        pieces = read_pieces(self._source, self._key, self._codec, self._limits, as_named=self._any_bytes)
        if self._separator == LENGTH:
            return self._framed(pieces)
        return self._separated(pieces)

    def _separated(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        ending = Ending(pieces, self._separator.encode())
        yield from split_lines(ending, self._separator.encode(), self._key, self._limits, open_end=True)
        if ending.is_open and not self._open_end:
            raise build_damage_error(self._key, f"does not end with its separator. {_OPEN}")
        if self._open_end:
            self._ends_open(ending.is_open)

    def _framed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        rest = bytearray()
        empty = 0
        for piece in pieces:
            rest += piece
            at = 0
            while (end := _find_end(rest, at)) <= len(rest):
                value = bytes(rest[at + _LENGTH_BYTES : end])
                empty += not value
                yield value
                at = end
            # Before more is read: a damaged length may claim gigabytes.
            if end - at > self._limits.record_bytes:
                raise build_limit_error(self._key, f"has a value of {end - at:,} bytes", "record.bytes")
            if empty > self._limits.empty_records:
                raise build_limit_error(
                    self._key, f"has more than {self._limits.empty_records:,} records without a byte", "empty.records"
                )
            del rest[:at]
        if rest:
            raise build_damage_error(self._key, f"ends inside of a value: {len(rest)} bytes are left")


def _are_text(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return not holds_no_text(read_strings(values).data)


def _find_end(data: bytearray, at: int) -> int:
    """Return the end of the value at `at`, or the end of its length if that is not read yet."""
    start = at + _LENGTH_BYTES
    if start > len(data):
        return start
    return start + int.from_bytes(data[at:start], "big")
