"""Reading one step ahead of what is sent."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], patience: Callable[[], float | None]) -> Generator[T | None, None, None]:
    """The same items, the next one read by a thread while the last one is worked on.

    None comes in between whenever the next one takes longer than `patience()` seconds; None is patience without end.
    Close it, or read it to its end, so that the thread ends.
    """
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="restore-ahead") as pool:
        reading = pool.submit(next, source, None)
        while True:
            if not wait([reading], patience()).done:
                yield None
                continue
            item = reading.result()
            if item is None:
                return
            reading = pool.submit(next, source, None)
            yield item
