"""What the store's answers tell of the time."""

from datetime import timedelta
from typing import Any

import pytest

from kafka_s3_platform.core.store.clock import StoreClock, StoreTime, _note_answer_time
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.support import NOON


def seconds(sent: float, received: float) -> float:
    """The difference that is certain, of a request sent and answered so many seconds after the store's noon."""
    asked, answered = NOON + timedelta(seconds=sent), NOON + timedelta(seconds=received)
    return StoreTime(NOON, asked, answered, 0.0).difference.total_seconds()


@pytest.mark.parametrize(
    ("sent", "received", "difference"),
    [
        (0.2, 0.3, 0),
        (0, 1, 0),
        (61, 61.2, 60),
        (62.5, 90, 61.5),
        (-61, -60, -60),
        (-90, -61.5, -61.5),
        (-500, 500, 0),
    ],
)
def test_only_what_whole_seconds_and_the_way_cannot_explain_is_a_difference(
    sent: float, received: float, difference: float
) -> None:
    assert seconds(sent, received) == difference


def answered(headers: dict[str, str]) -> StoreClock:
    clock, context = StoreClock(), {"kafka-s3-sent": NOON}
    parsed: Any = {"ResponseMetadata": {"HTTPHeaders": headers}}
    with clock.watching():
        _note_answer_time(context, parsed)  # as botocore calls it
    return clock


@pytest.mark.parametrize(
    "headers",
    [{}, {"date": ""}, {"date": "noon"}, {"date": "Thu, 01 Jan 2026 12:00:00 GMT", "age": "300"}],
    ids=["none", "empty", "no date", "from a cache"],
)
def test_an_answer_without_a_date_of_its_own_tells_nothing(headers: dict[str, str]) -> None:
    assert answered(headers).latest is None


def test_the_stores_time_goes_on_from_its_answer() -> None:
    clock = answered({"date": "Thu, 01 Jan 2026 12:00:00 GMT"})
    assert NOON <= present(clock.latest).now() < NOON + timedelta(seconds=30)


def test_each_clock_is_told_of_the_answers_that_it_watched() -> None:
    """Stores share a client: what one was answered hours ago is no answer to another."""
    first, second = answered({"date": "Thu, 01 Jan 2026 12:00:00 GMT"}), StoreClock()
    assert first.latest is not None
    assert second.latest is None
