"""Finds the archived records, in order, among the target's. Verifying and resuming a restore use it."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CONTENT = ("key", "value", "headers")
NARROW = 64
"""Number of records to compare at once after a difference. Every agreement widens it again."""


class SubsequenceMatch:
    """The archived stream as a subsequence of the target's, each archived record at its first possible place.

    Iterate it once for pairs of record batches of equal length: archived records, and the equal ones of the target, by
    key, value, headers and timestamp. Archived records with a timestamp of `any_timestamp` (epoch ms) match records of
    any timestamp. Afterwards `extra_count` is the number of the target's other records, and `missing()` returns the
    first unmatched one. The archive is read only as far as the target requires.
    """

    def __init__(
        self,
        archived: Iterable[pa.RecordBatch],
        target: Iterable[pa.RecordBatch],
        any_timestamp: frozenset[int] = frozenset(),
    ) -> None:
        self._archived = _Cursor(archived)
        self._target = _Cursor(target)
        self._free = np.array(sorted(any_timestamp), np.int64)
        self._width: int | None = None
        self.extra_count = 0

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        while (target := self._target.head()) is not None:
            archived = self._archived.head()
            common = 0 if archived is None else self._agreeing(archived, target)
            if archived is not None and common:
                yield archived.slice(0, common), target.slice(0, common)
                self._archived.advance(common)
                self._target.advance(common)
            else:
                self._skip(archived, target)

    def missing(self) -> int | None:
        """Return the source offset of the first missing archived record, None if none is."""
        archived = self._archived.head()
        if archived is None:
            return None
        return int(archived.column("offset")[0].as_py())

    def _agreeing(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> int:
        """Count the equal records, from the first on."""
        length = min(archived.num_rows, target.num_rows, self._width or archived.num_rows)
        # Compare times first: that is cheap, and most differences show there.
        times = _read_times(archived, length)
        same = (times == _read_times(target, length)) | np.isin(times, self._free)
        length = length if same.all() else int(same.argmin())
        common = _find_common_prefix(archived.slice(0, length), target.slice(0, length))
        full = common == length and same.all()
        if not full:
            self._width = NARROW
        elif self._width is not None:
            self._width *= 4
        return common

    def _skip(self, archived: pa.RecordBatch | None, target: pa.RecordBatch) -> None:
        """Skip the target's first record, and following ones that cannot be the archived one either."""
        count = target.num_rows if archived is None else self._next_possible(archived, target)
        self._target.advance(count)
        self.extra_count += count

    def _next_possible(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> int:
        """Find the next target record with time, key and value of the first archived one."""
        start = 1
        width = NARROW
        while start < target.num_rows:
            possible = np.flatnonzero(self._possible(archived, target.slice(start, width)))
            if possible.size:
                return start + int(possible[0])
            start += width
            width *= 4
        return int(target.num_rows)

    def _possible(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        time = _read_times(archived, 1)
        possible: npt.NDArray[np.bool_] = (_read_times(target, target.num_rows) == time) | np.isin(time, self._free)
        for name in ("key", "value") if possible.any() else ():
            column = target.column(name)
            first = archived.column(name)[0]
            same = pc.fill_null(pc.equal(column, first), fill_value=False) if first.is_valid else column.is_null()
            possible &= same.to_numpy(zero_copy_only=False)
        return possible


class _Cursor:
    """The unused part of a stream of record batches."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._current: pa.RecordBatch | None = None

    def head(self) -> pa.RecordBatch | None:
        """Return the rest of the current batch, None at the end."""
        while self._current is None or not self._current.num_rows:
            self._current = next(self._batches, None)
            if self._current is None:
                return None
        return self._current

    def advance(self, count: int) -> None:
        """Skip the first `count` records of `head`."""
        self._current = None if self._current is None else self._current.slice(count)


def _read_times(batch: pa.RecordBatch, count: int) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = batch.column("timestamp").slice(0, count).cast(pa.int64()).to_numpy()
    return times


def _find_common_prefix(first: pa.RecordBatch, second: pa.RecordBatch) -> int:
    """Find the length of the common prefix of two batches of one length. Compare each record about twice at most."""
    if _are_equal(first, second, 0, first.num_rows):
        return int(first.num_rows)
    same = 0
    different = first.num_rows
    while different - same > 1:
        middle = (same + different) // 2
        if _are_equal(first, second, same, middle):
            same = middle
        else:
            different = middle
    return same


def _are_equal(first: pa.RecordBatch, second: pa.RecordBatch, start: int, end: int) -> bool:
    return all(
        first.column(name).slice(start, end - start).equals(second.column(name).slice(start, end - start))
        for name in CONTENT
    )
