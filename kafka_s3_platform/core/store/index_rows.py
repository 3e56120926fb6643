"""Encodes and decodes the rows of an index: one schema for every kind of row, from and to the model's classes.

Columns of other kinds are null. Rows not written by this platform are refused. Observations of logs dated in the future
count as untimed. Answers of brokers and clocks are otherwise checked before they are recorded.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.frontier import UNTIMED, Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.core.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
    Fold,
    FoldedFrontier,
    FoldedHours,
    FoldedScan,
    HourRange,
    Reservation,
    Scan,
    Segment,
    StoredObject,
    TopicAcl,
    TopicGeneration,
)
from kafka_s3_platform.core.model.state import IndexState

_LOG_BOUNDS = ("log_start_offset", "last_stable_offset", "high_watermark")
_RANGE = ("start_offset", "end_offset")

OFFSETS: Mapping[str, tuple[str, ...]] = {
    "frontier": _LOG_BOUNDS,
    "folded-frontier": _LOG_BOUNDS,
    "hour": _RANGE,
    "segment": _RANGE,
    "scan": _RANGE,
    "folded-scan": _RANGE,
    "gap": _RANGE,
    "reservation": _RANGE,
    "unresolved": _RANGE,
    "group": ("committed_offset",),
}
"""The offsets in each kind of row, in ascending order."""

_OUTSIDE = r"^$|(^|/)\.\.?(/|$)"
"""The pattern of keys that are empty, or that a store may take for keys of another folder or bucket."""

MOST_BYTES = 2**43
"""The maximum size of an object: no store takes a larger one. Readers divide an object by its size."""

_EMPTY_KINDS = ("hour", "frontier", "folded-frontier")
"""The kinds of rows in which two offsets may be equal."""

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
        pa.field("other_fields", pa.string()),
        pa.field("schema_guid", pa.string()),
        pa.field("kafka_partition_count", pa.int32()),
        pa.field("message", pa.string()),
        pa.field("found_at", TIME),
        pa.field("retention_ms", pa.int64()),
        pa.field("start_hour", TIME),
    ]
)

PERIOD = "period"
"""The column by which Delta puts rows into files."""

STATE_PERIOD = "state"
"""The period of all rows other than segments. For segments, see `find_period`."""

NO_DAY = "none"
"""The period of segments whose records have timestamps out of range."""

TABLE_SCHEMA = INDEX_SCHEMA.append(pa.field(PERIOD, pa.string()))
"""The columns of an index."""

FOLDED = "folded-"
"""The prefix of the periods of folded rows, one per month: `folded-2026-03`. They are read only for old hours."""

IndexRow = (
    FoldedScan
    | FoldedFrontier
    | FoldedHours
    | Segment
    | Scan
    | Gap
    | Frontier
    | HourRange
    | Reservation
    | Compaction
    | TopicGeneration
    | CommittedOffset
    | Condemned
    | ArchivedSchema
    | Unresolved
)

KINDS: Mapping[str, type[IndexRow]] = {
    "folded-scan": FoldedScan,
    "folded-frontier": FoldedFrontier,
    "folded-hours": FoldedHours,
    "segment": Segment,
    "scan": Scan,
    "gap": Gap,
    "frontier": Frontier,
    "hour": HourRange,
    "reservation": Reservation,
    "compaction": Compaction,
    "condemned": Condemned,
    "topic": TopicGeneration,
    "group": CommittedOffset,
    "schema": ArchivedSchema,
    "unresolved": Unresolved,
}

LIVE = "segment"

RETIRED = "retired"
"""The kind of a segment whose records are all in a later one. It is no longer read, but its object is still indexed."""

REMOVED = "removed"
"""The kind of a retired segment whose objects retention has removed, so only its numbers are left."""

EXPIRED = "expired"
"""The kind of an hourly segment whose records retention has removed, even from its day. Only its numbers are left."""

ERASED = "erased"
"""The kind of the numbers of records erased by request from a segment, which later segments have replaced.

Its offsets, counts and times are for the erased records only. Its siblings are the objects the erasure deletes.
"""

MERGED_KINDS = (RETIRED, REMOVED)
SEGMENT_KINDS = (LIVE, *MERGED_KINDS, EXPIRED, ERASED)

TUPLES = ("kafka_partitions", "configs", "acls", "siblings", "schema_ids", "subjects", "schema_references")
"""The columns that hold JSON."""

DECODE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    msgspec.MsgspecError,
)
"""The errors raised by rows not written by this platform. Arrow's type errors are ValueErrors and LookupErrors."""


