import pytest

from kafka_s3_platform.core.kafka import record_reader as module
from kafka_s3_platform.core.kafka.record_reader import Throttle


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def seconds_for(clock: Clock, throttle: Throttle, takes: int, records: int, size: int) -> float:
    start = clock.now
    for _ in range(takes):
        throttle.take(records, size)
    return clock.now - start


def test_an_unbounded_throttle_does_not_wait(clock: Clock) -> None:
    assert seconds_for(clock, Throttle(), 1000, 1000, 1_000_000) == 0


@pytest.mark.parametrize(("records", "size"), [(1000, None), (None, 10_000), (1000, 1e12)])
def test_a_second_of_budget_is_free_and_the_rest_is_waited_for(
    clock: Clock, records: float | None, size: float | None
) -> None:
    assert seconds_for(clock, Throttle(records, size), 15, 100, 1000) == pytest.approx(0.5)


def test_one_large_record_passes_and_is_paid_for_by_waiting(clock: Clock) -> None:
    assert seconds_for(clock, Throttle(None, 1000), 1, 1, 1300) == pytest.approx(0.3)


def test_what_is_not_spent_is_kept_for_a_second_only(clock: Clock) -> None:
    throttle = Throttle(1000)
    clock.sleep(10)
    assert seconds_for(clock, throttle, 1, 1500, 0) == pytest.approx(0.5)


def test_no_more_than_a_second_of_records_is_taken_at_once() -> None:
    assert Throttle(100.0).records_at_once(4096) == 100
    assert Throttle(0.1).records_at_once(4096) == 1
    assert Throttle(None, 5.0).records_at_once(4096) == 4096
