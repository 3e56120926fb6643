"""The upkeep of a connector's index: fold old rows, merge files, write a checkpoint, remove expired files.

Each step is a commit or a removal of its own, and changes no answer of the index. If an upkeep is killed at any moment,
the next one goes on. Runs may archive meanwhile. Their commits win, and the upkeep reads the index again.

Entries and checkpoints of the index's log expire, and so do dead data files. A version stays readable if it was the
newest one at any time within the last `retention`, by the store's own times. The newest checkpoint not later than the
oldest readable version is the *base*. These files are removed, in this order:

1. Data files taken out by the base's commit or an earlier one, and not named by any version from the base on.
2. The entries before the base, the oldest first.
3. The checkpoints before the base.

So the log shows the remaining work. It is read once, so the cost does not grow with the age of the index. If an upkeep
is killed, the next one goes on, because an entry is removed after its files. Files without an entry in the log are
never touched. Before anything is removed, the base is compared with the entries it replaces.

A *fold* keeps the facts for planning in the state, and moves the old rows themselves to periods (folders) of months. A
row of `folded-2026-03` is the same row as before, but it is read only for hours of March 2026. So a tick, a plan and a
commit cost the same in the fifth year as in the first month.

Before the files are swapped in one commit, the numbers of rows read and written are compared, and so are each topic's
answers before and after. If a run commits meanwhile, the same files are committed on top of its version, and its new
rows are read beside the fold. If the run removed rows, the fold is left to the next upkeep.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import AuthorizationError, IndexDamagedError, StoreUnavailableError
from kafka_s3_platform.core.model.fold import Folding, fold_state
from kafka_s3_platform.core.model.segment import FoldedFrontier, FoldedHours, FoldedScan, find_folded_month
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_files import (
    LogEntry,
    LogListing,
    NewFile,
    list_log,
    read_log_entries,
    write_index_files,
)
from kafka_s3_platform.core.store.index_reads import WHOLE_FILE_BYTES, list_data_files
from kafka_s3_platform.core.store.index_rows import FOLDED, INDEX_SCHEMA, KINDS, STATE_PERIOD, TopicRows, encode_rows
from kafka_s3_platform.core.store.index_table import IndexTable
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.upkeep.index_merge import MONTH_FILE_BYTES, MergeReport, merge_files, sort_rows, swap_files

logger = logging.getLogger(__name__)

YOUNG = timedelta(days=2)
"""Younger observations stay as they are: hours archived late are planned by them, and runs may be at work."""

FOLD_ROWS = 1_000_000
"""Approximate number of rows to read at once."""

MOST_ROWS = 2_000_000
"""Number of moved rows after which the other topics wait for the next upkeep.

So the first fold of an old index takes some minutes in each of several nights.
"""

_FOLD_KINDS = [kind for kind, cls in KINDS.items() if cls in (FoldedScan, FoldedFrontier, FoldedHours)]

KEPT = timedelta(days=7)
"""Time that a version stays readable after it was the newest one: longer than any run, restore or sensor holds one.

