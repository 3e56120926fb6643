"""Histories in which hours were once called complete without their records, or never became complete.

Each was found by a reviewer or by a seed, and is as short as it gets.
"""

from collections.abc import Sequence

import pytest

from kafka_s3_platform_tests.worlds.play import find_violations
from kafka_s3_platform_tests.worlds.steps import (
    Accept,
    Archive,
    Delete,
    Elect,
    FailCommit,
    LieAboutEnd,
    Produce,
    SetClock,
    Silence,
    Skip,
    Step,
    Wait,
)

KNOWN: dict[str, tuple[int, Sequence[Step]]] = {
    "retention took hours before archiving began, and a later hour is asked first": (
        1,
        (Produce(0, (0,) * 4), Wait(120), Delete(0, 3), Archive(2), Archive(0)),
    ),
    "retention takes them during the first look": (
        1,
        (Produce(0, (0, 0)), Wait(120), Archive(2, meanwhile=((4, Delete(0, 1)),)), Archive(0)),
    ),
    "the run of the later hour is killed": (
        1,
        (Produce(0, (0, 0, 0)), Wait(120), Delete(0, 2), Archive(2, killed_at=12), Archive(0)),
    ),
    "a truncation is accepted after the log has grown in part": (
        1,
        (Produce(0, (0,) * 6), Archive(), Elect(0, 4), Produce(0, (20,) * 3), Wait(120)),
    ),
    "so is one to nothing": (1, (Produce(0, (0,) * 6), Archive(), Elect(0, 6), Produce(0, (20,) * 3), Wait(120))),
    "retention takes several hours, of which one run tells": (
        1,
        (
            Produce(0, (0,)),
            Archive(0),
            Produce(0, (1, 61, 121)),
            Wait(190),
            Delete(0, 3),
            Produce(0, (190,)),
            Archive(1, 3, allow_gaps=True),
        ),
    ),
    "several hours are skipped at once": (
        1,
        (
            Produce(0, (0,)),
            Produce(0, (1, 61, 121), is_poison=True),
            Wait(190),
            Archive(0, 3),
            Skip(0, 1, 3),
            Archive(0, 3),
        ),
    ),
    "a late record at the log's start hides what retention took": (
        1,
        (
            Wait(60),
            Produce(0, (60, 61)),
            Produce(0, (30,)),
            Produce(0, (62,)),
            Wait(60),
            Produce(0, (121,)),
            Wait(70),
            Delete(0, 2),
            Archive(1),
            Archive(2),
        ),
    ),
    "so it does where archiving began with the log": (
        1,
        (
            Produce(0, (0,)),
            Archive(0),
            Wait(120),
            Produce(0, (120, 121)),
            Produce(0, (90,)),
            Produce(0, (122,)),
            Wait(60),
            Produce(0, (181,)),
            Wait(70),
            Delete(0, 3),
            Archive(2),
            Archive(3),
        ),
    ),
    "an unreadable record claims the offset of another one of its time": (
        1,
        (Produce(0, (0,), claims=1), Produce(0, (0,))),
    ),
    "an unreadable record claims an offset behind what is archived": (1, (Produce(0, (50, 181), claims=8),)),
    "a log that was seen is cut, grows again, and does not answer": (
        2,
        (
            Produce(0, (0,) * 12),
            Wait(120),
            Archive(1),
            Elect(0, 10),
            Produce(0, (125,) * 10),
            Wait(70),
            Archive(9, killed_at=12),
            Silence(0),
            Archive(2),
            Silence(0),
        ),
    ),
    "what was seen and not archived is truncated": (1, (Produce(0, (0,)), Wait(150), Archive(2), Elect(0, 1))),
    "retention goes on between the look-up of an hour and the log's start": (
        1,
        (
            Produce(0, (0,)),
            Archive(0),
            Produce(0, (120, 121, 122, 123, 124)),
            Wait(250),
            Delete(0, 3),
            Archive(2, allow_gaps=True, meanwhile=((6, Delete(0, 1)),)),
        ),
    ),
    "an end is too low, and the index knows of an unresolved record behind it": (
        1,
        (
            Produce(0, (0, 0)),
            Produce(0, (1,), is_poison=True),
            Wait(120),
            LieAboutEnd(0, 1),
            Archive(0),
            Archive(),
            Archive(),
        ),
    ),
    "a log has grown again beyond what is archived, which has a hole": (
        1,
        (Produce(0, (60,)), Archive(), Elect(0, 2), Produce(0, (94, 155, 354)), Archive(5)),
    ),
    "two looks saw what was truncated then": (1, (Produce(0, (0,)), Wait(100), Archive(5), Archive(6), Elect(0, 1))),
    "what waits for a decision is truncated during a run, and skipped when the log has grown again": (
        1,
        (
            Produce(0, (0,), is_poison=True),
            Archive(),
            Archive(meanwhile=((7, Elect(0, 3)),)),
            Produce(0, (120, 320)),
            Skip(0, 0, 1),
        ),
    ),
    "a log that was seen is truncated, grows again, and only then is read": (
        1,
        (Wait(150), Produce(0, (149,)), Archive(asleep_at=9), Wait(60), Elect(0, 1), Produce(0, (191,))),
    ),
    "a log is truncated a second time, where the first time was accepted": (
        1,
        (
            Wait(60),
            Produce(0, (180,)),
            Wait(60),
            Archive(),
            Elect(0, 99),
            Accept(0),
            Wait(60),
            Produce(0, (189,)),
            Wait(60),
            Archive(),
            Wait(60),
            Elect(0, 99),
            Archive(),
        ),
    ),
    "what waits for a decision is deleted, before where the log began": (
        1,
        (
            Produce(0, (160,)),
            Delete(0, 2),
            Archive(),
            Elect(0, 99),
            Produce(0, (360,), is_poison=True),
            Archive(),
            Delete(0, 2),
        ),
    ),
    "an end is too low, and the next look at the log is not one at all of them": (
        2,
        (
            Wait(60),
            Produce(1, (120,), is_poison=True),
            Wait(120),
            Produce(0, (170,)),
            Wait(60),
            Archive(meanwhile=((13, Silence(0)), (4, LieAboutEnd(1, 9)))),
            Archive(),
        ),
    ),
    "a run reads on whose last look did not see all kafka partitions, and a clock is ahead": (
        2,
        (
            Archive(meanwhile=((5, Silence(1)),)),
            Archive(asleep_at=3),
            Produce(0, (30,), writer=1),
            Wait(120),
            Archive(),
            Silence(1),
            SetClock(70),
            Elect(0, 3),
        ),
    ),
    "a clock is put back while a run sleeps that has seen a shorter log": (
        1,
        (
            Wait(120),
            Produce(0, (104,), writer=1),
            Wait(60),
            Archive(),
            Wait(60),
            Elect(0, 99),
            Archive(2, asleep_at=9),
            FailCommit("answer lost"),
            SetClock(-70),
        ),
    ),
}


@pytest.mark.usefixtures("simulation")
@pytest.mark.parametrize(("kafka_partitions", "steps"), KNOWN.values(), ids=KNOWN)
def test_what_is_said_of_hours_is_true(kafka_partitions: int, steps: Sequence[Step]) -> None:
    assert find_violations(kafka_partitions, steps) == ()
