"""Reads rows of an index from the data files that may hold some, and caches them.

A data file never changes, so its rows are read only once in a process, even for later versions of the index. Delta's
own queries are not used: they read one file after another, three requests each, and again in every query.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_s3_platform.core.errors import IndexDamagedError
from kafka_s3_platform.core.model.health import SegmentSums
from kafka_s3_platform.core.model.segment import StoredChunk
from kafka_s3_platform.core.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.index_rows import (
    EXPIRED,
    FOLDED,
    INDEX_SCHEMA,
    LIVE,
    PERIOD,
    RETIRED,
    SEGMENT_KINDS,
    STATE_PERIOD,
    complete_columns,
)
from kafka_s3_platform.core.store.index_table import Handle, IndexTable
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import Term, match_rows

Part: TypeAlias = Literal["state", "segments", "all"]
"""The rows to read: the state (neither of segments nor folded), the segments, or all. They lie in different files."""

CACHE_BYTES = 128 * 2**20
"""The bytes of rows in a process's cache. The least recently used go first."""

CHUNK_COLUMNS = ("chunk_start", "settings")
"""The columns of a StoredChunk, in the order of its fields."""

LATE_COLUMNS = ("record_count", "late_count")

AT_ONCE = 8
"""The number of files read at a time. A distant store takes long to answer, and commits leave many small files."""

WHOLE_FILE_BYTES = 4 * 2**20
"""The size up to which a file is read in one request and cached, whatever part of it is needed."""


BOUND_PRECISION = timedelta(milliseconds=1)
"""Delta cuts the bounds of times to whole milliseconds, the upper one too (Delta's protocol, per-file statistics)."""


@dataclass(frozen=True)
class DataFile:
    """A data file of the index at `path` below the table's folder, with what Delta's log says of its content.

    `size` is in bytes. `period` is the value of the column by which rows are put into files, empty if unknown. `bounds`
    has the lowest and the highest value of columns, as far as Delta keeps them. The columns in `empty` have only nulls.
    """

    path: str
    size: int
    row_count: int
    period: str
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()

    @property
    def is_read_whole(self) -> bool:
        return self.size <= WHOLE_FILE_BYTES

    def may_hold(self, part: Part, terms: Iterable[Term]) -> bool:
        """Return False if no row of this part can meet all terms."""
        return self._has_part(part) and _may_meet(self.bounds, self.empty, terms)

    def _has_part(self, part: Part) -> bool:
        """Return False if the file, by its period, has no rows of the part."""
        if part == "all" or not self.period:
            return True
        if part == "state":
            return self.period == STATE_PERIOD
        return self.period != STATE_PERIOD and not self.period.startswith(FOLDED)


class _RowCache:
    """The decoded rows of files by index and path, up to CACHE_BYTES. Threads may share it.

    Each file is kept as one buffer. The columns of a table of a row or two would take a hundred times the rows' bytes.
    """

    def __init__(self) -> None:
        self._buffers: OrderedDict[tuple[str, str], pa.Buffer] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, place: tuple[str, str]) -> pa.Table | None:
        """Return the file's rows with the columns of INDEX_SCHEMA, or None if they are not cached."""
        with self._lock:
            buffer = self._buffers.get(place)
            if buffer is None:
                return None
            self._buffers.move_to_end(place)
        return pa.Table.from_batches([pa.ipc.read_record_batch(buffer, INDEX_SCHEMA)])

    def put(self, place: tuple[str, str], rows: pa.Table) -> None:
        """Cache the rows, with the columns of INDEX_SCHEMA. The least recently used files may be dropped for them."""
        batches = rows.combine_chunks().to_batches()
        if len(batches) != 1:
            # no row, or texts of 2 GiB
            return
        buffer = batches[0].serialize()
        with self._lock:
            if place in self._buffers:
                return
            self._buffers[place] = buffer
            self._bytes += buffer.size
            while self._bytes > CACHE_BYTES and len(self._buffers) > 1:
                _, oldest = self._buffers.popitem(last=False)
                self._bytes -= oldest.size

    def clear(self) -> None:
        with self._lock:
            self._buffers.clear()
            self._bytes = 0


_row_cache = _RowCache()


def forget_rows() -> None:
    """Clear the cache of this process, so the next read fetches every file again."""
    _row_cache.clear()


