"""Reads and writes the index of a connector: one Delta table for all of its topics, changed only by compare-and-swap.

All kinds of rows share one schema; the columns a kind does not use are null. A row counts as long as it is present. A
*snapshot* is the index at one version of the table; a *handle* is the open table behind it. A commit uses the handle of
the snapshot it was planned on. The handle is never refreshed, and delta-rs's own retries are off, so a commit is a true
compare-and-swap on the table's version, and its version is known before it is made.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from kafka_s3_platform.core.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.core.errors import IndexConflictError, IndexDamagedError, StoreUnavailableError
from kafka_s3_platform.core.lazy import lazy_property
from kafka_s3_platform.core.model.health import SegmentSums
from kafka_s3_platform.core.model.segment import Fold, Segment, StoredChunk
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import EPOCH, to_epoch_ms
from kafka_s3_platform.core.store.delta_errors import is_expired
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.index_commit import Change, list_predicates, list_topic_rows, retry_commit, write_rows
from kafka_s3_platform.core.store.index_reads import (
    CHUNK_COLUMNS,
    LATE_COLUMNS,
    DataFile,
    Part,
    collect_chunks,
    list_data_files,
    read_rows,
    select_distinct,
    sum_files,
    sum_hours,
)
from kafka_s3_platform.core.store.index_rows import (
    DECODE_ERRORS,
    ERASED,
    EXPIRED,
    FOLDED,
    LIVE,
    PERIOD,
    RETIRED,
    SEGMENT_KINDS,
    TABLE_SCHEMA,
    build_state,
    decode_schema_ids,
    decode_segments,
    drop_future_times,
    encode_rows,
)
from kafka_s3_platform.core.store.index_table import Handle, IndexTable, describe_index, refuse_other_index
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform.core.store.row_filter import (
    EVERY_SEGMENT,
    InRange,
    OneOf,
    SegmentFilter,
    Term,
    match_values,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")

CHECKPOINT_INTERVAL = 10
"""The number of commits between checkpoints. Opening an index takes about 4 ms for each commit after the last one."""

FILTERED_COLUMNS = (
    "kind,chunk,topic,version,committed_at,epoch,kafka_partition,start_offset,end_offset,chunk_start,min_timestamp,"
    "max_timestamp,start_hour"
)
"""The columns in conditions on rows. delta-rs keeps their bounds for each file, and skips files that cannot match."""


CLOCK_TOLERANCE = timedelta(seconds=60)
"""The difference allowed between the clocks of machines that use the index, unless a connector sets another."""


class ConnectorIndex:
    """Opens the index of one connector as snapshots, and creates the empty table if there is none.

    The table is read in full only once. Opening it again reads the newer commits. An earlier snapshot can then only
    finish its reads, and no longer commit.
    """

    def __init__(
        self,
        store: StoreSettings,
        index_dir: str,
        connector: str,
        clock_tolerance: timedelta = CLOCK_TOLERANCE,
    ) -> None:
        self.store = store
        self.index_dir = index_dir
        self.connector = connector
        self.clock_tolerance = clock_tolerance
        self.table = IndexTable(store, f"{index_dir}/connector={connector}")
        self._newest: ConnectorSnapshot | None = None

    @classmethod
    def of(cls, config: ConnectorConfig) -> "ConnectorIndex":
        """Return the connector's index. Opens nothing."""
        tolerance = timedelta(milliseconds=config.archive.clock_tolerance_ms)
        return cls(config.store, config.archive.index_dir, config.name, tolerance)

    @property
    def uri(self) -> str:
        return self.table.uri

    def open(self) -> "ConnectorSnapshot":
        """Return the index as it is now, created if absent. Raises store errors."""
        return self.peek() or self.table.run("create", self._create)

    def peek(self) -> "ConnectorSnapshot | None":
        """Return the index as it is now, or None if there is none. Only reads.

        An index put back from a backup is read anew.
        """
        previous, self._newest = self._newest, None
        try:
            handle = previous.update_handle() if previous else None
            if previous is None or handle is None:
                self._newest = ConnectorSnapshot(self, self.table.open())
            else:
                is_newer = handle.table.version() != previous.version
                self._newest = ConnectorSnapshot(self, handle) if is_newer else previous
        except TableNotFoundError:
            return None
        return self._newest

    def commit_planned(self, plan: "Callable[[ConnectorSnapshot], tuple[Mapping[str, Change], R]]") -> R:
        """Call `plan` with the newest version, and commit the changes it returns, by topic, on that version.

        Returns the result that `plan` returns together with the changes. It plans again if another commit came first,
        but not if an earlier try was committed and only its response was lost. Without changes nothing is committed.
        Raises as `retry_commit` does.
        """
        commit_id = str(uuid4())
        tries: list[tuple[int, R]] = []

        def step(snapshot: ConnectorSnapshot) -> R:
            if tries and snapshot.has_commit(commit_id, since=tries[0][0]):
                return tries[-1][1]
            changes, result = plan(snapshot)
            if changes:
                tries.append((snapshot.version, result))
                snapshot.commit(changes, commit_id)
            return result

        return retry_commit(self, step)

    def check_promises(self) -> None:
        """Check once in a process that the store does conditional writes and reads the newest data (see `promises`)."""
        check_promises(ObjectStore(self.store), self.index_dir)

    def _create(self) -> "ConnectorSnapshot":
        """Create the table by one create-only object. A table another run created meanwhile stays.

        `DeltaTable.create` would give such a table a second first commit, with another id.
        """
        self.check_promises()
        with TemporaryDirectory() as folder:
            DeltaTable.create(
                folder,
                TABLE_SCHEMA,
                partition_by=[PERIOD],
                description=describe_index(self.connector),
                configuration={
                    "delta.dataSkippingStatsColumns": FILTERED_COLUMNS,
                    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                },
            )
            commit = Path(IndexTable(self.store, folder).name_log_entry(0)).read_bytes()
        # delta-rs gives the other files of the index no ACL either
        objects = ObjectStore(self.store.model_copy(update={"canned_acl": None, "storage_class": None}))
        with suppress(PreconditionError):
            objects.put_new(self.table.name_log_entry(0), commit)
        if (snapshot := self.peek()) is None:
            raise StoreUnavailableError(
                f"the index {self.uri} at {self.store.endpoint_url or 'AWS'} was created just now, and the store does "
                f"not list it: its answers are behind. Run again"
            )
        return snapshot


