"""Fetches files from Maven Central into the stack's cache, once, with the Ivy in PySpark."""

import hashlib
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.core.errors import IntegrityError, TransientError
from kafka_s3_platform.core.folders import lock_folder
from kafka_s3_platform.core.java.runtime import find_java, find_pyspark_jars

logger = logging.getLogger(__name__)

PARTIAL = "fetching-"
PROGRESS_SECONDS = 5.0
# Enough for the largest download, 109 MB, at 1 Mbit/s.
FETCH_SECONDS = 900.0
DOWNLOADS = "libs"


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder. It is empty for a link, because the link's target may change."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {
        str(path.relative_to(folder)): "" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


@dataclass(frozen=True, slots=True)
class Download:
    """Files of Maven Central, in one folder of the cache."""

    name: str
    """The name of the folder below the cache."""
    title: str
    coordinates: str
    ivy_options: Callable[[Path], Sequence[str]]
    """Returns Ivy's options, given a folder Ivy may write to."""
    list_differences: Callable[[Path], Sequence[str]]
    """Lists files of the folder that differ from the record. Other files would run as this user's code."""
    unpack: Callable[[Path], Path] = Path
    """Unpacks the folder of downloads, and returns the folder to keep."""

    def folder(self, cache: Path) -> Path:
        """Return the folder below `cache`. Fetch it if it is missing.

        Raises:
            TransientError: it could not be fetched.
            IntegrityError: the files, whether just fetched or already there, differ from the recorded ones.
        """
        folder = cache / self.name
        with lock_folder(cache):
            for stale in cache.glob(f"{PARTIAL}*"):
                shutil.rmtree(stale, ignore_errors=True)
            if folder.exists():
                self._verify(folder, f"remove {folder}, so that it is fetched again, and see who can write there")
            else:
                # The name is not fixed, because the Ivy of a killed run may still write to its folder.
                with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=cache, ignore_cleanup_errors=True) as partial:
                    self._fetch(Path(partial))
                    # Renamed after the check, so the kept folder is always whole.
                    unpacked = self.unpack(Path(partial, DOWNLOADS))
                    self._verify(unpacked, "a mirror that alters or lacks them cannot be used")
                    unpacked.rename(folder)
        return folder

    def _verify(self, folder: Path, advice: str) -> None:
        """Raise IntegrityError if files of the folder are not the recorded ones."""
        if differing := self.list_differences(folder):
            raise IntegrityError(
                f"files of {self.coordinates} differ from those recorded: {', '.join(differing)}; {advice}"
            )

    def _fetch(self, folder: Path) -> None:
        """Run Ivy, and wait for it. Raise TransientError if it fails."""
        logger.info("fetching %s into %s", self.title, folder.parent)
        log = folder.parent / "ivy.log"
        with log.open("w") as output:
            ivy = subprocess.Popen(
                self._command(folder), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
            try:
                self._await(ivy, folder)
            finally:
                ivy.kill()
                ivy.wait()
        if ivy.returncode != 0:
            raise TransientError(
                f"fetching {self.coordinates} with Ivy failed (exit status {ivy.returncode}, log {log}): "
                "check the way to Maven Central and run the command again"
            )

    def _command(self, folder: Path) -> list[str]:
        """Return the command that fetches the files into a folder with Ivy."""
        java = [str(find_java()), f"-Divy.default.ivy.user.dir={folder}/ivy", "-cp", f"{find_pyspark_jars()}/*"]
        retrieve = ["-retrieve", f"{folder}/{DOWNLOADS}/[artifact]-[revision].[ext]"]
        return [*java, "org.apache.ivy.Main", *self.ivy_options(folder), "-confs", "default", *retrieve]

    def _await(self, ivy: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait for Ivy, at most FETCH_SECONDS, and log how much it has fetched."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < FETCH_SECONDS:
            try:
                ivy.wait(PROGRESS_SECONDS)
                return
            except subprocess.TimeoutExpired:
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
                logger.info("fetching %s: %.0f MB after %.0f s", self.title, size, waited + PROGRESS_SECONDS)
