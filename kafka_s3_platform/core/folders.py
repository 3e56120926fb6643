"""Makes folders for this user alone, locks folders, and replaces files as a whole."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_private_folder(path: Path) -> Path:
    """Make the folder if it is missing, and let only this user enter it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock `folder` against other processes. Make it if it is missing. The lock ends with this process."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, text: str) -> None:
    """Replace a file with one that only this user can read. Whoever reads it meanwhile gets the old text or the new.

    The new file has a fixed name until it is whole. If its process is killed, the next one takes the name again.
    """
    new_path = path.with_name(f"{path.name}.tmp")
    while True:
        with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
            # The lock of a process ends with it.
            fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                # Else another process has finished this file, while this one waited for the lock.
                if os.path.samestat(os.fstat(file.fileno()), new_path.stat()):
                    file.truncate()
                    file.write(text)
                    file.flush()
                    new_path.replace(path)
                    return
