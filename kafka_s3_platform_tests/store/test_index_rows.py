"""Rows as they lie in an index of this format: other tools read them too.

Rows that say what cannot be: of offsets they are refused and named, a look from the future completes nothing.
"""

import dataclasses
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import IndexDamagedError
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.core.model.segment import Compaction, Reservation, Segment
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import (
    DECODE_ERRORS,
    INDEX_SCHEMA,
    KINDS,
    OFFSETS,
    TUPLES,
    IndexRow,
    build_state,
    decode_segments,
    drop_future_times,
    refuse_damaged,
)
from kafka_s3_platform.core.store.row_filter import (
    RowPredicate,
    match_any,
    match_gap,
    match_group,
    match_run,
    match_segments,
    match_unresolved,
    match_version,
)
from kafka_s3_platform_tests.store.rows import COMMON, SEGMENT, WRITTEN, Given, changed, encode, frontier, row
from kafka_s3_platform_tests.support import NOON, connector

DEEP = "[" * 100_000
BAD_TEXTS = ["", "{", "5", "[5]", DEEP, '[{"subject": 5}]', '["a", {}]', '[["a"]]', "\x00"]
NUMBERS = {"kafka_partitions", "schema_ids"}

CLOSED = NOON + HOUR
NOW = NOON + timedelta(days=10)
NONE = timedelta()
INVALID = -1001
"""What librdkafka answers of a broker that is going down."""


FRONTIERS = ("frontier", "folded-frontier")
RANGES = ("segment", "scan", "folded-scan", "gap", "reservation", "unresolved")


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
            ("compaction", "chunk_start"),
            ("scan", "leader_epoch"),
            ("frontier", "kafka_partition_count"),
            ("folded-frontier", "leader_epoch"),
            ("folded-frontier", "kafka_partition_count"),
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
        (match_segments(["a'b", "c"]), "(kind IN ('segment') AND key IN ('a''b', 'c'))"),
        (
            match_any([match_unresolved(3), match_version(8)]),
            "((kind = 'unresolved' AND period = 'state' AND kafka_partition = 3) OR version = 8)",
        ),
    ],
)
def test_a_predicate_is_sql_of_quoted_values(predicate: RowPredicate, sql: str) -> None:
    assert predicate == sql


def table(*rows: Given) -> pa.Table:
    common = {"commit_id": "", "committed_at": NOW, "version": 7, "kafka_partition": 3}
    return pa.Table.from_pylist([{**common, **row} for row in rows], schema=INDEX_SCHEMA)


SCAN = {
    **row("scan", 0, 20), "record_count": 20, "epoch": 1, "filtered_count": 0, "dead_letter_count": 0,
    "output_count": 20,
}  # fmt: skip


def state(*rows: Given) -> IndexState:
    return build_state(9, drop_future_times(table(*rows), NOW))


def refuses(*rows: Given) -> bool:
    try:
        refuse_damaged(rows[0]["kind"], table(*rows), ())
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("kind", FRONTIERS)
@pytest.mark.parametrize(
    "offsets",
    [
        (INVALID, INVALID, INVALID),
        (-1, 20, 20),
        (0, 20, 10),
        (9, 5, 20),
        (0, INVALID, 20),
        (0, 0, INVALID),
    ],
)
def test_a_log_that_cannot_be_is_refused(kind: str, offsets: tuple[int, ...]) -> None:
    assert refuses(row(kind, *offsets))
    assert not refuses(row(kind, 0, 0, 0), row(kind, 5, 6, 7))


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(("start", "end"), [(INVALID, 20), (20, 20), (21, 20), (INVALID, INVALID)])
def test_a_range_that_cannot_be_is_refused(kind: str, start: int, end: int) -> None:
    assert refuses(row(kind, 0, 1), row(kind, start, end))
    assert not refuses(row(kind, 0, 1))


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [(5, 5, False), (None, 5, False), (5, None, False), (6, 5, True), (-1, 5, True), (None, INVALID, True)],
)
def test_an_hour_may_be_empty_or_unknown_and_never_ends_before_it_starts(
    start: int | None, end: int | None, is_refused: bool
) -> None:
    assert refuses(row("hour", start, end)) == is_refused


