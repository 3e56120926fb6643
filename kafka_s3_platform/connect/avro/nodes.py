"""The types of an Avro schema as nodes of a tree. Each passes over its binary data, for many records or for one.

`skip` moves the reading position of each record (in a `RecordCursor`) past one datum, `skip_one` returns the position
after a datum of a single record, and `read` also makes an Arrow array of the values. A datum that breaks the rules
fails its record, or raises InvalidDatumError. `depth` is the number of values around the datum.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.connect.avro.cursor import (
    INT_BYTES,
    LONG_BYTES,
    Bools,
    InvalidDatumError,
    RecordCursor,
    check_end,
    is_invalid_utf8,
    read_branch_index,
    read_long,
)
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.limits import FEW_VALUES, NAME_BYTES

MAX_VALUES = 100_000
"""The most values of one datum, without list items. If each record names the next one twice, each step doubles them."""

_DENSE = 4
"""A normal number of values for each byte. Real data have fewer than two: only nulls and empty records take no byte."""


# Up to this number of records, numpy's calls cost more than a loop in Python.
_FEW = 16


@dataclass
class ItemBudget:
    """The number of list items a datum may still have. Only items of few bytes are counted, or all if `counts_all`."""

    most: int
    counts_all: bool
    remaining: int = 0

    def renew(self) -> None:
        """Start again for the next datum."""
        self.remaining = self.most

    @property
    def spent(self) -> int:
        """The number of items since the last `renew`."""
        return self.most - self.remaining

    def spend(self, count: int) -> None:
        """Count further items. Raise InvalidDatumError if there are too many."""
        self.remaining -= count
        if self.remaining < 0:
            raise InvalidDatumError(f"a record has more than {self.most:,} items")


class SchemaNode(ABC):
    """One type of a schema.

    Attributes:
        arrow: the type of the array from `read`, or None if `read` cannot be used.
        size: the number of bytes of every datum, or None if it varies or the bytes have to be checked.
        least: the fewest bytes a datum can have.
        depth: the depth to which types are nested.
        values: the number of values in a datum whose lists are empty.
        density: the most values for each byte of a list's item, or 0 without lists.
        excess: by how much the values of a datum may exceed `_DENSE` for each of its bytes.
    """

    arrow: pa.DataType | None = None
    size: int | None = None
    least = 1
    depth = 1
    values = 1
    density = 0
    excess = 1 - _DENSE

    @abstractmethod
    def skip(self, at: RecordCursor, depth: int) -> None:
        """Move each position past one datum."""

    @abstractmethod
    def skip_one(self, data: memoryview, pos: int, depth: int) -> int:
        """Return the position after the datum at `pos` of a single record. Raise InvalidDatumError if there is none."""

    def read(self, at: RecordCursor) -> pa.Array:
        """Move as `skip` does, and return the values."""
        raise NotImplementedError


class FixedNode(SchemaNode):
    """A type with a fixed number of bytes: null, float, double, fixed."""

    def __init__(self, size: int, arrow: pa.DataType) -> None:
        self.size: int = size
        self.least = size
        self.excess = 1 - _DENSE * size
        self.arrow = arrow

    def skip(self, at: RecordCursor, _: int) -> None:
        at.advance(self.size)

    def skip_one(self, data: memoryview, pos: int, _: int) -> int:
        return check_end(data, pos + self.size)

    def read(self, at: RecordCursor) -> pa.Array:
        """Read the bytes of each record's datum as values of the Arrow type."""
        count = len(at)
        places = np.minimum(at.pos[:, None] + np.arange(self.size), len(at.data) - 1)
        at.advance(self.size)
        if pa.types.is_null(self.arrow):
            return pa.nulls(count)
        return pa.Array.from_buffers(self.arrow, count, [None, pa.py_buffer(at.data[places])])


