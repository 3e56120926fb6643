"""Rows that say what cannot be: of offsets they are refused and named, a look from the future completes nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.errors import IndexDamagedError
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gaps import Gap
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.index_rows import INDEX_SCHEMA, OFFSETS, build_state, drop_future_times, refuse_damaged
from kafka_s3_platform_tests.support import connector

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
CLOSED = NOON + HOUR
NOW = NOON + timedelta(days=10)
NONE = timedelta()
INVALID = -1001
"""What librdkafka answers of a broker that is going down."""

Given = Mapping[str, Any]
LOOKS = ("frontier", "folded-look")
RANGES = ("scan", "folded-scan", "gap", "reservation", "unresolved")


def table(*rows: Given) -> pa.Table:
    common = {"commit_id": "", "committed_at": NOW, "version": 7, "kafka_partition": 3}
    return pa.Table.from_pylist([{**common, **row} for row in rows], schema=INDEX_SCHEMA)


def row(kind: str, *offsets: int | None) -> Given:
    return {"kind": kind, **dict(zip(OFFSETS[kind], offsets, strict=True))}


def frontier(at: datetime, start: int = 0) -> Given:
    return {**row("frontier", start, 20, 20), "observed_at": at}


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


@pytest.mark.parametrize("kind", LOOKS)
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


@pytest.mark.integration
def test_a_look_is_believed_as_far_ahead_as_the_connector_lets_clocks_differ(store_settings: StoreSettings) -> None:
    config = connector(KafkaSettings(bootstrap_servers="b:1"), store_settings, "t")
    ahead = datetime.now(timezone.utc) + timedelta(minutes=5)
    TopicIndex.of(config, "t").open().commit(Change((Frontier(0, 0, 20, 20, None, ahead),)))
    for tolerance, believed in ((60_000, False), (600_000, True)):
        archive = config.archive.model_copy(update={"clock_tolerance_ms": tolerance})
        own = config.model_copy(update={"archive": archive})
        for found in (TopicIndex.of(own, "t").open().state, ConnectorIndex.of(own).open().topic("t").state):
            assert (found.frontiers[-1].observed_at == ahead) == believed


@pytest.mark.integration
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
