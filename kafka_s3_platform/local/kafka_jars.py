"""Fetches Apache Kafka's own jars, and checks them against recorded digests."""

from functools import partial
from pathlib import Path

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.local.ivy import Download, hash_files
from kafka_s3_platform.local.settings import KAFKA_VERSION, name_variable

ORGANISATION = "org.apache.kafka"
MODULE = "kafka_2.13"


def fetch_kafka_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Return the folder with the jars of this Kafka below `cache`. Fetch it if it is missing.

    Raises:
        ConfigError: no digests of this version are recorded.
        TransientError: the jars could not be fetched.
        IntegrityError: the jars differ from the recorded ones.
    """
    digests = find_digests(version)
    # Ivy takes the module's configuration `default`, because `runtime` lacks the broker's own jar.
    download = Download(
        name=f"{MODULE}-{version}",
        title=f"Apache Kafka {version} (about 45 MB)",
        coordinates=f"{ORGANISATION}:{MODULE}:{version}",
        ivy_options=lambda _: ["-dependency", ORGANISATION, MODULE, version],
        list_differences=partial(_compare_digests, digests),
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


def _compare_digests(digests: Path, libs: Path) -> list[str]:
    recorded = {name: digest for digest, name in map(str.split, digests.read_text().splitlines())}
    return sorted({name for name, _ in recorded.items() ^ hash_files(libs).items()})