class BooleanNode(SchemaNode):
    """A boolean: one byte, 0 or 1."""

    arrow = pa.bool_()

    def skip(self, at: RecordCursor, _: int) -> None:
        self._read_bytes(at)

    def skip_one(self, data: memoryview, pos: int, _: int) -> int:
        if data[check_end(data, pos + 1) - 1] > 1:
            raise InvalidDatumError
        return pos + 1

    def read(self, at: RecordCursor) -> pa.Array:
        return pa.array(self._read_bytes(at) == 1)

    def _read_bytes(self, at: RecordCursor) -> npt.NDArray[np.uint8]:
        """Read one byte of each record. A record fails if the byte is neither 0 nor 1."""
        values = at.data[at.pos]
        at.advance(1)
        at.fail(values > 1)
        return values


class IntegerNode(SchemaNode):
    """An int or a long."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.arrow = pa.int32() if max_bytes == INT_BYTES else pa.int64()

    def skip(self, at: RecordCursor, _: int) -> None:
        at.read_varints(self._max_bytes)

    def skip_one(self, data: memoryview, pos: int, _: int) -> int:
        return read_long(data, pos, self._max_bytes)[1]

    def read(self, at: RecordCursor) -> pa.Array:
        values = at.read_varints(self._max_bytes)
        return pa.array(values.astype(np.int32) if self._max_bytes == INT_BYTES else values)


class StringNode(SchemaNode):
    """Bytes, or a string."""

    def __init__(self, is_text: bool) -> None:
        self._is_text = is_text
        self.arrow = pa.string() if is_text else pa.binary()

    def skip(self, at: RecordCursor, _: int) -> None:
        at.read_strings(self._is_text)

    def skip_one(self, data: memoryview, pos: int, _: int) -> int:
        size, pos = read_long(data, pos, LONG_BYTES)
        if size < 0 or (self._is_text and is_invalid_utf8(data[pos : pos + size])):
            raise InvalidDatumError
        return check_end(data, pos + size)

    def read(self, at: RecordCursor) -> pa.Array:
        return at.read_strings(self._is_text).drop_null()


class EnumNode(SchemaNode):
    """An enum: the index of its symbol."""

    arrow = pa.string()

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array([*symbols, None], pa.string())
        self._count = len(symbols)

    def skip(self, at: RecordCursor, _: int) -> None:
        _read_indices(at, self._count)

    def skip_one(self, data: memoryview, pos: int, _: int) -> int:
        return read_branch_index(data, pos, self._count)[1]

    def read(self, at: RecordCursor) -> pa.Array:
        return self._symbols.take(pa.array(_read_indices(at, self._count)))


class UnionNode(SchemaNode):
    """A union: the index of a branch, then its datum."""

    def __init__(self, branches: Sequence[SchemaNode]) -> None:
        self._branches = branches
        self._branches_with_bytes = [(i, b) for i, b in enumerate(branches) if b.size != 0]
        is_optional = len(branches) == 2 and len(self._branches_with_bytes) == 1
        self.least = 1 + min((b.least for b in branches), default=0)
        self.depth = 1 + max((b.depth for b in branches), default=0)
        self.values = 1 + max((b.values for b in branches), default=0)
        self.excess = 1 - _DENSE + max((b.excess for b in branches), default=0)
        self.density = max((b.density for b in branches), default=0)
        self.arrow = self._branches_with_bytes[0][1].arrow if is_optional else None

    def skip(self, at: RecordCursor, depth: int) -> None:
        """Move each record's position past a value of the union. All records with the same branch move at once."""
        index = _read_indices(at, len(self._branches))
        for code, branch in self._branches_with_bytes:
            rows = np.flatnonzero(index == code)
            if rows.size:
                part = at.select_rows(rows)
                branch.skip(part, depth + 1)
                at.merge(rows, part)

    def skip_one(self, data: memoryview, pos: int, depth: int) -> int:
        index, pos = read_branch_index(data, pos, len(self._branches))
        return self._branches[index].skip_one(data, pos, depth + 1)

    def read(self, at: RecordCursor) -> pa.Array:
        """Read an optional value, which is null for the null branch. Only such unions have an Arrow type."""
        code, branch = self._branches_with_bytes[0]
        present = _read_indices(at, 2) == code
        rows = np.flatnonzero(present)
        part = at.select_rows(rows)
        values = branch.read(part)
        at.merge(rows, part)
        return fill_null_rows(values, present)


