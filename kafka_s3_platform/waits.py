"""Knows what this process waits for, so that somebody can tell a person."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_waits: dict[object, tuple[float, str]] = {}


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Have `list_waits` name `what`, such as `Kafka at localhost:9092`, until the block ends."""
    mark = object()
    _waits[mark] = time.monotonic(), what
    try:
        yield
    finally:
        del _waits[mark]


def list_waits(seconds: float) -> list[str]:
    """Return what is waited for, by any thread, for so long or longer: what is waited for longest comes first."""
    now = time.monotonic()
    return [what for since, what in sorted(_waits.copy().values()) if now - since >= seconds]
