import threading

import pytest

from kafka_s3_platform.waits import Waiting


def test_a_call_that_ends_is_waited_for() -> None:
    found: list[int] = []
    assert Waiting(found.append, [5]).ended_within(10)
    assert found == [5]


def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Waiting(int, ["x"]).ended_within(10)


def test_a_call_that_does_not_end_is_given_up() -> None:
    held = threading.Event()
    assert not Waiting(held.wait, [60]).ended_within(0.05)
    held.set()
