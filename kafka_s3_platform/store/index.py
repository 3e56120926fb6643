"""The index: one Delta table per connector and topic, changed only by compare-and-swap.

Every kind of row shares one schema; columns that a kind lacks are null. A row is live while it is present. A commit
goes through the handle that was opened at planning, never refreshed, and without delta-rs's own retries: that makes it
a true compare-and-swap on the table version, so a commit's version is known before it is made.
"""

import dataclasses
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import (
    AuthorizationError,
    ConfigError,
    IndexConflictError,
    IndexDamagedError,
    MissingBucketError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
    HourRange,
    Maintenance,
    Reservation,
    Scan,
    Segment,
    StoredObject,
    TopicAcl,
    TopicGeneration,
)
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.unresolved import Unresolved
from kafka_s3_platform.store.client import MAX_BACKOFF_SECONDS, delta_endpoint
from kafka_s3_platform.store.credentials import current
from kafka_s3_platform.store.delta_log import refuse_deletion_vectors
from kafka_s3_platform.store.errors import certificate_advice, refused_advice
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import check_promises
from kafka_s3_platform.store.sound import Judged, judged

logger = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")

TIME = pa.timestamp("us", tz="UTC")

INDEX_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("commit_id", pa.string(), nullable=False),
        pa.field("committed_at", TIME, nullable=False),
        pa.field("run_id", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("kafka_partition", pa.int32()),
        pa.field("start_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("chunk", pa.string()),
        pa.field("chunk_start", TIME),
        pa.field("encoded_partition", pa.string()),
        pa.field("record_count", pa.int64()),
        pa.field("late_count", pa.int64()),
        pa.field("record_bytes", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("etag", pa.string()),
        pa.field("sha256", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("min_timestamp", pa.int64()),
        pa.field("max_timestamp", pa.int64()),
        pa.field("settings", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("log_start_offset", pa.int64()),
        pa.field("last_stable_offset", pa.int64()),
        pa.field("high_watermark", pa.int64()),
        pa.field("observed_at", TIME),
        pa.field("hour", TIME),
        pa.field("reserved_at", TIME),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("kafka_partitions", pa.string()),
        pa.field("configs", pa.string()),
        pa.field("siblings", pa.string()),
        pa.field("schema_ids", pa.string()),
        pa.field("filtered_count", pa.int64()),
        pa.field("dead_letter_count", pa.int64()),
        pa.field("output_count", pa.int64()),
        pa.field("acls", pa.string()),
        pa.field("group_id", pa.string()),
        pa.field("committed_offset", pa.int64()),
        pa.field("metadata", pa.string()),
        pa.field("group_state", pa.string()),
        pa.field("registry_url", pa.string()),
        pa.field("schema_id", pa.int64()),
        pa.field("schema_type", pa.string()),
        pa.field("schema_text", pa.string()),
        pa.field("subjects", pa.string()),
        pa.field("schema_references", pa.string()),
        pa.field("kafka_partition_count", pa.int32()),
        pa.field("message", pa.string()),
        pa.field("found_at", TIME),
        pa.field("retention_ms", pa.int64()),
    ]
)

Row = (
    Segment
    | Scan
    | Gap
    | Frontier
    | HourRange
    | Reservation
    | Compaction
    | TopicGeneration
    | CommittedOffset
    | Maintenance
    | Condemned
    | ArchivedSchema
    | Unresolved
)

KINDS: Mapping[str, type[Row]] = {
    "segment": Segment,
    "scan": Scan,
    "gap": Gap,
    "frontier": Frontier,
    "hour": HourRange,
    "reservation": Reservation,
    "compaction": Compaction,
    "maintenance": Maintenance,
    "condemned": Condemned,
    "topic": TopicGeneration,
    "group": CommittedOffset,
    "schema": ArchivedSchema,
    "unresolved": Unresolved,
}
RETIRED = "retired"
"""Kind of a segment whose records a later segment holds: no longer read, its object still known."""

STATE_KINDS = tuple(kind for kind in KINDS if kind != "segment")
TUPLES = ("kafka_partitions", "configs", "acls", "siblings", "schema_ids", "subjects", "schema_references")
OPTIMIZE_EVERY = 100
MAX_CONFLICTS, MAX_LOST = 20, 3

_NO_ROW = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, msgspec.MsgspecError)
"""What rows raise that are none of ours; Arrow's errors of types are ValueErrors and LookupErrors."""

_told: set[tuple[str, int]] = set()
"""Indexes whose bad rows this process has told of, and how many those were."""

_REFUSED = re.compile(
    r"AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken|\b403 Forbidden"
)
_NO_ANSWER = re.compile(r"Generic S3 error|Error performing|error sending request|Error interacting with object store")
_ABSENT = re.compile(r"Object at location \S+ not found|416 Range Not Satisfiable|404 Not Found")
_BROKEN = re.compile(
    r"Parquet error|Json error|Arrow error|Avro error|Expected contiguous commit files|Invalid Checkpoint"
    r"|No table metadata or protocol|Invalid JSON|invalid metadata|EOF"
)
_OWN_FILE = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[A-Za-z0-9_.=+-]+(?:/[A-Za-z0-9_.=+-]+)*")
"""A path of a log's entry below the table, which needs no decoding."""

_TOKEN_VARIABLES = frozenset({"aws_session_token", "aws_token", "session_token", "token"})
_NEVER_DELETE = PostCommitHookProperties(cleanup_expired_logs=False)
"""The run path has no right to delete, not even log files that expired."""


@dataclass(frozen=True)
class Change:
    """What one commit adds and removes.

    `removed` are SQL predicates over rows; `retired` segments leave the live set and stay known as retired.
    """

    added: tuple[Row, ...] = ()
    retired: tuple[Segment, ...] = ()
    removed: tuple[str, ...] = ()
    run_id: str = ""

    @property
    def predicates(self) -> tuple[str, ...]:
        if not self.retired:
            return self.removed
        keys = ", ".join(quote(s.key) for s in self.retired)
        return (*self.removed, f"(kind = 'segment' AND key IN ({keys}))")


class TopicIndex:
    """Opens the index of one connector and topic; creates the empty table where there is none."""

    def __init__(self, store: StoreSettings, index_dir: str, connector: str, topic: str) -> None:
        self.store = store
        self.index_dir = index_dir
        self.connector = connector
        self.topic = topic
        self.uri = f"s3://{store.bucket}/{index_dir}/{connector}/{topic}"

    def exists(self) -> bool:
        options = self.options
        return self.run("look for", lambda: DeltaTable.is_deltatable(self.uri, options))

    def open(self) -> "IndexSnapshot":
        """The index as it is now, created if absent. Raises store errors."""
        return self.peek() or self.run("create", self._create)

    def peek(self) -> "IndexSnapshot | None":
        """The index as it is now, None if nothing was archived yet. Only reads."""
        try:
            return IndexSnapshot(self, self.handle())
        except TableNotFoundError:
            return None

    def handle(self, version: int | None = None) -> "Handle":
        """The table as it is now, or as it was at `version`."""
        options = self.options
        table = self.run("open", lambda: DeltaTable(self.uri, version=version, storage_options=options))
        self._refuse_strange_files(self.run("read", lambda: pa.table(table.get_add_actions(flatten=True))))
        folder, at = f"{self.index_dir}/{self.connector}/{self.topic}", table.version()
        self.run("read", lambda: refuse_deletion_vectors(ObjectStore(self.store), folder, at))
        return Handle(table, options)

    def _refuse_strange_files(self, files: pa.Table) -> None:
        """delta-rs follows a path out of the folder, and one of this machine's (`file:///`)."""
        for path in files.column("path").to_pylist():
            if not _OWN_FILE.fullmatch(path):
                raise IndexDamagedError(
                    f"the index {self.uri} names {path!r} as one of its files, which is none in its folder, and is not "
                    f"read. Nothing of ours writes such a path: find out who wrote to that folder, and put its "
                    f"_delta_log back from the bucket's versions or a backup"
                )

    def check_promises(self) -> None:
        """Prove once a process that the store keeps what commits rely on. Raises as `promises.check_promises`."""
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
        """`call()`; what delta-rs and Arrow raise becomes a store error that names the index."""
        try:
            return call()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as err:
            raise self._classified(verb, err) from err

    def _classified(self, verb: str, err: Exception) -> Exception:
        what = f"could not {verb} the index {self.uri} at {self.store.endpoint_url or 'AWS'}: {_plain(err)}"
        if "NoSuchBucket" in str(err):
            return MissingBucketError(f"{what}; create the bucket or correct s3.bucket.name")
        if _REFUSED.search(str(err)):
            return AuthorizationError(f"{what}. {refused_advice(str(err))}")
        if "invalid peer certificate" in str(err):
            return ConfigError(f"{what}. {certificate_advice(str(err))}")
        if _is_damage(str(err)):
            return IndexDamagedError(
                f"{what}. Files of the index are missing or broken, so what is archived is unknown and no run starts. "
                f"Put them back: where the bucket keeps versions, the last version of each that was deleted or "
                f"overwritten under that folder, else from a backup of it. Leave the objects of records as they are"
            )
        return StoreUnavailableError(f"{what}; run again when the store answers")

    @property
    def options(self) -> dict[str, str]:
        """Storage options of delta-rs with the credentials that hold now, secrets included. Raises as `current`."""
        store = self.store
        options = {
            "AWS_REGION": store.region,
            # said, since delta-rs would take it from a variable of the environment
            "allow_invalid_certificates": "false",
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(store.accelerate or not store.path_style).lower(),
            "connect_timeout": "5s",
            "timeout": "30s",
            "max_retries": str(store.max_retries),
            "retry_timeout": "20s",
            "backoff_config.init_backoff": f"{store.retry_backoff_ms}ms",
            "backoff_config.max_backoff": f"{MAX_BACKOFF_SECONDS:.0f}s",
        }
        endpoint = delta_endpoint(store)
        if endpoint is not None:
            options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
        return options | _encryption(store) | _access(store)


def _is_damage(message: str) -> bool:
    """Whether delta-rs met a file that is not there or makes no sense, not a store that did not answer."""
    if _ABSENT.search(message):
        return True
    return _BROKEN.search(message) is not None and _NO_ANSWER.search(message) is None


@dataclass(frozen=True)
class Handle:
    """An open table, and the options that it was opened with: delta-rs keeps them, so their credentials grow old."""

    table: DeltaTable
    options: Mapping[str, str] = dataclasses.field(repr=False)


def _access(store: StoreSettings) -> dict[str, str]:
    found = current(store)
    options = {"AWS_ACCESS_KEY_ID": found.access_key, "AWS_SECRET_ACCESS_KEY": found.secret_key}
    if store.proxy_url is not None:
        options["proxy_url"] = store.proxy_url.get_secret_value()
    if found.token is not None:
        return options | {"AWS_SESSION_TOKEN": found.token}
    # delta-rs completes its options from the environment, and would sign with another's token.
    if mixed := [name for name in os.environ if name.lower() in _TOKEN_VARIABLES]:
        raise ConfigError(
            f"the environment variable {mixed[0]} would be sent as the session token of an access key that has none;"
            " unset it"
        )
    return options


def _encryption(store: StoreSettings) -> dict[str, str]:
    if store.customer_key is not None:
        key = store.customer_key.get_secret_value()
        return {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": key}
    options = {"aws_server_side_encryption": store.encryption, "aws_sse_kms_key_id": store.kms_key_id}
    return {name: value for name, value in options.items() if value}


class IndexSnapshot:
    """The index at one version, and the only way to commit on top of it."""

    def __init__(self, index: TopicIndex, handle: Handle) -> None:
        self.index = index
        self._handle = handle
        self.version: int = handle.table.version()

    @property
    def _table(self) -> DeltaTable:
        """The table at this version, opened again where its credentials are no longer the provider's.

        What is opened again stands at the same version, so that a commit remains a compare-and-swap on it.
        """
        if self.index.options != self._handle.options:
            self._handle = self.index.handle(self._handle.table.version())
        return self._handle.table

    @cached_property
    def state(self) -> IndexState:
        """Everything but the segments."""
        with self._made_of_rows():
            return state_of(self.version, self._judged.sound)

    def judged(self, written_at: Mapping[int, datetime] | None = None) -> Judged:
        """All rows but segments; those that cannot be believed told apart, by `written_at` too, version -> time."""
        with self._made_of_rows():
            return judged(self._read(list(STATE_KINDS)), datetime.now(timezone.utc), written_at)

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
            return tuple(_segment(row) for row in rows.to_pylist())

    @cached_property
    def retired(self) -> tuple[Segment, ...]:
        """Segments whose records a live one holds; their objects are kept until a retention rule removes them."""
        with self._made_of_rows():
            return tuple(_segment(row) for row in self._read([RETIRED]).to_pylist())

    @contextmanager
    def _made_of_rows(self) -> Iterator[None]:
        """What rows say that are none of ours is damage, and no error of Python's."""
        try:
            yield
        except _NO_ROW as err:
            raise IndexDamagedError(
                f"the index {self.index.uri} has rows that nothing of ours writes ({type(err).__name__}: "
                f"{str(err)[:200]}), and is not read. Find out who wrote to that folder, and put it back from the "
                f"bucket's versions or a backup"
            ) from err

    @property
    def index_id(self) -> str:
        """What tells this table from any other, also from one at the same place before."""
        return str(self._table.metadata().id)

    @property
    def created_at(self) -> datetime:
        """When the index was created: no object of its runs is older."""
        return datetime.fromtimestamp((self._table.metadata().created_time or 0) / 1000, timezone.utc)

    def gaps_by_hour(self) -> list[tuple[datetime | None, Gap]]:
        """Each gap with the hour whose archiving found it, None where that was none."""
        rows = self._judged.sound.filter(pc.equal(self._judged.sound["kind"], "gap"))
        return [(row["chunk_start"], _gap(row)) for row in rows.to_pylist()]

    def commit(
        self, change: Change, commit_id: str | None = None, gap_hours: Mapping[Gap, datetime] | None = None
    ) -> int:
        """Apply `change` if the index is still at this version; the new version.

        Raises IndexConflictError when another commit came first (also when this one's own response was lost: then
        `commit_id` is found in the index read anew).
        """
        if self._table.version() != self.version:
            raise IndexConflictError(
                f"{self.index.uri}: this snapshot of version {self.version} was committed on before"
            )
        self.index.check_promises()
        version = self.version + 1
        table = _to_table(change, version, commit_id or str(uuid4()), gap_hours or {})
        try:
            self.index.run("commit to", lambda: self._write(table, change.predicates, version))
        except StoreUnavailableError as err:
            if isinstance(err.__cause__, CommitFailedError):
                raise IndexConflictError(f"{self.index.uri}: version {version} was committed by another run") from err
            raise
        self._keep_up(version)
        return version

    def _write(self, table: pa.Table, predicates: Sequence[str], version: int) -> None:
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
        # replace-where also demands that new rows match: `version` is theirs alone
        where = " OR ".join([*predicates, f"version = {version}"])
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
        """Small commits add up (400 read in 0.9 s, in 0.04 s after optimize); a refused optimize is the next one's."""
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
        return _with_all_columns(self.index.run("read", lambda: self._selected(kinds)))

    def _selected(self, kinds: Sequence[str]) -> pa.Table:
        """By DataFusion: the threads of a dataset of Arrow's may outlive Python, and abort it (apache/arrow 34314)."""
        sql = f"select * from rows where kind in ({', '.join(map(quote, kinds))})"  # noqa: S608 - of our own kinds
        found = QueryBuilder().register("rows", self._table).execute(sql)
        # read by PyArrow, which lets other threads of Python's run meanwhile
        return pa.RecordBatchReader.from_stream(found).read_all()


def committed(index: TopicIndex, step: Callable[[IndexSnapshot], R]) -> R:
    """`step(snapshot)`, which commits on the snapshot, again on a newer one while another commit comes first.

    A step has to find out whether an earlier try of its own is in the index: only the response may have been lost.
    Raises IndexConflictError after MAX_CONFLICTS tries, and what the store answers after MAX_LOST failures of it.
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


def state_of(version: int, rows: pa.Table) -> IndexState:
    """The state that rows other than segments make up."""
    found: dict[str, list[Any]] = {kind: [] for kind in STATE_KINDS}
    for row in rows.sort_by("version").to_pylist():
        found[row["kind"]].append(_from_row(row))
    return IndexState(
        version=version,
        scans=tuple(found["scan"]),
        gaps=tuple(found["gap"]),
        frontiers=tuple(found["frontier"]),
        hours=tuple(found["hour"]),
        reservations=tuple(found["reservation"]),
        compactions=tuple(found["compaction"]),
        maintenance=tuple(found["maintenance"]),
        condemned=tuple(found["condemned"]),
        generations=tuple(found["topic"]),
        groups=tuple(found["group"]),
        schemas=tuple(found["schema"]),
        failures=tuple(found["unresolved"]),
        commit_ids=frozenset(rows.column("commit_id").unique().to_pylist()),
    )


def _with_all_columns(rows: pa.Table) -> pa.Table:
    """The columns of this version, null where an index of an earlier one lacks them until the next commit.

    DataFusion gives texts as views, which Arrow has few kernels for.
    """
    given = set(rows.column_names)
    columns = [
        rows.column(f.name).cast(f.type) if f.name in given else pa.nulls(rows.num_rows, f.type) for f in INDEX_SCHEMA
    ]
    return pa.table(columns, schema=INDEX_SCHEMA)


def _plain(err: Exception) -> str:
    """delta-rs draws its errors as coloured trees over many lines."""
    return " ".join(re.sub(r"\x1b\[\d+m|↳", "", str(err)).split())[:600]


def quote(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _to_table(change: Change, version: int, commit_id: str, gap_hours: Mapping[Gap, datetime]) -> pa.Table:
    common = {
        "version": version,
        "commit_id": commit_id,
        "committed_at": datetime.now(timezone.utc),
        "run_id": change.run_id,
    }
    rows = [{"kind": _kind(row), **common, **_columns(row)} for row in change.added]
    for row, item in zip(rows, change.added, strict=True):
        if isinstance(item, Gap):
            row["chunk_start"] = gap_hours.get(item)
    rows += [{"kind": RETIRED, **common, **_columns(row)} for row in change.retired]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def _kind(row: Row) -> str:
    return next(kind for kind, cls in KINDS.items() if isinstance(row, cls))


def _columns(row: Row) -> dict[str, Any]:
    found = asdict(row)
    return {k: json.dumps(v) if k in TUPLES else v for k, v in found.items()}


def _from_row(row: Mapping[str, Any]) -> Row:
    cls = KINDS[row["kind"]]
    if cls is Scan and row["output_count"] is None:
        row = {**row, "filtered_count": 0, "dead_letter_count": 0, "output_count": row["record_count"]}
    if cls is TopicGeneration:
        numbers = _list(row["kafka_partitions"], tuple[int, ...])
        configs = _list(row["configs"], tuple[tuple[str, str], ...])
        acls = None if row["acls"] in (None, "null") else _list(row["acls"], tuple[TopicAcl, ...])
        return TopicGeneration(row["topic"], row["topic_id"], numbers, configs, acls)
    if cls is ArchivedSchema:
        return _archived_schema(row)
    return cls(**{f.name: row[f.name] for f in fields(cls)})


def _archived_schema(row: Mapping[str, Any]) -> ArchivedSchema:
    known = {f.name: row[f.name] for f in fields(ArchivedSchema)}
    subjects = _list(row["subjects"], tuple[SubjectVersion, ...])
    references = _list(row["schema_references"], tuple[SchemaReference, ...])
    return ArchivedSchema(**{**known, "subjects": subjects, "schema_references": references})


def _segment(row: Mapping[str, Any]) -> Segment:
    known = {f.name: row[f.name] for f in fields(Segment)}
    siblings = _list(row["siblings"] or "[]", tuple[StoredObject, ...])
    found = Segment(**{**known, "siblings": siblings, "schema_ids": _list(row["schema_ids"] or "[]", tuple[int, ...])})
    _ = found.format  # of its settings, which are text
    return found


def _list(text: str, kind: type[T]) -> T:
    """What a column of JSON holds, every item of its type. Raises what _NO_ROW names."""
    return msgspec.json.decode(text, type=kind)


def _gap(row: Mapping[str, Any]) -> Gap:
    return Gap(**{f.name: row[f.name] for f in fields(Gap)})


def live_keys(segments: Iterable[Segment]) -> frozenset[str]:
    """Keys of all objects of `segments`."""
    return frozenset(key for s in segments for key in s.keys)
