"""Rows that say what cannot be prove nothing, whatever else the index holds."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index_rows import INDEX_SCHEMA, build_state
from kafka_s3_platform.store.sound import BROKEN, DOUBTFUL, FUTURE, Judged, judge_rows

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
CLOSED = NOON + HOUR
NOW = NOON + timedelta(days=10)
NONE = timedelta()
INVALID = -1001
"""What librdkafka answers of a broker that is going down."""

Given = Mapping[str, Any]


def frontier(
    version: int, at: datetime, kafka_partition: int = 0, offsets: tuple[int, int, int] = (0, 20, 20)
) -> Given:
    names = ("log_start_offset", "last_stable_offset", "high_watermark")
    seen = dict(zip(names, offsets, strict=True))
    return {"kind": "frontier", "version": version, "kafka_partition": kafka_partition, "observed_at": at, **seen}


def ranged(kind: str, version: int, start: int, end: int | None, kafka_partition: int = 0, **more: Any) -> Given:
    counts = {"record_count": 0, "epoch": 1, "output_count": 0, "filtered_count": 0, "dead_letter_count": 0}
    place = {"kafka_partition": kafka_partition, "start_offset": start, "end_offset": end}
    return {"kind": kind, "version": version, **place, **counts, "reason": "retention", **more}


def hour(version: int, start: int, end: int | None, kafka_partition: int = 0) -> Given:
    return ranged("hour", version, start, end, kafka_partition, hour=NOON)


def judge(rows: Sequence[Given], written_at: Mapping[int, datetime] | None = None) -> Judged:
    common = {"commit_id": "", "committed_at": NOW}
    return judge_rows(pa.Table.from_pylist([{**common, **r} for r in rows], schema=INDEX_SCHEMA), NOW, written_at)


def state(*rows: Given) -> IndexState:
    return build_state(9, judge(rows).sound)


def why(judgement: Judged) -> list[tuple[str, str]]:
    return [(r["kind"], r["why"]) for r in judgement.bad.to_pylist()]


def test_an_index_without_bad_rows_is_read_as_it_is() -> None:
    found = judge([frontier(1, CLOSED), hour(1, 0, 20), ranged("scan", 2, 0, 20)])
    assert found.sound.equals(found.all)
    assert found.bad.num_rows == 0
    assert build_state(9, found.sound).is_complete(NOON, NONE)


def test_an_empty_index_is_read() -> None:
    assert build_state(0, judge([]).sound).frontiers == ()


@pytest.mark.parametrize(
    "offsets", [(INVALID, INVALID, INVALID), (-1, 20, 20), (0, 20, 10), (9, 5, 20), (0, INVALID, 20), (0, 0, INVALID)]
)
def test_a_log_that_cannot_be_completes_no_hour(offsets: tuple[int, int, int]) -> None:
    rows = [frontier(1, CLOSED, 0, offsets), ranged("scan", 2, 0, 20)]
    assert not state(*rows).is_complete(NOON, NONE)
    assert why(judge(rows)) == [("frontier", BROKEN)]


def test_a_look_with_one_bad_kafka_partition_proves_nothing_of_the_others() -> None:
    """Left out alone, the bad one would leave a look that seems whole."""
    bad = [frontier(1, CLOSED, 0, (7, 20, 20)), frontier(1, CLOSED, 1, (0, INVALID, 20)), hour(1, 7, 20)]
    rows = [*bad, ranged("scan", 2, 0, 20)]
    found = state(*rows)
    assert not found.is_complete(NOON, NONE)
    assert not found.is_scanned(NOON)
    assert found.hour_start(0, NOON) == 7
    assert found.promised_start(0, None) == 7
    assert sorted(why(judge(rows))) == [("frontier", BROKEN), ("frontier", DOUBTFUL), ("hour", DOUBTFUL)]


def test_an_hour_range_that_cannot_be_leaves_its_hour_open() -> None:
    rows = [frontier(1, CLOSED), frontier(1, CLOSED, 1), hour(1, 0, 20), hour(1, INVALID, INVALID, 1)]
    assert not state(*rows, ranged("scan", 2, 0, 20)).is_scanned(NOON)


@pytest.mark.parametrize("kind", ["scan", "gap", "reservation", "unresolved"])
@pytest.mark.parametrize(("start", "end"), [(INVALID, 20), (20, 20), (21, 20), (INVALID, INVALID)])
def test_ranges_that_cannot_be_are_no_coverage_and_hold_nobody_up(kind: str, start: int, end: int) -> None:
    found = state(ranged(kind, 1, start, end), ranged("scan", 2, 0, 5))
    assert str(found.coverage(0).ranges[0]) == "[0, 5)"
    assert found.conflicting({0: found.coverage(0)}) == ()
    assert found.failures == ()


def test_a_later_good_look_heals_the_hour() -> None:
    bad = frontier(1, CLOSED, 0, (INVALID, INVALID, INVALID))
    assert state(bad, frontier(2, CLOSED + HOUR), ranged("scan", 2, 0, 20)).is_complete(NOON, NONE)


def test_a_look_after_the_readers_now_proves_nothing() -> None:
    future = NOW + timedelta(days=1)
    rows = [frontier(1, future), ranged("hour", 1, 20, 20, hour=NOW), ranged("scan", 2, 0, 20)]
    found = state(*rows)
    assert not found.is_complete(NOW, NONE)
    assert not found.is_scanned(NOW)
    assert found.hour_start(0, NOW) == 20
    assert [w for _, w in why(judge(rows))] == [FUTURE, DOUBTFUL]


@pytest.mark.parametrize(("seconds", "believed"), [(0, True), (59, True), (61, False)])
def test_a_minute_is_what_clocks_may_be_apart(seconds: int, believed: bool) -> None:
    row = frontier(1, NOW + timedelta(seconds=seconds))
    assert state(row, ranged("scan", 2, 0, 20)).is_complete(NOON, NONE) == believed


def test_a_look_that_was_recorded_before_an_earlier_one_was_from_the_future_and_stays_so() -> None:
    """Also when its time has come meanwhile."""
    rows = [frontier(1, NOON + timedelta(days=1)), frontier(2, NOON - HOUR), ranged("scan", 2, 0, 20)]
    assert not state(*rows).is_complete(NOON, NONE)
    assert [w for _, w in why(judge(rows))] == [FUTURE]


def test_the_time_at_which_the_store_wrote_it_finds_a_look_from_the_future_for_ever() -> None:
    rows = [frontier(1, CLOSED), ranged("scan", 2, 0, 20)]
    assert why(judge(rows, {1: CLOSED + HOUR})) == []
    assert why(judge(rows, {1: NOON})) == [("frontier", FUTURE)]


def test_where_the_log_first_began_is_known_also_by_a_look_of_a_wrong_clock() -> None:
    """Else all below the log's start would be owed."""
    rows = [frontier(1, NOW + HOUR, 0, (10, 20, 20)), frontier(2, CLOSED, 0, (15, 30, 30)), ranged("scan", 2, 10, 30)]
    assert state(*rows).promised_start(0, None) == 10


