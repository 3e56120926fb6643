"""What brokers answer is checked where it comes in."""

from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import BrokerUnavailableError, PermanentError, PlatformError
from kafka_s3_platform.kafka import answers
from kafka_s3_platform.kafka.answers import Answers, ask_again
from kafka_s3_platform.model.frontier import Frontier

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NEGATIVE = st.integers(-(2**63), -1)
NUMBER = st.integers(-(2**63), 2**63 - 1)


@given(NUMBER)
def test_an_offset_is_what_was_answered_or_an_error(number: int) -> None:
    for check in (answers.check_log_start, answers.check_log_end):
        if number >= 0:
            assert check(number, "reading t-0") == number
        else:
            with pytest.raises(BrokerUnavailableError, match=f"reading t-0: the broker answered {number} as .* again"):
                check(number, "reading t-0")


@given(NUMBER)
def test_only_minus_one_says_that_no_record_is_so_late(number: int) -> None:
    if number >= -1:
        assert answers.check_time_offset(number, 5, "t-0") == (None if number == -1 else number)
    else:
        with pytest.raises(BrokerUnavailableError, match="first record of that time"):
            answers.check_time_offset(number, 5, "t-0")


@given(NUMBER)
def test_only_the_clients_own_number_says_that_nothing_is_committed(number: int) -> None:
    if number >= 0 or number == answers.NOTHING_COMMITTED:
        assert answers.check_next_offset(number, "t-0") == (number if number >= 0 else None)
    else:
        with pytest.raises(BrokerUnavailableError, match="what the group consumes next"):
            answers.check_next_offset(number, "t-0")


@pytest.mark.parametrize(("told", "known"), [(None, None), (-1, None), (0, 0), (7, 7)])
def test_an_epoch_may_be_unknown(told: int | None, known: int | None) -> None:
    assert answers.check_leader_epoch(told, "t-0") == known


def test_no_epoch_is_below_the_unknown_one() -> None:
    with pytest.raises(BrokerUnavailableError, match="-2 as its leader's epoch"):
        answers.check_leader_epoch(-2, "t-0")


@given(NUMBER, NUMBER, NUMBER)
def test_a_frontier_is_in_order_or_an_error(start: int, end: int, stable: int) -> None:
    if end >= 0 and 0 <= start <= stable:
        found = frontier(start, end, stable)
        assert found.log_start_offset <= found.last_stable_offset <= found.high_watermark == max(end, stable)
    else:
        with pytest.raises(BrokerUnavailableError, match="t-3: the broker answered"):
            frontier(start, end, stable)


def frontier(start: int, end: int, stable: int) -> Frontier:
    return answers.check_frontier(3, start, answers.check_log_ends((end, stable), 1, NOW, "t-3"), "t-3")


def test_records_that_came_between_two_questions_are_no_open_transaction() -> None:
    found = frontier(0, 10, 15)
    assert (found.last_stable_offset, found.high_watermark) == (15, 15)


@given(NEGATIVE)
def test_bounds_of_one_answer_are_checked_alike(number: int) -> None:
    assert answers.check_log_bounds((3, 3), "t-0") == (3, 3)
    for bounds in ((number, 5), (0, number), (5, 4)):
        with pytest.raises(BrokerUnavailableError, match="t-0"):
            answers.check_log_bounds(bounds, "t-0")


def asker(*rounds: Answers[int, str]) -> tuple[Callable[..., Answers[int, str]], list[list[int]]]:
    """Gives one after the other, and notes what was asked for."""
    left, asked = list(rounds), list[list[int]]()

    def ask(wanted: list[int]) -> Answers[int, str]:
        asked.append(wanted)
        return left.pop(0)

    return ask, asked


def failing(error: PlatformError, *keys: int) -> Answers[int, str]:
    return Answers({}, dict.fromkeys(keys, error))


def test_only_what_failed_in_passing_is_asked_again() -> None:
    gone, busy = PermanentError("no such kafka partition"), BrokerUnavailableError("going down")
    ask, asked = asker(failing(busy, 2), Answers({2: "two"}, {}))
    found = ask_again(Answers({1: "one"}, {2: busy, 3: gone}), ask)
    assert (found.results, found.failures) == ({1: "one", 2: "two"}, {3: gone})
    assert asked == [[2], [2]]


def test_a_broker_that_goes_on_answering_so_is_asked_for_a_short_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "AGAIN_SECONDS", 0.3)
    busy = BrokerUnavailableError("going down")
    found = ask_again(failing(busy, 1), lambda _: failing(busy, 1))
    assert found.failures == {1: busy}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_is_answered_at_once_is_asked_once(count: int) -> None:
    ask, asked = asker()
    given_at_once = Answers(dict.fromkeys(range(count), "yes"), {})
    assert ask_again(given_at_once, ask).results == given_at_once.results
    assert asked == []
