"""A Kafka for one piece of work, in a temporary folder and at ports of its own. It is gone when its starter ends."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.processes import is_port_free
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import await_server

PORTS = range(12_000, 20_000)
"""Ports below Linux's and macOS's ephemeral ranges, so no outgoing connection takes one before Kafka starts."""

LARGEST_MESSAGE = 95 * 2**20
"""Just below the largest request Kafka reads by default, so whatever was archived can come back."""

SPARE_BYTES = 2**30
"""Room for Kafka itself, for its logs and for the files it allocates in advance."""


@contextmanager
def run_ephemeral_broker(expected_bytes: int) -> Iterator[KafkaSettings]:
    """Run a Kafka with room for `expected_bytes` of records. It ends with the block or this process, even if killed.

    Raises:
        ConfigError: the temporary folder has too little room, or there is no Java.
        PermanentError: Kafka stopped while it was starting.
        TransientError: Kafka did not answer in time, or could not be fetched.
    """
    _check_room(expected_bytes)
    folder = Path(tempfile.mkdtemp(prefix="kafka-s3-rehearsal-"))
    try:
        kafka_port, controller_port = [port for port in random.sample(PORTS, 50) if is_port_free(port)][:2]
        settings = replace(
            StackSettings.from_environment(),
            data_dir=folder,
            kafka_port=kafka_port,
            kafka_controller_port=controller_port,
            kafka_properties={"message.max.bytes": str(LARGEST_MESSAGE)},
        )
        broker = Broker(settings)
        with broker.daemon.run_bound(broker.prepare(), folder):
            await_server(broker)
            yield KafkaSettings(bootstrap_servers=settings.bootstrap_servers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_room(expected_bytes: int) -> None:
    """Raise ConfigError if the temporary folder has no room for twice the bytes: records have headers and indexes."""
    needed = 2 * expected_bytes + SPARE_BYTES
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise ConfigError(
            f"the Kafka of a rehearsal may need {needed:,} bytes in {tempfile.gettempdir()}, which has {free:,} free. "
            "Make room there, name another folder in TMPDIR, or rehearse fewer hours at once by a longer "
            "archive.rehearsal.period.days"
        )
