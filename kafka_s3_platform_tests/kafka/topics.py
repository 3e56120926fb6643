"""What tests of the Kafka room put on topics, and how they read a range."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.record_reader import ReadEnd, RecordReader
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange


def produce(kafka: KafkaSettings, topic: str, values: Iterable[bytes | None], kafka_partition: int = 0) -> None:
    """One record a value, and wait for their acknowledgement."""
    client = Producer(kafka.properties("producer") | {"linger.ms": 5})
    for value in values:
        client.produce(topic, value, partition=kafka_partition)
    assert client.flush(30) == 0


def ask_frontiers(admin: Any, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, Frontier]:
    """The frontiers of one topic, or the error of all its kafka partitions."""
    answers: Answers[str, Answers[int, Frontier]] = admin.frontiers_of({topic: kafka_partitions})
    return answers.all_or_raise()[topic]


def ask_offsets(
    admin: Any, topic: str, kafka_partitions: Iterable[int], times: Sequence[int]
) -> Answers[int, Mapping[int, OffsetAtTime]]:
    """The offsets of times in one topic, or the error of all its kafka partitions."""
    answers: Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]
    answers = admin.offsets_for_times_of({topic: (kafka_partitions, times)})
    return answers.all_or_raise()[topic]


def open_transaction(kafka: KafkaSettings, topic: str, values: Iterable[bytes], timeout_seconds: int = 60) -> Producer:
    """A producer with `values` on the broker in a transaction that is still open, for `timeout_seconds`."""
    own = {"transactional.id": f"tx-{uuid4()}", "linger.ms": 0, "transaction.timeout.ms": timeout_seconds * 1000}
    client = Producer(kafka.properties("producer") | own)
    client.init_transactions(30)
    client.begin_transaction()
    for value in values:
        client.produce(topic, value, partition=0)
    assert client.flush(30) == 0
    return client


def wait_until_stable(kafka: KafkaSettings, topic: str) -> None:
    """Wait until no transaction is open in kafka partition 0.

    A broker says that a transaction has ended before it writes the markers that end it.
    """
    with ClusterAdmin(kafka) as admin:

        def is_stable() -> bool:
            [log] = admin.frontiers(topic, [0]).values()
            return log.last_stable_offset == log.high_watermark

        until(is_stable)


def commit_offsets(kafka: KafkaSettings, group: str, offsets: list[TopicPartition]) -> None:
    """Leave behind what a sink does when it is stopped: the offsets of its group."""
    consumer = Consumer(kafka.properties("consumer") | {"group.id": group})

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # The first group of a broker makes it create the topic of offsets, and librdkafka passes this error on.
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False
        return True

    until(is_committed)
    consumer.close()


@contextmanager
def committing(kafka: KafkaSettings, group: str, offsets: list[TopicPartition]) -> Iterator[Producer]:
    """An open transaction that commits the group's offsets. Whoever takes it ends it."""
    member = Consumer(kafka.properties("consumer") | {"group.id": group})
    producer = Producer(kafka.properties("producer") | {"transactional.id": f"tx-{uuid4()}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
    try:
        yield producer
    finally:
        member.close()


def delete_group(admin: ClusterAdmin, group: str) -> None:
    """Delete a group with all that it has committed."""
    admin.ask(lambda client, timeout: client.delete_consumer_groups([group], request_timeout=timeout)[group], "a test")


def delete_records(kafka: KafkaSettings, topic: str, before_offset: int) -> None:
    """Move the log start of kafka partition 0 to `before_offset`."""
    admin = AdminClient({**kafka.properties("admin")})
    for future in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        future.result(30)


def read(reader: RecordReader, start: int, end: int, leader_epoch: int | None = None) -> tuple[pa.Table, ReadEnd]:
    """Read one range of kafka partition 0 to its end."""
    reading = reader.read(0, OffsetRange(start, end), leader_epoch)
    batches = list(reading)
    return pa.Table.from_batches(batches, RECORD_SCHEMA), reading.end


def records_of(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> pa.Table:
    """Every record that the log of one kafka partition holds."""
    with ClusterAdmin(kafka) as admin:
        log = admin.frontiers(topic, [kafka_partition])[kafka_partition]
    batches = []
    if log.log_start_offset < log.high_watermark:
        with ConfluentReader(kafka, topic) as reader:
            batches = list(reader.read(kafka_partition, OffsetRange(log.log_start_offset, log.high_watermark)))
    return pa.Table.from_batches(batches, RECORD_SCHEMA)


def values(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[Any]:
    """The value of each record, bytes or None."""
    found: list[Any] = records_of(kafka, topic, kafka_partition).column("value").to_pylist()
    return found


def record_batch(rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
    """Records as they come from an archive; what a row does not give has a default, offsets are even numbers."""
    default = {"value": b"v", "topic": "source", "partition": 0, "timestamp": 1_000, "timestampType": 0}
    complete = [{**default, "offset": 2 * i, **row} for i, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(complete, schema=RECORD_SCHEMA)


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
        until(is_assigned)
        yield consumer
    finally:
        consumer.close()


def until(done: Callable[[], bool]) -> None:
    """Wait until `done()`: for long, since a busy machine takes ten times as long as a free one."""
    deadline = time.monotonic() + 180
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def handed_over(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether confluent-kafka read what the quick reader should have."""
    return "confluent-kafka reads on" in caplog.text
