"""What the brokers' disks can take."""

import shutil
import struct

from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.disk_space import DiskSpace, measure_disk_space
from kafka_s3_platform.kafka.fetch import protocol as wire
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import CreateTopic, free_ports

SOME = 200_000_000


def test_a_broker_tells_what_its_volume_can_take(
    kafka_settings: KafkaSettings, stack_settings: StackSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name, 2)
    with ClusterAdmin(kafka_settings) as admin:
        cluster, topic = admin.describe_cluster(), admin.describe_topic(topic_name)
    assert topic.replicas == {0: (1,), 1: (1,)}

    [(broker_id, found)] = measure_disk_space(kafka_settings, cluster.addresses).items()

    assert broker_id == 1
    assert found.usable_bytes is not None
    assert abs(found.usable_bytes - shutil.disk_usage(stack_settings.data_dir).free) < SOME


def test_a_broker_that_cannot_be_asked_is_unknown_with_its_reason(kafka_settings: KafkaSettings) -> None:
    [port] = free_ports(1)
    [silent] = measure_disk_space(kafka_settings, {1: ("127.0.0.1", port)}).values()
    assert (silent.usable_bytes, "refused" in silent.reason) == (None, True)

    common = {"security.protocol": SecretStr("SASL_PLAINTEXT"), "sasl.mechanism": SecretStr("OAUTHBEARER")}
    [strange] = measure_disk_space(
        kafka_settings.model_copy(update={"common": common}), {1: ("127.0.0.1", port)}
    ).values()
    assert strange == DiskSpace(None, "the security settings are such that only librdkafka connects, which cannot ask")


def test_a_broker_tells_which_versions_it_speaks() -> None:
    def answer(first: int, last: int, error: int = 0) -> memoryview:
        ranges = struct.pack(">hhh", 3, 0, 12) + struct.pack(">hhh", wire.DESCRIBE_LOG_DIRS[0], first, last)
        return memoryview(struct.pack(">ihi", 1, error, 2) + ranges + struct.pack(">i", 0))

    supported = [wire.supports_api(answer(*versions), wire.DESCRIBE_LOG_DIRS) for versions in ((1, 5), (0, 3), (5, 6))]
    assert supported == [True, False, False]
    assert not wire.supports_api(answer(0, 5, error=35), wire.DESCRIBE_LOG_DIRS)
