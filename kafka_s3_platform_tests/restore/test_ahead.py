import threading
from collections.abc import Iterator

import pytest

from kafka_s3_platform.restore.ahead import ahead


def test_items_come_as_they_are_and_none_is_no_end() -> None:
    assert list(ahead(range(5), lambda: None)) == [0, 1, 2, 3, 4]
    assert list(ahead([], lambda: 0.0)) == []


def test_the_next_item_is_read_while_the_last_is_worked_on() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    reading = ahead(items(), lambda: None)
    assert next(reading) == 1
    assert second.wait(10)
    assert list(reading) == [2]


def test_a_wait_beyond_patience_is_told_and_the_item_comes_later() -> None:
    arrived = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert arrived.wait(10)
        yield 2

    reading = ahead(items(), lambda: 0.01)
    assert next(reading) == 1
    assert next(reading) is None
    assert next(reading) is None
    arrived.set()
    assert [item for item in reading if item is not None] == [2]


def test_what_reading_raises_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    reading = ahead(items(), lambda: None)
    assert next(reading) == 1
    with pytest.raises(OSError, match="broken"):
        next(reading)


def test_closed_early_its_thread_ends() -> None:
    before = threading.active_count()
    reading = ahead(range(1000), lambda: None)
    assert next(reading) == 0
    reading.close()
    assert threading.active_count() == before
