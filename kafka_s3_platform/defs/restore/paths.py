"""Which files the config of a restore may name."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_takes_paths: ContextVar[bool] = ContextVar("takes_paths", default=False)


@contextmanager
def allow_paths() -> Iterator[None]:
    """Let runs in this block, started by a person at this machine, name any file. Others name files of one folder."""
    token = _takes_paths.set(True)
    try:
        yield
    finally:
        _takes_paths.reset(token)


def takes_paths() -> bool:
    """Whether this run may name any file."""
    return _takes_paths.get()