It is not a setting. A reader of an older version gets an error, which goes away when the index is opened again.
"""

DELETES_AT_ONCE = 16

_DATA_FILE = re.compile(r"period=[A-Za-z0-9-]+/part-[A-Za-z0-9.-]+\.parquet")
"""Names of data files that delta-rs and the upkeep write. Nothing else is deleted as a data file."""


@dataclass(frozen=True)
class FoldReport:
    """Numbers of topics and hours folded, and of rows moved, or on a dry run to be folded and moved.

    `is_overtaken` is True if a run changed the state meanwhile, so nothing was folded. The next upkeep folds it.
    """

    topics: int = 0
    hours: int = 0
    rows: int = 0
    is_overtaken: bool = False


def fold_index(index: ConnectorIndex, lateness: timedelta, now: datetime, dry_run: bool) -> FoldReport:
    """Move the old rows of all topics to files of months, in one commit. The module's text explains folds.

    Raises store errors; a second call does the rest.
    """
    snapshot = index.open()
    files = [f for f in list_data_files(index.table, snapshot.handle) if f.period == STATE_PERIOD]
    folder = _TopicFolder(snapshot, lateness, now)
    new_files: list[NewFile] = []
    row_count = 0
    for topics in _group_topics(snapshot.topics, sum(file.row_count for file in files)):
        for topic, rows in snapshot.read_states(topics).items():
            row_count += rows.num_rows
            folder.add(topic, rows)
        if not dry_run:
            new_files += _write_months(index, snapshot, folder.take_moved())
    report = FoldReport(folder.topics, folder.hours, folder.rows)
    if row_count != sum(file.row_count for file in files):
        raise IndexDamagedError(
            f"{index.uri}: the state of its topics has {row_count:,} rows, and its log has "
            f"{sum(file.row_count for file in files):,}. Nothing was folded. {DAMAGE_ADVICE}"
        )
    if dry_run or not folder.topics:
        return report
    remaining = sort_rows(pa.concat_tables(folder.state_rows))
    new_files += write_index_files(index.table, snapshot.handle, remaining, STATE_PERIOD, WHOLE_FILE_BYTES)
    new_row_count = sum(file.row_count for file in new_files)
    if new_row_count != row_count + folder.more:
        raise IndexDamagedError(
            f"{index.uri}: {new_row_count:,} rows were written in place of {row_count + folder.more:,}. Nothing was "
            f"folded, and the index is as it was. This is a defect of the platform: report it"
        )
    if swap_files(index, new_files, files, same_rows=False):
        return report
    logger.info("%s: a run changed the state meanwhile; it is folded another time", index.uri)
    return FoldReport(is_overtaken=True)


@dataclass
class _TopicFolder:
    """Splits the rows of topic after topic into rows that stay in the state, and rows to move to months.

    The new folds have `more` rows than the folds they replace.
    """

    snapshot: ConnectorSnapshot
    lateness: timedelta
    now: datetime
    state_rows: list[pa.Table] = field(default_factory=list)
    topics: int = 0
    hours: int = 0
    rows: int = 0
    more: int = 0
    _moved: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))

    def add(self, topic: str, rows: pa.Table) -> None:
        """Fold the rows of one topic.

        They stay as they are if they are damaged, if there is little to fold, or once MOST_ROWS rows have been moved.
        """
        state = None if self.rows >= MOST_ROWS else self._build_state(topic, rows)
        folding = None if state is None else fold_state(state, self.lateness, self.now - YOUNG)
        if state is None or folding is None:
            self.state_rows.append(rows)
            return
        is_moved = _match_folded_rows(rows, folding)
        is_fold = pc.is_in(rows["kind"], value_set=pa.array(_FOLD_KINDS))
        self.state_rows.append(rows.filter(pc.invert(pc.or_(is_moved, is_fold))))
        fold = _encode_fold(topic, folding, self.snapshot.version + 1, self.now)
        self.state_rows.append(fold)
        self.more += fold.num_rows - pc.sum(is_fold.cast(pa.int64())).as_py()
        moved = rows.filter(is_moved)
        months = _find_row_months(moved, state)
        for month in pc.unique(months).to_pylist():
            self._moved[month].append(moved.filter(pc.equal(months, month)))
        self.topics += 1
        self.hours += len(folding.hours)
        self.rows += moved.num_rows

    def take_moved(self) -> Mapping[str, Sequence[pa.Table]]:
        """Return the moved rows by month, and forget them."""
        moved = self._moved
        self._moved = defaultdict(list)
        return moved

    def _build_state(self, topic: str, rows: pa.Table) -> IndexState | None:
        """Return the topic's state, or None if its rows are damaged. The other topics are folded all the same."""
        try:
            # through the snapshot, so that folded months are read if an answer needs them
            return self.snapshot.topic(topic).build_state(rows)
        except IndexDamagedError as err:
            logger.warning("topic %s is not folded: %s", topic, err)
            return None


