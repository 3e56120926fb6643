import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import pytest

from kafka_s3_platform.restore.replay.task import ReadAhead

T = TypeVar("T")


@contextmanager
def ahead(items: Iterable[T], patience: float | None = None) -> Iterator[Iterator[T | None]]:
    with closing(ReadAhead(items)) as reading:
        yield reading.items(lambda: patience)


def test_items_come_as_they_are_and_none_is_no_end() -> None:
    with ahead(range(5)) as reading:
        assert list(reading) == [0, 1, 2, 3, 4]
    with ahead([], 0.0) as none:
        assert list(none) == []


def test_the_first_item_is_read_before_anybody_asks() -> None:
    first = threading.Event()

    def items() -> Iterator[int]:
        first.set()
        yield 1

    with ahead(items()) as reading:
        assert first.wait(60)
        assert list(reading) == [1]


def test_the_next_item_is_read_while_the_last_is_worked_on() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with ahead(items()) as reading:
        assert next(reading) == 1
        assert second.wait(60)
        assert list(reading) == [2]


def test_a_wait_beyond_patience_is_told_and_the_item_comes_later() -> None:
    arrived = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert arrived.wait(60)
        yield 2

    with ahead(items(), 0.01) as reading:
        assert next(reading) == 1
        assert next(reading) is None
        assert next(reading) is None
        arrived.set()
        assert [item for item in reading if item is not None] == [2]


def test_what_reading_raises_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    with ahead(items()) as reading:
        assert next(reading) == 1
        with pytest.raises(OSError, match="broken"):
            next(reading)


def test_closed_early_its_thread_ends() -> None:
    before = threading.active_count()
    with ahead(range(1000)) as reading:
        assert next(reading) == 0
    assert threading.active_count() == before
