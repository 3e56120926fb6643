"""Apache Kafka's own jars, fetched once with the Ivy that PySpark ships, and checked against recorded digests."""

import hashlib
import logging
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from kafka_s3_platform.errors import IntegrityError, TransientError
from kafka_s3_platform.local.java import find_java, pyspark_jars
from kafka_s3_platform.local.processes import locked

logger = logging.getLogger(__name__)

ORGANISATION = "org.apache.kafka"
MODULE = "kafka_2.13"
VERSION = "4.3.1"
DIGESTS = Path(__file__).with_name(f"{MODULE}-{VERSION}.sha256")
PARTIAL = "fetching-"
PROGRESS_SECONDS = 5.0
FETCH_SECONDS = 900.0


def kafka_jars(cache: Path) -> Path:
    """The folder with Kafka's jars below `cache`, fetched if it is not there yet.

    Raises:
        TransientError: the jars could not be fetched.
        IntegrityError: what was fetched is not what was recorded.
    """
    jars = cache / f"{MODULE}-{VERSION}"
    with locked(cache):
        for stale in cache.glob(f"{PARTIAL}*"):
            shutil.rmtree(stale, ignore_errors=True)
        if not jars.exists():
            # Not one fixed name: the Ivy of a killed run may still be writing to its own.
            with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=cache, ignore_cleanup_errors=True) as partial:
                _fetch(Path(partial))
                _verify(Path(partial, "libs"))
                Path(partial, "libs").rename(jars)
    return jars


def _fetch(folder: Path) -> None:
    logger.info("fetching Apache Kafka %s (43 MB) into %s", VERSION, folder.parent)
    log = folder.parent / "ivy.log"
    with log.open("w") as output:
        ivy = subprocess.Popen(_ivy_command(folder), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            _await(ivy, folder)
        finally:
            ivy.kill()
            ivy.wait()
    if ivy.returncode != 0:
        raise TransientError(
            f"fetching {ORGANISATION}:{MODULE}:{VERSION} with Ivy failed (exit status {ivy.returncode}, log {log}): "
            "check the way to Maven Central and run the command again"
        )


def _ivy_command(folder: Path) -> list[str]:
    """Configuration `default`, because `runtime` leaves out the broker's own jar."""
    java = [str(find_java()), f"-Divy.default.ivy.user.dir={folder}/ivy", "-cp", f"{pyspark_jars()}/*"]
    what = ["-dependency", ORGANISATION, MODULE, VERSION, "-confs", "default"]
    return [*java, "org.apache.ivy.Main", *what, "-retrieve", f"{folder}/libs/[artifact]-[revision].[ext]"]


def _await(ivy: subprocess.Popen[bytes], folder: Path) -> None:
    started = time.monotonic()
    while (waited := time.monotonic() - started) < FETCH_SECONDS:
        try:
            ivy.wait(PROGRESS_SECONDS)
            return
        except subprocess.TimeoutExpired:
            size = sum(path.stat().st_size for path in folder.rglob("*.jar")) / 1e6
            logger.info("fetching Apache Kafka %s: %.0f MB after %.0f s", VERSION, size, waited + PROGRESS_SECONDS)


def _verify(libs: Path) -> None:
    recorded = {name: digest for digest, name in map(str.split, DIGESTS.read_text().splitlines())}
    fetched = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in libs.iterdir()}
    if wrong := sorted(name for name, _ in recorded.items() ^ fetched.items()):
        raise IntegrityError(
            f"jars of {ORGANISATION}:{MODULE}:{VERSION} differ from those recorded in {DIGESTS.name}: "
            f"{', '.join(dict.fromkeys(wrong))}; a mirror that alters or lacks them cannot be used"
        )
