"""The floors: the least that confluent-kafka needs for the job on this machine, in two processes on two cores."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.workload import KAFKA_PARTITIONS, START_MS, key, send, spread, value
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA

PROCESSES = 2
START_SECONDS = 120.0

Work = Callable[[str, str, int, range], int]


@contextmanager
def started_processes() -> Iterator[Callable[[Work, str, str, int], int]]:
    """Two processes that have started and imported, as Spark's workers have before they are measured.

    The function runs its first argument for half of the kafka partitions in each; the records they handled.
    """
    context = multiprocessing.get_context("spawn")
    started = context.Barrier(PROCESSES + 1)
    halves = [range(start, KAFKA_PARTITIONS, PROCESSES) for start in range(PROCESSES)]
    with context.Pool(PROCESSES, _ready, (started,)) as pool:
        started.wait(START_SECONDS)
        yield lambda work, *given: sum(pool.starmap(work, [(*given, half) for half in halves], chunksize=1))


def _ready(started: Barrier) -> None:
    """To unpickle this, a process has imported all that this module imports."""
    started.wait(START_SECONDS)


def consume_to_arrow(bootstrap_servers: str, topic: str, records: int, kafka_partitions: range) -> int:
    """Read to Arrow batches of the record schema, headers included, and drop them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench-floor",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 4_194_304,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in kafka_partitions])
    wanted, read = records // KAFKA_PARTITIONS * len(kafka_partitions), 0
    while read < wanted:
        messages = consumer.consume(10_000, 1.0)
        read += _to_arrow(messages, topic).num_rows if messages else 0
    consumer.close()
    return read


def _to_arrow(messages: Sequence[Message], topic: str) -> pa.RecordBatch:
    columns = [
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        pa.array([m.headers() for m in messages], RECORD_SCHEMA.field("headers").type),
        pa.array([topic] * len(messages), pa.string()),
        pa.array([m.partition() for m in messages], pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([m.timestamp()[1] for m in messages], pa.timestamp("ms", tz="UTC")),
        pa.array([0] * len(messages), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def produce_alone(bootstrap_servers: str, topic: str, records: int, kafka_partitions: range) -> int:
    """Produce records prepared beforehand, idempotent and in order, and wait for every acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
        }
    )
    each = records // KAFKA_PARTITIONS
    prepared = [(key(n), value(n)) for n in spread(records)]
    for n in range(each):
        for kafka_partition in kafka_partitions:
            send(producer, topic, kafka_partition, *prepared[n % len(prepared)], START_MS + n)
    if left := producer.flush(120):
        raise RuntimeError(f"{topic}: {left} records were not delivered")
    return each * len(kafka_partitions)
