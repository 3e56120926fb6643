"""Keeps Python's collector of cycles away from where it finds nothing and takes long."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collector() -> Iterator[None]:
    """Keep it out of a burst of allocations.

    Messages and their headers are thousands of tracked objects without cycles: looking through them again and again
    took 40% of the CPU of a read.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def leave_out_imports() -> Iterator[None]:
    """Import without it, and leave what is there by then out of all that it does later.

    Dagster and the definitions are 370,000 objects. To look through them takes a fourth of the time of their import,
    and half a second more when the process ends.
    """
    with pause_collector():
        yield
        gc.freeze()
