"""Moves reading positions through Avro data: for many records in one stretch of bytes at once, or for a single one."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.core.model.connect import Int64s, Positions

# A stretch of bytes and the positions in it fit into a processor's cache.
_CHUNK_RECORDS = 16_384
_CHUNK_BYTES = 4_194_304
# A number is read as eight bytes at once and two more, even if it begins at the last byte.
_PAD = 16
# The longest numbers, of 32 and 64 bits. Each byte holds 7 bits.
INT_BYTES = 5
LONG_BYTES = 10
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
# The zigzag numbers of one byte. Most numbers have only one.
_SMALL = np.array([(b & 127) >> 1 ^ -(b & 1) for b in range(256)], np.int64)


class RecordCursor:
    """The reading positions of several records, which lie one after the other in `data`.

    `pos` is the reading position of each record, and `stop` is one past its end. A record has failed if its position is
    at `stop`. `words` has, for each position in `data`, the eight bytes from there on as a number.
    """

    __slots__ = ("data", "pos", "stop", "words")

    def __init__(self, data: npt.NDArray[np.uint8], words: Words, pos: Int64s, stop: Int64s) -> None:
        self.data = data
        self.words = words
        self.pos = pos
        self.stop = stop

    def __len__(self) -> int:
        return len(self.pos)

    @property
    def at_end(self) -> Bools:
        """The mask of the records that were read exactly to their end."""
        ended: Bools = self.pos + 1 == self.stop
        return ended

    @property
    def alive(self) -> Positions:
        """The numbers of the records that have not failed."""
        return np.flatnonzero(self.pos < self.stop)

    def select_rows(self, rows: Positions) -> "RecordCursor":
        """Return a cursor for only these records. `merge` copies its positions back."""
        return RecordCursor(self.data, self.words, self.pos[rows], self.stop[rows])

    def merge(self, rows: Positions, part: "RecordCursor") -> None:
        """Copy the positions back from a cursor that `select_rows` made for these records."""
        self.pos[rows] = part.pos

    def advance(self, size: int | Int64s) -> None:
        """Move each record's position on by `size` bytes. A record with fewer bytes left fails."""
        np.add(self.pos, size, out=self.pos)
        np.minimum(self.pos, self.stop, out=self.pos)

    def fail(self, rows: Bools | Positions) -> None:
        """Mark these records as failed by moving them past their end, where they stay."""
        self.pos[rows] = self.stop[rows]

    def read_varints(self, max_bytes: int) -> Int64s:
        """Read the next zigzag number of each record. A record fails if its number has more than `max_bytes` bytes."""
        first = self.data[self.pos]
        values = _SMALL[first]
        has_more = first > 127
        self.pos += 1
        if has_more.any():
            rows = np.flatnonzero(has_more)
            values[rows] = self._read_long_varints(rows, max_bytes)
        np.minimum(self.pos, self.stop, out=self.pos)
        return values

    def _read_long_varints(self, rows: Positions, max_bytes: int) -> Int64s:
        """Read numbers of two or more bytes. The positions are already after their first byte."""
        start = self.pos[rows] - 1
        words = self.words[start]
        # The last byte of a number is the first one without its highest bit.
        ends = ~words & np.uint64(0x8080808080808080)
        # All bits below the mark of the last byte, or all 64 if none of the eight bytes is the last.
        below = (ends & (~ends + np.uint64(1))) - np.uint64(1)
        sizes = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        values = _pack_bits(words & below)
        longest = np.flatnonzero(ends == 0)
        if longest.size:
            values[longest], sizes[longest] = self._complete_longest(start[longest], values[longest])
        decoded: Int64s = ((values >> np.uint64(1)) ^ (~(values & np.uint64(1)) + np.uint64(1))).view(np.int64)
        fits = sizes <= max_bytes
        if max_bytes == INT_BYTES:
            fits &= decoded == decoded.astype(np.int32)
        self.pos[rows] = np.where(fits, start + sizes, self.stop[rows])
        return decoded

    def _complete_longest(self, start: Int64s, values: Words) -> tuple[Words, Int64s]:
        """Complete numbers of nine and ten bytes, whose first eight are in `values`. A longer number gets size 11."""
        ninth = self.data[start + 8].astype(np.uint64)
        tenth = self.data[start + 9].astype(np.uint64)
        has_tenth = ninth > 127
        values = values | (ninth & np.uint64(127)) << np.uint64(56)
        values |= np.where(has_tenth, tenth << np.uint64(63), np.uint64(0))
        return values, 9 + has_tenth.astype(np.int64) + (has_tenth & (tenth > 127))

    def read_strings(self, is_text: bool) -> pa.Array:
        """Read the next byte string of each record, which has its length before it.

        A record whose text is not UTF-8 fails. The array has the strings at even positions, and nulls between them.
        """
        sizes = self.read_varints(LONG_BYTES)
        starts = self.pos.copy()
        # As unsigned numbers, negative lengths are too large as well. So is any length beyond 2 GiB.
        self.advance(np.minimum(sizes.view(np.uint64), np.uint64(1 << 31)).view(np.int64))
        ends = np.minimum(self.pos, self.stop - 1)
        np.minimum(starts, ends, out=starts)
        strings = self._build_array(starts, ends, is_text)
        # Strings are checked one by one only if Arrow finds bytes that are not UTF-8, which is rare.
        if is_text and not _is_valid_utf8(strings):
            is_wrong = np.fromiter(map(is_invalid_utf8, map(self._slice, starts, ends)), bool, len(self))
            self.fail(is_wrong)
            starts[is_wrong] = ends[is_wrong]
            strings = self._build_array(starts, ends, is_text)
        return strings

    def _build_array(self, starts: Int64s, ends: Int64s, is_text: bool) -> pa.Array:
        """Build an array over `data` itself, without a copy. The bytes between two strings become a null."""
        count = max(2 * len(starts) - 1, 0)
        bounds = np.zeros(count + 1, np.int32)
        bounds[: 2 * len(starts) : 2] = starts
        bounds[1::2] = ends
        validity = np.full(count // 8 + 1, 0b01010101, np.uint8)
        buffers = [pa.py_buffer(validity), pa.py_buffer(bounds), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.string() if is_text else pa.binary(), count, buffers)

    def _slice(self, start: int, end: int) -> memoryview:
        return memoryview(self.data.data)[start:end]

    def get_remaining(self, row: np.intp) -> memoryview:
        """Return the bytes of one record from its position on."""
        return self._slice(int(self.pos[row]), int(self.stop[row]) - 1)


def _pack_bits(words: Words) -> Words:
    """Join the lower 7 bits of each of a word's 8 bytes to form one number."""
    for mask, shift in ((0x007F007F007F007F, 1), (0x00003FFF00003FFF, 2), (0x000000000FFFFFFF, 4)):
        low = np.uint64(mask)
        high = np.uint64(mask << 8 * shift)
        words = (words & low) | (words & high) >> np.uint64(shift)
    return words


def _is_valid_utf8(strings: pa.Array) -> bool:
    """Return True if each string of an array is UTF-8."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def is_invalid_utf8(text: memoryview) -> bool:
    """Return True if the bytes are not UTF-8."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return True
    return False


def split_column(column: pa.BinaryArray, skip: int) -> Iterator[tuple[Positions, RecordCursor]]:
    """Yield cursors over parts of a column that are small enough for a processor's cache.

    With each cursor come its rows, which are values of at least `skip` bytes. Their positions are after these bytes.
    """
    count = len(column)
    if column.null_count == count:
        return
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: count + 1].astype(np.int64)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    long_enough = (np.diff(bounds) >= skip) & column.is_valid().to_numpy(zero_copy_only=False)
    start = 0
    while start < count:
        by_bytes = int(np.searchsorted(bounds, bounds[start] + _CHUNK_BYTES, "right")) - 1
        end = min(max(by_bytes, start + 1), start + _CHUNK_RECORDS, count)
        rows = np.flatnonzero(long_enough[start:end]) + start
        base = bounds[start]
        yield rows, make_cursor(data[base : bounds[end]], bounds[rows] + skip - base, bounds[rows + 1] - base + 1)
        start = end


