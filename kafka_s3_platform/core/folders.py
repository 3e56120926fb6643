"""Makes folders for this user alone, locks folders, and replaces files as a whole."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile


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
    """Replace a file with one that only this user can read. Whoever reads it meanwhile gets the old text or the new."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", suffix=".tmp", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
