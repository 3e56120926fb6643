"""The rows of an index: one schema for every kind of row, and the codec between rows and the model's classes.

A column that a kind lacks is null. An index of an earlier version may lack a column; it is read as null.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

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

IndexRow = (
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

KINDS: Mapping[str, type[IndexRow]] = {
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
"""Columns of JSON."""

DECODE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    msgspec.MsgspecError,
)
"""What rows raise that nothing of ours wrote; Arrow's errors of types are ValueErrors and LookupErrors."""


def find_kind(row: IndexRow) -> str:
    """Return what the `kind` column holds of such a row."""
    return next(kind for kind, cls in KINDS.items() if isinstance(row, cls))


def encode_rows(
    added: Iterable[IndexRow], retired: Iterable[Segment], common: Mapping[str, Any], gap_hours: Mapping[Gap, datetime]
) -> pa.Table:
    """Return the rows of one commit. All share the `common` columns; `gap_hours` are the hours that gaps begin in."""
    rows = []
    for item in added:
        row = {"kind": find_kind(item), **common, **_encode_columns(item)}
        if isinstance(item, Gap):
            row["chunk_start"] = gap_hours.get(item)
        rows.append(row)
    rows += [{"kind": RETIRED, **common, **_encode_columns(item)} for item in retired]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def complete_columns(rows: pa.Table) -> pa.Table:
    """Return the rows with the columns of this version, null where an index of an earlier version lacks them.

    DataFusion gives texts as views, which Arrow has few kernels for: they become strings.
    """
    given = set(rows.column_names)
    columns = [
        rows.column(f.name).cast(f.type) if f.name in given else pa.nulls(rows.num_rows, f.type) for f in INDEX_SCHEMA
    ]
    return pa.table(columns, schema=INDEX_SCHEMA)


def build_state(version: int, rows: pa.Table) -> IndexState:
    """Return the state that rows other than segments make up."""
    found: dict[str, list[Any]] = {kind: [] for kind in STATE_KINDS}
    for row in rows.sort_by("version").to_pylist():
        found[row["kind"]].append(_decode_row(row))
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


def decode_segment(row: Mapping[str, Any]) -> Segment:
    """Return the segment of a row. Raises what DECODE_ERRORS names."""
    known = _take_fields(row, Segment)
    # indexes of earlier versions have no such columns
    known["siblings"] = _decode_json(row["siblings"] or "[]", tuple[StoredObject, ...])
    known["schema_ids"] = _decode_json(row["schema_ids"] or "[]", tuple[int, ...])
    found = Segment(**known)
    _ = found.format  # reads the JSON of its settings: what is none is found out here
    return found


def decode_gap(row: Mapping[str, Any]) -> Gap:
    """Return the gap of a row."""
    return Gap(**_take_fields(row, Gap))


def _encode_columns(row: IndexRow) -> dict[str, Any]:
    return {name: json.dumps(value) if name in TUPLES else value for name, value in asdict(row).items()}


def _decode_row(row: Mapping[str, Any]) -> IndexRow:
    cls = KINDS[row["kind"]]
    if cls is TopicGeneration:
        return _decode_generation(row)
    if cls is ArchivedSchema:
        return _decode_schema(row)
    if cls is Scan and row["output_count"] is None:
        # earlier versions left out no record
        row = {**row, "filtered_count": 0, "dead_letter_count": 0, "output_count": row["record_count"]}
    return cls(**_take_fields(row, cls))


def _take_fields(row: Mapping[str, Any], cls: type[IndexRow]) -> dict[str, Any]:
    return {f.name: row[f.name] for f in fields(cls)}


def _decode_generation(row: Mapping[str, Any]) -> TopicGeneration:
    numbers = _decode_json(row["kafka_partitions"], tuple[int, ...])
    configs = _decode_json(row["configs"], tuple[tuple[str, str], ...])
    # an unknown ACL is JSON's null, and a null where an earlier version wrote none
    acls = None if row["acls"] in (None, "null") else _decode_json(row["acls"], tuple[TopicAcl, ...])
    return TopicGeneration(row["topic"], row["topic_id"], numbers, configs, acls)


def _decode_schema(row: Mapping[str, Any]) -> ArchivedSchema:
    known = _take_fields(row, ArchivedSchema)
    known["subjects"] = _decode_json(row["subjects"], tuple[SubjectVersion, ...])
    known["schema_references"] = _decode_json(row["schema_references"], tuple[SchemaReference, ...])
    return ArchivedSchema(**known)


def _decode_json(text: str, kind: type[T]) -> T:
    """Return what a column of JSON holds, every item of its type. Raises what DECODE_ERRORS names."""
    return msgspec.json.decode(text, type=kind)
