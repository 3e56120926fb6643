"""Some seeds of `make chaos`, and what it says of them."""

from collections import Counter

import pytest

from kafka_s3_platform_tests.chaos.__main__ import table
from kafka_s3_platform_tests.chaos.checker import Verdict
from kafka_s3_platform_tests.chaos.lies import Hidden, Liar, Lie
from kafka_s3_platform_tests.chaos.scenario import hasty, run
from kafka_s3_platform_tests.chaos.world import Outcome, Servers
from kafka_s3_platform_tests.conftest import Lab


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("2", id="a restore"),
        pytest.param("7", id="a take-over"),
        pytest.param("15", id="batches in another order"),
        pytest.param("18", id="a log that is deleted between two looks", marks=pytest.mark.long),
        pytest.param("12", id="a log start too high", marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_twice_or_wedged_under_lies(seed: str, lab: Lab) -> None:
    with hasty():
        outcome = run(Servers(lab.kafka, lab.store, lab.s3), seed)
    assert outcome.verdicts == [], "\n".join(outcome.log)
    assert outcome.told


def test_the_table_of_no_runs_has_its_heads_and_zeros() -> None:
    lines = table([], 0.0).splitlines()
    assert lines[0] == "0 runs in 0 s, 0 records, 0 lies told"
    assert "| lost | 0 |" in lines


def test_the_table_counts_lies_ends_and_verdicts_of_all_runs() -> None:
    one = Outcome("1", [Verdict("lost", "x")], Counter(a=2), Counter(done=1), believed=3, records=10)
    two = Outcome("2", [Verdict("hung", "x")], Counter(a=1, b=1), Counter(done=2, BusyError=1), records=5)
    lines = table([one, two], 9.6).splitlines()
    assert lines[0] == "2 runs in 10 s, 15 records, 4 lies told"
    assert {"| a | 3 |", "| b | 1 |", "| done | 3 |", "| BusyError | 1 |"} < set(lines)
    assert {"| lost | 1 |", "| twice | 0 |", "| wedged | 0 |", "| hung | 1 |"} < set(lines)
    assert lines[-1].endswith("3 records in 1 runs")


def _added(liar: Liar[int, list[int]], question: int, answer: list[int]) -> list[int] | None:
    if question < 0:
        return None
    liar.hidden.append(Hidden(0, question))
    answer.append(question)
    return answer


@pytest.mark.parametrize(
    ("nth", "times", "said"),
    [(1, 1, [[1], [], []]), (2, 1, [[], [2], []]), (1, 2, [[1], [2], []]), (4, 1, [[], [], []])],
)
def test_a_lie_is_told_from_the_nth_occasion_on_so_many_times(nth: int, times: int, said: list[list[int]]) -> None:
    liar: Liar[int, list[int]] = Liar("seed")
    liar.lie(Lie("a lie", _added, nth, times))
    truth: list[int] = []
    assert liar.said(-1, truth) == []
    assert [liar.said(question, truth) for question in (1, 2, 3)] == said
    assert truth == []
    assert [hidden.start_offset for hidden in liar.hidden] == [n for one in said for n in one]
    assert liar.told.total() == sum(map(len, said))


def test_an_honest_liar_says_what_is_so() -> None:
    liar: Liar[int, list[int]] = Liar("seed")
    liar.lie(Lie("a lie", _added))
    liar.be_honest()
    assert liar.said(1, []) == []
    assert not liar.lies