class RecordNode(SchemaNode):
    """A record: the data of its fields."""

    def __init__(self, names: Sequence[str], nodes: Sequence[SchemaNode]) -> None:
        self._nodes = nodes
        # Fields without bytes need not be visited.
        self._nodes_with_bytes = [n for n in nodes if n.size != 0]
        sizes = [n.size for n in nodes if n.size is not None]
        self.size = sum(sizes) if len(sizes) == len(nodes) else None
        self.least = sum(n.least for n in nodes)
        self.depth = 1 + max((n.depth for n in nodes), default=0)
        name_values = sum(len(name) // NAME_BYTES for name in names)
        self.values = 1 + name_values + sum(n.values for n in nodes)
        self.excess = 1 + name_values + sum(n.excess for n in nodes)
        self.density = max((n.density for n in nodes), default=0)
        if nodes and self.values <= MAX_VALUES and all(n.arrow is not None for n in nodes):
            self.arrow = pa.struct([(name, n.arrow) for name, n in zip(names, nodes, strict=True)])

    def skip(self, at: RecordCursor, depth: int) -> None:
        for node in self._nodes_with_bytes:
            node.skip(at, depth + 1)

    def skip_one(self, data: memoryview, pos: int, depth: int) -> int:
        if self.size is not None:
            return check_end(data, pos + self.size)
        for node in self._nodes_with_bytes:
            pos = node.skip_one(data, pos, depth + 1)
        return pos

    def read(self, at: RecordCursor) -> pa.Array:
        return pa.StructArray.from_arrays(self.fields(at), type=self.arrow)

    def fields(self, at: RecordCursor) -> list[pa.Array]:
        """Move each record's position past the record, and return one column for each of its fields."""
        return [node.read(at) for node in self._nodes]


class BlocksNode(SchemaNode):
    """An array, or a map as an array of entries. Items that take few bytes for their values are counted first."""

    def __init__(self, item: SchemaNode, budget: ItemBudget) -> None:
        self._item = item
        self._budget = budget
        self.is_light = item.size == 0 or item.excess > 0
        # A large item counts as several. Otherwise a million items could have a thousand fields each.
        self._weight = item.values if self.is_light else max(1, item.values // FEW_VALUES)
        self.depth = 1 + item.depth
        self.density = max(-(-item.values // max(item.least, 1)), item.density)

    def skip(self, at: RecordCursor, depth: int) -> None:
        """Skip lists block by block, all records in step.

        The last few records are skipped one by one, which is cheaper.
        """
        rows = at.alive
        while len(rows) > _FEW:
            part = at.select_rows(rows)
            counts = self._skip_block(part, depth)
            at.merge(rows, part)
            rows = rows[(counts != 0) & (part.pos < part.stop)]
        for row in rows:
            walk_record(at, row, partial(self.skip_one, pos=0, depth=depth))

    def skip_one(self, data: memoryview, pos: int, depth: int) -> int:
        """Return the position after an array or a map. Its blocks each have a count of items, the last one 0."""
        while True:
            count, pos = read_long(data, pos, LONG_BYTES)
            if count == 0:
                return pos
            size = None
            # By Avro's specification, the size of the block in bytes follows a negative count.
            if count < 0:
                count = -count
                size, pos = read_long(data, pos, LONG_BYTES)
            start = pos
            pos = self._skip_items(data, pos, count, depth)
            if size is not None and pos != start + size:
                raise InvalidDatumError

    def _skip_items(self, data: memoryview, pos: int, count: int, depth: int) -> int:
        """Return the position after `count` items, which are counted first if they may cost much."""
        if self.is_light or self._budget.counts_all:
            self._budget.spend(count * self._weight)
        if self._item.size is not None:
            return check_end(data, pos + count * self._item.size)
        if count > len(data) - pos:
            raise InvalidDatumError
        for _ in range(count):
            pos = self._item.skip_one(data, pos, depth + 1)
        return pos

    def _skip_block(self, at: RecordCursor, depth: int) -> Int64s:
        """Move each position past one block of items, and return the counts of the blocks. With 0, the list ends."""
        counts = at.read_varints(LONG_BYTES)
        sized = np.flatnonzero(counts < 0)
        part = at.select_rows(sized)
        sizes = part.read_varints(LONG_BYTES)
        at.merge(sized, part)
        # As unsigned numbers, because the smallest long has no positive counterpart. `bytes_left` is one more than the
        # bytes of the record, so a count that reaches it is too large.
        bytes_left = at.stop - at.pos
        items = np.minimum(np.abs(counts).view(np.uint64), bytes_left.view(np.uint64)).view(np.int64)
        if self._item.size is not None:
            at.advance(items * self._item.size)
        else:
            at.fail(items == bytes_left)
            self._skip_all_items(at, items, depth)
        at.fail(sized[at.pos[sized] != part.pos + sizes])
        return counts

    def _skip_all_items(self, at: RecordCursor, items: Int64s, depth: int) -> None:
        """Move each position past its number of `items`, one item of all records at a time."""
        item_number = 0
        rows = np.flatnonzero((items > 0) & (at.pos < at.stop))
        while len(rows) > _FEW:
            part = at.select_rows(rows)
            self._item.skip(part, depth + 1)
            at.merge(rows, part)
            item_number += 1
            rows = rows[(items[rows] > item_number) & (part.pos < part.stop)]
        for row in rows:
            walk_record(at, row, partial(self._skip_items, pos=0, count=int(items[row]) - item_number, depth=depth))


class ReferenceNode(SchemaNode):
    """A reference to a named type from inside this type itself."""

    target: SchemaNode

    def __init__(self, most: int) -> None:
        self._most = most

    def skip(self, at: RecordCursor, depth: int) -> None:
        """Move each record's position past a datum of the named type. A datum nested too deeply fails its record."""
        if depth > self._most:
            at.fail(np.arange(len(at)))
        rows = at.alive
        if len(rows) > _FEW:
            part = at.select_rows(rows)
            self.target.skip(part, depth + 1)
            at.merge(rows, part)
            return
        for row in rows:
            walk_record(at, row, partial(self.skip_one, pos=0, depth=depth))

    def skip_one(self, data: memoryview, pos: int, depth: int) -> int:
        if depth > self._most:
            raise InvalidDatumError(f"a record has more than {self._most} values inside each other")
        return self.target.skip_one(data, pos, depth + 1)


def walk_record(at: RecordCursor, row: np.intp, walk: Callable[[memoryview], int]) -> None:
    """Move the position of only one record. In step, one long array would cost as much as one in each record."""
    try:
        at.pos[row] += walk(at.get_remaining(row))
    except (InvalidDatumError, RecursionError):
        at.pos[row] = at.stop[row]


def fill_null_rows(values: pa.Array, present: Bools) -> pa.Array:
    """Return one item for each row of the mask `present`: the next value where it is true, else null."""
    if len(values) == len(present):
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _read_indices(at: RecordCursor, count: int) -> Int64s:
    """Read the next index of each record. A record whose index is not below `count` fails, and gets `count`."""
    indices = at.read_varints(INT_BYTES)
    is_wrong = indices.view(np.uint64) >= np.uint64(count)
    if is_wrong.any():
        at.fail(is_wrong)
        indices[is_wrong] = count
    return indices
