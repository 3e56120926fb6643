import time

import pytest

from kafka_s3_platform.kafka.throttle import Throttle


def seconds_for(throttle: Throttle, takes: int, records: int, size: int) -> float:
    start = time.monotonic()
    for _ in range(takes):
        throttle.take(records, size)
    return time.monotonic() - start


def test_an_unbounded_throttle_does_not_wait() -> None:
    assert seconds_for(Throttle(), 1000, 1000, 1_000_000) < 0.5


@pytest.mark.parametrize("throttle", [Throttle(1000, None), Throttle(None, 10_000), Throttle(1000, 1e12)])
def test_a_second_of_budget_is_free_and_the_rest_is_waited_for(throttle: Throttle) -> None:
    assert 0.45 < seconds_for(throttle, 15, 100, 1000) < 1.0


def test_one_large_record_passes_and_is_paid_for_by_waiting() -> None:
    assert 0.2 < seconds_for(Throttle(None, 1000), 1, 1, 1300) < 0.8


def test_no_more_than_a_second_of_records_is_taken_at_once() -> None:
    assert Throttle(100.0).records_at_once(4096) == 100
    assert Throttle(0.1).records_at_once(4096) == 1
    assert Throttle(None, 5.0).records_at_once(4096) == 4096
