"""What a run decides to read, from ListOffsets and the index.

Tasks dealt out into groups: in order, of about the same cost, the large ones alone.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kafka_s3_platform.core.archive.plan import PlanInput, ReservablePlan, compute_cell_size, plan_hours, plan_until_now
from kafka_s3_platform.core.archive.run import TASK_COST, group_tasks
from kafka_s3_platform.core.archive.task import ScanTask
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import BrokerUnavailableError, LogTruncatedError, OffsetGapError
from kafka_s3_platform.core.kafka.admin import TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import HourRange, Scan, TopicGeneration
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms
from kafka_s3_platform.core.spark.runner import GROUP_COST, GROUPS_PER_SLOT
from kafka_s3_platform_tests.support import NOON

NOW = NOON + timedelta(days=10)

FALSE_GAP = Gap(0, 0, 15, "retention")
"""Recorded when a broker told a log start that was too high."""


def config(flush_size: int | None = None, allow_gaps: bool = False) -> ConnectorConfig:
    return ConnectorConfig(
        name="c",
        topics=("t",),
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", common={"sasl.password": SecretStr("x")}),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(flush_size=flush_size),
        archive=ArchiveSettings(start_hour=NOON - timedelta(days=30), allow_gaps=allow_gaps, allowed_lateness_ms=0),
    )


def planning(
    records: Mapping[int, datetime],
    *,
    state: IndexState | None = None,
    log_start: int = 0,
    lso: int | None = None,
    now: datetime = NOW,
    allow_gaps: bool = False,
    flush_size: int | None = None,
) -> PlanInput:
    """One kafka partition whose log holds `records` (offset -> timestamp)."""
    end = max(records, default=-1) + 1
    stable = end if lso is None else lso

    def lookup(kafka_partitions: Iterable[int], times: Sequence[int]) -> Answers[int, Mapping[int, OffsetAtTime]]:
        found = {
            t: [o for o, at in sorted(records.items()) if to_epoch_ms(at) >= t and log_start <= o < stable]
            for t in times
        }
        offsets: Mapping[int, OffsetAtTime] = {t: RecordOffset(each[0]) if each else None for t, each in found.items()}
        return Answers(dict.fromkeys(kafka_partitions, offsets), {})

    return PlanInput(
        config(flush_size, allow_gaps),
        TopicDescription("t", "id-1", (0,), {}),
        {0: Frontier(0, log_start, stable, end, 0, now)},
        state or IndexState(),
        lookup,
    )


def hourly(hours: int, each: int) -> dict[int, datetime]:
    """`each` records an hour from noon on."""
    return {h * each + i: NOON + h * HOUR + timedelta(minutes=i) for h in range(hours) for i in range(each)}


def covered(*ranges: tuple[int, int], **more: Any) -> IndexState:
    return IndexState(scans=tuple(Scan(0, a, b, b - a, 0, 1) for a, b in ranges), **more)


def lost(plan: ReservablePlan) -> str:
    """What a run fails with that archives the rest: it is the offsets that stand in the way, and the hours stay due."""
    assert isinstance(plan.failures[0], OffsetGapError)
    assert (len(plan.frontiers), plan.gaps, {h.end_offset for h in plan.hours} - {None}) == (1, (), set())
    return str(plan.failures[0])


def test_an_hour_of_the_past_is_read_up_to_the_first_record_after_it() -> None:
    plan = plan_hours(planning(hourly(5, 10)), [NOON + HOUR])
    assert plan.reads[0].ranges == (OffsetRange(10, 20),)
    assert plan.hours == (HourRange(NOON + HOUR, 0, 10, 20),)


def test_a_backfill_is_cut_where_single_hours_would_end() -> None:
    plan = plan_hours(planning(hourly(5, 10)), [NOON + h * HOUR for h in range(3)])
    assert plan.reads[0].ranges == (OffsetRange(0, 10), OffsetRange(10, 20), OffsetRange(20, 30))


def test_what_is_covered_is_not_read_again() -> None:
    plan = plan_hours(planning(hourly(5, 10), state=covered((0, 14), (16, 18))), [NOON + HOUR])
    assert plan.reads[0].ranges == (OffsetRange(14, 16), OffsetRange(18, 20))


def test_the_newest_closed_hour_is_read_up_to_now_so_that_it_is_complete_at_once() -> None:
    plan = plan_hours(planning(hourly(3, 10), now=NOON + 2 * HOUR + timedelta(minutes=9)), [NOON + HOUR])
    assert plan.reads[0].needed == make_span(10, 30)


def test_the_open_hour_is_read_up_to_now() -> None:
    plan = plan_hours(planning(hourly(2, 10), now=NOON + HOUR + timedelta(minutes=9)), [NOON + HOUR])
    assert plan.reads[0].needed == make_span(10, 20)


def test_one_record_far_ahead_does_not_hide_the_hours_behind_it() -> None:
    records = hourly(5, 10) | {10: NOON + timedelta(days=900)}
    assert plan_hours(planning(records), [NOON + 2 * HOUR]).reads[0].needed == make_span(10, 50)


def test_control_markers_with_the_wall_clock_do_not_stop_an_event_time_topic() -> None:
    """Asked again, a scanned but incomplete hour goes a step further instead of nowhere."""
    records = hourly(5, 10) | {3: NOW}
    assert plan_hours(planning(records), [NOON]).reads[0].needed == make_span(0, 3)
    again = planning(records, state=covered((0, 3), hours=(HourRange(NOON, 0, 0, 3),)))
    assert plan_hours(again, [NOON]).reads[0].needed == make_span(3, 50)


def test_an_hour_of_the_past_without_records_reads_little() -> None:
    records = {o: t for o, t in hourly(9, 10).items() if not NOON + HOUR <= t < NOON + 2 * HOUR}
    needed = plan_hours(planning(records), [NOON + HOUR]).reads[0].needed
    assert needed.end_offset is not None
    assert needed.end_offset <= 40


def test_a_complete_hour_reads_nothing() -> None:
    frontier = Frontier(0, 0, 50, 50, 0, NOW - HOUR)
    state = covered((0, 50), hours=(HourRange(NOON, 0, 0, 10),), frontiers=(frontier,))
    assert not plan_hours(planning(hourly(6, 10), state=state), [NOON]).needed


def test_reading_stops_at_an_open_transaction_and_says_so() -> None:
    plan = plan_hours(planning(hourly(2, 10), lso=14, now=NOON + 2 * HOUR), [NOON + HOUR])
    assert plan.reads[0].needed == make_span(10, 14)
    assert plan.waiting == {0: 14}


def test_everything_up_to_now_is_all_that_is_readable_and_uncovered() -> None:
    assert plan_until_now(planning(hourly(2, 10), state=covered((5, 8)))).reads[0].needed == RangeSet(
        [OffsetRange(0, 5), OffsetRange(8, 20)]
    )


def test_an_empty_topic_needs_nothing() -> None:
    assert not plan_until_now(planning({})).needed
    assert plan_hours(planning({}), [NOON]).hours == (HourRange(NOON, 0, 0, 0),)


def test_retention_that_took_part_of_an_hour_fails_naming_the_offsets() -> None:
    given = planning(hourly(3, 10), log_start=14, state=covered((0, 10)))
    plan = plan_hours(given, [NOON + HOUR])
    assert re.search(r"t-0: offsets \[10, 14\) were deleted.*archive\.allow\.gaps", lost(plan))
    assert plan.needed == {0: make_span(14, 20)}


@pytest.mark.parametrize("hours", [[1], [2, 1], [2, 1, 0], [0, 1, 2]])
def test_what_was_gone_before_archiving_began_fails_no_run_and_each_hour_tells_it(hours: list[int]) -> None:
    state = IndexState()
    for n in hours:
        plan = plan_hours(planning(hourly(3, 10), log_start=14, state=state), [NOON + n * HOUR])
        assert (dict(plan.failures), plan.gaps) == ({}, ())
        scans = tuple(Scan(0, r.start_offset, r.end_offset, len(r), 0, 1) for r in plan.reads[0].ranges)
        state = dataclasses.replace(
            state,
            scans=(*state.scans, *scans),
            hours=(*state.hours, *plan.hours),
            frontiers=(*state.frontiers, *plan.frontiers),
        )
    state = dataclasses.replace(state, scans=(*state.scans, Scan(0, 14, 30, 16, 0, 1)))
    for n in range(3):
        verdict = state.judge.find_verdict(NOON + n * HOUR, timedelta(0))
        assert str(verdict) == "complete, but for offsets that may be of it: 14 before archiving began"


def test_an_hour_that_retention_did_not_reach_is_archived() -> None:
    assert plan_hours(planning(hourly(3, 10), log_start=5), [NOON + HOUR]).reads[0].needed == make_span(10, 20)


def test_an_allowed_gap_is_recorded() -> None:
    given = planning(hourly(3, 10), log_start=14, state=covered((0, 10)), allow_gaps=True)
    assert plan_hours(given, [NOON + HOUR]).gaps == (Gap(0, 10, 14, "retention"),)


def test_a_run_up_to_now_fails_of_what_was_there_when_archiving_began() -> None:
    assert plan_until_now(planning(hourly(3, 10), log_start=5)).failures == {}
    plan = plan_until_now(planning(hourly(3, 10), log_start=15, state=covered((0, 10))))
    assert "[10, 15)" in lost(plan)
    assert plan.needed == {0: make_span(15, 30)}


def test_what_was_gone_before_archiving_began_stays_no_failure_later() -> None:
    state = covered((50, 60), frontiers=(Frontier(0, 5, 60, 60, 0, NOW - HOUR),))
    plan = plan_until_now(planning(hourly(9, 10), log_start=5, state=state))
    assert (plan.gaps, dict(plan.failures)) == ((), {})
    assert plan.reads[0].needed == RangeSet([OffsetRange(5, 50), OffsetRange(60, 90)])


def test_what_is_recorded_as_deleted_is_read_when_the_log_has_it_after_all() -> None:
    given = planning(hourly(3, 10), state=covered((15, 30), gaps=(FALSE_GAP,)))
    assert plan_until_now(given).reads[0].needed == RangeSet([OffsetRange(0, 15)])
    assert plan_hours(given, [NOON, NOON + HOUR]).reads[0].needed == RangeSet([OffsetRange(0, 15)])
    assert plan_hours(given, [NOON + 2 * HOUR]).reads[0].needed == RangeSet()


def test_of_what_is_recorded_as_deleted_only_what_the_log_has_is_read() -> None:
    given = planning(hourly(3, 10), log_start=9, state=covered((15, 30), gaps=(FALSE_GAP,)))
    assert plan_until_now(given).reads[0].needed == RangeSet([OffsetRange(9, 15)])
    assert plan_until_now(given).gaps == ()
    gone = planning(hourly(3, 10), log_start=15, state=covered((15, 30), gaps=(FALSE_GAP,)))
    assert plan_until_now(gone).reads[0].needed == RangeSet()


@pytest.mark.parametrize("reason", ["taken over", "skipped", "truncated"])
def test_what_somebody_decided_to_do_without_is_not_read(reason: Any) -> None:
    given = planning(hourly(3, 10), state=covered((15, 30), gaps=(Gap(0, 0, 15, reason),)))
    assert plan_until_now(given).reads[0].needed == RangeSet()


def test_a_kafka_partition_that_was_empty_when_archiving_began_owes_all_its_records() -> None:
    state = IndexState(frontiers=(Frontier(0, 0, 0, 0, 0, NOW - HOUR),))
    assert "offsets [0, 15)" in lost(plan_until_now(planning(hourly(3, 10), log_start=15, state=state)))


def test_retention_behind_a_covered_range_is_a_gap_of_the_hours_before_it() -> None:
    """Hours 14 and 15 are archived; of hours 12 and 13 nothing is left."""
    state = covered((20, 40), frontiers=(Frontier(0, 0, 50, 50, 0, NOW - HOUR),))
    given = planning(hourly(5, 10), log_start=30, state=state)
    assert "offsets [0, 20) were deleted" in lost(plan_hours(given, [NOON + HOUR]))


def test_a_late_record_at_the_log_start_hides_nothing_that_retention_took() -> None:
    """Ten records of hour 12, which retention took, a late one of hour 11, and ten more of hour 12."""
    noon = {n: NOON + timedelta(minutes=n) for n in range(21)} | {10: NOON - timedelta(minutes=5)}
    after = {21 + n: NOON + HOUR + timedelta(minutes=n) for n in range(10)}
    state = IndexState(frontiers=(Frontier(0, 0, 31, 31, 0, NOW - HOUR),))
    given = planning(noon | after, log_start=10, state=state)
    for hour in (NOON, NOON + HOUR):
        assert "offsets [0, 10) were deleted" in lost(plan_hours(given, [hour]))
    allowed = planning(noon | after, log_start=10, state=state, allow_gaps=True)
    assert plan_hours(allowed, [NOON]).gaps == (Gap(0, 0, 10, "retention"),)


def test_what_was_deleted_before_an_hour_began_fails_no_run_of_it() -> None:
    hour = NOON + 4 * HOUR
    # a run may have slept over its look: that it came before the hour is known when another run began before that
    looks = ((0, 8, NOON), (9, 40, hour - HOUR), (9, 40, hour))
    frontiers = tuple(Frontier(0, log_start, end, end, 0, at) for log_start, end, at in looks)
    state = covered((0, 8), frontiers=frontiers, hours=(HourRange(NOON, 0, 0, 8),))
    assert dict(plan_hours(planning(hourly(5, 10), log_start=9, state=state), [hour]).failures) == {}
    assert plan_hours(planning(hourly(5, 10), log_start=9, state=state), [hour - HOUR]).failures


def test_retention_of_what_an_archived_hour_left_unread_is_a_gap_of_the_next() -> None:
    state = covered((0, 8), hours=(HourRange(NOON, 0, 0, 8),), frontiers=(Frontier(0, 0, 8, 8, 0, NOON + HOUR),))
    plan = plan_hours(planning(hourly(5, 10), log_start=9, state=state), [NOON + HOUR])
    assert "offsets [8, 9) were deleted" in lost(plan)


def test_a_record_that_came_late_is_read_with_the_next_hour() -> None:
    """Hour 12 was archived up to offset 2; its record 2 came after that."""
    records = {0: NOON, 1: NOON, 2: NOON + timedelta(minutes=40), 3: NOON + HOUR}
    state = covered((0, 2), hours=(HourRange(NOON, 0, 0, 2),))
    plan = plan_hours(planning(records, state=state), [NOON + HOUR])
    assert plan.reads[0].needed == make_span(2, 4)
    assert plan.hours == (HourRange(NOON + HOUR, 0, 3, 4),)


def test_what_an_open_hour_still_got_is_read_with_the_next_and_it_is_not_scanned_before() -> None:
    early = plan_hours(planning(hourly(1, 10), now=NOON + timedelta(minutes=30)), [NOON])
    assert early.reads[0].needed == make_span(0, 10)
    assert early.hours == (HourRange(NOON, 0, 0, None),)
    state = covered((0, 10), hours=early.hours)
    assert not state.is_scanned(NOON)
    later = hourly(1, 30) | {30 + n: NOON + HOUR + timedelta(minutes=n) for n in range(5)}
    assert plan_hours(planning(later, state=state), [NOON + HOUR]).reads[0].needed == make_span(10, 35)


def test_a_transaction_open_over_the_next_hour_hides_nothing_for_good() -> None:
    records = hourly(3, 10)
    held = plan_hours(planning(records, lso=12, now=NOON + 2 * HOUR), [NOON + HOUR])
    assert held.hours == (HourRange(NOON + HOUR, 0, 10, None),)
    next_one = plan_hours(
        planning(records, lso=12, now=NOON + 3 * HOUR, state=covered((0, 12), hours=held.hours)), [NOON + 2 * HOUR]
    )
    assert next_one.hours == (HourRange(NOON + 2 * HOUR, 0, 12, None),)
    state = covered((0, 12), hours=(*held.hours, *next_one.hours))
    ended = plan_hours(planning(records, now=NOON + 4 * HOUR, state=state), [NOON + 2 * HOUR])
    assert ended.reads[0].needed == make_span(12, 30)


def test_a_kafka_partition_added_later_is_archived_from_its_first_offset() -> None:
    state = IndexState(generations=(TopicGeneration("t", "id-1", (), ()),))
    assert plan_hours(planning(hourly(5, 10), state=state), [NOON + 2 * HOUR]).reads[0].needed == make_span(0, 30)


@given(st.integers(1, 3_000_000))
def test_cells_hold_whole_numbers_of_flush_size(flush_size: int) -> None:
    cell = compute_cell_size(config(flush_size))
    assert cell % flush_size == 0
    assert cell >= 1_000_000
    assert cell < 1_000_000 + flush_size


@given(st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True))
def test_hours_in_any_order_read_each_offset_exactly_once(order: list[int]) -> None:
    records, state, read = hourly(10, 7), covered(), RangeSet()
    for hour in order:
        needed = plan_hours(planning(records, state=state), [NOON + hour * HOUR]).reads[0].needed
        assert not needed & read
        read |= needed
        state = covered(*((r.start_offset, r.end_offset) for r in read))
    assert all(read.covers(h * 7, h * 7 + 7) for h in order)


def test_an_hour_is_not_complete_by_what_a_failed_kafka_partition_has_of_later_ones() -> None:
    """Of kafka partition 1 hours 13 and 14 are archived; asked for hour 12, its leader says that the log ends early."""
    look = {p: Frontier(p, 0, 30, 30, 0, NOW - HOUR, 2) for p in (0, 1)}
    state = IndexState(
        scans=(Scan(0, 0, 30, 30, 0, 1), Scan(1, 10, 30, 20, 0, 1)),
        hours=tuple(HourRange(NOON + HOUR, p, 10, 20) for p in (0, 1)),
        frontiers=tuple(look.values()),
    )
    one = planning(hourly(3, 10), state=state)
    both = dataclasses.replace(one, description=TopicDescription("t", "id-1", (0, 1), {}))
    plan = plan_hours(both.without({1: LogTruncatedError("the log ends early")}), [NOON])
    assert [type(e) for e in plan.failures.values()] == [LogTruncatedError]
    after = dataclasses.replace(state, hours=(*state.hours, *plan.hours))
    assert after.judge.is_complete(NOON + HOUR, timedelta(0))
    assert not after.judge.is_complete(NOON, timedelta(0))
    assert not after.is_scanned(NOON)


def test_an_hour_begins_with_its_records_where_a_kafka_partition_failed_in_the_first_run() -> None:
    """Retention has cut the log of both kafka partitions; of the second one nothing was known in the first run."""
    one = planning(hourly(3, 10), log_start=5)
    both = TopicDescription("t", "id-1", (0, 1), {})
    look = {p: dataclasses.replace(one.frontiers[0], kafka_partition=p, kafka_partition_count=2) for p in (0, 1)}
    without = dataclasses.replace(one, description=both, frontiers={0: look[0]})
    first = plan_hours(dataclasses.replace(without, failures={1: BrokerUnavailableError("no leader")}), [NOON + HOUR])
    state = dataclasses.replace(covered((10, 20)), hours=first.hours, frontiers=first.frontiers)
    assert not state.is_scanned(NOON + HOUR)
    assert not state.judge.is_complete(NOON + HOUR, timedelta(0))
    second = dataclasses.replace(
        without,
        state=state,
        frontiers=look,
    )
    plan = plan_hours(second, [NOON + HOUR])
    assert (plan.needed[1], dict(plan.failures), plan.gaps) == (make_span(10, 20), {}, ())
    scans = (*state.scans, Scan(1, 10, 20, 10, 0, 2))
    assert dataclasses.replace(state, scans=scans, hours=(*state.hours, *plan.hours)).is_scanned(NOON + HOUR)


@dataclass(frozen=True)
class Sized:
    """A task as far as its size decides."""

    size: int


def group(sizes: list[int], at_once: int) -> list[list[int]]:
    tasks = cast("list[ScanTask]", [Sized(size) for size in sizes])
    return [[task.size for task in found] for found in group_tasks(tasks, at_once)]


@pytest.mark.parametrize(
    ("sizes", "at_once", "groups"),
    [
        ([], 2, []),
        ([5], 2, [[5]]),
        ([5, 5], 2, [[5], [5]]),
        ([0] * 16, 1, [[0] * 16]),
        ([0] * 16, 2, [[0] * 8] * 2),
        ([500_000] * 8, 2, [[500_000] * 2] * 4),
        ([5_000_000] * 16, 2, [[5_000_000] * 2] * 8),
        ([10_000_000, 5, 5, 10_000_000], 1, [[10_000_000], [5, 5], [10_000_000]]),
    ],
)
def test_tasks_are_dealt_out_by_their_cost(sizes: list[int], at_once: int, groups: list[list[int]]) -> None:
    assert group(sizes, at_once) == groups


@given(st.lists(st.integers(0, 3_000_000), max_size=200), st.integers(1, 16))
def test_no_task_is_lost_and_no_group_has_more_than_its_share_but_for_one_task(sizes: list[int], at_once: int) -> None:
    found = group(sizes, at_once)
    assert [size for sizes_of_group in found for size in sizes_of_group] == sizes
    total = sum(size + TASK_COST for size in sizes)
    share = max(total / (at_once * GROUPS_PER_SLOT), min(total / at_once, 2 * GROUP_COST))
    assert all(len(one) == 1 or sum(size + TASK_COST for size in one) <= share for one in found)
