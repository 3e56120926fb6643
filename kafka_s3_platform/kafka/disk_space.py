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
    """What the log directories of a broker can take together, in bytes; None where that is not known, and why.

    Directories of one volume count once each: it is never less than what there is.
    """

    usable_bytes: int | None
    reason: str = ""


def measure_disk_space(settings: KafkaSettings, addresses: Mapping[int, tuple[str, int]]) -> dict[int, DiskSpace]:
    """Ask each broker for its space; return it by broker id. What goes wrong is a reason, and no error."""
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
    # Without the right a restore still runs: it only cannot tell whether there is room.
    if error == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return DiskSpace(None, "the right to ask is missing, DESCRIBE on the cluster")
    if error or not found or any(d.error_code or d.usable_bytes < 0 for d in found):
        codes = sorted({error, *(d.error_code for d in found)} - {0})
        return DiskSpace(None, f"not every log directory tells (Kafka's errors {codes})")
    return DiskSpace(sum(d.usable_bytes for d in found))
