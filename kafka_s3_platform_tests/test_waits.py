import threading

import pytest

from kafka_s3_platform.core.waits import Waiting


def test_a_call_that_ends_is_waited_for() -> None:
    waiting = Waiting(lambda: 5)
    assert waiting.ended_within(10)
    assert (waiting.answer, waiting.is_under_way) == (5, False)


def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Waiting(lambda: int("x")).ended_within(10)


def test_a_call_that_does_not_end_is_given_up() -> None:
    held = threading.Event()
    waiting = Waiting(lambda: held.wait(60))
    assert (waiting.ended_within(0.05), waiting.is_under_way) == (False, True)
    held.set()
