"""Lists the log of an index's Delta table: its entries, its checkpoints, and the data files in the entries."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kafka_s3_platform.errors import IndexDamagedError
from kafka_s3_platform.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.store.delta_log import READS_AT_ONCE
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.index_table import IndexTable
from kafka_s3_platform.store.objects import ObjectInfo


@dataclass(frozen=True)
class LogListing:
    """The log files in the store's listing, by version. Versions are Delta's."""

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
    """Yield the entries of these versions, in this order. Raises IndexDamagedError if one is not there."""
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="log") as pool:
        yield from pool.map(lambda version: _read_log_entry(table, version), versions)


def _read_log_entry(table: IndexTable, version: int) -> LogEntry:
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