class ConnectorSnapshot:
    """The index of a connector at one version, and the only way to commit on top of it."""

    def __init__(self, index: ConnectorIndex, handle: Handle) -> None:
        self.index = index
        self._handle = handle
        refuse_other_index(index.uri, index.connector, handle.table)
        self.version: int = handle.table.version()
        # answers of this version, each read at most once
        self._rows: dict[str, pa.Table] = {}
        self._topics: dict[str, IndexSnapshot] = {}
        self._segments: dict[tuple[str, frozenset[str], SegmentFilter], pa.Table] = {}
        self._spans: dict[tuple[datetime, datetime], Mapping[str, Collection[tuple[int, int]]]] = {}
        self._chunks: dict[tuple[frozenset[str], SegmentFilter], Mapping[str, frozenset[StoredChunk]]] = {}
        self._out_of_range: tuple[datetime, pa.Table] | None = None
        self._hours: dict[datetime, Mapping[str, Mapping[datetime, tuple[int, int]]]] = {}

    @property
    def handle(self) -> Handle:
        """The table at this version, which is opened again if the provider has other credentials now.

        It is opened at the same version, so a commit remains a compare-and-swap on that version.
        """
        if self.index.table.options != self._handle.options:
            with self._translate_expiry():
                self._handle = self.index.table.open(self._handle.table.version())
        return self._handle

    @property
    def table_id(self) -> str:
        """The id of the Delta table. An earlier table at the same place had another id."""
        return str(self.handle.table.metadata().id)

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp((self.handle.table.metadata().created_time or 0) / 1000, timezone.utc)

    def topic(self, topic: str) -> "IndexSnapshot":
        """Return the snapshot of one topic at this version. Its state is built only once."""
        if topic not in self._topics:
            self._topics[topic] = IndexSnapshot(TopicIndex(self.index, topic), self)
        return self._topics[topic]

    @lazy_property
    def topics(self) -> tuple[str, ...]:
        """The topics with rows in this version, in order."""
        rows = self._read("state", (), ("topic",))
        return tuple(sorted(set(rows.column("topic").to_pylist())))

    def load_states(self, topics: Iterable[str]) -> None:
        """Read and cache the rows (without segments) of many topics, in one pass, for their states."""
        missing = sorted(set(topics) - set(self._rows))
        if not missing:
            return
        self._rows |= self.read_states(missing)

    def read_states(self, topics: Sequence[str]) -> Mapping[str, pa.Table]:
        """Return the rows of many topics, without segments. They are not cached. Raises store errors."""
        return _split_by_topic(self._read("state", [OneOf("topic", frozenset(topics))]), topics)

    def read_state_rows(self, topic: str) -> pa.Table:
        """Return the topic's rows, without segments. Raises store errors."""
        self.load_states([topic])
        return self._rows[topic]

    def read_segment_rows(self, topic: str, kinds: Collection[str], segment_filter: SegmentFilter) -> pa.Table:
        """Return the topic's rows of segments of these kinds that match the filter. Raises store errors."""
        key = (topic, frozenset(kinds), segment_filter)
        if key not in self._segments:
            self._segments[key] = self._read(
                "segments", [*match_values(topic=topic), OneOf("kind", key[1]), *segment_filter.list_terms()]
            )
        return self._segments[key]

    def load_segments(self, topics: Iterable[str], segment_filter: SegmentFilter) -> None:
        """Read and cache, in one pass, many topics' live segments that match the filter, for `read_segment_rows`."""
        kinds = frozenset([LIVE])
        missing = sorted({topic for topic in topics if (topic, kinds, segment_filter) not in self._segments})
        if not missing:
            return
        terms = [OneOf("topic", frozenset(missing)), OneOf("kind", kinds), *segment_filter.list_terms()]
        for topic, rows in _split_by_topic(self._read("segments", terms), missing).items():
            self._segments[topic, kinds, segment_filter] = rows

    def read_out_of_range(self, since: datetime) -> pa.Table:
        """Return the rows of all topics' live segments that have out-of-range timestamps, from start hour `since` on.

        The rows are cached. If an earlier call had an earlier `since`, all of its rows are returned.
        """
        if self._out_of_range is None or since < self._out_of_range[0]:
            terms = [*match_values(kind="segment"), InRange("start_hour", since)]
            self._out_of_range = since, self._read("segments", terms)
        return self._out_of_range[1]

    def list_spans_out_of_range(self, topic: str, start: datetime, end: datetime) -> frozenset[tuple[int, int]]:
        """Return the first and last timestamps (epoch ms) of live out-of-range segments, if in [start, end) in part.

        They are read for all topics at once.
        """
        if (start, end) not in self._spans:
            terms = [
                *match_values(kind=LIVE),
                # only segments of records out of range have a start hour
                InRange("start_hour", EPOCH),
                InRange("min_timestamp", end=to_epoch_ms(end)),
                InRange("max_timestamp", to_epoch_ms(start)),
            ]
            spans: dict[str, set[tuple[int, int]]] = defaultdict(set)
            columns = ("topic", "min_timestamp", "max_timestamp")
            for row in select_distinct(self._read("segments", terms, columns), columns).to_pylist():
                spans[row["topic"]].add((row["min_timestamp"], row["max_timestamp"]))
            self._spans[start, end] = spans
        return frozenset(self._spans[start, end].get(topic, ()))

    def list_chunks(self, topic: str, kinds: Collection[str], segment_filter: SegmentFilter) -> frozenset[StoredChunk]:
        """Return the hours or days of the segments that match the filter. They are read for all topics at once."""
        key = (frozenset(kinds), segment_filter)
        if key not in self._chunks:
            columns = ("topic", *CHUNK_COLUMNS)
            rows = self._read("segments", [OneOf("kind", frozenset(kinds)), *segment_filter.list_terms()], columns)
            self._chunks[key] = collect_chunks(select_distinct(rows, columns))
        return self._chunks[key].get(topic, frozenset())

    def count_hours(self, topic: str, since: datetime) -> Mapping[datetime, tuple[int, int]]:
        """Return, by hour from `since` on, the number of records and how many came late. Empty hours are left out."""
        if since not in self._hours:
            kinds = OneOf("kind", frozenset(SEGMENT_KINDS))
            terms = [kinds, *match_values(chunk="hourly"), InRange("chunk_start", since)]
            rows = self._read("segments", terms, ("topic", "chunk_start", *LATE_COLUMNS))
            self._hours[since] = sum_hours(rows)
        return self._hours[since].get(topic, {})

    @lazy_property
    def segment_sums(self) -> Mapping[str, SegmentSums]:
        """The sums of each topic's segments, for pages and metrics. Files summed before are not read again."""
        with self._translate_expiry():
            return sum_files(self.index.table, self._files)

    def list_folders(self, topic: str) -> frozenset[str]:
        """Return the folders of all segments of the topic. Raises store errors."""
        rows = self._read("segments", match_values(topic=topic), ("encoded_partition",))
        return frozenset(pc.unique(rows.column(0)).to_pylist())

    def list_schema_ids(self, topic: str) -> frozenset[int | str]:
        """Return the schema ids of all live segments of the topic. Few lists differ. Raises store errors."""
        rows = self._read("segments", match_values(topic=topic, kind=LIVE), ("schema_ids",))
        return frozenset(chain.from_iterable(map(decode_schema_ids, pc.unique(rows.column(0)).to_pylist())))

    def has_rows(self, topic: str) -> bool:
        """Return True if the index has any row of the topic. The few state rows are read before segment rows."""
        return bool(self.read_state_rows(topic).num_rows) or bool(self.read_all_rows(topic).num_rows)

    def has_commit(self, commit_id: str, since: int) -> bool:
        """Return True if a commit with this id was made on version `since` or later.

        A run asks this after it lost the answer to a commit. The upkeep may have moved (folded) the commit's rows by
        then.
        """
        terms = [InRange("version", since + 1), *match_values(commit_id=commit_id)]
        return bool(self._read("all", terms, ("commit_id",)).num_rows)

    def read_folded_rows(self, topic: str, month: str | None = None) -> pa.Table:
        """Return the topic's folded rows of a month (`2026-03`), or of all. Raises store errors."""
        period = f"{FOLDED}{month or ''}"
        files = [file for file in self._files if file.period.startswith(period)]
        with self._translate_expiry():
            return read_rows(self.index.table, files, "all", match_values(topic=topic))

    def read_all_rows(self, topic: str) -> pa.Table:
        """Return every row of the topic. Raises store errors."""
        return self._read("all", match_values(topic=topic))

    def _read(self, part: Part, terms: Sequence[Term], columns: Sequence[str] | None = None) -> pa.Table:
        """Read rows of this version, cached by file (see `read_rows`)."""
        with self._translate_expiry():
            return read_rows(self.index.table, self._files, part, terms, columns)

    @contextmanager
    def _translate_expiry(self) -> Iterator[None]:
        """Raise IndexConflictError, not IndexDamagedError, if this version's files are missing but the log has gone on.

        Either the upkeep removed the files when they were old enough, or the log was put back from a copy. Opening the
        index again helps.
        """
        try:
            yield
        except (IndexDamagedError, TableNotFoundError) as err:
            if self.index.table.is_newest(self._handle):
                raise
            raise IndexConflictError(
                f"{self.index.uri}: files of version {self.version} are not there any more. The log has gone on, and "
                f"the upkeep removes files of older versions; or it was put back from a copy. Read the index again"
            ) from err

    @lazy_property
    def _files(self) -> tuple[DataFile, ...]:
        """The files of this version, listed only once because an old archive has thousands."""
        handle = self.handle
        if handle.table.version() != self.version:
            raise IndexConflictError(f"{self.index.uri}: version {self.version} was opened again before it was read")
        return list_data_files(self.index.table, handle)

    def update_handle(self) -> Handle | None:
        """Bring the table to its newest version by reading the difference. Return None if it has to be opened anew.

        It has to be if it is another table by now, or if the provider has other credentials.
        """
        table = self.index.table
        return table.update(self._handle) if table.options == self._handle.options else None

    def commit(self, changes: Mapping[str, Change], commit_id: str | None = None) -> int:
        """Apply the change of each topic in one commit, if the index is still at this version. Return the new version.

        Raises IndexConflictError if another commit came first. It is also raised if the commit succeeded and only its
        response was lost, in which case the newest index has its `commit_id`.
        """
        version = self.version + 1
        common = {
            "version": version,
            "commit_id": commit_id or str(uuid4()),
            "committed_at": datetime.now(timezone.utc),
        }
        rows = encode_rows([list_topic_rows(topic, change) for topic, change in changes.items()], common)
        predicates = [p for topic, change in changes.items() for p in list_predicates(topic, change)]
        self.commit_by(lambda table: write_rows(table, rows, predicates, version))
        return version

    def commit_by(self, write: Callable[[DeltaTable], None]) -> None:
        """Make `write` commit to the table on top of this version. Raise IndexConflictError if another was first."""
        handle = self.handle
        if handle.table.version() != self.version:
            raise IndexConflictError(
                f"{self.index.uri}: this snapshot of version {self.version} was committed on before"
            )
        self.index.check_promises()
        try:
            with self._translate_expiry():
                self.index.table.run("commit to", lambda: write(handle.table))
        except StoreUnavailableError as err:
            if isinstance(err.__cause__, CommitFailedError) or is_expired(err.__cause__):
                raise IndexConflictError(
                    f"{self.index.uri}: version {self.version + 1} was committed by another run"
                ) from err
            raise
        # The upkeep removes old entries of the log, the oldest first. The store would accept a commit in the place of a
        # removed one.
        next_handle = self.index.table.follow_commit(handle)
        if next_handle is None:
            raise IndexConflictError(
                f"{self.index.uri}: version {self.version + 1} was committed so late that the log has version "
                f"{self.version} no more: it has gone on without it, or was put back from a copy"
            )
        self._handle = next_handle


