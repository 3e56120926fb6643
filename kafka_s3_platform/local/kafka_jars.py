"""Fetches Apache Kafka's own jars, and checks them against recorded digests."""

import hashlib
from pathlib import Path

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.local.ivy import Download

ORGANISATION = "org.apache.kafka"
MODULE = "kafka_2.13"
VERSION = "4.3.1"
DIGESTS = Path(__file__).with_name(f"{MODULE}-{VERSION}.sha256")


def fetch_kafka_jars(cache: Path) -> Path:
    """Return the folder with Kafka's jars below `cache`. Fetch it if it is missing.

    Raises:
        TransientError: the jars could not be fetched.
        IntegrityError: the fetched jars differ from the recorded ones.
    """
    return _DOWNLOAD.folder(cache)


def _verify_digests(libs: Path) -> Path:
    recorded = {name: digest for digest, name in map(str.split, DIGESTS.read_text().splitlines())}
    fetched = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in libs.iterdir()}
    if wrong := sorted(name for name, _ in recorded.items() ^ fetched.items()):
        raise IntegrityError(
            f"jars of {ORGANISATION}:{MODULE}:{VERSION} differ from those recorded in {DIGESTS.name}: "
            f"{', '.join(dict.fromkeys(wrong))}; a mirror that alters or lacks them cannot be used"
        )
    return libs


# Ivy takes the module's configuration `default`, because `runtime` lacks the broker's own jar.
_DOWNLOAD = Download(
    name=f"{MODULE}-{VERSION}",
    title=f"Apache Kafka {VERSION} (43 MB)",
    coordinates=f"{ORGANISATION}:{MODULE}:{VERSION}",
    ivy_options=lambda _: ["-dependency", ORGANISATION, MODULE, VERSION],
    finish=_verify_digests,
)