def list_data_files(table: IndexTable, handle: Handle) -> tuple[DataFile, ...]:
    """Return the files of the handle's version. Makes no request."""
    actions = table.run("read", lambda: pa.table(handle.table.get_add_actions(flatten=True)))
    names = [name.removeprefix("min.") for name in actions.column_names if name.startswith("min.")]
    files: list[DataFile] = []
    for action in actions.to_pylist():
        bounds: dict[str, tuple[Any, Any]] = {}
        for name in names:
            lowest, highest = action[f"min.{name}"], action.get(f"max.{name}")
            if lowest is not None and highest is not None:
                bounds[name] = (lowest, highest + BOUND_PRECISION if isinstance(highest, datetime) else highest)
        rows = action["num_records"] or 0
        empty = frozenset(name for name in names if rows and action.get(f"null_count.{name}") == rows)
        period = action.get(f"partition.{PERIOD}") or ""
        files.append(DataFile(action["path"], action["size_bytes"], rows, period, bounds, empty))
    return tuple(files)


def read_rows(
    table: IndexTable,
    files: Iterable[DataFile],
    part: Part,
    terms: Sequence[Term] = (),
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows of `files` that meet all terms, in no order, or only these `columns`. Opens no other file."""
    reader = _Reader(table, part, tuple(terms), columns)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tables = list(pool.map(reader.read, [file for file in files if file.may_hold(part, terms)]))
    rows = pa.concat_tables(tables) if tables else complete_columns(pa.table({}))
    return rows.select(columns) if columns else rows


def select_distinct(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the distinct values of the rows in `columns`."""
    return rows.group_by(list(columns), use_threads=False).aggregate([])


def collect_chunks(rows: pa.Table) -> Mapping[str, frozenset[StoredChunk]]:
    """Return, by topic, the distinct hours or days of segments, with the settings that wrote them."""
    by_topic: dict[str, set[StoredChunk]] = {}
    for topic, *values in zip(*(rows.column(name).to_pylist() for name in ("topic", *CHUNK_COLUMNS)), strict=True):
        by_topic.setdefault(topic, set()).add(StoredChunk(*values))
    return {topic: frozenset(chunks) for topic, chunks in by_topic.items()}


def sum_hours(rows: pa.Table) -> Mapping[str, Mapping[datetime, tuple[int, int]]]:
    """Return the number of records, and of late ones, by topic and hour."""
    keys = ["topic", "chunk_start"]
    grouped = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in LATE_COLUMNS])
    columns = [grouped[name].to_pylist() for name in (*keys, *(f"{name}_sum" for name in LATE_COLUMNS))]
    sums: dict[str, dict[datetime, tuple[int, int]]] = defaultdict(dict)
    for topic, hour, records, late in zip(*columns, strict=True):
        sums[topic][hour] = records, late
    return sums


SUMMED_COLUMNS = ("topic", "kind", "chunk", "record_count", "late_count", "record_bytes", "size")

_sums: dict[str, dict[str, Mapping[str, SegmentSums]]] = {}
"""The sums of files, by the index's place and the file's path. A file never changes."""