def _group_topics(topics: Sequence[str], row_count: int) -> Iterator[Sequence[str]]:
    """Yield the topics in groups of about FOLD_ROWS rows, which are held in memory."""
    size = max(1, len(topics) * FOLD_ROWS // max(1, row_count))
    for start in range(0, len(topics), size):
        yield topics[start : start + size]


def _match_folded_rows(rows: pa.Table, folding: Folding) -> pa.Array:
    """Mark the rows the folding replaces, by the rules of `Folding` for the objects made of these rows."""
    ends = pa.table(
        {
            "kafka_partition": pa.array(folding.ends.keys(), pa.int32()),
            "end": pa.array(folding.ends.values(), pa.int64()),
        }
    )
    ends_index = pc.index_in(rows["kafka_partition"], value_set=ends["kafka_partition"].combine_chunks())
    is_scan = pc.and_(pc.equal(rows["kind"], "scan"), pc.less_equal(rows["end_offset"], ends["end"].take(ends_index)))
    is_frontier = pc.and_(
        pc.equal(rows["kind"], "frontier"),
        pc.less_equal(rows["observed_at"], pa.scalar(folding.observed_at, rows.schema.field("observed_at").type)),
    )
    hours = pa.array(sorted(folding.hours), rows.schema.field("hour").type)
    is_hour = pc.and_(pc.equal(rows["kind"], "hour"), pc.is_in(rows["hour"], value_set=hours))
    masks = [pc.fill_null(mask, fill_value=False) for mask in (is_scan, is_frontier, is_hour)]
    return pc.or_(pc.or_(masks[0], masks[1]), masks[2])


def _find_row_months(rows: pa.Table, state: IndexState) -> pa.Array:
    """Return the month (such as `2026-03`) to which each row moves.

    For an hour it is the hour's month. For a scan it is the month of the scan's hour, or of its commit if the hour is
    unknown. For a frontier it is the month in which it was observed.
    """
    is_scan = pc.equal(rows["kind"], "scan").combine_chunks()
    times = pc.coalesce(rows["hour"], rows["observed_at"], rows["committed_at"]).combine_chunks()
    months = pc.strftime(times, format="%Y-%m")
    scan_columns = (
        rows.filter(is_scan)[name].to_pylist() for name in ("kafka_partition", "start_offset", "committed_at")
    )
    scan_months = [
        find_folded_month(state.hour_of(p, start) or committed_at)
        for p, start, committed_at in zip(*scan_columns, strict=True)
    ]
    return pc.replace_with_mask(months, is_scan, pa.array(scan_months, pa.string()))


def _encode_fold(topic: str, folding: Folding, version: int, now: datetime) -> pa.Table:
    """Encode the rows that replace a topic's folded rows, as rows of version `version`."""
    fold = folding.fold
    rows = TopicRows(topic, (*fold.scans, *fold.frontiers, *fold.hours), {}, "upkeep")
    common = {"version": version, "commit_id": str(uuid4()), "committed_at": now}
    return encode_rows([rows], common).select(INDEX_SCHEMA.names)


def _write_months(
    index: ConnectorIndex, snapshot: ConnectorSnapshot, moved: Mapping[str, Sequence[pa.Table]]
) -> Iterator[NewFile]:
    """Write the moved rows to data files, one period for each month. No commit names them yet."""
    for month, tables in sorted(moved.items()):
        rows = sort_rows(pa.concat_tables(tables))
        yield from write_index_files(index.table, snapshot.handle, rows, f"{FOLDED}{month}", MONTH_FILE_BYTES)


@dataclass(frozen=True)
class CleanupReport:
    """Result of a cleanup or, on a dry run, its plan: the numbers of data files and log files, and their bytes.

    `base` is the oldest version readable afterwards, or None if nothing is old enough.
    """

    base: int | None = None
    files: int = 0
    file_bytes: int = 0
    log_entries: int = 0
    checkpoints: int = 0
    log_bytes: int = 0


@dataclass(frozen=True)
class _CleanupPlan:
    base: int
    dead: Mapping[str, int]
    entries: tuple[ObjectInfo, ...]
    checkpoints: tuple[ObjectInfo, ...]


def remove_expired(index: ConnectorIndex, retention: timedelta, dry_run: bool) -> CleanupReport:
    """Remove the files needed only by versions that were replaced longer than `retention` ago.

    Raises:
        AuthorizationError: the right to delete is missing; the message names it.
        IndexDamagedError: the checkpoint to be kept does not agree with the log. Nothing was removed.
    """
    plan = _plan_cleanup(index.table, retention)
    if plan is None:
        return CleanupReport()
    sizes = list(plan.dead.values()) if dry_run else _remove_files(index.table, plan)
    log_files = (*plan.entries, *plan.checkpoints)
    return CleanupReport(
        base=plan.base,
        files=len(sizes),
        file_bytes=sum(sizes),
        log_entries=len(plan.entries),
        checkpoints=len(plan.checkpoints),
        log_bytes=sum(info.size for info in log_files),
    )


def _plan_cleanup(table: IndexTable, retention: timedelta) -> _CleanupPlan | None:
    """Find log entries older than `retention`, and data files no later version needs.

    Return None if no entry can be removed.
    """
    newest = table.open().table.version()
    log = list_log(table)
    # the earlier of two clocks, so that less counts as old if one of them is ahead
    base = _find_base(log, newest, table.objects.clock.earlier_now() - retention)
    expired = sorted(version for version in log.entries if base is not None and version < base)
    if base is None or not expired:
        return None
    old_entries = list(read_log_entries(table, [*expired, base]))
    young_entries = read_log_entries(table, range(base + 1, max(log.entries) + 1))
    live = frozenset(file.path for file in list_data_files(table, table.open(base)))
    _compare_base(table, log, old_entries, live)
    needed = live.union(*(entry.added for entry in young_entries))
    dead_files: dict[str, int] = {}
    for entry in old_entries:
        dead_files |= {path: size for path, size in entry.removed.items() if path not in needed}
    foreign_paths = sorted(path for path in dead_files if not _DATA_FILE.fullmatch(path))
    if foreign_paths:
        raise IndexDamagedError(
            f"the log of the index {table.uri} names {foreign_paths[0]!r} as one of its data files. Nothing of ours "
            f"writes such a name, and nothing was removed: find out who wrote to that folder"
        )
    checkpoints = tuple(log.checkpoints[version] for version in sorted(log.checkpoints) if version < base)
    return _CleanupPlan(base, dead_files, tuple(log.entries[version] for version in expired), checkpoints)


def _find_base(log: LogListing, newest: int, limit: datetime) -> int | None:
    """Return the newest checkpoint not later than the oldest version to keep readable, or None."""
    if newest not in log.entries:
        raise StoreUnavailableError(
            f"the store does not list the entry of version {newest} of an index's log, which it has: its answers are "
            f"behind. Run again"
        )
    # a version was the newest one until the next one was written
    young = [version for version, info in log.entries.items() if info.last_modified > limit]
    oldest = min(young, default=newest + 1) - 1
    return max((version for version in log.checkpoints if version <= oldest), default=None)


def _compare_base(table: IndexTable, log: LogListing, entries: Sequence[LogEntry], live: Collection[str]) -> None:
    """Compare the files of the base with the result of the entries before it, as far back as there are entries.

    A killed upkeep may have left only some of the entries, but its own base was compared before.
    """
    base = entries[-1].version
    versions = {entry.version for entry in entries}
    start = base
    while start - 1 in versions:
        start -= 1
    if start == 0:
        files = set[str]()
    else:
        checkpoints = [version for version in log.checkpoints if start - 1 <= version <= base]
        start = min(checkpoints) + 1
        files = {file.path for file in list_data_files(table, table.open(start - 1))}
    for entry in entries:
        if entry.version >= start:
            files = (files - set(entry.removed)) | entry.added
    if files != set(live):
        raise IndexDamagedError(
            f"the checkpoint of version {base} of the index {table.uri} names {len(live)} files, and its log "
            f"{len(files)}, and they are not the same. Nothing was removed. This is a defect of the platform or of its "
            f"library: keep the index's folder as it is, and report it"
        )


def _remove_files(table: IndexTable, plan: _CleanupPlan) -> list[int]:
    """Remove everything in the plan. Return the sizes of the data files that still existed."""
    try:
        with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="delete") as pool:
            infos = list(pool.map(lambda path: table.objects.head(f"{table.folder}/{path}"), plan.dead))
            present = [info for info in infos if info is not None]
            list(pool.map(lambda info: _delete_object(table, info), present))
        # One after the other: a commit on a version without an entry is refused, so no younger entry may go before it.
        for info in (*plan.entries, *plan.checkpoints):
            _delete_object(table, info)
    except AuthorizationError as err:
        raise err.retell(
            f"{err.text}. Only the removal of dead files needs the right s3:DeleteObject on {table.folder}/*; all "
            f"other steps of the upkeep are done. The policy is in docs/iam.md, under Upkeep"
        ) from err
    return [info.size for info in present]


