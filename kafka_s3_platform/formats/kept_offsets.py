"""The offsets of an object's records, which an object of values alone does not hold, as text that is kept beside it.

`17+3,1,2`: from offset 17 on 3 records, 1 offset without a record, 2 records, that is 17, 18, 19, 21 and 22. Where it
is shorter, `z` and the text's zlib in base64 stand for it.
"""

import base64
import binascii
import re
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.connect import Int64s

METADATA = "offsets"
"""The name in an object's metadata."""

BESIDE = "beside"
"""There: the text is an object of its own."""

REPEATED = "repeated"
"""There: a mapper made several records of one, so none are kept."""

_PACKED = "z"
_NUMBER_BYTES = 8
"""That a number takes in memory: there are no more than come to the limit of a block."""
_RUNS = re.compile(r"\d+\+[\d,]+", re.ASCII)


class OffsetRuns:
    """Collects the ascending offsets of an object while it is written."""

    def __init__(self) -> None:
        self._starts: list[Int64s] = []
        self._ends: list[Int64s] = []
        self._is_repeated = False

    def add(self, offsets: Int64s, *, is_repeated: bool = False) -> None:
        """Offsets that are greater than those before, if no mapper made several records of one."""
        self._is_repeated = self._is_repeated or is_repeated
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        self._starts.append(offsets[np.append(0, breaks + 1)])
        self._ends.append(offsets[np.append(breaks, len(offsets) - 1)] + 1)

    def text(self) -> str:
        """All of them, as short as it can be; REPEATED of a mapper's."""
        if self._is_repeated:
            return REPEATED
        starts, ends = np.concatenate(self._starts), np.concatenate(self._ends)
        gaps = starts[1:] - ends[:-1]
        parted = gaps > 0
        begins = starts[np.append(True, parted)]
        counts = ends[np.append(parted, True)] - begins
        numbers = np.zeros(2 * len(counts) - 1, np.int64)
        numbers[::2], numbers[1::2] = counts, gaps[parted]
        plain = f"{begins[0]}+{','.join(map(str, numbers.tolist()))}"
        packed = _PACKED + base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
        return min(plain, packed, key=len)


@dataclass(frozen=True)
class KeptOffsets:
    """The offsets of an object's records: `starts` of runs, and `counts` of the records up to the end of each."""

    starts: Int64s
    counts: Int64s

    @staticmethod
    def dense(first: int, count: int) -> "KeptOffsets":
        """Records without a hole between them."""
        return KeptOffsets(np.array([first]), np.array([count]))

    @staticmethod
    def parse(text: str, most_bytes: int) -> "KeptOffsets":
        """What `OffsetRuns` gave. Raises ValueError for what is none, or comes to more than `most_bytes`."""
        plain = _unpacked(text[1:], most_bytes) if text.startswith(_PACKED) else text
        if plain.count(",") >= most_bytes // _NUMBER_BYTES:
            raise ValueError(f"the list of offsets has more than {most_bytes // _NUMBER_BYTES:,} numbers")
        # Where runs begin and end, by turns. They ascend, unless a number is 0, or the sum no offset any more.
        bounds = _bounds(plain)
        if len(bounds) < 2 or len(bounds) % 2 or not (bounds[1:] > bounds[:-1]).all():
            raise ValueError(f"{plain[:40]!r} is no list of offsets")
        starts, ends = bounds[::2], bounds[1::2]
        return KeptOffsets(starts, np.cumsum(ends - starts))

    @property
    def first(self) -> int:
        return int(self.starts[0])

    @property
    def last(self) -> int:
        return int(self.of(self.count - 1, 1)[0])

    @property
    def count(self) -> int:
        return int(self.counts[-1])

    def of(self, row: int, count: int) -> Int64s:
        """The offsets of so many records from the one at `row` on."""
        rows = np.arange(row, row + count)
        runs = np.searchsorted(self.counts, rows, side="right")
        before = np.where(runs > 0, self.counts[runs - 1], 0)
        offsets: Int64s = self.starts[runs] + rows - before
        return offsets


def _bounds(plain: str) -> Int64s:
    """The first offset, and where each run of records and of holes ends; nothing of what is no such text."""
    if not _RUNS.fullmatch(plain):
        return np.empty(0, np.int64)
    # Arrow's numbers take eight bytes each, and one that is too large is an error; Python's take ten times as much.
    numbers = pc.split_pattern(pa.array([plain.replace("+", ",", 1)]), ",").values
    try:
        bounds: Int64s = np.cumsum(numbers.cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid:
        return np.empty(0, np.int64)
    return bounds


def _unpacked(text: str, most_bytes: int) -> str:
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(base64.b64decode(text, validate=True), most_bytes)
    except (zlib.error, binascii.Error) as err:
        raise ValueError(f"{text[:40]!r} is no list of offsets: {err}") from err
    if not unpacker.eof:
        raise ValueError(f"the list of offsets is cut off, or comes to more than {most_bytes:,} bytes")
    return found.decode("ascii", "replace")