def test_a_group_that_reads_before_the_log_is_refused() -> None:
    assert refuses(row("group", INVALID))
    assert not refuses(row("group", 0))


@given(st.sampled_from(sorted(OFFSETS)), st.lists(st.integers(INVALID, 30), min_size=3, max_size=3))
def test_what_is_read_ascends_from_0(kind: str, numbers: list[int]) -> None:
    offsets = numbers[: len(OFFSETS[kind])]
    may_be = offsets == sorted(offsets) and offsets[0] >= 0 and (kind not in RANGES or offsets[0] < offsets[1])
    assert refuses(row(kind, *offsets)) != may_be


def test_the_row_is_named() -> None:
    with pytest.raises(ValueError, match=r"^gap of version 7, kafka partition 3: start_offset -9, end_offset 0$"):
        build_state(9, table({**row("gap", -9, 0), "reason": "retention"}))
    with pytest.raises(
        ValueError, match=r"frontier of .*: log_start_offset 0, last_stable_offset 20, high_watermark 9"
    ):
        build_state(9, table({**row("frontier", 0, 20, 9), "observed_at": NOON}))


def test_a_look_is_believed_as_far_ahead_as_the_connector_lets_clocks_differ(store_settings: StoreSettings) -> None:
    config = connector(KafkaSettings(bootstrap_servers="b:1"), store_settings, "t")
    ahead = datetime.now(timezone.utc) + timedelta(minutes=5)
    TopicIndex.of(config, "t").open().commit(Change((Frontier(0, 0, 20, 20, None, ahead),)))
    for tolerance, believed in ((60_000, False), (600_000, True)):
        archive = config.archive.model_copy(update={"clock_tolerance_ms": tolerance})
        own = config.model_copy(update={"archive": archive})
        for found in (TopicIndex.of(own, "t").open().state, ConnectorIndex.of(own).open().topic("t").state):
            assert (found.frontiers[-1].observed_at == ahead) == believed


def test_an_index_with_such_a_row_is_not_read(store_settings: StoreSettings) -> None:
    index = TopicIndex(ConnectorIndex(store_settings, "_index", "c"), "t")
    index.open().commit(Change((Gap(0, -9, 0),)))
    with pytest.raises(IndexDamagedError, match=r"rows of topic t that .*gap of version 1, .*start_offset -9.* backup"):
        _ = index.open().state
    whole = index.within_connector.open()
    whole.commit({"another": Change(run_id="r")})
    assert index.within_connector.open().topic("another").state.gaps == ()


def test_a_look_after_the_readers_now_proves_nothing() -> None:
    future = NOW + timedelta(days=1)
    found = state(frontier(future, 10), SCAN)
    assert not found.judge.is_complete(NOW, NONE)
    assert not found.judge.is_complete(NOON, NONE)
    assert found.find_first_log_start(3) == 10


def test_a_later_good_look_heals_the_hour() -> None:
    assert state(frontier(NOW + HOUR), frontier(CLOSED), SCAN).judge.is_complete(NOON, NONE)


def test_schemas_come_back_as_they_were_committed(index: TopicIndex) -> None:
    common = ArchivedSchema("http://r", 1, "PROTOBUF", 'message "M"', (SubjectVersion("it's", 3, None),))
    main = ArchivedSchema(
        "http://r",
        2,
        "PROTOBUF",
        "text\nof two lines",
        (SubjectVersion("a-value", 1, "FULL"), SubjectVersion("b-value", 2, "NONE")),
        (SchemaReference("m.proto", "it's", 3, 1), SchemaReference("n.proto", "n", 1, 3)),
    )
    index.open().commit(Change((common, main), run_id="run"))
    assert index.open().state.schemas == (common, main)
