"""Defines conditions on rows of an index, for the bounds of a file and for rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.segment import Chunk

Value: TypeAlias = str | int | datetime


@dataclass(frozen=True)
class OneOf:
    """The column holds one of the values."""

    column: str
    values: frozenset[Value]

    def may_hold(self, lowest: Value, highest: Value) -> bool:
        """Return False if no value in [lowest, highest] can match."""
        return any(lowest <= value <= highest for value in self.values)  # type: ignore[operator]

    def match(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a mask of the matching rows. Null does not match."""
        return pc.is_in(column, value_set=pa.array(sorted(self.values), column.type))


@dataclass(frozen=True)
class AtLeast:
    """The column holds this value or a higher one."""

    column: str
    value: Value

    def may_hold(self, lowest: Value, highest: Value) -> bool:  # noqa: ARG002
        """Return False if no value in [lowest, highest] can match."""
        return highest >= self.value  # type: ignore[operator]

    def match(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a mask of the matching rows. Null does not match."""
        return pc.greater_equal(column, pa.scalar(self.value, column.type))


@dataclass(frozen=True)
class Below:
    """The column holds a lower value."""

    column: str
    value: Value

    def may_hold(self, lowest: Value, highest: Value) -> bool:  # noqa: ARG002
        """Return False if no value in [lowest, highest] can match."""
        return lowest < self.value  # type: ignore[operator]

    def match(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a mask of the matching rows. Null does not match."""
        return pc.less(column, pa.scalar(self.value, column.type))


Term: TypeAlias = OneOf | AtLeast | Below


@dataclass(frozen=True)
class SegmentFilter:
    """A selection of segments. A field of None leaves nothing out.

    `chunk_starts` are bounds [from, to) of the start of the hour or day. `timestamps` are bounds [from, to) in epoch
    ms, `offsets` bounds [start, end): segments that may hold records between them. `committed_since` is the earliest
    time of the commit.
    """

    chunk: Chunk | None = None
    chunk_starts: tuple[datetime, datetime] | None = None
    timestamps: tuple[int, int] | None = None
    kafka_partitions: frozenset[int] | None = None
    offsets: tuple[int, int] | None = None
    committed_since: datetime | None = None

    def list_terms(self) -> Iterator[Term]:
        """Yield the conditions of a row. It has to meet them all."""
        if self.chunk is not None:
            yield OneOf("chunk", frozenset([self.chunk]))
        if self.chunk_starts is not None:
            begin, end = self.chunk_starts
            yield AtLeast("chunk_start", begin)
            yield Below("chunk_start", end)
        if self.timestamps is not None:
            yield AtLeast("max_timestamp", self.timestamps[0])
            yield Below("min_timestamp", self.timestamps[1])
        if self.kafka_partitions is not None:
            yield OneOf("kafka_partition", frozenset(self.kafka_partitions))
        if self.offsets is not None:
            yield AtLeast("end_offset", min(self.offsets[0] + 1, 2**63 - 1))
            yield Below("start_offset", self.offsets[1])
        if self.committed_since is not None:
            yield AtLeast("committed_at", self.committed_since)


EVERY_SEGMENT = SegmentFilter()


def match_values(**columns: Value) -> list[Term]:
    """Return the conditions for these values of columns."""
    return [OneOf(name, frozenset([value])) for name, value in columns.items()]


def match_rows(rows: pa.Table, terms: tuple[Term, ...]) -> pa.Table:
    """Return the rows that meet all conditions."""
    for term in terms:
        rows = rows.filter(term.match(rows.column(term.column)))
    return rows
