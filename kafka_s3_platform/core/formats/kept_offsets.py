"""Keeps the offsets of an object's records as text beside the object, if its format holds values alone.

`17+3,1,2` means: from offset 17 on, 3 records, 1 offset without a record, 2 records. These are the offsets 17, 18, 19,
21 and 22. If it is shorter, `z` and the zlib stream of this text in base64 replace it.
"""

import base64
import binascii
import re
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.connect import Int64s

METADATA = "offsets"
"""The name of the text in an object's metadata."""

BESIDE = "beside"
"""The value there if the text is an object of its own."""

REPEATED = "repeated"
"""The value there if a mapper made several records of one, so that no offsets are kept."""

_PACKED = "z"
_NUMBER_BYTES = 8
"""The bytes of a number in memory. All numbers together must stay below the limit of a block."""
_RUNS = re.compile(r"\d+\+[\d,]+", re.ASCII)


class OffsetRuns:
    """Collects the ascending offsets of an object while it is written."""

    def __init__(self) -> None:
        self._starts: list[Int64s] = []
        self._ends: list[Int64s] = []
        self._is_repeated = False

    def add(self, offsets: Int64s, *, is_repeated: bool = False) -> None:
        """Append offsets. They are greater than those before, unless a mapper made several records of one."""
        self._is_repeated = self._is_repeated or is_repeated
        breaks = np.flatnonzero(np.diff(offsets) != 1)
        self._starts.append(offsets[np.append(0, breaks + 1)])
        self._ends.append(offsets[np.append(breaks, len(offsets) - 1)] + 1)

    def text(self) -> str:
        """Return the offsets as text, packed if that is shorter; REPEATED if a mapper made several records of one."""
        if self._is_repeated:
            return REPEATED
        starts = np.concatenate(self._starts)
        ends = np.concatenate(self._ends)
        gaps = starts[1:] - ends[:-1]
        parted = gaps > 0
        begins = starts[np.append(True, parted)]
        counts = ends[np.append(parted, True)] - begins
        numbers = np.zeros(2 * len(counts) - 1, np.int64)
        numbers[::2] = counts
        numbers[1::2] = gaps[parted]
        plain = f"{begins[0]}+{','.join(map(str, numbers.tolist()))}"
        packed = _PACKED + base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
        return min(plain, packed, key=len)


@dataclass(frozen=True)
class KeptOffsets:
    """The offsets of an object's records: the `starts` of runs, and the `counts` of records up to each run's end."""

    starts: Int64s
    counts: Int64s

    @staticmethod
    def parse(text: str, most_bytes: int) -> "KeptOffsets":
        """Read the text of `OffsetRuns`. Raise ValueError for any other text, and for one of more than `most_bytes`."""
        plain = _unpack_text(text[1:], most_bytes) if text.startswith(_PACKED) else text
        if plain.count(",") >= most_bytes // _NUMBER_BYTES:
            raise ValueError(f"the list of offsets has more than {most_bytes // _NUMBER_BYTES:,} numbers")
        # The starts and ends of runs take turns. They ascend, unless a number is 0 or the sum exceeds 64 bits.
        bounds = _find_bounds(plain)
        if len(bounds) < 2 or len(bounds) % 2 or not (bounds[1:] > bounds[:-1]).all():
            raise ValueError(f"{plain[:40]!r} is no list of offsets")
        starts = bounds[::2]
        ends = bounds[1::2]
        return KeptOffsets(starts, np.cumsum(ends - starts))

    @property
    def first(self) -> int:
        """The first offset."""
        return int(self.starts[0])

    @property
    def last(self) -> int:
        """The last offset."""
        return int(self.of(self.count - 1, 1)[0])

    @property
    def count(self) -> int:
        """The number of records."""
        return int(self.counts[-1])

    def of(self, row: int, count: int) -> Int64s:
        """Return the offsets of `count` records, the first of which is record number `row` of the object."""
        rows = np.arange(row, row + count)
        runs = np.searchsorted(self.counts, rows, side="right")
        counts_before = np.where(runs > 0, self.counts[runs - 1], 0)
        offsets: Int64s = self.starts[runs] + rows - counts_before
        return offsets


def _find_bounds(plain: str) -> Int64s:
    """Return where runs and holes begin and end: [17, 20, 21, 23] for `17+3,1,2`. It is empty for other texts."""
    if not _RUNS.fullmatch(plain):
        return np.empty(0, np.int64)
    # Arrow's numbers take eight bytes, a tenth of Python's. Arrow also raises an error if one is too large.
    numbers = pc.split_pattern(pa.array([plain.replace("+", ",", 1)]), ",").values
    try:
        bounds: Int64s = np.cumsum(numbers.cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid:
        return np.empty(0, np.int64)
    return bounds


def _unpack_text(text: str, most_bytes: int) -> str:
    """Decode the packed form of the text. Raises ValueError if it is damaged, or longer than `most_bytes`."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(base64.b64decode(text, validate=True), most_bytes)
    except (zlib.error, binascii.Error) as err:
        raise ValueError(f"{text[:40]!r} is no list of offsets: {err}") from err
    if not unpacker.eof:
        raise ValueError(f"the list of offsets is cut off, or comes to more than {most_bytes:,} bytes")
    return plain.decode("ascii", "replace")
