"""Which hours a rehearsal draws: each has its turn within the period, whatever else happens."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from kafka_s3_platform.core.model.turns import RehearsedHours, TopicTurns, add_turn, draw_turns, join_hours
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.support import HOUR, NOON

DAY = timedelta(days=1)


def make_hours(count: int, first: datetime = NOON) -> dict[datetime, int]:
    return {first + n * HOUR: 1 for n in range(count)}


def rehearse(
    turns: TopicTurns | None,
    counts: Mapping[datetime, int],
    at: datetime,
    days: int = 30,
    failing: Mapping[datetime, str] | None = None,
) -> TopicTurns:
    """One rehearsal, in which some hours fail."""
    drawn = draw_turns(counts, turns, days)
    return add_turn(turns, {hour: (failing or {}).get(hour, "") for hour in drawn}, at, days, counts, 100)


def test_of_no_hours_none_is_drawn_and_one_that_comes_is_due_after_a_period() -> None:
    turns = rehearse(None, {}, NOON)
    assert draw_turns({}, None, 30) == []
    assert (turns.due_at, turns.rehearsed, turns.count_proven(NOON)) == (NOON + 30 * DAY, (), 0)


@pytest.mark.parametrize(("count", "days", "drawn"), [(1, 30, 1), (2, 30, 1), (29, 30, 1), (30, 30, 2), (9, 1, 9)])
def test_so_many_are_drawn_that_all_come_within_the_period_with_a_day_to_spare(
    count: int, days: int, drawn: int
) -> None:
    assert draw_turns(make_hours(count), None, days) == [NOON + n * HOUR for n in range(drawn)]


def test_the_draw_is_the_same_each_time_and_goes_on_where_the_last_one_ended() -> None:
    counts = make_hours(10)
    turns = rehearse(None, counts, NOON + 100 * DAY, days=6)
    assert draw_turns(counts, None, 6) == draw_turns(dict(reversed(counts.items())), None, 6)
    assert draw_turns(counts, turns, 6) == [NOON + 2 * HOUR, NOON + 3 * HOUR]


@pytest.mark.parametrize("days", [2, 7, 30])
def test_each_hour_has_its_turn_within_the_period_while_the_archive_grows(days: int) -> None:
    """A year of archive, rehearsed from then on for three periods, with a day of new hours each night."""
    counts = make_hours(24 * 100)
    started = NOON + 100 * DAY
    last: dict[datetime, datetime] = {}
    turns: TopicTurns | None = None
    for night in range(3 * days):
        now = started + night * DAY
        counts |= make_hours(24, now)
        for hour in draw_turns(counts, turns, days):
            last[hour] = now
        turns = rehearse(turns, counts, now, days)
        assert present(turns.due_at) > now, "a nightly rehearsal is never late"
        waiting = [now - max(last.get(hour, started), started, hour) for hour in counts if hour <= now]
        assert max(waiting) <= days * DAY
    assert present(turns).count_proven(started + 3 * days * DAY) >= len(counts) - 24 * days


def test_without_rehearsals_hours_are_overdue_after_the_period() -> None:
    turns = rehearse(None, make_hours(10), NOON + DAY, days=6)
    assert turns.due_at == NOON + 7 * DAY
    assert turns.count_proven(NOON + 7 * DAY) == 2
    assert turns.count_proven(NOON + 8 * DAY) == 0, "what came back long ago proves nothing now"


def test_hours_that_failed_are_tried_again_each_time_and_hold_up_no_other() -> None:
    counts = make_hours(12)
    lost = {NOON: "gone", NOON + HOUR: "gone"}
    turns: TopicTurns | None = None
    for night in range(6):
        turns = rehearse(turns, counts, NOON + night * DAY, days=7, failing=lost)
        assert set(lost) & set(draw_turns(counts, turns, 7)) == set(lost)
    assert present(turns).count_proven(NOON + 6 * DAY) == 10, "all others have had their turn"
    [failed] = present(turns).failed
    assert (failed.start, failed.hour_count, failed.failure) == (NOON, 2, "gone")

    mended = rehearse(turns, counts, NOON + 7 * DAY, days=7)
    assert mended.failed == ()


def test_hours_that_expired_are_forgotten() -> None:
    turns = rehearse(None, make_hours(4), NOON, days=1)
    later = rehearse(turns, make_hours(2, NOON + 2 * HOUR), NOON + DAY, days=1)
    assert later.hour_count == 2
    assert [(r.start, r.hour_count) for r in later.rehearsed] == [(NOON + 2 * HOUR, 2)]


def test_only_hours_that_follow_each_other_are_one_range() -> None:
    counts = {NOON: 1, NOON + HOUR: 1, NOON + 5 * HOUR: 1}
    turns = rehearse(None, counts, NOON + DAY, days=1)
    at = NOON + DAY
    assert turns.rehearsed == (
        RehearsedHours(NOON, NOON + 2 * HOUR, at),
        RehearsedHours(NOON + 5 * HOUR, NOON + 6 * HOUR, at),
    ), "what comes late for an hour between them has not come back"
    assert join_hours(sorted(counts)) == [(r.start, r.end) for r in turns.rehearsed]
