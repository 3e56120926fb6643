"""Fold the index: facts for planning stay in the state, old rows themselves go to periods of months.

A row of `folded-2026-03` is the same row as before. It is read only for hours of that month. So a tick, a plan and a
commit cost the same in the fifth year as in the first month.

The numbers of read and written rows are compared, and each topic's answers before and after, before the files are
swapped in one commit.
If a run commits meanwhile, the same files are committed on its version: its new rows are read beside the fold. If it
removed rows, the fold is left for the next upkeep.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IndexDamagedError
from kafka_s3_platform.model.fold import Folding, fold_state
from kafka_s3_platform.model.segment import FoldedHours, FoldedLook, FoldedScan, find_folded_month
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.delta_errors import DAMAGE_ADVICE
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.store.index_files import NewFile, list_index_files, write_index_files
from kafka_s3_platform.store.index_reads import WHOLE_FILE_BYTES
from kafka_s3_platform.store.index_rows import FOLDED, INDEX_SCHEMA, KINDS, STATE_PERIOD, TopicRows, encode_rows
from kafka_s3_platform.upkeep.index.merge import MONTH_FILE_BYTES, sort_rows, swap_files

logger = logging.getLogger(__name__)

YOUNG = timedelta(days=2)
"""Looks of this age stay as they are: late archived hours are planned by them, and runs may be at work."""

FOLD_ROWS = 1_000_000
"""Number of rows to read at once, about."""

MOST_ROWS = 2_000_000
"""Number of moved rows after which the other topics wait for the next upkeep.

So the first fold of an old index takes some minutes in each of several nights.
"""

_FOLD_KINDS = [kind for kind, cls in KINDS.items() if cls in (FoldedScan, FoldedLook, FoldedHours)]


@dataclass(frozen=True)
class FoldReport:
    """Folded hours and topics, and moved rows, or on a dry run those to fold.

    `is_overtaken`: a run changed the state meanwhile, so nothing was folded. The next upkeep does it.
    """

    topics: int = 0
    hours: int = 0
    rows: int = 0
    is_overtaken: bool = False


def fold_index(index: ConnectorIndex, lateness: timedelta, now: datetime, dry_run: bool) -> FoldReport:
    """Fold all topics in one commit. Raises store errors; a second call does the rest."""
    snapshot = index.open()
    files = [f for f in list_index_files(index.table, snapshot.handle) if f.period == STATE_PERIOD]
    folded = _Folded(snapshot, lateness, now)
    written: list[NewFile] = []
    row_count = 0
    for topics in _group_topics(snapshot.topics, sum(file.row_count for file in files)):
        for topic, rows in snapshot.read_states(topics).items():
            row_count += rows.num_rows
            folded.add(topic, rows)
        if not dry_run:
            written += _write_months(index, snapshot, folded.take_moved())
    report = FoldReport(folded.topics, folded.hours, folded.rows)
    if row_count != sum(file.row_count for file in files):
        raise IndexDamagedError(
            f"{index.uri}: the state of its topics has {row_count:,} rows, and its log has "
            f"{sum(file.row_count for file in files):,}. Nothing was folded. {DAMAGE_ADVICE}"
        )
    if dry_run or not folded.topics:
        return report
    remaining = sort_rows(pa.concat_tables(folded.state_rows))
    written += write_index_files(index.table, snapshot.handle, remaining, STATE_PERIOD, WHOLE_FILE_BYTES)
    written_count = sum(file.row_count for file in written)
    if written_count != row_count + folded.more:
        raise IndexDamagedError(
            f"{index.uri}: {written_count:,} rows were written in place of {row_count + folded.more:,}. Nothing was "
            f"folded, and the index is as it was. This is a defect of the platform: report it"
        )
    if swap_files(index, written, files, same_rows=False):
        return report
    logger.info("%s: a run changed the state meanwhile; it is folded another time", index.uri)
    return FoldReport(is_overtaken=True)


@dataclass
class _Folded:
    """Rows that stay in the state, and moved rows, of the topics so far.

    Folds make up `more` rows than before.
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
        """Take the rows of one topic apart."""
        state = None if self.rows >= MOST_ROWS else self._build_state(topic, rows)
        folding = None if state is None else fold_state(state, self.lateness, self.now - YOUNG)
        if state is None or folding is None:
            self.state_rows.append(rows)
            return
        is_moved = _match_moved(rows, folding)
        is_fold = pc.is_in(rows["kind"], value_set=pa.array(_FOLD_KINDS))
        self.state_rows.append(rows.filter(pc.invert(pc.or_(is_moved, is_fold))))
        fold = _encode_fold(topic, folding, self.snapshot.version + 1, self.now)
        self.state_rows.append(fold)
        self.more += fold.num_rows - pc.sum(is_fold.cast(pa.int64())).as_py()
        moved = rows.filter(is_moved)
        months = _list_months(moved, state)
        for month in pc.unique(months).to_pylist():
            self._moved[month].append(moved.filter(pc.equal(months, month)))
        self.topics += 1
        self.hours += len(folding.hours)
        self.rows += moved.num_rows

    def take_moved(self) -> Mapping[str, Sequence[pa.Table]]:
        """Return the moved rows by month, once."""
        moved = self._moved
        self._moved = defaultdict(list)
        return moved

    def _build_state(self, topic: str, rows: pa.Table) -> IndexState | None:
        """Return the topic's state, None if its rows are damaged: the other topics are folded all the same."""
        try:
            # through the snapshot, so that folded months are read if an answer needs them
            return self.snapshot.topic(topic).build_state(rows)
        except IndexDamagedError as err:
            logger.warning("topic %s is not folded: %s", topic, err)
            return None


