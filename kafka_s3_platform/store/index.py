"""Read and write the index: one Delta table for each connector and topic, changed only by compare-and-swap.

All kinds of rows share one schema; columns that a kind lacks are null. A row counts as long as it is present.

A commit uses the table handle from which its plan was made. The handle is never refreshed, and delta-rs's own retries
are off. So a commit is a true compare-and-swap on the table version, and its version is known before it is made.
"""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kafka_s3_platform.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.errors import IndexConflictError, IndexDamagedError, PlatformError, StoreUnavailableError
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.delta_errors import classify_delta_error
from kafka_s3_platform.store.delta_log import refuse_deletion_vectors
from kafka_s3_platform.store.delta_options import build_delta_options
from kafka_s3_platform.store.index_rows import (
    DECODE_ERRORS,
    INDEX_SCHEMA,
    RETIRED,
    STATE_KINDS,
    IndexRow,
    build_state,
    complete_columns,
    decode_gap,
    decode_segment,
    encode_rows,
)
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.predicates import RowPredicate, match_any, match_segments, match_version, select_kinds
from kafka_s3_platform.store.promises import check_promises
from kafka_s3_platform.store.sound import Judged, judge_rows

logger = logging.getLogger(__name__)

R = TypeVar("R")

OPTIMIZE_EVERY = 100
"""Versions after which the small files of commits are merged: see `IndexSnapshot._keep_up`."""

MAX_CONFLICTS = 20
MAX_LOST = 3
"""How often a step is tried: while other commits come first, and if the store does not answer."""

_told: set[tuple[str, int]] = set()
"""Indexes whose bad rows this process has reported, and the numbers of these rows."""

_OWN_FILE = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[A-Za-z0-9_.=+-]+(?:/[A-Za-z0-9_.=+-]+)*")
"""A path of a file below the table's folder, in characters that need no decoding."""

_NEVER_DELETE = PostCommitHookProperties(cleanup_expired_logs=False)
"""The run path has no right to delete, not even log files that expired."""


@dataclass(frozen=True)
class Change:
    """What one commit adds and removes.

    `removed` are predicates over rows; `retired` segments leave the live set and stay known as retired.
    """

    added: tuple[IndexRow, ...] = ()
    retired: tuple[Segment, ...] = ()
    removed: tuple[RowPredicate, ...] = ()
    run_id: str = ""

    @property
    def predicates(self) -> tuple[RowPredicate, ...]:
        if not self.retired:
            return self.removed
        return (*self.removed, match_segments(s.key for s in self.retired))


class TopicIndex:
    """Opens the index of one connector and topic. Creates the empty table if there is none."""

    def __init__(self, store: StoreSettings, index_dir: str, connector: str, topic: str) -> None:
        self.store = store
        self.index_dir = index_dir
        self.connector = connector
        self.topic = topic
        self.uri = f"s3://{store.bucket}/{index_dir}/{connector}/{topic}"

    @classmethod
    def of(cls, config: ConnectorConfig, topic: str) -> "TopicIndex":
        """Return the index that the connector keeps of the topic. Opens nothing."""
        return cls(config.store, config.archive.index_dir, config.name, topic)

    def exists(self) -> bool:
        options = self.options
        return self.run("look for", lambda: DeltaTable.is_deltatable(self.uri, options))

    def open(self) -> "IndexSnapshot":
        """Return the index as it is now, created if absent. Raises store errors."""
        return self.peek() or self.run("create", self._create)

    def peek(self) -> "IndexSnapshot | None":
        """Return the index as it is now, None if nothing was archived yet. Only reads."""
        try:
            return IndexSnapshot(self, self.handle())
        except TableNotFoundError:
            return None

    def handle(self, version: int | None = None) -> "Handle":
        """Return the table as it is now, or as it was at `version`."""
        options = self.options
        table = self.run("open", lambda: DeltaTable(self.uri, version=version, storage_options=options))
        self._refuse_strange_files(self.run("read", lambda: pa.table(table.get_add_actions(flatten=True))))
        folder = f"{self.index_dir}/{self.connector}/{self.topic}"
        at = table.version()
        self.run("read", lambda: refuse_deletion_vectors(ObjectStore(self.store), folder, at))
        return Handle(table, options)

    def _refuse_strange_files(self, files: pa.Table) -> None:
        """Refuse paths out of the index's folder: delta-rs follows them, also to this machine's files (`file:///`)."""
        for path in files.column("path").to_pylist():
            if not _OWN_FILE.fullmatch(path):
                raise IndexDamagedError(
                    f"the index {self.uri} names {path!r} as one of its files, which is none in its folder, and is not "
                    f"read. Nothing of ours writes such a path: find out who wrote to that folder, and put its "
                    f"_delta_log back from the bucket's versions or a backup"
                )

    def check_promises(self) -> None:
        """Check once in a process the promises that commits rely on. Raises the errors of `promises.check_promises`."""
        check_promises(ObjectStore(self.store), self.index_dir)

    def _create(self) -> "IndexSnapshot":
        self.check_promises()
        try:
            DeltaTable.create(self.uri, INDEX_SCHEMA, mode="ignore", storage_options=self.options)
            return IndexSnapshot(self, self.handle())
        except TableNotFoundError as err:
            raise StoreUnavailableError(
                f"the index {self.uri} at {self.store.endpoint_url or 'AWS'} was created just now, and the store does "
                f"not list it: its answers are behind. Run again"
            ) from err

    def run(self, verb: str, call: Callable[[], R]) -> R:
        """Return `call()`. Raise errors of delta-rs and Arrow as store errors that name the index."""
        try:
            return call()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as err:
            attempt = f"could not {verb} the index {self.uri} at {self.store.endpoint_url or 'AWS'}"
            raise classify_delta_error(attempt, err) from err

    @property
    def options(self) -> dict[str, str]:
        """delta-rs's options with the credentials that are valid now, secrets included."""
        return build_delta_options(self.store)