def _delete_object(table: IndexTable, info: ObjectInfo) -> None:
    """Delete a file of the index if it is still the listed one. Raise IndexDamagedError if it was replaced since."""
    try:
        table.objects.delete(info.key, info.etag)
    except PreconditionError as err:
        raise IndexDamagedError(
            f"{table.objects.uri(info.key)} was replaced while the upkeep looked at it. Files of an index never "
            f"change: find out who wrote to that folder. {err}"
        ) from err


@dataclass(frozen=True)
class UpkeepReport:
    """Result of each step or, on a dry run, its plan.

    `version` is the index's version afterwards, or None if nothing was archived yet. `checkpoint` is True if a
    checkpoint was written. `refused` names the right missing for the removal. All other steps are done even then.
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
    """Do all steps of the upkeep. A dry run only reports them, and changes nothing.

    Versions stay readable for `retention` after they were the newest. Raises store errors; a second call does the
    rest.
    """
    index = ConnectorIndex.of(config)
    if index.peek() is None:
        return UpkeepReport(index.uri, dry_run)
    # both the store's clock and this machine's decide about ages
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
    """Write a checkpoint of the newest version if there is none. Return True if one was missing."""
    handle = index.table.open()
    if handle.table.version() in list_log(index.table).checkpoints:
        return False
    if not dry_run:
        index.table.run("write a checkpoint of", handle.table.create_checkpoint)
    return True
