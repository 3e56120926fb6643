"""What a good engineer writes by hand: the values of a topic as gzip JSON lines in S3, and back. Nothing of ours in it.

`python script.py archive|restore SERVERS TOPIC BUCKET PREFIX PROCESSES`. S3 is where the variables of boto3 say.

The archive reads from the group's committed offsets to the ends that it finds first, and commits after each upload. The
restore goes on where the target's log ends, which is right as long as nobody else writes there. Keys, headers and
timestamps are not kept.
"""

import multiprocessing
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import boto3
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from isal import igzip

OBJECT_BYTES = 64 * 1024 * 1024
"""Of lines, before compression."""
UPLOADS = 2


def main() -> None:
    """Share the kafka partitions out to the processes, and wait for them."""
    mode, *where, processes = sys.argv[1:]
    work = {"archive": archive, "restore": restore}[mode]
    consumer = make_consumer(where)
    numbers = sorted(consumer.list_topics(where[1], timeout=30).topics[where[1]].partitions)
    consumer.close()
    shares = [numbers[first :: int(processes)] for first in range(int(processes))]
    if len(shares) == 1:
        work(where, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(len(shares)) as pool:
        pool.starmap(work, [(where, share) for share in shares], chunksize=1)


def make_consumer(where: list[str]) -> Consumer:
    """Connect a consumer that fetches far ahead."""
    servers, _, _, prefix = where
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": prefix,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 500_000,
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 4_194_304,
        }
    )


def archive(where: list[str], kafka_partitions: list[int]) -> None:
    """Write the values of these kafka partitions to objects, and commit what is stored."""
    topic = where[1]
    consumer, reading = make_consumer(where), set(kafka_partitions)
    consumer.assign(consumer.committed([TopicPartition(topic, p) for p in kafka_partitions], timeout=30))
    lines: dict[int, list[bytes]] = {p: [] for p in kafka_partitions}
    sizes = dict.fromkeys(kafka_partitions, 0)
    with ThreadPoolExecutor(UPLOADS) as pool:
        uploads = Uploads(consumer, pool, where)
        while reading:
            for message in consumer.consume(20_000, 0.1):
                p, offset, value = message.partition() or 0, message.offset() or 0, message.value() or b""
                if message.error() is None:
                    lines[p].append(value)
                    sizes[p] += len(value)
                    if sizes[p] < OBJECT_BYTES:
                        continue
                    offset += 1
                elif is_end(message):
                    reading.discard(p)
                uploads.start(p, offset, lines[p])
                lines[p], sizes[p] = [], 0
        uploads.finish()
    consumer.close()


def is_end(message: Message) -> bool:
    """Whether the message says that all of a kafka partition was read. Raises what any other error says."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
        raise KafkaException(error)
    return True


class Uploads:
    """Objects on their way. An offset is committed when all before it is stored."""

    def __init__(self, consumer: Consumer, pool: ThreadPoolExecutor, where: list[str]) -> None:
        self._consumer, self._pool = consumer, pool
        _, self._topic, self._bucket, self._prefix = where
        self._s3 = boto3.client("s3")
        self._under_way: deque[tuple[Future[None], TopicPartition]] = deque()

    def start(self, kafka_partition: int, end: int, lines: list[bytes]) -> None:
        """Upload the lines before this offset."""
        if not lines:
            return
        while len(self._under_way) > UPLOADS:
            self._commit()
        upload = self._pool.submit(self._upload, kafka_partition, end, lines)
        self._under_way.append((upload, TopicPartition(self._topic, kafka_partition, end)))

    def finish(self) -> None:
        """Wait until all is stored and committed."""
        while self._under_way:
            self._commit()

    def _upload(self, kafka_partition: int, end: int, lines: list[bytes]) -> None:
        key = f"{self._prefix}/partition={kafka_partition}/{end - len(lines):020d}.json.gz"
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=igzip.compress(b"\n".join(lines) + b"\n", 1))

    def _commit(self) -> None:
        upload, end = self._under_way.popleft()
        upload.result()
        self._consumer.commit(offsets=[end], asynchronous=False)


def restore(where: list[str], kafka_partitions: list[int]) -> None:
    """Send the lines of these kafka partitions' objects, from where the target's log ends."""
    servers, topic, bucket, prefix = where
    s3 = boto3.client("s3")
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": failed,
        }
    )
    consumer = make_consumer(where)
    for kafka_partition in kafka_partitions:
        skipped = consumer.get_watermark_offsets(TopicPartition(topic, kafka_partition), timeout=30)[1]
        for key in list_keys(s3, bucket, f"{prefix}/partition={kafka_partition}/"):
            body: bytes = igzip.decompress(s3.get_object(Bucket=bucket, Key=key)["Body"].read())  # type: ignore[no-untyped-call]
            lines = body.split(b"\n")[:-1]
            some, skipped = lines[skipped:], max(0, skipped - len(lines))
            for line in some:
                send_line(producer, topic, kafka_partition, line)
    left = producer.flush(120)
    consumer.close()
    if failures or left:
        raise RuntimeError(f"{len(failures)} records failed, {left} were not sent: {failures[:1]}")


def list_keys(s3: Any, bucket: str, prefix: str) -> list[str]:
    """List the keys of a prefix in order."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))


def send_line(producer: Producer, topic: str, kafka_partition: int, line: bytes) -> None:
    """Produce a line, and wait while the local queue is full."""
    while True:
        try:
            return producer.produce(topic, line, partition=kafka_partition)
        except BufferError:
            producer.poll(0.05)


if __name__ == "__main__":
    main()
