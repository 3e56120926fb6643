"""Merge the small files of an index: files of many commits, and files of old days into files of months.

The files lie in folders called *periods*, such as a day, a month, or the state of topics. Only periods with something
to merge are touched, so the cost does not grow with the age of the index. A merge writes the same rows to new files,
sorted by topic, and replaces the old files in one commit. It changes no answer of the index. If a run commits
meanwhile, the same new files are committed on top of its version, as long as all old files are still live. Otherwise
the merge is left to the next upkeep.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby

import pyarrow as pa

from kafka_s3_platform.core.errors import IndexDamagedError
from kafka_s3_platform.core.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_commit import retry_commit
from kafka_s3_platform.core.store.index_files import NewFile, write_index_files, write_swap
from kafka_s3_platform.core.store.index_reads import WHOLE_FILE_BYTES, DataFile, list_data_files, read_rows
from kafka_s3_platform.core.store.index_rows import STATE_PERIOD, find_month

logger = logging.getLogger(__name__)

FEWEST = 4
"""Number of small files in a period that make merging them worth a commit."""

OLD_AFTER = timedelta(days=60)
"""Time from the end of a month until it is merged. Until then its days are merged again, so their files stay small."""

MONTH_FILE_BYTES = 32 * 2**20
"""The size of files of months. Files of days are small enough to be read at once."""

MERGE_ROWS = 200_000
"""Number of rows to merge at once, because they are held in memory."""

_ORDER = ("topic", "chunk_start", "kafka_partition", "start_offset")


def swap_files(
    index: ConnectorIndex, added: Sequence[NewFile], removed: Sequence[DataFile], *, same_rows: bool
) -> bool:
    """Replace data files of the index by new ones, in one commit on the newest version.

    Return False, and change nothing, if another commit has removed one of the old files. `same_rows` is True if the new
    files hold the same rows as the old ones. Raises store errors.
    """
    old_paths = {file.path for file in removed}
    new_paths = {file.path for file in added}

    def step(snapshot: ConnectorSnapshot) -> bool:
        live = {file.path for file in list_data_files(index.table, snapshot.handle)}
        if new_paths <= live:
            return True  # the response of an earlier try was lost
        if not old_paths <= live:
            return False
        snapshot.commit_by(lambda table: write_swap(table, added, removed, same_rows=same_rows))
        return True

    return retry_commit(index, step)


@dataclass(frozen=True)
class FileMerge:
    """Files to merge into new files of `period`."""

    period: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class MergeReport:
    """Result of a merge of these periods: numbers of files before and after, and the new bytes.

    `overtaken` periods were changed by a run meanwhile. They are merged another time.
    """

    periods: tuple[str, ...] = ()
    files: int = 0
    new_files: int = 0
    new_bytes: int = 0
    overtaken: tuple[str, ...] = ()


def merge_files(index: ConnectorIndex, today: date, dry_run: bool) -> MergeReport:
    """Merge the small files, one commit for each group of files. Raises store errors; a second call does the rest."""
    snapshot = index.open()
    merges = list(list_merges(list_data_files(index.table, snapshot.handle), today))
    finished: list[FileMerge] = []
    overtaken: list[str] = []
    new_files = 0
    new_bytes = 0
    for merge in merges:
        sizes = () if dry_run else _merge_period(index, merge)
        if sizes is None:
            overtaken.append(merge.period)
            continue
        finished.append(merge)
        new_files += len(sizes)
        new_bytes += sum(sizes)
    return MergeReport(
        periods=tuple(dict.fromkeys(merge.period for merge in finished)),
        files=sum(len(merge.files) for merge in finished),
        new_files=new_files,
        new_bytes=new_bytes,
        overtaken=tuple(overtaken),
    )


def list_merges(files: Iterable[DataFile], today: date) -> Iterator[FileMerge]:
    """Yield the merges to do. Files of sufficient size in the right period are left as they are."""
    placements = sorted((_find_target(file.period, today), file.period, file.path, file) for file in files)
    for period, group in groupby(placements, key=lambda placement: placement[0]):
        small_files = [file for *_, file in group if file.period != period or file.size < _choose_size(period) // 2]
        for batch in _group_files(small_files):
            if len(batch) >= FEWEST or any(file.period != period for file in batch):
                yield FileMerge(period, batch)


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return the rows in the order of merged files, so a reader of one topic skips the others."""
    return rows.sort_by([(name, "ascending") for name in _ORDER])


def _find_target(period: str, today: date) -> str:
    """Return the period to which rows of `period` belong today: the same, or its month if the month is old."""
    month = find_month(period)
    if month is None:
        return period
    # the first day of the month after it
    next_month = (date.fromisoformat(f"{month[-7:]}-01") + timedelta(days=31)).replace(day=1)
    return month if next_month + OLD_AFTER <= today else period


def _choose_size(period: str) -> int:
    is_small = period == STATE_PERIOD or find_month(period) is not None
    return WHOLE_FILE_BYTES if is_small else MONTH_FILE_BYTES


def _group_files(files: Iterable[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Yield the files in groups of at most MERGE_ROWS rows, to be held in memory. A larger file is alone."""
    group: list[DataFile] = []
    rows = 0
    for file in files:
        if group and rows + file.row_count > MERGE_ROWS:
            yield tuple(group)
            group = []
            rows = 0
        group.append(file)
        rows += file.row_count
    if group:
        yield tuple(group)


def _merge_period(index: ConnectorIndex, merge: FileMerge) -> tuple[int, ...] | None:
    """Merge the files in one commit. Return the sizes of the new ones, or None if a run changed the period."""
    snapshot = index.open()
    rows = read_rows(index.table, merge.files, "all")
    if rows.num_rows != sum(file.row_count for file in merge.files):
        raise IndexDamagedError(
            f"{index.uri}: the files of period {merge.period} have {rows.num_rows} rows, and its log has "
            f"{sum(file.row_count for file in merge.files)}. They were not merged. {DAMAGE_ADVICE}"
        )
    size = _choose_size(merge.period)
    added = tuple(write_index_files(index.table, snapshot.handle, sort_rows(rows), merge.period, size))
    if swap_files(index, added, merge.files, same_rows=True):
        return tuple(file.size for file in added)
    logger.info("%s: period %s was changed by a run meanwhile; it is merged another time", index.uri, merge.period)
    return None
