"""Defines conditions on rows of an index.

A *term* selects rows to read, and can be checked against the bounds of a file; a *predicate* is SQL for the rows a
commit removes. SQL over rows is made here and nowhere else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.segment import Chunk, Compaction, Reservation
from kafka_s3_platform.core.store.index_rows import LIVE, STATE_PERIOD, find_kind

RowPredicate = NewType("RowPredicate", str)
"""A condition in SQL over the columns of one row."""

Value: TypeAlias = str | int | datetime


def match_run(row: Reservation | Compaction) -> RowPredicate:
    """Return the SQL condition of all reservation rows of this row's run."""
    return match_row(find_kind(row), {"epoch": row.epoch})


def match_group(group_id: str) -> RowPredicate:
    """Return the SQL condition of the rows with the committed offsets of a consumer group."""
    return match_row("group", {"group_id": group_id})


def match_unresolved(kafka_partition: int) -> RowPredicate:
    """Return the SQL condition of the rows about a kafka partition's offsets that could not be archived."""
    return match_row("unresolved", {"kafka_partition": kafka_partition})


def match_gap(gap: Gap) -> RowPredicate:
    """Return the SQL condition of the row of a gap: offsets the archive lacks for good."""
    columns = {
        "kafka_partition": gap.kafka_partition,
        "start_offset": gap.start_offset,
        "end_offset": gap.end_offset,
        "reason": gap.reason,
    }
    return match_row("gap", columns)


def match_segments(keys: Iterable[str], kinds: Iterable[str] = (LIVE,)) -> RowPredicate:
    """Return the SQL condition of segments of these kinds whose first object is at one of the keys."""
    quoted_keys = ", ".join(map(quote_text, keys))
    return RowPredicate(f"(kind IN ({', '.join(map(quote_text, kinds))}) AND key IN ({quoted_keys}))")


def match_start_offsets(kafka_partition: int, first: int, last: int) -> RowPredicate:
    """Return the SQL condition of a kafka partition's rows that begin at an offset from `first` to `last`."""
    return RowPredicate(f"kafka_partition = {kafka_partition} AND start_offset BETWEEN {first} AND {last}")


def match_topic(topic: str) -> RowPredicate:
    """Return the SQL condition of the rows of a topic."""
    return RowPredicate(f"topic = {quote_text(topic)}")


def match_periods(periods: Iterable[str]) -> RowPredicate:
    """Return the SQL condition of the rows of these periods. With it, Delta opens no file of another period."""
    return RowPredicate(f"period IN ({', '.join(map(quote_text, periods))})")


def match_row(kind: str, columns: Mapping[str, int | str]) -> RowPredicate:
    """Return the SQL condition of rows with exactly these values, of a kind other than segments."""
    pairs = {"kind": kind, "period": STATE_PERIOD, **columns}.items()
    terms = [f"{name} = {quote_text(value) if isinstance(value, str) else value}" for name, value in pairs]
    return RowPredicate(f"({' AND '.join(terms)})")


def match_any(predicates: Iterable[RowPredicate]) -> RowPredicate:
    """Return the SQL condition of the rows that meet any of the predicates.

    The predicates are joined two by two, then the pairs, and so on, which works for 8,000 of them. With a chain of
    3,000, such as one of topics, delta-rs overflows its stack.
    """
    terms = [str(predicate) for predicate in predicates]
    while len(terms) > 2:
        terms = [f"({' OR '.join(terms[at : at + 2])})" for at in range(0, len(terms), 2)]
    return RowPredicate(f"({' OR '.join(terms)})")


def match_every(predicates: Iterable[RowPredicate]) -> RowPredicate:
    """Return the SQL condition of the rows that meet all of the predicates."""
    return RowPredicate(f"({' AND '.join(predicates)})")


def match_version(version: int) -> RowPredicate:
    """Return the SQL condition of the rows that the commit of this version added."""
    return RowPredicate(f"version = {version}")


def quote_text(text: str) -> str:
    """Return a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


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
class InRange:
    """The column holds a value in [begin, end). None leaves a side open."""

    column: str
    begin: Value | None = None
    end: Value | None = None

    def may_hold(self, lowest: Value, highest: Value) -> bool:
        """Return False if no value in [lowest, highest] can match."""
        is_late_enough = self.begin is None or highest >= self.begin  # type: ignore[operator]
        return is_late_enough and (self.end is None or lowest < self.end)  # type: ignore[operator]

    def match(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a mask of the matching rows. Null does not match."""
        mask = pc.is_valid(column)
        if self.begin is not None:
            mask = pc.and_(mask, pc.greater_equal(column, pa.scalar(self.begin, column.type)))
        if self.end is not None:
            mask = pc.and_(mask, pc.less(column, pa.scalar(self.end, column.type)))
        return mask


Term: TypeAlias = OneOf | InRange


@dataclass(frozen=True)
class SegmentFilter:
    """A selection of segments. A field of None leaves nothing out.

    `chunk_starts` are bounds [from, to) for the start of the hour or day. `timestamps` are bounds [from, to) in epoch
    ms, and `offsets` bounds [start, end): segments match if they may have records between the bounds. `committed_since`
    is the earliest time of the commit.
    """

    chunk: Chunk | None = None
    chunk_starts: tuple[datetime, datetime] | None = None
    timestamps: tuple[int, int] | None = None
    kafka_partitions: frozenset[int] | None = None
    offsets: tuple[int, int] | None = None
    committed_since: datetime | None = None

    def list_terms(self) -> Iterator[Term]:
        """Yield the conditions a row has to meet."""
        if self.chunk is not None:
            yield OneOf("chunk", frozenset([self.chunk]))
        if self.chunk_starts is not None:
            yield InRange("chunk_start", *self.chunk_starts)
        if self.timestamps is not None:
            yield InRange("max_timestamp", begin=self.timestamps[0])
            yield InRange("min_timestamp", end=self.timestamps[1])
        if self.kafka_partitions is not None:
            yield OneOf("kafka_partition", frozenset(self.kafka_partitions))
        if self.offsets is not None:
            yield InRange("end_offset", begin=min(self.offsets[0] + 1, 2**63 - 1))
            yield InRange("start_offset", end=self.offsets[1])
        if self.committed_since is not None:
            yield InRange("committed_at", begin=self.committed_since)


EVERY_SEGMENT = SegmentFilter()


def match_values(**columns: Value) -> list[Term]:
    """Return the conditions for these values of columns."""
    return [OneOf(name, frozenset([value])) for name, value in columns.items()]


def match_rows(rows: pa.Table, terms: tuple[Term, ...]) -> pa.Table:
    """Return the rows that meet all conditions."""
    for term in terms:
        rows = rows.filter(term.match(rows.column(term.column)))
    return rows