def refuse_damaged(kind: str, rows: pa.Table, required: Iterable[str]) -> None:
    """Raise ValueError if a row of this kind lacks a `required` value, or has an impossible offset, key or size."""
    for name in required:
        if rows[name].null_count:
            _refuse_rows(kind, rows.filter(pc.is_null(rows[name])), [name])
    names = OFFSETS.get(kind, ())
    is_false = pc.less if kind in _EMPTY_KINDS else pc.less_equal
    masks = [pc.less(rows[name], 0) for name in names]
    masks += [is_false(rows[higher], rows[lower]) for lower, higher in pairwise(names)]
    for mask in masks:
        # an offset that may be unknown (null) is not false
        _refuse_rows(kind, rows.filter(pc.fill_null(mask, fill_value=False)), names)
    if kind == "segment":
        _refuse_rows(kind, rows.filter(pc.match_substring_regex(rows["key"], _OUTSIDE)), ["key"])
        is_size = pc.and_(pc.greater_equal(rows["size"], 0), pc.less_equal(rows["size"], MOST_BYTES))
        _refuse_rows(kind, rows.filter(pc.invert(is_size)), ["key", "size"])


def _refuse_rows(kind: str, rows: pa.Table, names: Iterable[str]) -> None:
    """Raise ValueError with the values of the first row in these columns."""
    for row in rows.slice(0, 1).to_pylist():
        values = ", ".join(f"{name} {row[name]}" for name in names)
        raise ValueError(f"{kind} of version {row['version']}, kafka partition {row['kafka_partition']}: {values}")


def drop_future_times(rows: pa.Table, latest: datetime) -> pa.Table:
    """Set an `observed_at` of frontier rows later than `latest` to UNTIMED, since one machine's clock must be wrong.

    Such a row still holds the start of the log, but completes no hour.
    """
    position = rows.schema.get_field_index("observed_at")
    field = rows.schema.field(position)
    is_frontier = pc.equal(rows["kind"], "frontier")
    is_future = pc.greater(rows["observed_at"], pa.scalar(latest, field.type))
    mask = pc.fill_null(pc.and_(is_frontier, is_future), fill_value=False)
    return rows.set_column(position, field, pc.if_else(mask, pa.scalar(UNTIMED, field.type), rows["observed_at"]))


def _list_required(cls: type[IndexRow]) -> tuple[str, ...]:
    """Return the fields of a class of rows that may not be None."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if type(None) not in get_args(hints[f.name]))


_REQUIRED = {kind: _list_required(cls) for kind, cls in KINDS.items()}
"""The columns that have a value in every row of a kind."""


def find_kind(row: IndexRow) -> str:
    """Return the value of the `kind` column for such a row."""
    return next(kind for kind, cls in KINDS.items() if isinstance(row, cls))


def find_period(kind: str, chunk_start: datetime | None) -> str:
    """Return the period of new rows of a kind. For segments it is the UTC day in which their hour or day starts.

    Segments that are no longer live lie apart, so readers of live ones do not open their files.
    """
    if kind not in SEGMENT_KINDS:
        return STATE_PERIOD
    day = NO_DAY if chunk_start is None else f"{chunk_start.astimezone(timezone.utc):%Y-%m-%d}"
    return day if kind == LIVE else f"{kind}-{day}"


def list_periods(chunk_start: datetime | None, kind: str = LIVE) -> tuple[str, ...]:
    """Return the possible periods of a segment, since old days are merged by month."""
    day = find_period(kind, chunk_start)
    month = find_month(day)
    return (day,) if month is None else (day, month)


def find_month(period: str) -> str | None:
    """Return the period of the month to which the upkeep moves a day's rows, or None if `period` is not a day."""
    match = re.fullmatch(r"((?:[a-z]+-)?[0-9]{4}-[0-9]{2})-[0-9]{2}", period)
    return match[1] if match else None


@dataclass(frozen=True)
class TopicRows:
    """The rows of one topic to add in one commit."""

    topic: str
    added: Sequence[IndexRow]
    changed: Mapping[str, Sequence[Segment]]
    """The segments that are no longer live, by their new kind."""

    run_id: str


def encode_rows(topics: Iterable[TopicRows], common: Mapping[str, Any]) -> pa.Table:
    """Return the rows of one commit. All share the `common` columns."""
    by_kind: dict[str, list[tuple[TopicRows, IndexRow]]] = {}
    for rows in topics:
        for item in rows.added:
            by_kind.setdefault(find_kind(item), []).append((rows, item))
        for kind, segments in rows.changed.items():
            by_kind.setdefault(kind, []).extend((rows, segment) for segment in segments)
    tables = [_encode_kind(kind, items, common) for kind, items in by_kind.items() if items]
    return pa.concat_tables(tables) if tables else TABLE_SCHEMA.empty_table()


def _encode_kind(kind: str, items: Sequence[tuple[TopicRows, IndexRow]], common: Mapping[str, Any]) -> pa.Table:
    """Encode rows of one kind column by column, because a dict for each row would cost more than the commit."""
    columns: dict[str, list[Any]] = {name: [value] * len(items) for name, value in common.items()}
    columns["kind"] = [kind] * len(items)
    columns["run_id"] = [rows.run_id for rows, _ in items]
    for name in (f.name for f in fields(items[0][1])):
        values = [getattr(item, name) for _, item in items]
        # in JSON, dataclasses are objects and tuples are lists
        columns[name] = [json.dumps(value, default=asdict) for value in values] if name in TUPLES else values
    columns["topic"] = [rows.topic for rows, _ in items]
    starts = columns["chunk_start"] if kind in SEGMENT_KINDS else [None] * len(items)
    columns[PERIOD] = [find_period(kind, start) for start in starts]
    arrays = [
        pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(len(items), f.type) for f in TABLE_SCHEMA
    ]
    return pa.table(arrays, schema=TABLE_SCHEMA)


