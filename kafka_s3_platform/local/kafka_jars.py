"""Fetches Apache Kafka's own jars, and checks them against recorded digests."""

import hashlib
from functools import partial
from pathlib import Path

from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.local.ivy import Download
from kafka_s3_platform.local.settings import StackSettings, name_variable

ORGANISATION = "org.apache.kafka"
MODULE = "kafka_2.13"
VERSION = StackSettings().kafka_version


def fetch_kafka_jars(cache: Path, version: str = VERSION) -> Path:
    """Return the folder with the jars of this Kafka below `cache`. Fetch it if it is missing.

    Raises:
        ConfigError: no digests of this version are recorded.
        TransientError: the jars could not be fetched.
        IntegrityError: the fetched jars differ from the recorded ones.
    """
    digests = find_digests(version)
    # Ivy takes the module's configuration `default`, because `runtime` lacks the broker's own jar.
    download = Download(
        name=f"{MODULE}-{version}",
        title=f"Apache Kafka {version} (about 45 MB)",
        coordinates=f"{ORGANISATION}:{MODULE}:{version}",
        ivy_options=lambda _: ["-dependency", ORGANISATION, MODULE, version],
        finish=partial(_verify_digests, digests),
    )
    return download.folder(cache)


def find_digests(version: str) -> Path:
    """Return the file of the recorded digests of this Kafka's jars. Raises ConfigError if there is none."""
    folder = Path(__file__).parent
    found = folder / f"{MODULE}-{version}.sha256"
    if not found.is_file():
        known = (path.stem.removeprefix(f"{MODULE}-") for path in folder.glob(f"{MODULE}-*.sha256"))
        raise ConfigError(f"{name_variable('kafka_version')}={version}: there are {', '.join(sorted(known))}")
    return found


def _verify_digests(digests: Path, libs: Path) -> Path:
    recorded = {name: digest for digest, name in map(str.split, digests.read_text().splitlines())}
    fetched = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in libs.iterdir()}
    if wrong := sorted(name for name, _ in recorded.items() ^ fetched.items()):
        raise IntegrityError(
            f"jars of {ORGANISATION}:{digests.stem} differ from those recorded in {digests.name}: "
            f"{', '.join(dict.fromkeys(wrong))}; a mirror that alters or lacks them cannot be used"
        )
    return libs
