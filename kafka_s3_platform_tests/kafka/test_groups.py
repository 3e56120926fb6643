"""Consumer groups on a real broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import committed_offsets, group_state, publish_offsets, refuse_active
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import produce, until


@pytest.fixture
def topic(kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str) -> str:
    """Three kafka partitions with five records each."""
    create_topic(topic_name, 3)
    for kafka_partition in range(3):
        produce(kafka_settings, topic_name, [b"v"] * 5, kafka_partition)
    return topic_name


@contextmanager
def consuming(kafka: KafkaSettings, topic: str, group: str, **more: Any) -> Iterator[Consumer]:
    """A member of the group that has got its kafka partitions."""
    own = {"group.id": group, "client.id": "sink", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(kafka.properties("consumer") | own | more)
    consumer.subscribe([topic])

    def is_assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        until(30, is_assigned)
        yield consumer
    finally:
        consumer.close()


def test_what_a_group_committed_is_read_by_kafka_partition(kafka_settings: KafkaSettings, topic: str) -> None:
    with consuming(kafka_settings, topic, f"g-{topic}") as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 2, 5)], asynchronous=False)
    with ClusterAdmin(kafka_settings) as admin:
        assert committed_offsets(admin, f"g-{topic}", topic) == {0: 3, 2: 5}
        assert committed_offsets(admin, f"g-{topic}", "another") == {}
        assert committed_offsets(admin, f"absent-{topic}", topic) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_active_while_it_has_members(kafka_settings: KafkaSettings, topic: str, protocol: str) -> None:
    group = f"g-{protocol}-{topic}"
    with ClusterAdmin(kafka_settings) as admin:
        assert not group_state(admin, group).is_active
        with consuming(kafka_settings, topic, group, **{"group.protocol": protocol}) as consumer:
            assert group_state(admin, group).is_active
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            with pytest.raises(BusyError, match=f"taking over: consumer group {group} is STABLE.*stop"):
                refuse_active(admin, group, "taking over")
            with pytest.raises(BusyError, match="stop its consumers"):
                publish_offsets(admin, group, topic, {0: 5})
        until(30, lambda: not group_state(admin, group).is_active)
        assert committed_offsets(admin, group, topic) == {0: 1}


def test_members_of_an_active_group_are_named(kafka_settings: KafkaSettings, topic: str) -> None:
    with consuming(kafka_settings, topic, f"g-{topic}"), ClusterAdmin(kafka_settings) as admin:
        [member] = group_state(admin, f"g-{topic}").members
        assert member.startswith("sink at /127.0.0.1")


def test_published_offsets_are_those_of_a_group_that_nobody_consumes_with(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    with ClusterAdmin(kafka_settings) as admin:
        publish_offsets(admin, f"g-{topic}", topic, {0: 3, 1: 5})
        publish_offsets(admin, f"g-{topic}", topic, {0: 4})
        publish_offsets(admin, f"g-{topic}", topic, {})
        assert committed_offsets(admin, f"g-{topic}", topic) == {0: 4, 1: 5}
