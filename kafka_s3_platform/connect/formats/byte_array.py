"""Writes and reads ByteArrayFormat: the bytes of values or keys as they came.

Each value ends with `format.bytearray.separator`. If this setting has our own value `length`, each value follows its
length, a 32-bit big-endian number, and nothing ends it. Values may then hold any bytes. Source: Confluent S3 sink,
`format.bytearray.separator`. In Zooz's layout, a line break at the end of a value ends its line.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.columns import read_strings
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.core.formats.lines import (
    Ending,
    LinesWriter,
    end_lines,
    end_values,
    holds_inner_line_break,
    holds_separator,
    split_lines,
)
from kafka_s3_platform.core.formats.magic_bytes import holds_no_text
from kafka_s3_platform.core.formats.parts import ObjectPart, read_part_bytes, read_plain_bytes
from kafka_s3_platform.core.formats.reading import (
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    build_limit_error,
    read_pieces,
    refuse_many_empty,
)
from kafka_s3_platform.core.model.connect import ConnectBatch, Mask, Payload
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits

LENGTH = "length"


def new_framing(part: ObjectPart, layout: LayoutSettings) -> Callable[[ConnectBatch], memoryview]:
    """Return a function that joins the values, or keys, of a batch into one buffer.

    None of them may be null, or hold the separator in a place that `FORMAT_IO` finds unsafe. Raises ConfigError if the
    separator is empty, because nothing would separate records.
    """
    separator = layout.bytes_separator
    if not separator:
        raise ConfigError(
            "format.bytearray.separator is empty: records could not be told apart; name a separator, or `length`"
        )
    if separator == LENGTH:
        return lambda batch: _add_lengths(read_part_bytes(batch, part))
    if layout.ends_lines_once:
        return lambda batch: read_strings(end_lines(read_part_bytes(batch, part))).data
    return lambda batch: end_values(read_part_bytes(batch, part), separator.encode())


def _add_lengths(values: pa.BinaryArray) -> memoryview:
    """Join the values, each after its length as a big-endian number of 4 bytes."""
    lengths = read_strings(values).lengths.astype(">u4")
    before = pa.Array.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(lengths.tobytes())])
    return read_strings(pc.binary_join_element_wise(before.cast(pa.binary()), values, b"")).data


_LENGTH_BYTES = 4
_PIECES = (
    "holds values that are no text, and nothing but the default separator, a line break, tells them apart: in such "
    "bytes it is a byte like any other, and values would come in pieces. Name the separator that the sink had; if it "
    r"was a line break, and no value holds one, set format.bytearray.separator=\n"
)
_OPEN = (
    r"If another tool than Connect wrote it, without one at its end, name the separator: format.bytearray.separator=\n"
)


@dataclass(frozen=True)
class BytesReader:
    """Reads an object with any compression. `key` names the object in errors.

    The bytes between two separators are one value, because a separator inside a value cannot be recognized. Lengths
    (our own value `length` of `format.bytearray.separator`) leave no such doubt. Unless `any_bytes`, values have to be
    text, in which a line break most likely ends a value.
    """

    source: IO[bytes]
    key: str
    separator: str = "\n"
    codec: str = "none"
    open_end: bool = False
    any_bytes: bool = False
    limits: ReadLimits = DEFAULT_LIMITS
    ends_open: Callable[[bool], None] = lambda _: None

    def batches(self) -> Iterator[ReadBatch]:
        """Return the values in batches. Raise IntegrityError if damaged, or if a separator may be part of a value."""
        for batch in batch_values(self._values()):
            values = pa.array(batch, pa.binary())
            if not (self.any_bytes or self.separator == LENGTH or _are_text(values)):
                raise IntegrityError(f"object {self.key} {_PIECES}")
            yield ReadBatch(build_bytes_payload(values))

    def _values(self) -> Iterator[bytes]:
        """Yield the values of the object one by one."""
        has_lengths = self.separator == LENGTH
        as_named = self.any_bytes or has_lengths
        pieces = read_pieces(self.source, self.key, self.codec, self.limits, as_named=as_named)
        return self._read_by_length(pieces) if has_lengths else self._split_at_separators(pieces)

    def _split_at_separators(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the values between separators. An object without one at its end is damaged, unless this is allowed."""
        ending = Ending(pieces, self.separator.encode())
        yield from split_lines(ending, self.separator.encode(), self.key, self.limits, open_end=True)
        if ending.is_open and not self.open_end:
            raise build_damage_error(self.key, f"does not end with its separator. {_OPEN}")
        if self.open_end:
            self.ends_open(ending.is_open)

    def _read_by_length(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the values by the lengths before them.

        Raise IntegrityError if a length is too large, or the last value is cut off.
        """
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
            # This comes before more is read, because a damaged length may claim gigabytes.
            if end - at > self.limits.record_bytes:
                raise build_limit_error(self.key, f"has a value of {end - at:,} bytes", "record.bytes")
            refuse_many_empty(empty, self.key, self.limits)
            del rest[:at]
        if rest:
            raise build_damage_error(self.key, f"ends inside of a value: {len(rest)} bytes are left")


def _are_text(values: pa.BinaryArray) -> bool:
    """Return True if all values are UTF-8, and hold no bytes that text never has."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return not holds_no_text(read_strings(values).data)


def _find_end(data: bytearray, at: int) -> int:
    """Return the end of the value at `at`, or the end of its length if the length has not been read yet."""
    start = at + _LENGTH_BYTES
    if start > len(data):
        return start
    return start + int.from_bytes(data[at:start], "big")


def _new_writer(request: WriteRequest) -> LinesWriter:
    """Make the writer of an object of values or keys."""
    framed = new_framing(request.part, request.layout)
    return LinesWriter(request.sink, framed, request.codec, request.level)


def _new_reader(request: ReadRequest) -> BytesReader:
    """Make the reader of an object of values or keys."""
    # Values may begin like a compressed stream. Our own objects are compressed only if their codec is named.
    codec = request.codec or ("none" if request.is_own else "")
    return BytesReader(
        request.source,
        request.key,
        request.layout.bytes_separator,
        codec,
        # Our objects always end with a separator. One that does not is cut off, even if the number of records is right.
        open_end=request.may_end_open and not request.is_own,
        any_bytes=request.any_bytes,
        limits=request.limits,
        ends_open=request.ends_open,
    )


def _find_unsafe(payload: Payload, layout: LayoutSettings) -> Mask:
    """Mark values that would be read back as several values, because they hold the separator."""
    if layout.bytes_separator == LENGTH:
        return np.zeros(len(payload), bool)
    if layout.ends_lines_once:
        return holds_inner_line_break(read_plain_bytes(payload))
    return holds_separator(read_plain_bytes(payload), layout.bytes_separator.encode())


FORMAT_IO = FormatIO(new_writer=_new_writer, new_reader=_new_reader, find_unsafe=_find_unsafe)
