"""Worlds of many seeds, in each of which every claim about an hour is true, and every hour becomes complete."""

from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from kafka_s3_platform_tests.worlds import oracle
from kafka_s3_platform_tests.worlds.__main__ import main
from kafka_s3_platform_tests.worlds.oracle import Verdict
from kafka_s3_platform_tests.worlds.play import find_violations, play, shrink, try_seed
from kafka_s3_platform_tests.worlds.steps import (
    MODES,
    Archive,
    Fold,
    Mode,
    Produce,
    Wait,
    Wake,
    draw_world,
)

pytestmark = pytest.mark.usefixtures("simulation")

EACH = 250
"""Worlds of a mode in `make test`: 3 seconds."""

LONG = 100_000


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_what_the_platform_says_of_hours_is_true(mode: Mode) -> None:
    for seed in range(EACH):
        _, failure = try_seed(mode, seed)
        assert failure is None, f"shrunk:\n{shrink(failure)}"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_what_the_platform_says_of_hours_is_true_in_very_many_worlds() -> None:
    done = CliRunner().invoke(main, ["--seed", str(EACH), "--worlds", str(LONG)])
    assert done.exit_code == 0, done.output


def test_a_seed_repeats_its_world() -> None:
    kafka_partitions, steps = draw_world(7, MODES[4])
    assert draw_world(7, MODES[4]) == (kafka_partitions, steps)
    assert play(kafka_partitions, steps).log == play(kafka_partitions, steps).log


def test_a_world_without_a_fault_archives_each_record_once() -> None:
    world = play(2, (Produce(0, (0, 61)), Produce(1, (2,)), Wait(70), Archive(0), Produce(0, (70,), writer=1)))
    assert (world.violations, len(world.oracle.archived)) == ([], 4)
    assert world.oracle.complete_hours == 3


def test_a_run_that_is_suspended_while_another_does_its_work_archives_nothing_twice() -> None:
    world = play(1, (Produce(0, (0, 1)), Wait(70), Archive(0, asleep_at=11), Archive(0), Wake()))
    assert (world.violations, len(world.oracle.archived)) == ([], 2)
    assert any("SupersededError" in line for line in world.log)


def test_old_rows_are_folded() -> None:
    steps = tuple(step for n in range(4) for step in (Produce(0, (60 * n,)), Wait(70), Archive(n)))
    world = play(1, (*steps, Fold(0)))
    assert world.violations == []
    assert world.index.months


def say_complete(*_: object) -> Verdict:
    return Verdict(is_complete=True, lacking={})


def test_an_hour_that_is_called_complete_without_its_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "ask_judge", say_complete)
    assert find_violations(1, (Produce(0, (0,)),))[0].text == "hour 0 is complete without 0:0 (time 0, written at 0)"


def test_an_hour_that_never_becomes_complete_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "ask_judge", lambda *_: Verdict(is_complete=False, lacking={}))
    assert {v.kind for v in find_violations(1, (Produce(0, (0,)),))} == {"stuck"}


def test_a_failing_world_shrinks_to_the_steps_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(_: object, hour: datetime, lateness: timedelta) -> Verdict:
        return Verdict(is_complete=hour.minute == 0, lacking={})

    monkeypatch.setattr(oracle, "ask_judge", judge)
    _, failure = try_seed(MODES[0], 3)
    assert failure is not None
    small = shrink(failure)
    assert len(small.steps) <= 2
    assert small.kind == failure.kind
    assert str(small).startswith("def test_false_complete_")
