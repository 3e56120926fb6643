"""Folders of this machine: one that only this user may enter, and one that only one process uses at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_private_folder(path: Path) -> Path:
    """Make the folder if it is missing, and let only this user enter it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock `folder`, which is made if it is missing, against other processes. The lock ends with this process."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
