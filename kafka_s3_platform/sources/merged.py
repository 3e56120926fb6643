"""Records that tell their offsets, of any number of objects, in the order of these offsets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload, Positions, Schema

Repeated = Callable[[str, Int64s], None]
"""Takes the key of an object, and offsets of it that an object before it has, or that it has itself more than once."""


class Merged:
    """Objects that are being read, by offset. A batch of each is in memory, and what is held of it."""

    def __init__(self, repeated: Repeated) -> None:
        self._repeated = repeated
        self._cursors: list[_Cursor] = []

    @property
    def held_bytes(self) -> int:
        """Of the objects that are held in memory as a whole."""
        return sum(c.held_bytes for c in self._cursors)

    def add(self, key: str, batches: Iterator[ConnectBatch], held_bytes: int) -> None:
        """An object with records of ascending offsets, none of them below what was read."""
        cursor = _Cursor(key, batches, held_bytes)
        if cursor.fill():
            self._cursors.append(cursor)

    def before(self, end: int | None) -> Iterator[ConnectBatch]:
        """The records below an offset, all of them without one."""
        while due := [c for c in self._cursors if end is None or c.head < end]:
            horizon = min([c.last + 1 for c in due] + ([] if end is None else [end]))
            parts = [(c.key, c.take(horizon)) for c in due if c.head < horizon]
            yield from in_order(parts, self._repeated)
            self._cursors = [c for c in self._cursors if c.fill()]


@dataclass
class _Cursor:
    """An open object and its current batch."""

    key: str
    batches: Iterator[ConnectBatch]
    held_bytes: int
    batch: ConnectBatch | None = None
    row: int = 0

    @property
    def _offsets(self) -> Int64s:
        return np.empty(0, np.int64) if self.batch is None else self.batch.offsets

    @property
    def head(self) -> int:
        return int(self._offsets[self.row])

    @property
    def last(self) -> int:
        return int(self._offsets[-1])

    def take(self, horizon: int) -> ConnectBatch:
        """The records before offset `horizon`, of which there are some."""
        assert self.batch is not None  # noqa: S101 - there is a head
        start, self.row = self.row, int(np.searchsorted(self._offsets, horizon))
        return self.batch.take(np.arange(start, self.row))

    def fill(self) -> bool:
        """Whether records are left; reads on when the current batch is used up."""
        while self.row == len(self._offsets):
            self.batch, self.row = next(self.batches, None), 0
            if self.batch is None:
                return False
        return True


def in_order(parts: Sequence[tuple[str, ConnectBatch]], repeated: Repeated) -> Iterator[ConnectBatch]:
    """The records of batches, each of the object with this key, by offset; of equal offsets the first one's."""
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
    yield from _arranged([batch for _, batch in parts], ends, order[~is_again])


def _arranged(batches: Sequence[ConnectBatch], ends: Positions, order: Positions) -> Iterator[ConnectBatch]:
    """The rows of all batches at the positions `order`."""
    key, value = (_joined([getattr(batch, name) for batch in batches]) for name in ("key", "value"))
    if key is not None and value is not None:
        records = pa.concat_batches([batch.records for batch in batches])
        yield ConnectBatch(records, key, value).take(order)
        return
    # Payloads of several kinds cannot be one: runs of rows of the same batch follow each other.
    of_batches = np.searchsorted(ends, order, side="right")
    for run in np.split(np.arange(len(order)), np.flatnonzero(np.diff(of_batches)) + 1):
        at = int(of_batches[run[0]])
        yield batches[at].take(order[run] - (int(ends[at - 1]) if at else 0))


def _joined(payloads: Sequence[Payload]) -> Payload | None:
    """The payloads as one, None where they are of several kinds."""
    raws = [payload.raw for payload in payloads]
    kinds = {(type(payload), None if payload.raw is None else payload.raw.type) for payload in payloads}
    if len(kinds) > 1 or any(raw is None for raw in raws):
        return None
    numbers: dict[Schema, int] = {}
    codes = []
    for payload in payloads:
        own = np.array([numbers.setdefault(schema, len(numbers)) for schema in payload.schemas] + [NO_SCHEMA], np.int32)
        codes.append(own[payload.codes])
    return type(payloads[0])(pa.concat_arrays(raws), np.concatenate(codes), list(numbers))