@dataclass(frozen=True)
class Handle:
    """An open table, and the options that it was opened with. delta-rs keeps them, so their credentials may expire."""

    table: DeltaTable
    options: Mapping[str, str] = dataclasses.field(repr=False)


class IndexSnapshot:
    """The index at one version, and the only way to commit on top of it."""

    def __init__(self, index: TopicIndex, handle: Handle) -> None:
        self.index = index
        self._handle = handle
        self.version: int = handle.table.version()

    @property
    def _table(self) -> DeltaTable:
        """The table at this version. It is opened again if the provider has other credentials now.

        It is opened at the same version, so that a commit remains a compare-and-swap on it.
        """
        if self.index.options != self._handle.options:
            self._handle = self.index.handle(self._handle.table.version())
        return self._handle.table

    @cached_property
    def state(self) -> IndexState:
        """Everything but the segments."""
        with self._made_of_rows():
            return build_state(self.version, self._judged.sound)

    def judged(self, written_at: Mapping[int, datetime] | None = None) -> Judged:
        """Return all rows except segments, with those that cannot be trusted marked.

        `written_at` (version -> time) are the times at which the store wrote versions, as far as they are known.
        """
        with self._made_of_rows():
            return judge_rows(self._read(list(STATE_KINDS)), datetime.now(timezone.utc), written_at)

    @cached_property
    def _judged(self) -> Judged:
        found = self.judged()
        told = (self.index.uri, found.bad.num_rows)
        if found.bad.num_rows and told not in _told:
            _told.add(told)
            logger.warning(
                "%s: %d rows say what cannot be and are ignored; hours that were complete by them are open again. "
                "`kafka-s3 repair-index %s --topic %s` lists them",
                *told,
                self.index.connector,
                self.index.topic,
            )
        return found

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Live segments by kafka partition and first offset."""
        with self._made_of_rows():
            rows = self._read(["segment"]).sort_by([("kafka_partition", "ascending"), ("start_offset", "ascending")])
            return tuple(decode_segment(row) for row in rows.to_pylist())

    @cached_property
    def retired(self) -> tuple[Segment, ...]:
        """Segments whose records a live one holds. Their objects are kept until a retention rule removes them."""
        with self._made_of_rows():
            return tuple(decode_segment(row) for row in self._read([RETIRED]).to_pylist())

    @contextmanager
    def _made_of_rows(self) -> Iterator[None]:
        """Report rows that this platform cannot have written as damage, not as a Python error."""
        try:
            yield
        except DECODE_ERRORS as err:
            raise IndexDamagedError(
                f"the index {self.index.uri} has rows that nothing of ours writes ({type(err).__name__}: "
                f"{str(err)[:200]}), and is not read. Find out who wrote to that folder, and put it back from the "
                f"bucket's versions or a backup"
            ) from err

    @property
    def index_id(self) -> str:
        """The id of this table. An earlier table at the same place had another id."""
        return str(self._table.metadata().id)

    @property
    def created_at(self) -> datetime:
        """When the index was created: no object of its runs is older."""
        return datetime.fromtimestamp((self._table.metadata().created_time or 0) / 1000, timezone.utc)

    def gaps_by_hour(self) -> list[tuple[datetime | None, Gap]]:
        """Return each gap with the hour in which a run found it, or None if it belongs to no hour."""
        rows = self._judged.sound.filter(pc.equal(self._judged.sound["kind"], "gap"))
        return [(row["chunk_start"], decode_gap(row)) for row in rows.to_pylist()]

    def commit(
        self, change: Change, commit_id: str | None = None, gap_hours: Mapping[Gap, datetime] | None = None
    ) -> int:
        """Apply `change` if the index is still at this version. Return the new version.

        Raises IndexConflictError if another commit came first. It is raised also if the commit succeeded and only its
        response was lost: then the newest index has its `commit_id`.
        """
        if self._table.version() != self.version:
            raise IndexConflictError(
                f"{self.index.uri}: this snapshot of version {self.version} was committed on before"
            )
        self.index.check_promises()
        version = self.version + 1
        common = {
            "version": version,
            "commit_id": commit_id or str(uuid4()),
            "committed_at": datetime.now(timezone.utc),
            "run_id": change.run_id,
        }
        table = encode_rows(change.added, change.retired, common, gap_hours or {})
        try:
            self.index.run("commit to", lambda: self._write(table, change.predicates, version))
        except StoreUnavailableError as err:
            if isinstance(err.__cause__, CommitFailedError):
                raise IndexConflictError(f"{self.index.uri}: version {version} was committed by another run") from err
            raise
        self._keep_up(version)
        return version

    def _write(self, table: pa.Table, predicates: Sequence[RowPredicate], version: int) -> None:
        once = CommitProperties(max_commit_retries=0)
        if not predicates:
            write_deltalake(
                self._table,
                table,
                mode="append",
                schema_mode="merge",
                commit_properties=once,
                post_commithook_properties=_NEVER_DELETE,
            )
            return
        # delta-rs refuses new rows that do not match the predicate: `version` matches them and no other row
        where = match_any([*predicates, match_version(version)])
        write_deltalake(
            self._table,
            table,
            mode="overwrite",
            schema_mode="merge",
            predicate=where,
            commit_properties=once,
            post_commithook_properties=_NEVER_DELETE,
        )

    def _keep_up(self, version: int) -> None:
        """Merge the small files of many commits: 400 take 0.9 s to read, and 0.04 s after it. Try later if it fails."""
        if version % OPTIMIZE_EVERY:
            return
        try:
            table = self.index.handle().table
            table.optimize.compact(
                commit_properties=CommitProperties(max_commit_retries=0), post_commithook_properties=_NEVER_DELETE
            )
            table.create_checkpoint()
        except (DeltaError, OSError, PlatformError) as err:
            logger.warning("%s: not optimized at version %d, tried again later: %s", self.index.uri, version, err)

    def _read(self, kinds: Sequence[str]) -> pa.Table:
        return complete_columns(self.index.run("read", lambda: self._selected(kinds)))

    def _selected(self, kinds: Sequence[str]) -> pa.Table:
        """Read by DataFusion: the threads of an Arrow dataset may outlive Python and abort it (apache/arrow 34314)."""
        found = QueryBuilder().register("rows", self._table).execute(select_kinds(kinds))
        # PyArrow reads it, as it lets other Python threads run meanwhile
        return pa.RecordBatchReader.from_stream(found).read_all()


def retry_commit(index: TopicIndex, step: Callable[[IndexSnapshot], R]) -> R:
    """Call `step`, which commits on the snapshot. Call it again on a newer snapshot if another commit came first.

    A step has to check whether its own earlier try is in the index: perhaps only the response was lost. Raises
    IndexConflictError after `MAX_CONFLICTS` tries, and the store's error after `MAX_LOST` of them.
    """
    lost = 0
    for _ in range(MAX_CONFLICTS):
        snapshot = index.open()
        try:
            return step(snapshot)
        except (IndexConflictError, StoreUnavailableError) as err:
            lost += isinstance(err, StoreUnavailableError)
            if lost == MAX_LOST:
                raise
            logger.warning("%s; reading the index again", err)
    raise IndexConflictError(f"{index.uri}: {MAX_CONFLICTS} other commits came first; run again")


def collect_object_keys(segments: Iterable[Segment]) -> frozenset[str]:
    """Return the keys of all objects of `segments`."""
    return frozenset(key for s in segments for key in s.keys)
