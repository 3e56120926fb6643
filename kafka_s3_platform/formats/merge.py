"""Merges objects of one kafka partition into one stream in offset order, with a few batches in memory at a time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.batches import RECORD_SCHEMA, cut_batches, read_offset_column


@dataclass(frozen=True, slots=True)
class MergeSource:
    """Records of one kafka partition in ascending offset order, all in `[start_offset, end_offset)`.

    `open` is called when the merge reaches `start_offset`. If the merge ends early, it closes the iterator, if that has
    a `close`. So a generator may hold a connection.
    """

    start_offset: int
    end_offset: int
    open: Callable[[], Iterator[pa.RecordBatch]]


def merge_by_offset(sources: Sequence[MergeSource]) -> Iterator[pa.RecordBatch]:
    """Merge the records of all `sources` by offset, into batches as `cut_batches` makes them.

    Records that only one source can hold are not copied. Memory: a batch of each overlapping source.

    Raises:
        IntegrityError: two sources hold one offset, or an offset is out of order or outside the range of its source.
    """
    return cut_batches(_merge_due(sources))


def _merge_due(sources: Sequence[MergeSource]) -> Iterator[pa.RecordBatch]:
    waiting = deque(sorted(sources, key=lambda s: (s.start_offset, s.end_offset)))
    active: list[_Cursor] = []
    try:
        while True:
            _open_due(waiting, active)
            if not active:
                return
            # No source can add a record before this offset: the others begin later, or have a batch up to here.
            horizon = min([c.last + 1 for c in active] + [s.start_offset for s in list(waiting)[:1]])
            yield _interleave_batches([c.take(horizon) for c in active if c.head < horizon])
            active[:] = [c for c in active if c.fill()]
    finally:
        for cursor in active:
            cursor.close()


def _open_due(waiting: deque[MergeSource], active: "list[_Cursor]") -> None:
    """Open each source that may hold the next offset."""
    while waiting and (not active or waiting[0].start_offset <= min(c.head for c in active)):
        cursor = _Cursor(waiting.popleft())
        if cursor.fill():
            active.append(cursor)


def _interleave_batches(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    joined = pa.concat_batches(parts)
    offsets = read_offset_column(joined)
    order = np.argsort(offsets, kind="stable")
    repeated = np.flatnonzero(np.diff(offsets[order]) == 0)
    if repeated.size:
        row = int(order[repeated[0]])
        raise IntegrityError(
            f"{_name_place(joined)}: offset {offsets[row]} is held by two of the objects that are read together, "
            f"and one of them must not be in the index: run `kafka-s3 verify`, which names both"
        )
    return joined.take(pa.array(order))


class _Cursor:
    """An open source and its current batch."""

    def __init__(self, source: MergeSource) -> None:
        self._source = source
        self._batches = source.open()
        self._batch = pa.RecordBatch.from_pylist([], RECORD_SCHEMA)
        self._offsets = read_offset_column(self._batch)
        self._row = 0
        self._next = source.start_offset

    @property
    def head(self) -> int:
        return int(self._offsets[self._row])

    @property
    def last(self) -> int:
        return int(self._offsets[-1])

    def take(self, horizon: int) -> pa.RecordBatch:
        """Take the records before offset `horizon`."""
        start = self._row
        self._row = int(np.searchsorted(self._offsets, horizon))
        return self._batch.slice(start, self._row - start)

    def fill(self) -> bool:
        """Read the next batch if the current one is used up. Return False if no records are left."""
        while self._row == len(self._offsets):
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._batch = batch
            self._offsets = read_offset_column(batch)
            self._row = 0
            self._check()
        return True

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _check(self) -> None:
        offsets = self._offsets
        source = self._source
        if not offsets.size:
            return
        if offsets[0] < self._next or offsets[-1] >= source.end_offset or (np.diff(offsets) <= 0).any():
            raise IntegrityError(
                f"{_name_place(self._batch)}: offsets {offsets.min()} to {offsets.max()} were read where offsets "
                f"ascending in [{self._next}, {source.end_offset}) were due: the object is not the one in the index. "
                f"Run `kafka-s3 verify` to see what else is damaged"
            )
        self._next = self.last + 1


def _name_place(batch: pa.RecordBatch) -> str:
    return f"{batch.column('topic')[0].as_py()}-{batch.column('partition')[0].as_py()}"
