"""Writes data files of an index, replaces some by others in one commit, and reads its log."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from kafka_s3_platform.core.errors import IndexDamagedError
from kafka_s3_platform.core.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.index_commit import NEVER_DELETE
from kafka_s3_platform.core.store.index_reads import DataFile
from kafka_s3_platform.core.store.index_rows import PERIOD
from kafka_s3_platform.core.store.index_table import READS_AT_ONCE, Handle, IndexTable
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore

ROW_GROUP = 8192
"""The number of rows in a row group. A reader skips groups whose bounds of topic and time do not match."""

_STATISTICS = "delta.dataSkippingStatsColumns"
"""The property of a Delta table that names the columns whose bounds are kept."""


@dataclass(frozen=True)
class NewFile:
    """A data file that was written but is in no commit yet. `bounds` are the statistics for Delta's log."""

    path: str
    size: int
    row_count: int
    period: str
    bounds: str


def write_index_files(table: IndexTable, handle: Handle, rows: pa.Table, period: str, size: int) -> Iterator[NewFile]:
    """Write the rows, in order, to new files of about `size` bytes. They count only after a commit names them."""
    bounded_columns = (handle.table.metadata().configuration.get(_STATISTICS) or "").split(",")
    # no ACL: an index's files have none, as delta-rs sets none
    store = ObjectStore(table.store.model_copy(update={"canned_acl": None, "storage_class": None}))
    row = 0
    while row < rows.num_rows:
        content, count = _encode_file(rows.slice(row), size)
        path = f"{PERIOD}={period}/part-00000-{uuid4()}-c000.zstd.parquet"
        store.put_new(f"{table.folder}/{path}", content)
        bounds = _measure_bounds(rows.slice(row, count), bounded_columns)
        yield NewFile(path, len(content), count, period, json.dumps(bounds))
        row += count


def write_swap(table: DeltaTable, added: Sequence[NewFile], removed: Sequence[DataFile], *, same_rows: bool) -> None:
    """Commit new files in place of others. `same_rows` tells readers of Delta's log that the rows are the same."""
    now = int(datetime.now(timezone.utc).timestamp() * 1000)
    changed = not same_rows
    adds = [AddAction(f.path, f.size, {PERIOD: f.period}, now, data_change=changed, stats=f.bounds) for f in added]
    removes = [
        RemoveAction(
            f.path, deletion_timestamp=now, data_change=changed, partition_values={PERIOD: f.period}, size=f.size
        )
        for f in removed
    ]
    table.create_write_transaction(
        [*adds, *removes],
        "append",
        table.schema(),
        partition_by=[PERIOD],
        commit_properties=CommitProperties(max_commit_retries=0),
        post_commithook_properties=NEVER_DELETE,
    )


def _encode_file(rows: pa.Table, size: int) -> tuple[bytes, int]:
    """Encode the first rows as Parquet, until a row group brings it to `size` bytes. Return file and row count."""
    content = io.BytesIO()
    row_count = 0
    with pq.ParquetWriter(content, rows.schema, compression="zstd") as writer:
        while row_count < rows.num_rows and content.tell() < size:
            group = rows.slice(row_count, ROW_GROUP)
            writer.write_table(group, row_group_size=ROW_GROUP)
            row_count += group.num_rows
    return content.getvalue(), row_count


def _measure_bounds(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Return the statistics of a file in the form of Delta's log."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        if name not in rows.column_names:
            continue
        column = rows.column(name)
        nulls[name] = column.null_count
        if column.null_count < len(column):
            bounds = pc.min_max(column).as_py()
            lowest[name] = _write_bound(bounds["min"])
            highest[name] = _write_bound(bounds["max"])
    return {"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _write_bound(value: Any) -> Any:
    """Return a bound for JSON. Times are cut to milliseconds, as Delta's protocol asks."""
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    return value


@dataclass(frozen=True)
class LogListing:
    """The log files in the store's listing, by Delta's version."""

    entries: Mapping[int, ObjectInfo]
    checkpoints: Mapping[int, ObjectInfo]


@dataclass(frozen=True)
class LogEntry:
    """The data files added and removed by the commit of one version; removed ones with their size, 0 if unknown."""

    version: int
    added: frozenset[str]
    removed: Mapping[str, int]


def list_log(table: IndexTable) -> LogListing:
    """List the log. Raises store errors."""
    log = f"{table.folder}/_delta_log/"
    entries: dict[int, ObjectInfo] = {}
    checkpoints: dict[int, ObjectInfo] = {}
    for info in table.objects.list(log):
        number, _, kind = info.key.removeprefix(log).partition(".")
        if number.isdigit() and kind == "json":
            entries[int(number)] = info
        elif number.isdigit() and kind == "checkpoint.parquet":
            checkpoints[int(number)] = info
    return LogListing(entries, checkpoints)


def read_log_entries(table: IndexTable, versions: Sequence[int]) -> Iterator[LogEntry]:
    """Yield the entries of these versions, in this order. Raises IndexDamagedError if one does not exist."""
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="log") as pool:
        yield from pool.map(lambda version: _read_log_entry(table, version), versions)


def _read_log_entry(table: IndexTable, version: int) -> LogEntry:
    """Read which files a version of the Delta log adds, and which it removes, with their sizes in bytes."""
    key = table.name_log_entry(version)
    added: set[str] = set()
    removed: dict[str, int] = {}
    try:
        for line in table.objects.get(key).split(b"\n"):
            action = json.loads(line) if line.strip() else {}
            if "add" in action:
                added.add(str(action["add"]["path"]))
            if "remove" in action:
                removed[str(action["remove"]["path"])] = int(action["remove"].get("size") or 0)
    except (NotFoundError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as err:
        raise IndexDamagedError(
            f"could not read {table.objects.uri(key)}, of an index's log: {err}. {DAMAGE_ADVICE}"
        ) from err
    return LogEntry(version, frozenset(added), removed)
