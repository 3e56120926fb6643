"""Kafka partitions as librdkafka itself chooses them."""

import random

import pytest
from confluent_kafka import Producer

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.request import Outgoing
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.records import batch_of

KAFKA_PARTITIONS = 7


@pytest.mark.parametrize(
    ("partitioner", "partitioning"),
    [("murmur2_random", "murmur2"), ("consistent_random", "crc32"), ("murmur2", "murmur2"), ("consistent", "crc32")],
)
def test_keys_go_where_a_producer_would_have_sent_them(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str, partitioner: str, partitioning: str
) -> None:
    keys = [random.Random(n).randbytes(1 + n % 40) for n in range(500)]
    create_topic(topic_name, KAFKA_PARTITIONS)
    producer = Producer(kafka_settings.properties("producer") | {"partitioner": partitioner})
    for key in keys:
        producer.produce(topic_name, b"v", key)
    assert producer.flush(30) == 0

    stream = OutgoingStream(Outgoing(partitioning=partitioning), "t", 3, KAFKA_PARTITIONS, "u")
    chosen = {p: part.column("key").to_pylist() for p, part in stream.apply(batch_of([{"key": k} for k in keys]))}

    for p in range(KAFKA_PARTITIONS):
        assert chosen.get(p, []) == records_of(kafka_settings, topic_name, p).column("key").to_pylist()
