"""Rows of an index as tests write them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.core.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
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
from kafka_s3_platform.core.store.index_rows import OFFSETS, IndexRow, TopicRows, encode_rows
from kafka_s3_platform_tests.support import NOON, SETTINGS

COMMON = {"version": 7, "commit_id": "commit", "committed_at": NOON, "run_id": "run"}

SEGMENT = Segment(
    "a'b",
    "hourly",
    NOON,
    "hour=12",
    3,
    5,
    9,
    4,
    1,
    99,
    55,
    "etag",
    "sha",
    "digest",
    1,
    2,
    SETTINGS,
    6,
    (StoredObject("a.keys", 1, "e", "s"),),
    (41, 42),
)
SEGMENT_COLUMNS = {
    "kafka_partition": 3,
    "start_offset": 5,
    "end_offset": 9,
    "key": "a'b",
    "chunk": "hourly",
    "chunk_start": NOON,
    "encoded_partition": "hour=12",
    "record_count": 4,
    "late_count": 1,
    "record_bytes": 99,
    "size": 55,
    "etag": "etag",
    "sha256": "sha",
    "digest": "digest",
    "min_timestamp": 1,
    "max_timestamp": 2,
    "settings": SETTINGS,
    "epoch": 6,
    "siblings": '[{"key": "a.keys", "size": 1, "etag": "e", "sha256": "s"}]',
    "schema_ids": "[41, 42]",
}

WRITTEN: tuple[tuple[IndexRow, str, dict[str, Any]], ...] = (
    (SEGMENT, "segment", SEGMENT_COLUMNS),
    (
        Scan(0, 1, 9, 8, 4, 6, 1, 2, 5),
        "scan",
        {
            "kafka_partition": 0,
            "start_offset": 1,
            "end_offset": 9,
            "record_count": 8,
            "leader_epoch": 4,
            "epoch": 6,
            "filtered_count": 1,
            "dead_letter_count": 2,
            "output_count": 5,
        },
    ),
    (
        Gap(0, 3, 7, "retention"),
        "gap",
        {"kafka_partition": 0, "start_offset": 3, "end_offset": 7, "reason": "retention"},
    ),
    (
        Frontier(0, 1, 20, 25, None, NOON, 2),
        "frontier",
        {
            "kafka_partition": 0,
            "log_start_offset": 1,
            "last_stable_offset": 20,
            "high_watermark": 25,
            "observed_at": NOON,
            "kafka_partition_count": 2,
        },
    ),
    (
        HourRange(NOON, 0, 3, None, 2),
        "hour",
        {"kafka_partition": 0, "start_offset": 3, "hour": NOON, "log_start_offset": 2},
    ),
    (
        Reservation(0, 12, 20, "run", 7, NOON),
        "reservation",
        {"kafka_partition": 0, "start_offset": 12, "end_offset": 20, "epoch": 7, "reserved_at": NOON},
    ),
    (Compaction(NOON, "run", 7, NOON), "compaction", {"chunk_start": NOON, "epoch": 7, "reserved_at": NOON}),
    (Condemned("k", 0, 4, 7), "condemned", {"key": "k", "kafka_partition": 0, "start_offset": 4, "epoch": 7}),
    (
        TopicGeneration("t", "id", (0, 1), (("retention.ms", "5"),), (TopicAcl("User:a", "*", "READ", "ALLOW"),)),
        "topic",
        {
            "topic": "t",
            "topic_id": "id",
            "kafka_partitions": "[0, 1]",
            "configs": '[["retention.ms", "5"]]',
            "acls": '[{"principal": "User:a", "host": "*", "operation": "READ", "permission": "ALLOW"}]',
        },
    ),
    (
        CommittedOffset("g", 0, 4, "m", None, "EMPTY", NOON),
        "group",
        {
            "group_id": "g",
            "kafka_partition": 0,
            "committed_offset": 4,
            "metadata": "m",
            "group_state": "EMPTY",
            "observed_at": NOON,
        },
    ),
    (
        ArchivedSchema(
            "http://r",
            5,
            "AVRO",
            '"int"',
            (SubjectVersion("s", 1, "FULL", '{"normalize": true}'),),
            (SchemaReference("n", "s", 2, 4),),
            '{"metadata": {"properties": {"owner": "a"}}}',
        ),
        "schema",
        {
            "registry_url": "http://r",
            "schema_id": 5,
            "schema_type": "AVRO",
            "schema_text": '"int"',
            "subjects": '[{"subject": "s", "version": 1, "compatibility": "FULL", '
            '"other_settings": "{\\"normalize\\": true}"}]',
            "schema_references": '[{"name": "n", "subject": "s", "version": 2, "schema_id": 4}]',
            "other_fields": '{"metadata": {"properties": {"owner": "a"}}}',
        },
    ),
    (
        Unresolved(0, 3, 4, "batch", "what", NOON, 1, 2),
        "unresolved",
        {
            "kafka_partition": 0,
            "start_offset": 3,
            "end_offset": 4,
            "reason": "batch",
            "message": "what",
            "found_at": NOON,
            "min_timestamp": 1,
            "retention_ms": 2,
        },
    ),
    (
        FoldedScan(0, 1, 9, 8, 4, 6, 1, 2, 5),
        "folded-scan",
        {
            "kafka_partition": 0,
            "start_offset": 1,
            "end_offset": 9,
            "record_count": 8,
            "leader_epoch": 4,
            "epoch": 6,
            "filtered_count": 1,
            "dead_letter_count": 2,
            "output_count": 5,
        },
    ),
    (
        FoldedFrontier(0, 1, 8, 9, 4, NOON, 3),
        "folded-frontier",
        {
            "kafka_partition": 0,
            "log_start_offset": 1,
            "last_stable_offset": 8,
            "high_watermark": 9,
            "leader_epoch": 4,
            "observed_at": NOON,
            "kafka_partition_count": 3,
        },
    ),
    (FoldedHours(NOON, 7), "folded-hours", {"hour": NOON, "size": 7}),
)

Given = Mapping[str, Any]


def segment(key: str, start: int = 0, end: int = 10) -> Segment:
    return Segment(
        key, "hourly", NOON, "hour=12", 0, start, end, 10, 2, 99, 55, "etag", "sha", "digest", 1, 2, SETTINGS, 1
    )


def encode(*rows: IndexRow, retired: tuple[Segment, ...] = ()) -> pa.Table:
    return encode_rows([TopicRows("t", rows, {"retired": retired}, "run")], COMMON)


def changed(rows: pa.Table, column: str, value: str | int | None) -> pa.Table:
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array([value], rows.schema.field(at).type))


def row(kind: str, *offsets: int | None) -> Given:
    return {"kind": kind, **dict(zip(OFFSETS[kind], offsets, strict=True))}


def frontier(at: datetime, start: int = 0) -> Given:
    return {**row("frontier", start, 20, 20), "observed_at": at}