def make_cursor(source: npt.NDArray[np.uint8], pos: Int64s, stop: Int64s) -> RecordCursor:
    """Return a cursor over a padded copy of the bytes, so reads past the last record stay inside it."""
    data = np.zeros(len(source) + _PAD, np.uint8)
    data[: len(source)] = source
    words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    return RecordCursor(data, words, pos, stop)


class InvalidDatumError(Exception):
    """The bytes are not a datum."""


def read_branch_index(data: memoryview, pos: int, count: int) -> tuple[int, int]:
    """Read the index of a union's branch or of an enum's symbol at `pos`. Return it and the position after it.

    Raise InvalidDatumError if it is not below `count`.
    """
    index, pos = read_long(data, pos, INT_BYTES)
    if not 0 <= index < count:
        raise InvalidDatumError
    return index, pos


def read_long(data: memoryview, pos: int, max_bytes: int) -> tuple[int, int]:
    """Read the zigzag number of at most `max_bytes` bytes at `pos`. Return it and the position after it.

    Raise InvalidDatumError if there is none.
    """
    value = 0
    for place, byte in enumerate(data[pos : pos + max_bytes]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            if max_bytes == INT_BYTES and value >> 32:
                break
            value &= 0xFFFFFFFFFFFFFFFF
            return value >> 1 ^ -(value & 1), pos + place + 1
    raise InvalidDatumError


def check_end(data: memoryview, pos: int) -> int:
    """Return `pos`. Raise InvalidDatumError if it lies after the end of the record."""
    if pos > len(data):
        raise InvalidDatumError
    return pos
