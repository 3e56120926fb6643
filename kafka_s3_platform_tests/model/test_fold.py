"""A folded state gives the answers of the state that it was made of, whatever was archived and in which order."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.model.fold import FEWEST_HOURS, Folding, fold_state
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import RangeSet
from kafka_s3_platform.core.model.segment import FoldedHours, HourRange, Scan, TopicGeneration, find_folded_month
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR

BEGIN = datetime(2026, 2, 27, tzinfo=timezone.utc)
"""Hours from here on lie in two months soon."""

LATE = timedelta(minutes=5)
REASONS: tuple[Literal["retention", "skipped", "taken over"], ...] = ("retention", "skipped", "taken over")
NEVER = datetime(2030, 1, 1, tzinfo=timezone.utc)


def archive(hours: int, kafka_partitions: int = 2, records: int = 10, begin: datetime = BEGIN) -> IndexState:
    """The state after hourly runs, each a few minutes after its hour. An hour has `records` of a kafka partition."""
    scans: list[Scan] = []
    looks: list[Frontier] = []
    rows: list[HourRange] = []
    for n in range(hours):
        seen = begin + (n + 1) * HOUR + 2 * LATE
        end = (n + 1) * records
        for p in range(kafka_partitions):
            looks.append(Frontier(p, 0, end, end, n // 7, seen, kafka_partitions))
            rows.append(HourRange(begin + n * HOUR, p, n * records, end))
            if records:
                scans.append(Scan(p, n * records, end, records, n // 7, n, n % 2, 0, records - n % 2))
    generation = TopicGeneration("t", "id", tuple(range(kafka_partitions)), ())
    return IndexState(
        scans=tuple(scans), frontiers=tuple(looks), hours=tuple(rows), generations=(generation,), version=hours
    )


def fold(state: IndexState, before: datetime = NEVER) -> tuple[Folding | None, IndexState]:
    """The folding, and the folded state, which finds its old rows by month."""
    folding = fold_state(state, LATE, before)
    if folding is None:
        return None, state

    @cache
    def read_month(month: str) -> IndexState:
        earlier = (
            state.read_month(month) if month in {find_folded_month(h) for h in state.folded_hours} else IndexState()
        )
        hours = [h for h in state.hours if folding.holds_hour(h) and find_folded_month(h.hour) == month]
        moved = [s for s in state.scans if folding.holds_scan(s)]
        scans = [
            s for s in moved if find_folded_month(state.hour_of(s.kafka_partition, s.start_offset) or BEGIN) == month
        ]
        looks = [f for f in state.frontiers if folding.holds_frontier(f) and find_folded_month(f.observed_at) == month]
        return IndexState(
            hours=(*earlier.hours, *hours), scans=(*earlier.scans, *scans), frontiers=(*earlier.frontiers, *looks)
        )

    return folding, replace(folding.apply(state), read_month=read_month)


def answers(state: IndexState, hours: int, kafka_partitions: int, records: int) -> dict[str, object]:
    """Everything that anybody asks a state."""
    asked = [BEGIN + n * HOUR for n in range(-2, hours + 2)]
    numbers = range(kafka_partitions)
    offsets = range(-1, (hours + 2) * records, max(1, records // 2))
    return {
        "coverage": [state.coverage(p) for p in numbers],
        "ends": state.contiguous_ends,
        "deleted": [state.deleted(p) for p in numbers],
        "scanned": [state.is_scanned(h) for h in asked],
        "complete": [state.judge.is_complete(h, LATE) for h in asked],
        "complete later": [state.judge.is_complete(h, 9 * LATE) for h in asked],
        "asked": state.asked_hours,
        "starts": [state.hour_start(p, h) for p in numbers for h in asked],
        "hours": [state.hour_of(p, o) for p in numbers for o in offsets],
        "began": [state.find_first_log_start(p) for p in numbers],
        "verdicts": [(v.is_complete, v.open) for v in (state.judge.find_verdict(h, LATE) for h in asked)],
        "epochs": [state.list_epoch_marks(p)[-1:] for p in numbers],
        "records": [sum(s.output_count for s in state.all_scans if s.kafka_partition == p) for p in numbers],
        "unresolved": state.unresolved,
        "scanned kafka partitions": state.scanned_kafka_partitions,
    }


@pytest.mark.parametrize("records", [0, 10])
@pytest.mark.parametrize("kafka_partitions", [1, 2])
@pytest.mark.parametrize("hours", [FEWEST_HOURS, 70])
def test_a_folded_state_gives_the_same_answers(hours: int, kafka_partitions: int, records: int) -> None:
    state = archive(hours, kafka_partitions, records)
    folding, folded = fold(state)
    assert folding is not None
    assert not folded.scans
    assert not folded.hours
    assert not folded.frontiers
    assert answers(folded, hours, kafka_partitions, records) == answers(state, hours, kafka_partitions, records)


def test_what_is_kept_of_a_topic_does_not_grow_with_its_age() -> None:
    kept = [fold(archive(hours))[1].fold for hours in (50, 500)]
    assert len(kept[0].scans) == len(kept[1].scans)
    assert len(kept[0].frontiers) == len(kept[1].frontiers) == 8
    assert [run.size for run in kept[1].hours] == [500]


def test_nothing_is_folded_of_a_new_topic_of_a_few_hours_or_of_rows_that_are_too_young() -> None:
    assert fold_state(IndexState(), LATE, NEVER) is None
    assert fold_state(archive(FEWEST_HOURS - 1), LATE, NEVER) is None
    assert fold_state(archive(70), LATE, BEGIN + (FEWEST_HOURS - 1) * HOUR) is None


def test_young_rows_stay() -> None:
    state = archive(70)
    _, folded = fold(state, before=BEGIN + 50 * HOUR)
    assert {row.hour for row in folded.hours} == {BEGIN + n * HOUR for n in range(49, 70)}
    assert answers(folded, 70, 2, 10) == answers(state, 70, 2, 10)


def test_a_fold_goes_on_from_the_one_before() -> None:
    once = fold(archive(120))[1]
    young = archive(120)
    first = fold(young, before=BEGIN + 60 * HOUR)[1]
    again = fold(first)[1]
    assert again.fold == once.fold
    assert answers(again, 120, 2, 10) == answers(young, 120, 2, 10)
    assert fold_state(again, LATE, NEVER) is None


def test_a_hole_stops_the_fold_and_it_goes_on_when_the_hole_is_closed() -> None:
    whole = archive(100)
    hole = next(s for s in whole.scans if s.start_offset == 400)
    state = replace(whole, scans=tuple(s for s in whole.scans if s != hole))
    _, folded = fold(state)
    assert {row.hour for row in folded.hours} == {BEGIN + n * HOUR for n in range(40, 100)}
    assert answers(folded, 100, 2, 10) == answers(state, 100, 2, 10)
    closed = replace(folded, gaps=(Gap(hole.kafka_partition, 400, 410, "skipped"),))
    assert len(fold(closed)[1].hours) == 0


def test_an_hour_that_is_not_scanned_stays_alone() -> None:
    state = archive(60)
    unknown = [replace(h, end_offset=None) if h.hour == BEGIN + 30 * HOUR else h for h in state.hours]
    state = replace(state, hours=tuple(unknown))
    _, folded = fold(state)
    assert {row.hour for row in folded.hours} == {BEGIN + 30 * HOUR}
    assert [run.size for run in folded.fold.hours] == [30, 29]
    assert answers(folded, 60, 2, 10) == answers(state, 60, 2, 10)


def test_an_added_kafka_partition_is_folded_with_the_others() -> None:
    one, two = archive(40, 1), archive(80, 2)
    state = replace(
        two,
        scans=tuple(s for s in two.scans if s.kafka_partition == 0 or s.epoch >= 40),
        hours=tuple(h for h in two.hours if h.kafka_partition == 0 or h.hour >= BEGIN + 40 * HOUR),
        frontiers=(*one.frontiers, *(f for f in two.frontiers if f.observed_at > one.frontiers[-1].observed_at)),
        gaps=(Gap(1, 0, 400, "retention"),),
        generations=(*one.generations, *two.generations),
    )
    folding, folded = fold(state)
    assert folding is not None
    assert answers(folded, 80, 2, 10) == answers(state, 80, 2, 10)


def test_hours_that_were_taken_over_or_deleted_keep_their_answers() -> None:
    state = archive(60)
    gaps = (Gap(0, 0, 25, "taken over"), Gap(1, 100, 130, "retention"))
    scans = tuple(
        s
        for s in state.scans
        if not any(
            g.kafka_partition == s.kafka_partition and g.start_offset <= s.start_offset < g.end_offset for g in gaps[1:]
        )
    )
    state = replace(state, gaps=gaps, scans=scans)
    folding, folded = fold(state)
    assert folding is not None
    assert answers(folded, 60, 2, 10) == answers(state, 60, 2, 10)


def test_hours_are_found_whether_they_begin_at_the_full_hour_or_at_half_past() -> None:
    run = FoldedHours(BEGIN, 3)
    half = BEGIN + HOUR / 2
    assert [hour in run for hour in (BEGIN, half, BEGIN + 2 * HOUR, BEGIN + 3 * HOUR)] == [True, False, True, False]


@given(st.data())
def test_random_histories_give_the_same_answers(data: st.DataObject) -> None:
    """Scans are missing, hours are planned twice or not at all, looks lack kafka partitions, gaps lie anywhere."""
    hours, kafka_partitions, records = data.draw(st.integers(26, 60)), data.draw(st.integers(1, 3)), 10
    state = archive(hours, kafka_partitions, records)
    rows = st.integers(0, hours * kafka_partitions - 1)
    without = data.draw(st.frozensets(rows, max_size=2))
    unplanned = data.draw(st.frozensets(rows, max_size=5))
    unseen = data.draw(st.frozensets(rows, max_size=5))
    gaps = tuple(
        Gap(data.draw(st.integers(0, kafka_partitions - 1)), start, start + data.draw(st.integers(1, 40)), reason)
        for start in data.draw(st.lists(st.integers(0, hours * records - 1), max_size=3))
        for reason in [data.draw(st.sampled_from(REASONS))]
    )
    state = replace(
        state,
        scans=tuple(s for n, s in enumerate(state.scans) if n not in without),
        hours=tuple(h for n, h in enumerate(state.hours) if n not in unplanned),
        frontiers=tuple(f for n, f in enumerate(state.frontiers) if n not in unseen),
        gaps=gaps,
    )
    # where nothing can be folded, the state stays as it is
    _, folded = fold(state, before=BEGIN + data.draw(st.integers(24, hours + 2)) * HOUR)
    assert answers(folded, hours, kafka_partitions, records) == answers(state, hours, kafka_partitions, records)
    # of hours that follow the fold, less may be known of what cannot be theirs
    for n in range(-2, hours + 2):
        lacking = [s.judge.find_verdict(BEGIN + n * HOUR, LATE).lacking for s in (state, folded)]
        for p in range(kafka_partitions):
            one, other = (RangeSet(g.offsets for g in each if g.kafka_partition == p) for each in lacking)
            assert not one - other
