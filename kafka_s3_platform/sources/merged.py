"""Merges the records of any number of objects by offset, if each record has its offset."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload, Positions, Schema

Repeated = Callable[[str, Int64s], None]
"""Takes the key of an object and its repeated offsets: from the object itself or one before it."""


class Merged:
    """The open objects, merged by offset. Memory has one batch of each, and all batches of small ones."""

    def __init__(self, repeated: Repeated) -> None:
        self._repeated = repeated
        self._cursors: list[_Cursor] = []

    @property
    def memory_bytes(self) -> int:
        """The bytes of the objects with all batches in memory."""
        return sum(c.memory_bytes for c in self._cursors)

    def add(self, key: str, batches: Iterator[ConnectBatch], memory_bytes: int) -> None:
        """Add an object. Its offsets ascend, and none of them is below an offset already returned."""
        cursor = _Cursor(key, batches, memory_bytes)
        if cursor.fill():
            self._cursors.append(cursor)

    def before(self, end: int | None) -> Iterator[ConnectBatch]:
        """Return the records below offset `end`; None: all records."""
        while due := [c for c in self._cursors if end is None or c.head < end]:
            # Beyond the last offset of any current batch, its next batch may hold lower offsets than the others.
            horizon = min([c.last + 1 for c in due] + ([] if end is None else [end]))
            parts = [(c.key, c.take(horizon)) for c in due if c.head < horizon]
            yield from merge_in_order(parts, self._repeated)
            self._cursors = [c for c in self._cursors if c.fill()]


@dataclass
class _Cursor:
    """An open object and its current batch."""

    key: str
    batches: Iterator[ConnectBatch]
    memory_bytes: int
    batch: ConnectBatch | None = None
    row: int = 0

    @property
    def _offsets(self) -> Int64s:
        if self.batch is None:
            return np.empty(0, np.int64)
        return self.batch.offsets

    @property
    def head(self) -> int:
        return int(self._offsets[self.row])

    @property
    def last(self) -> int:
        return int(self._offsets[-1])

    def take(self, horizon: int) -> ConnectBatch:
        """Take the records before offset `horizon`; there is at least one."""
        assert self.batch is not None  # noqa: S101 - there is a head
        start = self.row
        self.row = int(np.searchsorted(self._offsets, horizon))
        return self.batch.take(np.arange(start, self.row))

    def fill(self) -> bool:
        """Read the next batch if the current one is used up. Return False if no records are left."""
        while self.row == len(self._offsets):
            self.batch = next(self.batches, None)
            self.row = 0
            if self.batch is None:
                return False
        return True


def merge_in_order(parts: Sequence[tuple[str, ConnectBatch]], repeated: Repeated) -> Iterator[ConnectBatch]:
    """Merge batches, each with its object's key, by offset. Keep the first of the records with equal offsets."""
    if not parts:
        return
    if len(parts) == 1 and (np.diff(parts[0][1].offsets) > 0).all():
        yield parts[0][1]
        return
    offsets = np.concatenate([batch.offsets for _, batch in parts])
    ends = np.cumsum([batch.num_rows for _, batch in parts])
    order: Positions = np.argsort(offsets, kind="stable")
    is_again = np.append(False, np.diff(offsets[order]) == 0)
    again = order[is_again]
    of_parts = np.searchsorted(ends, again, side="right")
    for at in np.unique(of_parts).tolist():
        repeated(parts[at][0], offsets[again[of_parts == at]])
    yield from _arrange_rows([batch for _, batch in parts], ends, order[~is_again])


def _arrange_rows(batches: Sequence[ConnectBatch], ends: Positions, order: Positions) -> Iterator[ConnectBatch]:
    """Take the rows of all batches at the positions `order`."""
    key, value = (_join_payloads([getattr(batch, name) for batch in batches]) for name in ("key", "value"))
    if key is not None and value is not None:
        records = pa.concat_batches([batch.records for batch in batches])
        yield ConnectBatch(records, key, value).take(order)
        return
    # Payloads of several kinds cannot be joined: yield each run of rows from the same batch.
    of_batches = np.searchsorted(ends, order, side="right")
    for run in np.split(np.arange(len(order)), np.flatnonzero(np.diff(of_batches)) + 1):
        at = int(of_batches[run[0]])
        yield batches[at].take(order[run] - (int(ends[at - 1]) if at else 0))


def _join_payloads(payloads: Sequence[Payload]) -> Payload | None:
    """Join the payloads into one. Return None if they are of several kinds."""
    raws = [payload.raw for payload in payloads]
    kinds = {(type(payload), None if payload.raw is None else payload.raw.type) for payload in payloads}
    if len(kinds) > 1 or any(raw is None for raw in raws):
        return None
    numbers: dict[Schema, int] = {}
    codes = []
    for payload in payloads:
        new_codes = [numbers.setdefault(schema, len(numbers)) for schema in payload.schemas]
        codes.append(np.array([*new_codes, NO_SCHEMA], np.int32)[payload.codes])
    return type(payloads[0])(pa.concat_arrays(raws), np.concatenate(codes), list(numbers))