def complete_columns(rows: pa.Table) -> pa.Table:
    """Return the rows with all columns of an index. Columns not read are null."""
    names = set(rows.column_names)
    columns = [
        rows.column(f.name).cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type) for f in INDEX_SCHEMA
    ]
    return pa.table(columns, schema=INDEX_SCHEMA)


def build_state(version: int, rows: pa.Table) -> IndexState:
    """Build the state from rows other than segments. Raises DECODE_ERRORS."""
    rows = rows.sort_by("version")
    kinds = rows.column("kind").unique().to_pylist()
    return make_state(
        version, {kind: tuple(_decode_kind(kind, rows.filter(pc.equal(rows["kind"], kind)))) for kind in kinds}
    )


def make_state(version: int, rows: Mapping[str, tuple[Any, ...]]) -> IndexState:
    """Return the state of a topic from its rows, given by kind and in the order of recording."""
    by_kind = {**dict.fromkeys(KINDS, ()), **rows}
    return IndexState(
        version=version,
        scans=tuple(by_kind["scan"]),
        gaps=tuple(by_kind["gap"]),
        frontiers=tuple(by_kind["frontier"]),
        hours=tuple(by_kind["hour"]),
        reservations=tuple(by_kind["reservation"]),
        compactions=tuple(by_kind["compaction"]),
        condemned=tuple(by_kind["condemned"]),
        generations=tuple(by_kind["topic"]),
        groups=tuple(by_kind["group"]),
        schemas=tuple(by_kind["schema"]),
        failures=tuple(by_kind["unresolved"]),
        fold=Fold(by_kind["folded-scan"], by_kind["folded-frontier"], by_kind["folded-hours"]),
    )


def decode_segments(rows: pa.Table) -> Iterator[Segment]:
    """Yield the segments of rows. Raises DECODE_ERRORS."""
    refuse_damaged("segment", rows, _REQUIRED["segment"])
    return map(_decode_segment, rows.select([f.name for f in fields(Segment)]).to_pylist())


def _decode_segment(row: Mapping[str, Any]) -> Segment:
    """Build a segment from the columns of its row."""
    values = dict(row)
    values["siblings"] = _decode_json(row["siblings"], tuple[StoredObject, ...])
    values["schema_ids"] = decode_schema_ids(row["schema_ids"])
    segment = Segment(**values)
    _ = segment.format, segment.zone  # parses the JSON of its settings, to refuse what is no JSON now
    return segment


def decode_schema_ids(text: str) -> tuple[int | str, ...]:
    """Return the schema ids in the column of a segment. Raises DECODE_ERRORS."""
    ids: tuple[int | str, ...] = _decode_json(text, tuple[int | str, ...])
    return ids


def _decode_kind(kind: str, rows: pa.Table) -> Iterator[IndexRow]:
    """Yield the rows of one kind. Only its own columns are read, since most columns of a row are null."""
    cls = KINDS[kind]
    refuse_damaged(kind, rows, _REQUIRED[kind])
    table = rows.select([f.name for f in fields(cls)])
    if cls is TopicGeneration:
        yield from map(_decode_generation, table.to_pylist())
    elif cls is ArchivedSchema:
        yield from map(_decode_schema, table.to_pylist())
    else:
        for values in zip(*(column.to_pylist() for column in table.columns), strict=True):
            yield cls(*values)


def _decode_generation(row: Mapping[str, Any]) -> TopicGeneration:
    """Build the topic's description at one point in time from the columns of its row."""
    numbers = _decode_json(row["kafka_partitions"], tuple[int, ...])
    configs = _decode_json(row["configs"], tuple[tuple[str, str], ...])
    acls = _decode_json(row["acls"], tuple[TopicAcl, ...] | None)
    return TopicGeneration(row["topic"], row["topic_id"], numbers, configs, acls)


def _decode_schema(row: Mapping[str, Any]) -> ArchivedSchema:
    """Build a schema of a registry from the columns of its row."""
    values = {f.name: row[f.name] for f in fields(ArchivedSchema)}
    values["subjects"] = _decode_json(row["subjects"], tuple[SubjectVersion, ...])
    values["schema_references"] = _decode_json(row["schema_references"], tuple[SchemaReference, ...])
    return ArchivedSchema(**values)


def _decode_json(text: str, kind: Any) -> Any:
    """Decode a value of a JSON column. Raises DECODE_ERRORS unless every item has its type in `kind`."""
    return msgspec.json.decode(text, type=kind)