def sum_files(table: IndexTable, files: Sequence[DataFile]) -> Mapping[str, SegmentSums]:
    """Return the sums of the segments of each topic. A process reads each file once. Raises store errors."""
    uri = f"{table.store.endpoint_url} {table.uri}"
    cache = _sums.get(uri, {})
    segment_files = [file for file in files if file.may_hold("segments", ())]
    new_files = [file for file in segment_files if file.path not in cache]
    reader = _Reader(table, "segments", (), SUMMED_COLUMNS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        new_sums = {
            file.path: _sum_segments(rows)
            for file, rows in zip(new_files, pool.map(reader.read, new_files), strict=True)
        }
    _sums[uri] = {
        file.path: new_sums[file.path] if file.path in new_sums else cache[file.path] for file in segment_files
    }
    totals: dict[str, SegmentSums] = {}
    for file_sums in _sums[uri].values():
        for topic, sums in file_sums.items():
            totals[topic] = totals.get(topic, SegmentSums()) + sums
    return totals


def _sum_segments(rows: pa.Table) -> Mapping[str, SegmentSums]:
    """Return the sums by topic. Merged days hold the records of their hours again, and count as segments only."""
    grouped = rows.group_by(["topic", "kind", "chunk"], use_threads=False).aggregate(
        [(name, "sum") for name in SUMMED_COLUMNS[3:]] + [([], "count_all")]
    )
    totals: dict[str, SegmentSums] = {}
    for row in grouped.to_pylist():
        is_hourly = row["chunk"] == "hourly"
        is_live = row["kind"] == LIVE
        is_live_day = is_live and not is_hourly
        count = row["count_all"]
        size = row["size_sum"]
        sums = SegmentSums(
            records=row["record_count_sum"] if is_hourly else 0,
            late_records=row["late_count_sum"] if is_hourly else 0,
            record_bytes=row["record_bytes_sum"] if is_hourly else 0,
            segments=count if is_live else 0,
            segment_bytes=size if is_live else 0,
            day_segments=count if is_live_day else 0,
            day_bytes=size if is_live_day else 0,
            merged_bytes=size if row["kind"] == RETIRED else 0,
            expired_records=row["record_count_sum"] if row["kind"] == EXPIRED else 0,
        )
        totals[row["topic"]] = totals.get(row["topic"], SegmentSums()) + sums
    return totals


def _may_meet(bounds: Mapping[str, tuple[Any, Any]], empty: Collection[str], terms: Iterable[Term]) -> bool:
    """Return False if no row within the bounds can meet all terms. `empty` columns are null, and meet no term."""
    return all(
        term.column not in empty and (term.column not in bounds or term.may_hold(*bounds[term.column]))
        for term in terms
    )


@dataclass(frozen=True)
class _Reader:
    """Reads the rows of one file that meet `terms`."""

    table: IndexTable
    part: Part
    terms: tuple[Term, ...]
    columns: Sequence[str] | None

    def read(self, file: DataFile) -> pa.Table:
        """Return the file's rows of the part that meet all terms, from the cache or the store."""
        place = (f"{self.table.store.endpoint_url} {self.table.uri}", file.path)
        rows = _row_cache.find(place)
        if rows is None:
            rows = self._fetch(file)
            if file.is_read_whole:
                _row_cache.put(place, rows)
        return self._select(rows)

    def _select(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the reader's part (state, segments or all) that meet its conditions."""
        if self.part != "all":
            is_segment = pc.is_in(rows.column("kind"), value_set=pa.array(SEGMENT_KINDS))
            rows = rows.filter(is_segment if self.part == "segments" else pc.invert(is_segment))
        return match_rows(rows, self.terms)

    def _fetch(self, file: DataFile) -> pa.Table:
        """Read and decode a file: a small one completely, and only the needed parts of a large one."""
        key = f"{self.table.folder}/{file.path}"
        store = ObjectStore(self.table.store)
        try:
            if file.is_read_whole:
                # Read in this thread, from memory. The threads of a dataset may outlive Python and abort it
                # (apache/arrow 34314).
                content = pa.BufferReader(store.get(key))
                return complete_columns(pq.ParquetFile(content).read(use_threads=False))
            return self._decode_row_groups(pq.ParquetFile(store.open(key)))
        except (NotFoundError, pa.ArrowException, OSError) as err:
            # the store's answer was complete, so the file is broken
            where = f"the index {self.table.uri} at {self.table.store.endpoint_url or 'AWS'}"
            raise IndexDamagedError(f"could not read {file.path} of {where}: {err}. {DAMAGE_ADVICE}") from err

    def _decode_row_groups(self, file: pq.ParquetFile) -> pa.Table:
        """Read only the row groups and columns the terms and the caller need."""
        groups = [n for n in range(file.num_row_groups) if self._may_match_group(file.metadata.row_group(n))]
        names = file.schema_arrow.names
        if self.columns is not None:
            needed_columns = {"kind", *self.columns, *(term.column for term in self.terms)}
            names = [name for name in names if name in needed_columns]
        return complete_columns(file.read_row_groups(groups, columns=names, use_threads=False))

    def _may_match_group(self, group: pq.RowGroupMetaData) -> bool:
        """Return False if the row group's statistics show that no row can meet all terms."""
        bounds = {}
        for number in range(group.num_columns):
            column = group.column(number)
            if column.statistics is not None and column.statistics.has_min_max:
                bounds[column.path_in_schema] = (column.statistics.min, column.statistics.max)
        return _may_meet(bounds, (), self.terms)
