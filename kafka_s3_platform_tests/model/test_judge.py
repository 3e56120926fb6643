"""What may be of an hour, what became of it, and what the judge says."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import HourRange, Scan
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NONE = timedelta(0)


def scan(start: int, end: int) -> Scan:
    return Scan(0, start, end, end - start, 0, 1)


def look(hours: float, end: int, log_start: int = 0) -> Frontier:
    """A look so many hours after noon."""
    return Frontier(0, log_start, end, end, 0, NOON + hours * HOUR, 1)


def unresolved(start: int, end: int, minute: int | None = None) -> Unresolved:
    time = None if minute is None else to_epoch_ms(NOON + timedelta(minutes=minute))
    return Unresolved(0, start, end, "batch", "it is damaged", NOON, time)


def lacking(state: IndexState, hours: int) -> dict[str, list[tuple[int, int]]]:
    """What the hour may lack that begins so many hours after noon."""
    found: dict[str, list[tuple[int, int]]] = {}
    for gap in state.judge.find_verdict(NOON + hours * HOUR, NONE).lacking:
        found.setdefault(gap.reason, []).append((gap.start_offset, gap.end_offset))
    return found


def test_each_offset_up_to_the_highest_end_has_one_fate() -> None:
    state = IndexState(
        scans=(scan(20, 50), scan(60, 70)),
        gaps=(Gap(0, 10, 20, "taken over"), Gap(0, 40, 60, "truncated"), Gap(0, 70, 75, "skipped"), Gap(0, 62, 64)),
        failures=(unresolved(76, 78),),
        frontiers=(look(1, 90, log_start=5), look(2, 80, log_start=5), look(3, 85, log_start=5)),
    )
    assert state.judge.get_ledger(0).ranges == (
        (OffsetRange(0, 5), "before archiving began"),
        (OffsetRange(5, 10), "expected"),
        (OffsetRange(10, 20), "taken over"),
        (OffsetRange(20, 40), "archived"),
        (OffsetRange(40, 60), "truncated"),
        (OffsetRange(60, 62), "archived"),
        # the scan went on over what was deleted while it read
        (OffsetRange(62, 64), "retention"),
        (OffsetRange(64, 70), "archived"),
        (OffsetRange(70, 75), "skipped"),
        (OffsetRange(75, 76), "expected"),
        (OffsetRange(76, 78), "unresolved"),
        (OffsetRange(78, 85), "expected"),
        # no record is there any more
        (OffsetRange(85, 90), "cut off"),
    )


def test_a_kafka_partition_that_was_never_seen_has_no_ledger() -> None:
    assert IndexState().judge.get_ledger(0).ranges == ()
    assert str(IndexState().judge.find_verdict(NOON, NONE)) == (
        "not complete: the log was not looked at since it was over"
    )


def test_a_gap_counts_for_every_hour_that_it_may_touch() -> None:
    state = IndexState(
        scans=(scan(0, 10), scan(50, 80)),
        gaps=(Gap(0, 10, 50),),
        hours=(HourRange(NOON, 0, 0, 10), HourRange(NOON + HOUR, 0, 50, 55, 50)),
        frontiers=(look(1, 10), look(5.1, 80, log_start=50), look(6.1, 80, log_start=50), look(7.1, 80, log_start=50)),
    )
    # noon was proven before; what begins after two looks at what is left cannot have lost it
    assert [bool(lacking(state, n)) for n in range(8)] == [False, True, True, True, True, True, True, False]
    assert lacking(state, 3) == {"retention": [(10, 50)]}
    assert str(state.judge.find_verdict(NOON + HOUR, NONE)) == (
        "complete, but for offsets that may be of it: 40 retention"
    )


def test_what_an_hours_plan_passed_over_is_not_of_it_as_far_as_the_log_was_there() -> None:
    looks = (look(9, 80, log_start=20), look(9.1, 80, log_start=20))
    for log_start, may_lack in ((20, [(0, 20)]), (0, [])):
        hours = (HourRange(NOON, 0, 40, 50, log_start),)
        state = IndexState(scans=(scan(30, 80),), hours=hours, frontiers=looks)
        verdict = state.judge.find_verdict(NOON, NONE)
        assert verdict.is_complete
        assert lacking(state, 0).get("before archiving began", []) == may_lack
        # of an hour that was never planned, nothing is known
        assert not state.judge.is_complete(NOON + HOUR, NONE)


@pytest.mark.parametrize(
    ("ends", "minute", "is_complete"),
    [
        ([20, 30], None, False),
        ([20, 30], 59, False),
        ([20, 30], 60, True),
        ([20, 20, 30], None, True),
        ([20], None, True),
    ],
)
def test_an_unresolved_offset_that_only_one_look_calls_later_counts_for_the_hour(
    ends: Sequence[int], minute: int | None, is_complete: bool
) -> None:
    looks = tuple(look(1 + n / 10, end) for n, end in enumerate(ends))
    state = IndexState(scans=(scan(0, 24), scan(27, 30)), frontiers=looks, failures=(unresolved(24, 27, minute),))
    assert state.judge.is_complete(NOON, NONE) is is_complete
    assert state.judge.find_verdict(NOON, NONE).is_complete is is_complete


def test_what_was_cut_off_is_told_of_the_hours_that_had_begun_and_reached_it() -> None:
    """The log ended at 40 after hour 13, and at 30 when hour 15 was over. It grew to 60."""
    cut = Gap(0, 30, 40, "cut off", observed_at=NOON + 4.1 * HOUR)
    looks = (look(1, 25), look(2, 40), look(4.1, 50), look(5.1, 60))
    state = IndexState(scans=(scan(0, 60),), gaps=(cut,), frontiers=looks)
    assert [lacking(state, n) for n in range(6)] == [{}, *[{"cut off": [(30, 40)]}] * 4, {}]


def test_a_planned_start_is_void_behind_the_place_where_the_log_was_cut() -> None:
    hours = (HourRange(NOON, 0, 12, 12),)
    looks = (look(1, 12), look(1.1, 12))
    state = IndexState(scans=(scan(0, 2),), hours=hours, frontiers=looks)
    assert state.judge.is_complete(NOON, NONE)
    cut = Gap(0, 2, 12, "cut off", observed_at=NOON + 1.1 * HOUR)
    assert str(replace(state, gaps=(cut,)).judge.find_verdict(NOON, NONE)) == "not complete: 10 offsets expected"


def test_nothing_is_left_out_where_all_is_archived() -> None:
    assert IndexState(scans=(scan(0, 9),), frontiers=(look(1, 9),)).judge.left_out == ()
    gaps = (Gap(0, 0, 4, "taken over"), Gap(0, 4, 6, "cut off"))
    assert IndexState(scans=(scan(4, 9),), gaps=gaps, frontiers=(look(1, 9),)).judge.left_out == gaps
