"""What tests of restores of our own archive share: requests, and what came of them."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.kafka.topics import records_of, until
from kafka_s3_platform_tests.restore.targets import target_of
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent


def request(config: ConnectorConfig, **changes: Any) -> RestoreRequest:
    given: dict[str, Any] = {"to_topic": target_of(config), "restore_id": "r1", "run_id": "x", "create_topic": True}
    return RestoreRequest(config, config.topics[0], **given | changes)


def restored(config: ConnectorConfig, runner: TaskRunner | None = None, /, **changes: Any) -> RestoreReport:
    return restore(ArchiveSource(request(config, **changes)), runner or InProcessRunner())


def values(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[bytes | None]:
    found: list[bytes | None] = records_of(kafka, topic, kafka_partition).column("value").to_pylist()
    return found


def numbered(count: int, **changes: Any) -> list[Sent]:
    return [Sent(b"%d" % n, timestamp=NOON + n * timedelta(milliseconds=1), **changes) for n in range(count)]


def admin_client(kafka: KafkaSettings) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def topics(kafka: KafkaSettings) -> set[str]:
    return set(admin_client(kafka).list_topics(timeout=10).topics)


def keys(store: StoreSettings, prefix: str = "") -> list[str]:
    return [o.key for o in ObjectStore(store).list(prefix)]


def delete_topic(kafka: KafkaSettings, topic: str) -> None:
    admin = admin_client(kafka)
    admin.delete_topics([topic])[topic].result(30)
    while topic in topics(kafka):
        time.sleep(0.05)


def add_kafka_partitions(kafka: KafkaSettings, topic: str, count: int) -> None:
    client = admin_client(kafka)
    client.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    with ClusterAdmin(kafka) as admin:
        until(lambda: len(admin.describe_topic(topic).kafka_partitions) == count)


def set_configs(kafka: KafkaSettings, topic: str, configs: Mapping[str, str], pause: float = 0.0) -> None:
    """Set configs one after the other, as a person does it: each is in force, for `pause` seconds, before the next."""
    client = admin_client(kafka)
    for name, value in configs.items():
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(30)
        while (name, value) not in read_configs(kafka, topic).items():
            time.sleep(0.1)
        time.sleep(pause)


def read_configs(kafka: KafkaSettings, topic: str) -> Mapping[str, str]:
    with ClusterAdmin(kafka) as admin:
        return admin.topic_configs(topic)
