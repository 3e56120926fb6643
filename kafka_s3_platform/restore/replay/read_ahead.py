"""Reads one step ahead of the sender."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Reads the next item in a thread while the caller works on the last one. The first read begins at once.

    Iterate it once. Close it, so that the thread ends.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._source = iter(items)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="restore-ahead")
        self._reading = self._pool.submit(next, self._source, None)

    def close(self) -> None:
        """End the thread, after its current item."""
        self._pool.shutdown()

    def items(self, patience: Callable[[], float | None]) -> Iterator[T | None]:
        """Yield each item, and None whenever the next takes longer than `patience()` seconds (None: wait forever)."""
        while True:
            if not wait([self._reading], patience()).done:
                yield None
                continue
            item = self._reading.result()
            if item is None:
                return
            # Before the yield: the thread reads while the caller works on this item.
            self._reading = self._pool.submit(next, self._source, None)
            yield item
