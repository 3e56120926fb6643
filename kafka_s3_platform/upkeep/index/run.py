"""The upkeep of a connector's index: fold old rows, merge files, write a checkpoint, remove expired files.

Each step is a commit or a removal of its own, without a change to any answer of the index. Killed at any moment, the
next upkeep goes on. Runs may archive meanwhile: their commits win, and the upkeep reads the index again.

Expired are entries and checkpoints of the index's log, and dead data files. A version stays readable if it was the
newest one at any time within the last `retention`, by the store's own times. The newest checkpoint that is not later
than the oldest of them is the *base*. Removed are, in this order:

1. Data files taken out by the base's commit or an earlier one, and named by no version from the base on.
2. The entries before the base, the oldest first.
3. The checkpoints before the base.

So the log shows the remaining work, and it is read once: the cost does not grow with the age of the index. Killed
at any moment, the next upkeep goes on, because an entry goes after its files. Files without an entry in the log are
never touched. Before anything goes, the base is compared with the entries that it replaces.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import AuthorizationError, IndexDamagedError, StoreUnavailableError
from kafka_s3_platform.store.errors import PreconditionError
from kafka_s3_platform.store.index import ConnectorIndex
from kafka_s3_platform.store.index_files import LogEntry, LogListing, list_index_files, list_log, read_log_entries
from kafka_s3_platform.store.index_table import IndexTable
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.upkeep.index.fold import FoldReport, fold_index
from kafka_s3_platform.upkeep.index.merge import MergeReport, merge_files

logger = logging.getLogger(__name__)

KEPT = timedelta(days=7)
"""Time that a version stays readable after it was the newest one: longer than any run, restore or sensor holds one.

