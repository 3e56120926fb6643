"""Rows as they lie in an index of this format: other tools read them too."""

import dataclasses
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gaps import Gap, Unresolved
from kafka_s3_platform.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.model.segment import (
    CommittedOffset,
    Compaction,
    Condemned,
    FoldedHours,
    FoldedLook,
    FoldedScan,
    HourRange,
    Reservation,
    Scan,
    Segment,
    StoredObject,
    TopicAcl,
    TopicGeneration,
)
from kafka_s3_platform.store.index_rows import (
    DECODE_ERRORS,
    KINDS,
    TUPLES,
    IndexRow,
    TopicRows,
    build_state,
    decode_segments,
    encode_rows,
)
from kafka_s3_platform.store.row_filter import (
    RowPredicate,
    match_any,
    match_gap,
    match_group,
    match_run,
    match_segments,
    match_unresolved,
    match_version,
)
from kafka_s3_platform_tests.support import SETTINGS

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
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
        FoldedLook(0, 1, 8, 9, 4, NOON, 3),
        "folded-look",
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


def encode(*rows: IndexRow, retired: tuple[Segment, ...] = ()) -> pa.Table:
    return encode_rows([TopicRows("t", rows, retired, "run")], COMMON)


@pytest.mark.parametrize(("row", "kind", "columns"), WRITTEN, ids=[kind for _, kind, _ in WRITTEN])
def test_a_row_is_written_in_this_form(row: IndexRow, kind: str, columns: dict[str, Any]) -> None:
    (found,) = encode(row).to_pylist()
    period = f"{SEGMENT.chunk_start:%Y-%m-%d}" if kind == "segment" else "state"
    shared = {"kind": kind, "topic": "t", "period": period, **COMMON}
    assert {name: value for name, value in found.items() if value is not None} == {**shared, **columns}


def test_every_kind_of_row_is_pinned() -> None:
    assert {kind for _, kind, _ in WRITTEN} == set(KINDS)


def test_rows_are_read_as_they_were_written() -> None:
    rows = [row for row, kind, _ in WRITTEN if kind != "segment"]
    state = build_state(7, encode(*rows))
    values = [getattr(part, field.name) for part in (state, state.fold) for field in dataclasses.fields(part)]
    found = [row for value in values if isinstance(value, tuple) for row in value]
    assert len(found) == len(rows)
    assert all(row in found for row in rows)


def test_a_retired_segment_keeps_its_columns() -> None:
    rows = encode(retired=(SEGMENT,))
    assert rows.column("kind").to_pylist() == ["retired"]
    assert [*decode_segments(rows)] == [SEGMENT]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (row, column)
        for row, kind, columns in WRITTEN
        for column in columns
        if (kind, column)
        not in {
            ("scan", "leader_epoch"),
            ("frontier", "kafka_partition_count"),
            ("folded-look", "leader_epoch"),
            ("folded-look", "kafka_partition_count"),
            ("folded-scan", "leader_epoch"),
            ("hour", "start_offset"),
            ("segment", "chunk_start"),
            ("unresolved", "min_timestamp"),
            ("unresolved", "retention_ms"),
        }
    ],
)
def test_a_row_that_lacks_a_value_is_refused(row: IndexRow, column: str) -> None:
    with pytest.raises(DECODE_ERRORS):
        decode(row, column, None)


DEEP = "[" * 100_000
BAD_TEXTS = ["", "{", "5", "[5]", DEEP, '[{"subject": 5}]', '["a", {}]', '[["a"]]', "\x00"]
NUMBERS = {"kafka_partitions", "schema_ids"}
BAD = [
    (row, column, text)
    for row, _, columns in WRITTEN
    for column in (*TUPLES, "settings")
    for text in BAD_TEXTS
    if column in columns and not (column in NUMBERS and text == "[5]")
]


@pytest.mark.parametrize(("row", "column", "text"), BAD, ids=[f"{column} {text:.9}" for _, column, text in BAD])
def test_a_row_of_such_json_is_refused(row: IndexRow, column: str, text: str) -> None:
    """No error of Python's own comes of one, however deep."""
    with pytest.raises(DECODE_ERRORS):
        decode(row, column, text)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("key", key) for key in ("", "..", "../other/x", "a/../../b", "./a", "a/.")),
        *(("size", size) for size in (-1, 2**43 + 1, 2**62)),
        *(("start_offset", offset) for offset in (-1, -(2**63), 9, 10)),
        *(("end_offset", offset) for offset in (-1, 0, 5)),
    ],
)
def test_a_segment_with_what_no_object_can_have_is_refused(column: str, value: str | int) -> None:
    with pytest.raises(ValueError, match=f"segment of version .*{column}"):
        decode(SEGMENT, column, value)


@pytest.mark.parametrize("key", ["a..b/c", "..a", "a/...", "hour=.", "/a", "a\n/b"])
def test_a_key_that_a_value_of_a_record_may_have_made_is_read(key: str) -> None:
    decode(SEGMENT, "key", key)


def changed(rows: pa.Table, column: str, value: str | int | None) -> pa.Table:
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array([value], rows.schema.field(at).type))


def decode(row: IndexRow, column: str, value: str | int | None) -> None:
    rows = changed(encode(row), column, value)
    _ = [*decode_segments(rows)] if isinstance(row, Segment) else build_state(7, rows)


@pytest.mark.parametrize(
    ("predicate", "sql"),
    [
        (
            match_run(Reservation(0, 12, 20, "run", 7, NOON)),
            "(kind = 'reservation' AND period = 'state' AND epoch = 7)",
        ),
        (match_run(Compaction(NOON, "run", 7, NOON)), "(kind = 'compaction' AND period = 'state' AND epoch = 7)"),
        (match_group("it's"), "(kind = 'group' AND period = 'state' AND group_id = 'it''s')"),
        (match_unresolved(3), "(kind = 'unresolved' AND period = 'state' AND kafka_partition = 3)"),
        (
            match_gap(Gap(0, 3, 7, "retention")),
            (
                "(kind = 'gap' AND period = 'state' AND kafka_partition = 0 AND start_offset = 3 AND end_offset = 7 "
                "AND reason = 'retention')"
            ),
        ),
        (match_segments(["a'b", "c"]), "(kind = 'segment' AND key IN ('a''b', 'c'))"),
        (
            match_any([match_unresolved(3), match_version(8)]),
            "((kind = 'unresolved' AND period = 'state' AND kafka_partition = 3) OR version = 8)",
        ),
    ],
)
def test_a_predicate_is_sql_of_quoted_values(predicate: RowPredicate, sql: str) -> None:
    assert predicate == sql