OFFSET = st.integers(-1001, 30)
LOOK = st.tuples(st.integers(1, 4), st.integers(0, 1), st.tuples(OFFSET, OFFSET, OFFSET), st.integers(-3, 3))


@given(st.lists(LOOK, max_size=8), st.integers(0, 30), st.integers(0, 30))
def test_an_hour_is_complete_only_by_a_look_that_is_sound_in_every_row(
    looks: list[tuple[int, int, tuple[int, int, int], int]], first_end: int, second_end: int
) -> None:
    """The rule, told another way. Hours are from now: looks of versions 1 to 4, at most three hours off it."""
    rows = [frontier(version, NOW + hours * HOUR, p, offsets) for version, p, offsets, hours in looks]
    ends = (first_end, second_end)
    scans = [ranged("scan", 9, 0, end, p) for p, end in enumerate(ends)]
    found = state(*({**r, "kafka_partition_count": 2} for r in rows), *scans)

    def proves(version: int, at: datetime) -> bool:
        mine = [r for r in rows if r["version"] == version]
        kept = {r["kafka_partition"]: r["high_watermark"] for r in mine if r["observed_at"] == at}
        times = [r["observed_at"] for r in rows if r["version"] > version]
        sound = all(0 <= r["log_start_offset"] <= r["last_stable_offset"] <= r["high_watermark"] for r in mine)
        covered = all(r["high_watermark"] <= ends[r["kafka_partition"]] for r in mine if r["observed_at"] == at)
        return sound and covered and len(kept) == 2 and at <= min([NOW, *times])

    asked = NOW - 2 * HOUR
    proofs = [r for r in rows if r["observed_at"] >= asked + HOUR and proves(r["version"], r["observed_at"])]
    assert not found.is_complete(asked, NONE) or proofs