class TopicIndex:
    """The part of a connector's index for one topic."""

    def __init__(self, within_connector: ConnectorIndex, topic: str) -> None:
        self.within_connector = within_connector
        self.topic = topic

    @classmethod
    def of(cls, config: ConnectorConfig, topic: str) -> "TopicIndex":
        """Return the topic's part of the connector's index. Opens nothing."""
        return cls(ConnectorIndex.of(config), topic)

    @property
    def uri(self) -> str:
        return self.within_connector.uri

    def open(self) -> "IndexSnapshot":
        """Return the index as it is now, created if absent. Raises store errors."""
        return self.within_connector.open().topic(self.topic)

    def peek(self) -> "IndexSnapshot | None":
        """Return the index as it is now, or None if it has nothing of the topic yet. Only reads."""
        connector = self.within_connector.peek()
        snapshot = connector.topic(self.topic) if connector else None
        return None if snapshot is None or snapshot.is_empty else snapshot


class IndexSnapshot:
    """The part of one version of a connector's index for one topic."""

    def __init__(self, index: TopicIndex, connector_snapshot: ConnectorSnapshot) -> None:
        self.index = index
        self.connector_snapshot = connector_snapshot
        self.version: int = connector_snapshot.version
        self._months: dict[str, IndexState] = {}
        self._out_of_range: tuple[datetime, tuple[Segment, ...]] | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing was ever recorded about the topic."""
        return not self.connector_snapshot.has_rows(self.index.topic)

    @lazy_property
    def state(self) -> IndexState:
        """The topic's rows except segments. Folded (moved) old rows are read when first asked for."""
        return self.build_state(self.connector_snapshot.read_state_rows(self.index.topic))

    def build_state(self, rows: pa.Table) -> IndexState:
        """Build the state from these rows of the topic. Raises IndexDamagedError if they are not ours."""
        with self._translate_decode_errors():
            latest = datetime.now(timezone.utc) + self.index.within_connector.clock_tolerance
            past_rows = drop_future_times(rows, latest)
            state = build_state(self.version, past_rows)
        return replace(state, read_month=self._read_month, list_out_of_range=self._list_out_of_range)

    @lazy_property
    def unfolded_state(self) -> IndexState:
        """The state with every single row, for commands that compare them all. It grows with the age of the archive."""
        if not self.state.fold.hours:
            return self.state
        folded = self.build_state(self.connector_snapshot.read_folded_rows(self.index.topic))
        return replace(
            self.state,
            scans=(*folded.scans, *self.state.scans),
            frontiers=(*folded.frontiers, *self.state.frontiers),
            hours=(*folded.hours, *self.state.hours),
            fold=Fold(),
        )

    def _list_out_of_range(self, hour: datetime) -> tuple[Segment, ...]:
        """Return the segments with out-of-range timestamps, from start hour `hour` on. The state calls this."""
        if self._out_of_range is None or hour < self._out_of_range[0]:
            # by days, so that a search back through hours rarely asks
            since = hour.astimezone(timezone.utc).replace(hour=0, minute=0)
            with self._translate_decode_errors():
                rows = self.connector_snapshot.read_out_of_range(since)
                topic_rows = rows.filter(pc.equal(rows.column("topic"), self.index.topic))
                self._out_of_range = since, tuple(decode_segments(topic_rows))
        return self._out_of_range[1]

    def _read_month(self, month: str) -> IndexState:
        """Return the state of a month's folded rows. The state calls this when it is asked about an old hour."""
        if month not in self._months:
            self._months[month] = self.build_state(self.connector_snapshot.read_folded_rows(self.index.topic, month))
        return self._months[month]

    @lazy_property
    def segments(self) -> tuple[Segment, ...]:
        """All live segments by kafka partition and first offset. Their number grows with the age of the archive."""
        return self.select_segments(EVERY_SEGMENT)

    @lazy_property
    def retired(self) -> tuple[Segment, ...]:
        """The segments whose records are all in a live one. Their objects stay until retention removes them."""
        return self.select_segments(EVERY_SEGMENT, [RETIRED])

    @lazy_property
    def expired(self) -> tuple[Segment, ...]:
        """The hourly segments whose records a rule of retention has removed from the archive."""
        return self.select_segments(EVERY_SEGMENT, [EXPIRED])

    @lazy_property
    def erased(self) -> tuple[Segment, ...]:
        """The numbers of the records erased by request, with one row for each segment that had some."""
        return self.select_segments(EVERY_SEGMENT, [ERASED])

    def select_segments(self, segment_filter: SegmentFilter, kinds: Collection[str] = (LIVE,)) -> tuple[Segment, ...]:
        """Return segments of these kinds that match the filter, by kafka partition and first offset. Read no others."""
        with self._translate_decode_errors():
            rows = self.connector_snapshot.read_segment_rows(self.index.topic, kinds, segment_filter)
            rows = rows.sort_by([("kafka_partition", "ascending"), ("start_offset", "ascending")])
            return tuple(decode_segments(rows))

    def list_spans_out_of_range(self, start: datetime, end: datetime) -> frozenset[tuple[int, int]]:
        """Return the first and last timestamps (epoch ms) of live out-of-range segments, if in [start, end) in part."""
        return self.connector_snapshot.list_spans_out_of_range(self.index.topic, start, end)

    def list_chunks(self, segment_filter: SegmentFilter, kinds: Collection[str] = (LIVE,)) -> frozenset[StoredChunk]:
        """Return the hours or days of segments of these kinds that match the filter."""
        return self.connector_snapshot.list_chunks(self.index.topic, kinds, segment_filter)

    def count_hours(self, since: datetime) -> Mapping[datetime, tuple[int, int]]:
        """Count the records of each hour from `since` on, compacted ones too, and the late ones among them."""
        return self.connector_snapshot.count_hours(self.index.topic, since)

    def list_folders(self) -> frozenset[str]:
        """Return the folders of all hourly and daily segments, retired ones too, below the topic's."""
        return self.connector_snapshot.list_folders(self.index.topic)

    def list_schema_ids(self) -> frozenset[int | str]:
        """Return the schema ids of all live segments."""
        with self._translate_decode_errors():
            return self.connector_snapshot.list_schema_ids(self.index.topic)

    @contextmanager
    def _translate_decode_errors(self) -> Iterator[None]:
        """Report rows this platform does not write as damage, and not as a Python error."""
        try:
            yield
        except DECODE_ERRORS as err:
            raise IndexDamagedError(
                f"the index {self.index.uri} has rows of topic {self.index.topic} that nothing of ours writes "
                f"({type(err).__name__}: {str(err)[:200]}), and is not read. Find out who wrote to that folder, and "
                f"put it back from the bucket's versions or a backup"
            ) from err

    @property
    def index_id(self) -> str:
        """The id in the metadata of this topic's objects: the id of the table."""
        return self.connector_snapshot.table_id

    @property
    def created_at(self) -> datetime:
        """The time of the index's creation. No object of its runs is older."""
        return self.connector_snapshot.created_at

    def commit(self, change: Change, commit_id: str | None = None) -> int:
        """Commit the topic's change on this version of the index. Return the new version. Raises IndexConflictError."""
        return self.connector_snapshot.commit({self.index.topic: change}, commit_id)


def _split_by_topic(rows: pa.Table, topics: Sequence[str]) -> dict[str, pa.Table]:
    """Return the rows of each topic, perhaps none. All `rows` are of these `topics`."""
    rows = rows.sort_by("topic")
    runs = pc.run_end_encode(rows.column("topic").combine_chunks())
    tables = {topic: rows.slice(0, 0) for topic in topics}
    begin = 0
    for topic, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        tables[topic] = rows.slice(begin, end - begin)
        begin = end
    return tables


def collect_object_keys(segments: Iterable[Segment]) -> frozenset[str]:
    """Return the keys of all objects of `segments`."""
    return frozenset(key for s in segments for key in s.keys)
