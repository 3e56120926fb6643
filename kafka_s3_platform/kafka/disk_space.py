"""Measures the free space of the brokers' disks."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import KafkaError

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.kafka.fetch.connection import BrokerConnection, UnsupportedError, is_supported

ANSWER_SECONDS = 5.0
"""How long one broker may take."""

# Brokers that are asked at once: a dead one costs its whole time, and must not hold up the others.
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free space of a broker's log directories together, in bytes; None if it is unknown, and the reason.

    Each directory counts with its whole volume. If some share a volume, the sum is too large; it is never too small.
    """

    usable_bytes: int | None
    reason: str = ""


def measure_disk_space(settings: KafkaSettings, addresses: Mapping[int, tuple[str, int]]) -> dict[int, DiskSpace]:
    """Ask each broker for its space. Return it by broker id. Failures are reasons in the result, and raise nothing."""
    properties = settings.properties("admin")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda address: _ask_broker(properties, *address), addresses.values())
        return dict(zip(addresses, found, strict=True))


def _ask_broker(properties: Mapping[str, str], host: str, port: int) -> DiskSpace:
    if not is_supported(properties):
        return DiskSpace(None, "the security settings are such that only librdkafka connects, which cannot ask")
    try:
        with BrokerConnection(host, port, properties, ANSWER_SECONDS) as connection:
            error, found = connection.log_dirs()
    except (UnsupportedError, OSError, ValueError, IndexError) as err:
        return DiskSpace(None, str(err) or type(err).__name__)
    # Without this right a restore still runs, but nobody knows whether there is room.
    if error == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return DiskSpace(None, "the right to ask is missing, DESCRIBE on the cluster")
    if error or not found or any(d.error_code or d.usable_bytes < 0 for d in found):
        codes = sorted({error, *(d.error_code for d in found)} - {0})
        return DiskSpace(None, f"not every log directory tells (Kafka's errors {codes})")
    return DiskSpace(sum(d.usable_bytes for d in found))
