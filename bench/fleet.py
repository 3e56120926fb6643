"""`python -m bench.fleet`: archive many small topics in one run, on a session of Spark that has started.

CPU seconds are of this process, Spark's JVM and its Python workers; the embedded broker's and store's are not in it.
"""

import argparse
import time
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.archive import connector, started_session
from bench.measure import measured
from bench.workload import START_MS, key, value
from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack


def main() -> None:
    """Fill the topics, archive them, add as many records again, archive those, and print the cost of each run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--kafka-partitions", type=int, default=4)
    parser.add_argument("--records", type=int, default=50, help="of each kafka partition and run")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    name = f"fleet-{uuid4().hex[:8]}"
    topics = tuple(f"{name}.{n}" for n in range(given.topics))
    create_topics(stack.bootstrap_servers, topics, given.kafka_partitions)
    config = connector(name, topics[0]).model_copy(update={"topics": topics})
    session, started = started_session()
    print(f"Spark started in {started:.1f} s\n\n| run | topics | records | index versions | CPU s | wall s |")
    print("|---|---|---|---|---|---|")
    for run in ("first", "second"):
        produce(stack.bootstrap_servers, topics, given.kafka_partitions, given.records)
        before = ConnectorIndex.of(config).peek()
        begun = time.monotonic()
        with measured() as usage:
            requests = [ArchiveRequest(config, topic, run, None) for topic in topics]
            found = archive_topics(requests, SparkRunner(lambda: session))
        seconds = time.monotonic() - begun
        reports = [report for report in found.values() if isinstance(report, ArchiveReport)]
        versions = ConnectorIndex.of(config).open().version - (before.version if before else 0)
        records = sum(report.record_count for report in reports)
        print(f"| {run} | {len(reports)} | {records:,} | {versions} | {usage.cpu_seconds:.1f} | {seconds:.1f} |")
    session.stop()


def create_topics(bootstrap_servers: str, topics: tuple[str, ...], kafka_partitions: int) -> None:
    """Create topics that keep all records."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for at in range(0, len(topics), 50):
        new = [NewTopic(t, kafka_partitions, 1, config={"retention.ms": "-1"}) for t in topics[at : at + 50]]
        for asked in admin.create_topics(new).values():
            asked.result(120)


def produce(
    bootstrap_servers: str, topics: tuple[str, ...], kafka_partitions: int, records: int, start_ms: int = START_MS
) -> None:
    """Send as many records to each kafka partition."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 100, "queue.buffering.max.messages": 0})
    for topic in topics:
        for n in range(records * kafka_partitions):
            producer.produce(topic, value(n), key(n), n % kafka_partitions, timestamp=start_ms + n)
        producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("not every record was sent")


if __name__ == "__main__":
    main()
