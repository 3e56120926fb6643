"""The bench topic: keyed JSON records, an event time that moves on by a millisecond a record."""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA_PARTITIONS = 8
START_MS = int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)


SAMPLE = 10_000


def spread(records: int) -> list[int]:
    """Numbers of records from all over the topic: those at its start are shorter."""
    return [n * 7919 % records for n in range(SAMPLE)]


def record_bytes(records: int) -> float:
    """Key and value of a record, on average."""
    return sum(len(key(n)) + len(value(n)) for n in spread(records)) / SAMPLE


def key(n: int) -> bytes:
    """One of many users."""
    return b"user-%08d" % (n * 7919 % 99_999_989)


def value(n: int) -> bytes:
    """JSON that compresses like an event log."""
    return (
        b'{"id":%d,"user":"user-%08d","session":"%016x","action":"%s","amount":%d.%02d,"currency":"EUR",'
        b'"country":"%s","agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36","ok":true,"attempt":%d}'
        % (
            n,
            n * 7919 % 99_999_989,
            n * 0x9E3779B97F4A7C15 % 2**64,
            (b"view", b"click", b"cart", b"buy")[n % 4],
            n % 997,
            n % 100,
            (b"DE", b"FR", b"IN", b"US", b"BR")[n % 5],
            n % 3,
        )
    )


Record = Callable[[int], tuple[bytes, bytes]]
"""The key and the value of record n."""


def json_record(n: int) -> tuple[bytes, bytes]:
    """Keyed JSON."""
    return key(n), value(n)


def ensure_topic(bootstrap_servers: str, records: int, topic: str = "", record: Record = json_record) -> str:
    """Return the topic of `records`; produce it if it is not there."""
    topic = topic or f"bench-{records}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if topic not in admin.list_topics(timeout=30).topics:
        create_topic(bootstrap_servers, topic)
        produce(bootstrap_servers, topic, records, range(KAFKA_PARTITIONS), record)
    return topic


def ensure_topic_of_one(bootstrap_servers: str, records: int, topic: str, value_of: Callable[[int], bytes]) -> str:
    """Return the topic, which has one kafka partition and records without keys; produce it if it is not there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if topic not in admin.list_topics(timeout=30).topics:
        create_topic(bootstrap_servers, topic, kafka_partitions=1)
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
        for n in range(records):
            send(producer, topic, 0, None, value_of(n), START_MS + n)
        if producer.flush(60):
            raise RuntimeError(f"{topic}: not every record was sent")
    return topic


def create_topic(bootstrap_servers: str, topic: str, kafka_partitions: int = KAFKA_PARTITIONS) -> None:
    """Create an empty topic that keeps old timestamps."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, kafka_partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(30)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Give the disk space of a topic back."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)


def produce(
    bootstrap_servers: str, topic: str, records: int, kafka_partitions: range, record: Record = json_record
) -> None:
    """Record n goes to kafka partition n modulo 8; only those of `kafka_partitions` are sent. The bare producer."""
    failures: list[KafkaError] = []
    limits = {"queue.buffering.max.kbytes": 262_144, "queue.buffering.max.messages": 500_000}
    producer = open_producer(bootstrap_servers, failures, limits)
    for n in range(records):
        kafka_partition = n % KAFKA_PARTITIONS
        if kafka_partition in kafka_partitions:
            send(producer, topic, kafka_partition, *record(n), START_MS + n)
    producer.flush()
    if failures:
        raise RuntimeError(f"{topic}: {len(failures)} records were not delivered: {failures[0]}")


def open_producer(bootstrap_servers: str, failures: list[KafkaError], limits: Mapping[str, int]) -> Producer:
    """Open a producer that adds to `failures` why a record was not delivered."""

    def failed(err: KafkaError | None, _: Message) -> None:
        if err is not None:
            failures.append(err)

    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": failed,
            **limits,
        }
    )


def send(
    producer: Producer, topic: str, kafka_partition: int, key: bytes | None, payload: bytes, timestamp: int
) -> None:
    """Produce one record, waiting while the local queue is full."""
    while True:
        try:
            return producer.produce(topic, payload, key, kafka_partition, timestamp=timestamp)
        except BufferError:
            producer.poll(0.05)