def _group_topics(topics: Sequence[str], row_count: int) -> Iterator[Sequence[str]]:
    """Yield the topics in groups of about FOLD_ROWS rows: these are held in memory."""
    size = max(1, len(topics) * FOLD_ROWS // max(1, row_count))
    for start in range(0, len(topics), size):
        yield topics[start : start + size]


def _match_moved(rows: pa.Table, folding: Folding) -> pa.Array:
    """Mark the rows that the folding replaces, by the rules of `Folding` for the objects made of them."""
    ends = pa.table(
        {
            "kafka_partition": pa.array(folding.ends.keys(), pa.int32()),
            "end": pa.array(folding.ends.values(), pa.int64()),
        }
    )
    at = pc.index_in(rows["kafka_partition"], value_set=ends["kafka_partition"].combine_chunks())
    is_scan = pc.and_(pc.equal(rows["kind"], "scan"), pc.less_equal(rows["end_offset"], ends["end"].take(at)))
    is_look = pc.and_(
        pc.equal(rows["kind"], "frontier"),
        pc.less_equal(rows["observed_at"], pa.scalar(folding.looked_at, rows.schema.field("observed_at").type)),
    )
    hours = pa.array(sorted(folding.hours), rows.schema.field("hour").type)
    is_hour = pc.and_(pc.equal(rows["kind"], "hour"), pc.is_in(rows["hour"], value_set=hours))
    masks = [pc.fill_null(mask, fill_value=False) for mask in (is_scan, is_look, is_hour)]
    return pc.or_(pc.or_(masks[0], masks[1]), masks[2])


def _list_months(rows: pa.Table, state: IndexState) -> pa.Array:
    """Return the month of each moved row: its hour's, or the time's of a look."""
    is_scan = pc.equal(rows["kind"], "scan").combine_chunks()
    at = pc.coalesce(rows["hour"], rows["observed_at"], rows["committed_at"]).combine_chunks()
    months = pc.strftime(at, format="%Y-%m")
    places = (rows.filter(is_scan)[name].to_pylist() for name in ("kafka_partition", "start_offset", "committed_at"))
    scanned = [find_folded_month(state.hour_of(p, start) or at) for p, start, at in zip(*places, strict=True)]
    return pc.replace_with_mask(months, is_scan, pa.array(scanned, pa.string()))


def _encode_fold(topic: str, folding: Folding, version: int, now: datetime) -> pa.Table:
    fold = folding.fold
    rows = TopicRows(topic, (*fold.scans, *fold.looks, *fold.hours), (), "upkeep")
    common = {"version": version, "commit_id": str(uuid4()), "committed_at": now}
    return encode_rows([rows], common).select(INDEX_SCHEMA.names)


def _write_months(
    index: ConnectorIndex, snapshot: ConnectorSnapshot, moved: Mapping[str, Sequence[pa.Table]]
) -> Iterator[NewFile]:
    for month, tables in sorted(moved.items()):
        rows = sort_rows(pa.concat_tables(tables))
        yield from write_index_files(index.table, snapshot.handle, rows, f"{FOLDED}{month}", MONTH_FILE_BYTES)
