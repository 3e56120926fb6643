"""Merges streams of one kafka partition into one in offset order, with a few batches in memory at a time.

A restore uses this to read several objects whose offsets may interleave.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.batches import cut_batches, read_offset_column
from kafka_s3_platform.core.model.connect import Int64s, Positions

B = TypeVar("B")

Repeated = Callable[[str, Int64s], None]
"""Takes the key of an object, and its offsets that were already in this object or in one before it."""


@dataclass(frozen=True, slots=True)
class BatchSteps(Generic[B]):
    """The operations that a merge needs for a kind of batches, so that it need not know the kind.

    `cut_rows` returns the rows `[start, end)` of a batch, and `join_rows` the rows of several batches at the given
    positions, which count through all of them.
    """

    read_offsets: Callable[[B], Int64s]
    cut_rows: Callable[[B, int, int], B]
    join_rows: Callable[[Sequence[B], Positions], Iterable[B]]


class OffsetMerge(Generic[B]):
    """Merges open objects by offset. Memory holds one batch of each object, and all batches of small ones.

    Of records with equal offsets, the first is passed on, and `repeated` is called with the others. It may raise an
    error.
    """

    def __init__(self, steps: BatchSteps[B], repeated: Repeated) -> None:
        self._steps = steps
        self._repeated = repeated
        self._cursors: list[_Cursor[B]] = []

    @property
    def memory_bytes(self) -> int:
        """The bytes of the objects whose batches are all in memory."""
        return sum(c.memory_bytes for c in self._cursors)

    def add(self, key: str, batches: Iterator[B], memory_bytes: int = 0) -> None:
        """Add an object. Its offsets ascend, and none of them is below an offset already returned."""
        cursor = _Cursor(key, batches, memory_bytes, self._steps)
        if cursor.fill():
            self._cursors.append(cursor)

    def take_before(self, end: int | None) -> Iterator[B]:
        """Return the records below offset `end`, or all records if it is None."""
        while due := [c for c in self._cursors if end is None or c.head < end]:
            # Beyond the last offset of any current batch, its next batch may hold lower offsets than the others.
            horizon = min([c.last + 1 for c in due] + ([] if end is None else [end]))
            parts = [(c.key, c.take(horizon)) for c in due if c.head < horizon]
            yield from [parts[0][1]] if len(parts) == 1 else self.merge(parts)
            self._cursors = [c for c in self._cursors if c.fill()]

    def merge(self, parts: Sequence[tuple[str, B]]) -> Iterable[B]:
        """Merge batches, each with its object's key, by offset. Here the offsets of a batch need not ascend."""
        if not parts:
            return ()
        offsets = [self._steps.read_offsets(batch) for _, batch in parts]
        together = np.concatenate(offsets)
        order: Positions = np.argsort(together, kind="stable")
        repeated_at = np.flatnonzero(np.diff(together[order]) == 0) + 1
        if repeated_at.size:
            rows = order[repeated_at]
            part_of_row = np.searchsorted(np.cumsum([len(part) for part in offsets]), rows, side="right")
            for part in np.unique(part_of_row).tolist():
                self._repeated(parts[part][0], together[rows[part_of_row == part]])
            order = np.delete(order, repeated_at)
        return self._steps.join_rows([batch for _, batch in parts], order)


class _Cursor(Generic[B]):
    """An open object, its current batch, and the first row of this batch that is not taken yet."""

    def __init__(self, key: str, batches: Iterator[B], memory_bytes: int, steps: BatchSteps[B]) -> None:
        self.key = key
        self.memory_bytes = memory_bytes
        self._batches = batches
        self._steps = steps
        self._batch: B | None = None
        self._offsets = np.empty(0, np.int64)
        self._row = 0

    @property
    def head(self) -> int:
        return int(self._offsets[self._row])

    @property
    def last(self) -> int:
        return int(self._offsets[-1])

    def take(self, horizon: int) -> B:
        """Take the records before offset `horizon`. There has to be at least one."""
        assert self._batch is not None  # noqa: S101 - there is a head
        start = self._row
        self._row = int(np.searchsorted(self._offsets, horizon))
        return self._steps.cut_rows(self._batch, start, self._row)

    def fill(self) -> bool:
        """Read the next batch if the current one is used up. Return False if no records are left."""
        while self._row == len(self._offsets):
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            self._offsets = self._steps.read_offsets(self._batch)
            self._row = 0
        return True


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The records of an object in ascending offset order, all in `[start_offset, end_offset)`.

    `open` is called when the merge reaches `start_offset`. If the merge ends early, it closes the generator.
    """

    key: str
    start_offset: int
    end_offset: int
    open: Callable[[], Generator[pa.RecordBatch, None, None]]


def merge_by_offset(sources: Sequence[MergeSource]) -> Iterator[pa.RecordBatch]:
    """Merge the records of all `sources` by offset, into batches as `cut_batches` makes them.

    Records that only one source can hold are not copied. Memory holds a batch of each overlapping source. Raises
    IntegrityError if two sources hold the same offset, or an offset is out of order or outside the range of its source.
    """
    return cut_batches(_merge_due(sources))


def _merge_due(sources: Sequence[MergeSource]) -> Iterator[pa.RecordBatch]:
    """Open each source when the merge reaches its start, and yield the records before that."""
    merge = OffsetMerge(_RECORD_STEPS, _refuse_repeated)
    with ExitStack() as stack:
        for source in sorted(sources, key=lambda s: (s.start_offset, s.end_offset)):
            yield from merge.take_before(source.start_offset)
            merge.add(source.key, stack.enter_context(closing(_read_checked(source))))
        yield from merge.take_before(None)


def _read_checked(source: MergeSource) -> Generator[pa.RecordBatch, None, None]:
    """Yield the source's batches. Raises IntegrityError if an offset does not ascend, or is out of range."""
    due = source.start_offset
    with closing(source.open()) as batches:
        for batch in batches:
            offsets = read_offset_column(batch)
            if not offsets.size:
                continue
            if offsets[0] < due or offsets[-1] >= source.end_offset or (np.diff(offsets) <= 0).any():
                raise IntegrityError(
                    f"object {source.key}: offsets {offsets.min()} to {offsets.max()} were read where offsets "
                    f"ascending in [{due}, {source.end_offset}) were due: it is not the one in the index. Run "
                    f"`kafka-s3 verify` to see what else is damaged"
                )
            due = int(offsets[-1]) + 1
            yield batch


def _refuse_repeated(key: str, offsets: Int64s) -> None:
    """Raise IntegrityError for offsets held by two objects."""
    raise IntegrityError(
        f"object {key}: offset {offsets[0]} is held by another object too, and one of them must not be in the index: "
        f"run `kafka-s3 verify`, which names both"
    )


_RECORD_STEPS: BatchSteps[pa.RecordBatch] = BatchSteps(
    read_offsets=read_offset_column,
    cut_rows=lambda batch, start, end: batch.slice(start, end - start),
    join_rows=lambda batches, order: [pa.concat_batches(batches).take(pa.array(order))],
)
