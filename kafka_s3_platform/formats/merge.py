"""Merges objects of one kafka partition into one stream in offset order, with a few batches in memory at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.columns import count_record_bytes
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.record import RECORD_SCHEMA

CELL_OFFSETS = 16_384
CELL_BYTES = 16_777_216


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
    """Merge the records of all `sources` by offset, into batches as `recut_batches` makes them.

    Records that only one source can hold are not copied. Memory: a batch of each source whose offsets overlap.

    Raises:
        IntegrityError: two sources hold one offset, or an offset is out of order or outside the range of its source.
    """
    return recut_batches(_merge_due(sources))


def recut_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut the same records into batches whose bounds depend on the records alone.

    A batch ends with its cell of `CELL_OFFSETS` offsets, or with the record that brings it to `CELL_BYTES`.
    """
    held = _Held()
    for batch in batches:
        for part in _group_by_cell(batch):
            yield from held.add(part)
    yield from held.flush()


def extract_offsets(batch: pa.RecordBatch) -> Int64s:
    """Return the offsets of a batch without copying them."""
    offsets: Int64s = batch.column("offset").to_numpy()
    return offsets


class _Held:
    """The records of the batch that is being filled."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._cell = -1
        self._size = 0

    def add(self, part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add records of one cell. Return the batches that are complete now."""
        cell = part.column("offset")[0].as_py() // CELL_OFFSETS
        if cell != self._cell:
            yield from self.flush()
            self._cell = cell
        ends = np.cumsum(count_record_bytes(part))
        start = 0
        while start < part.num_rows:
            done = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, CELL_BYTES - self._size + done)) + 1
            self._parts.append(part.slice(start, end - start))
            self._size += int(ends[min(end, part.num_rows) - 1]) - done
            if self._size >= CELL_BYTES:
                yield from self.flush()
            start = end

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._parts:
            yield self._parts[0] if len(self._parts) == 1 else pa.concat_batches(self._parts)
        self._parts = []
        self._size = 0


def _group_by_cell(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    cells = extract_offsets(batch) // CELL_OFFSETS
    bounds = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(bounds):
        if start < end:
            yield batch.slice(start, end - start)


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
    offsets = extract_offsets(joined)
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
        self._offsets = extract_offsets(self._batch)
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
        """Read the next batch if the current one is used up. Return whether records are left."""
        while self._row == len(self._offsets):
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._batch = batch
            self._offsets = extract_offsets(batch)
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