It is no setting. A reader of an older version gets an error, and no more of it when the index is opened again.
"""

DELETES_AT_ONCE = 16

_DATA_FILE = re.compile(r"period=[A-Za-z0-9-]+/part-[A-Za-z0-9.-]+\.parquet")
"""Names of data files of delta-rs and the upkeep. Nothing else is deleted as one."""


@dataclass(frozen=True)
class CleanupReport:
    """Result of a cleanup, or on a dry run its plan: data files and log files, and their bytes.

    `base` is the oldest version that can be opened afterwards. None: nothing is old enough.
    """

    base: int | None = None
    files: int = 0
    file_bytes: int = 0
    log_entries: int = 0
    checkpoints: int = 0
    log_bytes: int = 0


@dataclass(frozen=True)
class _Plan:
    base: int
    dead: Mapping[str, int]
    entries: tuple[ObjectInfo, ...]
    checkpoints: tuple[ObjectInfo, ...]


def remove_expired(index: ConnectorIndex, retention: timedelta, dry_run: bool) -> CleanupReport:
    """Remove files needed only by versions that were replaced longer than `retention` ago.

    Raises:
        AuthorizationError: the right to delete is missing; the message names it.
        IndexDamagedError: the checkpoint to be kept does not agree with the log. Nothing was removed.
    """
    plan = _plan(index.table, retention)
    if plan is None:
        return CleanupReport()
    sizes = list(plan.dead.values()) if dry_run else _remove(index.table, plan)
    log_files = (*plan.entries, *plan.checkpoints)
    return CleanupReport(
        base=plan.base,
        files=len(sizes),
        file_bytes=sum(sizes),
        log_entries=len(plan.entries),
        checkpoints=len(plan.checkpoints),
        log_bytes=sum(info.size for info in log_files),
    )


def _plan(table: IndexTable, retention: timedelta) -> _Plan | None:
    newest = table.open().table.version()
    log = list_log(table)
    # the earlier of two clocks: if one is ahead, less is old
    base = _find_base(log, newest, table.objects.clock.earlier_now() - retention)
    expired = sorted(version for version in log.entries if base is not None and version < base)
    if base is None or not expired:
        return None
    old = list(read_log_entries(table, [*expired, base]))
    young = read_log_entries(table, range(base + 1, max(log.entries) + 1))
    live = frozenset(file.path for file in list_index_files(table, table.open(base)))
    _compare_base(table, log, old, live)
    needed = live.union(*(entry.added for entry in young))
    dead: dict[str, int] = {}
    for entry in old:
        dead |= {path: size for path, size in entry.removed.items() if path not in needed}
    strange = sorted(path for path in dead if not _DATA_FILE.fullmatch(path))
    if strange:
        raise IndexDamagedError(
            f"the log of the index {table.uri} names {strange[0]!r} as one of its data files. Nothing of ours "
            f"writes such a name, and nothing was removed: find out who wrote to that folder"
        )
    checkpoints = tuple(log.checkpoints[version] for version in sorted(log.checkpoints) if version < base)
    return _Plan(base, dead, tuple(log.entries[version] for version in expired), checkpoints)


def _find_base(log: LogListing, newest: int, before: datetime) -> int | None:
    """Return the newest checkpoint not later than the oldest version to keep readable."""
    if newest not in log.entries:
        raise StoreUnavailableError(
            f"the store does not list the entry of version {newest} of an index's log, which it has: its answers are "
            f"behind. Run again"
        )
    # a version was the newest one until the next one was written
    young = [version for version, info in log.entries.items() if info.last_modified > before]
    oldest = min(young, default=newest + 1) - 1
    return max((version for version in log.checkpoints if version <= oldest), default=None)


def _compare_base(table: IndexTable, log: LogListing, entries: Sequence[LogEntry], live: Collection[str]) -> None:
    """Compare the files of the base with the result of the entries before it, as far back as they are there.

    A killed upkeep may have left a part of the entries. Its own base was compared before.
    """
    base = entries[-1].version
    listed = {entry.version for entry in entries}
    start = base
    while start - 1 in listed:
        start -= 1
    if start == 0:
        files = set[str]()
    else:
        checkpoints = [version for version in log.checkpoints if start - 1 <= version <= base]
        start = min(checkpoints) + 1
        files = {file.path for file in list_index_files(table, table.open(start - 1))}
    for entry in entries:
        if entry.version >= start:
            files = (files - set(entry.removed)) | entry.added
    if files != set(live):
        raise IndexDamagedError(
            f"the checkpoint of version {base} of the index {table.uri} names {len(live)} files, and its log "
            f"{len(files)}, and they are not the same. Nothing was removed. This is a defect of the platform or of its "
            f"library: keep the index's folder as it is, and report it"
        )


def _remove(table: IndexTable, plan: _Plan) -> list[int]:
    """Remove everything in the plan. Return the sizes of the data files that still existed."""
    try:
        with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="delete") as pool:
            sizes = list(pool.map(lambda path: _delete_data_file(table, path), plan.dead))
        # One after the other: a commit on a version without an entry is refused, so no younger entry may go before it.
        for info in (*plan.entries, *plan.checkpoints):
            _delete(table, info)
    except AuthorizationError as err:
        raise err.retell(
            f"{err.text}. Only the removal of dead files needs the right s3:DeleteObject on {table.folder}/*; all "
            f"other steps of the upkeep are done. The policy is in docs/iam.md, under Upkeep"
        ) from err
    return [size for size in sizes if size is not None]


def _delete_data_file(table: IndexTable, path: str) -> int | None:
    info = table.objects.head(f"{table.folder}/{path}")
    if info is None:
        return None
    _delete(table, info)
    return info.size


def _delete(table: IndexTable, info: ObjectInfo) -> None:
    try:
        table.objects.delete(info.key, info.etag)
    except PreconditionError as err:
        raise IndexDamagedError(
            f"{table.objects.uri(info.key)} was replaced while the upkeep looked at it. Files of an index never "
            f"change: find out who wrote to that folder. {err}"
        ) from err


@dataclass(frozen=True)
class UpkeepReport:
    """Result of each step, or on a dry run its plan.

    `version` is the index's afterwards, None if nothing was archived yet; `checkpoint` is True if one was written.
    `refused` names the right that the removal lacks: all other steps are done.
    """

    uri: str
    dry_run: bool
    version: int | None = None
    fold: FoldReport = field(default_factory=FoldReport)
    merge: MergeReport = field(default_factory=MergeReport)
    checkpoint: bool = False
    cleanup: CleanupReport = field(default_factory=CleanupReport)
    refused: str | None = None

    def raise_refusal(self) -> None:
        """Raise AuthorizationError if the right to delete was missing."""
        if self.refused is not None:
            raise AuthorizationError(self.refused)


def keep_up_index(config: ConnectorConfig, dry_run: bool, retention: timedelta = KEPT) -> UpkeepReport:
    """Do all steps. A dry run reports them, and changes nothing.

    Versions stay readable for `retention` after they were the newest. Raises store errors; a second call does the
    rest.
    """
    index = ConnectorIndex.of(config)
    if index.peek() is None:
        return UpkeepReport(index.uri, dry_run)
    # ages are decided by times of the store and of this machine
    refuse_wrong_clock(config, ObjectStore(config.store))
    now = datetime.now(timezone.utc)
    fold = fold_index(index, timedelta(milliseconds=config.archive.allowed_lateness_ms), now, dry_run)
    merge = merge_files(index, now.date(), dry_run)
    checkpoint = _write_checkpoint(index, dry_run)
    cleanup = CleanupReport()
    refused = None
    try:
        cleanup = remove_expired(index, retention, dry_run)
    except AuthorizationError as err:
        refused = str(err)
    return UpkeepReport(index.uri, dry_run, index.open().version, fold, merge, checkpoint, cleanup, refused)


def _write_checkpoint(index: ConnectorIndex, dry_run: bool) -> bool:
    """Write a checkpoint of the newest version if there is none. Return whether one was missing."""
    handle = index.table.open()
    if handle.table.version() in list_log(index.table).checkpoints:
        return False
    if not dry_run:
        index.table.run("write a checkpoint of", handle.table.create_checkpoint)
    return True
