"""Reading one step ahead of what is sent."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """The same items, the next one read by a thread while the last one is worked on; the first one from now on.

    Iterate it once, and close it, so that the thread ends.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._source = iter(items)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="restore-ahead")
        self._reading = self._pool.submit(next, self._source, None)

    def close(self) -> None:
        """End the thread, after the item that it reads."""
        self._pool.shutdown()

    def items(self, patience: Callable[[], float | None]) -> Iterator[T | None]:
        """None comes in between whenever the next one takes longer than `patience()` seconds, where that is no None."""
        while True:
            if not wait([self._reading], patience()).done:
                yield None
                continue
            item = self._reading.result()
            if item is None:
                return
            self._reading = self._pool.submit(next, self._source, None)
            yield item
