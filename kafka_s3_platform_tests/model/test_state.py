"""When an hour is scanned, and when it is complete: never too early."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, parse_retention_ms
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import EpochMark, HourRange, Reservation, Scan, TopicGeneration
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LATE = timedelta(minutes=5)
CLOSED = NOON + HOUR + LATE


def scan(kafka_partition: int, start: int, end: int, leader_epoch: int | None = None) -> Scan:
    return Scan(kafka_partition, start, end, end - start, leader_epoch, 1)


def seen(kafka_partition: int, high_watermark: int, at: datetime, lso: int | None = None) -> Frontier:
    return Frontier(kafka_partition, 0, high_watermark if lso is None else lso, high_watermark, 0, at)


def test_an_hour_never_asked_for_is_not_scanned() -> None:
    assert not IndexState(scans=(scan(0, 0, 100),)).is_scanned(NOON)


def test_an_hour_is_scanned_when_every_kafka_partition_is_covered_as_planned() -> None:
    hours = (HourRange(NOON, 0, 10, 20), HourRange(NOON, 1, 5, 9))
    assert not IndexState(scans=(scan(0, 10, 20),), hours=hours).is_scanned(NOON)
    assert IndexState(scans=(scan(0, 10, 20), scan(1, 0, 9)), hours=hours).is_scanned(NOON)


def test_an_hour_without_records_is_scanned_once_asked_for() -> None:
    assert IndexState(hours=(HourRange(NOON, 0, 10, 10),)).is_scanned(NOON)


def test_a_high_watermark_seen_before_the_allowed_lateness_is_over_proves_nothing() -> None:
    early = seen(0, 20, CLOSED - timedelta(seconds=1))
    state = IndexState(scans=(scan(0, 0, 20),), hours=(HourRange(NOON, 0, 0, 20),), frontiers=(early,))
    assert not state.judge.is_complete(NOON, LATE)


def test_an_hour_is_complete_when_covered_up_to_a_high_watermark_seen_late_enough() -> None:
    state = IndexState(scans=(scan(0, 10, 25),), hours=(HourRange(NOON, 0, 10, 20),), frontiers=(seen(0, 25, CLOSED),))
    assert state.judge.is_complete(NOON, LATE)


def test_records_behind_the_planned_end_keep_the_hour_incomplete() -> None:
    """One record far ahead in time, or a control marker, holds ListOffsets: records of the hour may follow it."""
    state = IndexState(scans=(scan(0, 10, 20),), hours=(HourRange(NOON, 0, 10, 20),), frontiers=(seen(0, 25, CLOSED),))
    assert state.is_scanned(NOON)
    assert not state.judge.is_complete(NOON, LATE)


def test_an_open_transaction_keeps_the_hour_incomplete() -> None:
    state = IndexState(
        scans=(scan(0, 0, 20),), hours=(HourRange(NOON, 0, 0, 20),), frontiers=(seen(0, 25, CLOSED, lso=20),)
    )
    assert not state.judge.is_complete(NOON, LATE)


def test_a_hole_in_coverage_keeps_the_hour_incomplete_until_it_is_a_recorded_gap() -> None:
    given: Any = {"hours": (HourRange(NOON, 0, 0, 20),), "frontiers": (seen(0, 20, CLOSED),)}
    scans = (scan(0, 0, 8), scan(0, 12, 20))
    assert not IndexState(scans=scans, **given).judge.is_complete(NOON, LATE)
    assert IndexState(scans=scans, gaps=(Gap(0, 8, 12, "retention"),), **given).judge.is_complete(NOON, LATE)


def test_a_complete_hour_stays_complete_when_the_log_grows_and_kafka_partitions_are_added() -> None:
    later = CLOSED + timedelta(days=1)
    state = IndexState(
        scans=(scan(0, 0, 20),),
        hours=(HourRange(NOON, 0, 0, 20),),
        frontiers=(seen(0, 20, CLOSED), seen(0, 99, later), seen(1, 7, later)),
    )
    assert state.judge.is_complete(NOON, LATE)


@pytest.mark.parametrize(
    ("ends", "complete"),
    [
        ([1025], False),
        ([1025, 10], False),
        ([1025, 10, 10], True),
        ([12, 4], False),
        ([1025, 10, 12], False),
        ([1025, 10, 2000], False),
        ([12, 4, 12], False),
        ([10, 4, 12], True),
    ],
)
def test_an_end_that_no_later_look_reaches_does_not_hold_an_hour_open_for_ever(ends: list[int], complete: bool) -> None:
    """It was told too high, or the log was truncated since; an idle one would never reach it."""
    looks = tuple(seen(0, end, NOON + (n + 2) * HOUR) for n, end in enumerate(ends))
    state = IndexState(scans=(scan(0, 0, 10),), hours=(HourRange(NOON, 0, 0, 10),), frontiers=looks)
    assert state.judge.is_complete(NOON, timedelta(0)) is complete


def test_a_kafka_partition_that_the_hour_was_not_asked_of_counts_from_its_first_offset() -> None:
    given: Any = {"hours": (HourRange(NOON, 0, 0, 20),), "frontiers": (seen(0, 20, CLOSED), seen(1, 7, CLOSED))}
    assert not IndexState(scans=(scan(0, 0, 20), scan(1, 3, 7)), **given).judge.is_complete(NOON, LATE)
    assert IndexState(scans=(scan(0, 0, 20), scan(1, 0, 7)), **given).judge.is_complete(NOON, LATE)


def test_a_look_that_lacks_a_kafka_partition_the_topic_had_proves_nothing() -> None:
    """One added while the run looked, or one that did not answer: nobody knows what it holds of the hour."""
    given: Any = {"scans": (scan(0, 0, 20), scan(1, 0, 7)), "hours": (HourRange(NOON, 0, 0, 20),)}
    one = replace(seen(0, 20, CLOSED), kafka_partition_count=2)
    assert not IndexState(frontiers=(one,), **given).judge.is_complete(NOON, LATE)
    both = (one, replace(seen(1, 7, CLOSED), kafka_partition_count=2))
    assert IndexState(frontiers=both, **given).judge.is_complete(NOON, LATE)


def test_a_later_whole_look_proves_what_an_earlier_partial_one_did_not() -> None:
    later = CLOSED + HOUR
    whole = (seen(0, 20, later), seen(1, 7, later))
    frontiers = (replace(seen(0, 20, CLOSED), kafka_partition_count=2), *whole)
    state = IndexState(scans=(scan(0, 0, 20), scan(1, 0, 7)), frontiers=frontiers)
    assert state.judge.is_complete(NOON, LATE)


def test_planned_starts_only_move_down() -> None:
    """A later compaction moves ListOffsets up; what was planned first still counts."""
    hours = (HourRange(NOON, 0, 10, 20), HourRange(NOON, 0, 15, 20))
    state = IndexState(scans=(scan(0, 15, 20),), hours=hours, frontiers=(seen(0, 20, CLOSED),))
    assert not state.is_scanned(NOON)
    assert not state.judge.is_complete(NOON, LATE)


def test_reservations_conflict_only_where_offsets_meet() -> None:
    mine = Reservation(0, 10, 20, "run", 3, NOON)
    state = IndexState(reservations=(mine,))
    assert state.conflicting({0: RangeSet([OffsetRange(19, 30)])}) == (mine,)
    assert state.conflicting({0: RangeSet([OffsetRange(20, 30)]), 1: RangeSet([OffsetRange(10, 20)])}) == ()


def test_a_kafka_partition_was_added_when_the_first_archived_generation_lacks_it() -> None:
    first, second = TopicGeneration("t", "id", (0,), ()), TopicGeneration("t", "id", (0, 1), ())
    state = IndexState(generations=(first, second))
    assert state.was_added(1)
    assert not state.was_added(0)
    assert not IndexState().was_added(1)


def test_the_leader_epoch_at_a_frontier_is_that_of_the_scan_which_ended_there() -> None:
    state = IndexState(scans=(scan(0, 0, 10, leader_epoch=4), scan(0, 10, 20)))
    assert state.list_epoch_marks(0) == [EpochMark(10, 4)]


def test_an_epoch_that_no_reader_could_tell_is_that_of_the_first_look_at_a_log_which_ended_there() -> None:
    looks = tuple(
        replace(seen(p, end, NOON + n * HOUR), leader_epoch=epoch)
        for n, (p, end, epoch) in enumerate([(0, 19, 2), (1, 20, 3), (0, 20, 5), (0, 30, 6), (0, 20, 7)])
    )
    state = IndexState(scans=(scan(0, 0, 10), scan(0, 10, 20)), frontiers=looks[::-1])
    # nothing was scanned up to 30: how the log went on before is of no interest
    assert state.list_epoch_marks(0) == [EpochMark(20, 5)]


def test_a_log_is_compared_where_its_epoch_is_known_below_an_end_of_which_nobody_knows_it() -> None:
    scans = (scan(0, 0, 10, leader_epoch=4), scan(0, 10, 20, leader_epoch=5), scan(0, 30, 40))
    state = IndexState(scans=scans, gaps=(Gap(0, 20, 22, "skipped"), Gap(0, 22, 24, "skipped", 6)))
    found = {end: state.find_epoch_mark(0, 0, end) for end in (5, 10, 20, 22, 24, 30, 40)}
    assert found == {
        5: None,
        10: EpochMark(10, 4),
        20: EpochMark(20, 5),
        22: EpochMark(20, 5),
        24: EpochMark(24, 6),
        # nothing is archived right below: other scans compare what they adjoin
        30: None,
        40: None,
    }
    # retention deleted all before it; and what an accepted truncation has is lost for good
    assert state.find_epoch_mark(0, 21, 22) is None
    accepted = replace(state, gaps=(*state.gaps, Gap(0, 15, 20, "truncated")))
    assert (accepted.find_epoch_mark(0, 0, 22), accepted.find_epoch_mark(0, 0, 24)) == (
        EpochMark(10, 4),
        EpochMark(24, 6),
    )


def test_taken_over_offsets_are_covered_and_known_apart_from_lost_ones() -> None:
    taken, lost = Gap(0, 0, 10, "taken over"), Gap(0, 10, 12)
    state = IndexState(gaps=(taken, lost), scans=(scan(0, 12, 20),))
    assert (taken.is_lost, lost.is_lost) == (False, True)
    assert state.gap_offsets(0, "taken over") == RangeSet([OffsetRange(0, 10)])
    assert state.coverage(0) == RangeSet([OffsetRange(0, 20)])
    assert state.gap_offsets(1, "taken over") == RangeSet()


def test_an_hour_tells_how_many_of_its_offsets_were_taken_over() -> None:
    hours = (HourRange(NOON, 0, 5, 15), HourRange(NOON, 1, 0, 4), HourRange(NOON + HOUR, 0, 15, None))
    looks = (seen(0, 20, CLOSED), seen(1, 4, CLOSED))
    state = IndexState(gaps=(Gap(0, 0, 10, "taken over"), Gap(1, 0, 4)), hours=hours, frontiers=looks)
    assert [state.judge.find_verdict(NOON + n * HOUR, LATE).taken_over_count for n in range(3)] == [5, 0, 10]
    all_taken = IndexState(gaps=(Gap(0, 0, 20, "taken over"),), hours=hours, frontiers=looks)
    assert all_taken.judge.find_verdict(NOON + HOUR, LATE).taken_over_count == 5


def test_coverage_is_contiguous_up_to_its_first_hole() -> None:
    state = IndexState(scans=(scan(0, 0, 5), scan(0, 5, 8), scan(0, 9, 12), scan(1, 3, 4)))
    assert state.contiguous_ends == {0: 8, 1: 4}
    assert IndexState().contiguous_ends == {}


def test_an_offset_belongs_to_the_latest_hour_that_was_planned_to_hold_it() -> None:
    empty = HourRange(NOON + HOUR, 0, 10, 10)
    hours = (HourRange(NOON, 0, 5, 12), empty, HourRange(NOON + 2 * HOUR, 0, 10, 20))
    state = IndexState(hours=hours)
    found = [state.hour_of(0, offset) for offset in (4, 5, 9, 10, 19, 20)]
    assert found == [None, NOON, NOON, NOON + 2 * HOUR, NOON + 2 * HOUR, None]
    assert state.hour_of(1, 5) is None


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({}, -1),
        ({"retention.ms": "-1"}, -1),
        ({"retention.ms": "60000"}, 60_000),
        ({"retention.ms": "60000", "cleanup.policy": "compact"}, -1),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, 60_000),
    ],
)
def test_retention_counts_where_age_deletes(configs: dict[str, str], kept: int) -> None:
    assert parse_retention_ms(configs) == kept


@pytest.mark.parametrize(("start", "stable", "end"), [(0, 0, 0), (3, 3, 3), (3, 4, 9), (0, 9, 9)])
def test_a_frontier_is_that_of_a_log(start: int, stable: int, end: int) -> None:
    assert Frontier(0, start, stable, end, None, NOON).high_watermark == end


@pytest.mark.parametrize(("start", "stable", "end"), [(-1, 0, 0), (-1001,) * 3, (0, -1, 5), (4, 3, 9), (4, 9, 3)])
def test_what_no_log_can_be_is_no_frontier(start: int, stable: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"no log starts at {start}, is stable up to {stable} and ends at {end}"):
        Frontier(7, start, stable, end, None, NOON)
