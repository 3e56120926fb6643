"""Defines the sink of every writer."""

from typing import Protocol


class Sink(Protocol):
    """A writable file of bytes."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...
