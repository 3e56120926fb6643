"""The sink that every format writes to."""

from typing import Protocol


class Sink(Protocol):
    """A file of bytes that can be written."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...
