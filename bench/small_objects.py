"""`python -m bench.small_objects`: one task that writes many small objects, against bare boto3 with 1 and 16 threads.

All of them write to the same server, in turns, first directly and then through a proxy that adds a latency. The task is
that of a run, from the first record to the last object: it reads from Kafka, and writes envelopes. boto3 puts bodies of
the same size, without conditions and metadata. CPU seconds are of this process; broker, server and proxy are not in it.
"""

import argparse
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any
from uuid import uuid4

import boto3
from botocore.config import Config

from bench.archive import connector
from bench.latency import delayed
from bench.workload import ensure_topic_of_one
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

RECORD_BYTES = 1_000
RECORDS_PER_OBJECT = 20
THREADS = 16
EXPECTED = 0.8


@dataclass(frozen=True)
class Cost:
    """What it took to write some objects."""

    objects: int
    seconds: float
    cpu_seconds: float


class InThisProcess(TaskRunner):
    """Runs the tasks of a run here, one after the other, and measures them alone: no plan and no commit."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def run(self, function: Callable[[Any, Attempt], Any], tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:  # noqa: ARG002
        for number, task in enumerate(tasks):
            started, cpu = time.monotonic(), time.process_time()
            done = function(task, Attempt(number, 0))
            self.seconds += time.monotonic() - started
            self.cpu_seconds += time.process_time() - cpu
            yield done

    def start(self) -> None:
        """There is nothing to start."""

    def at_once(self, max_concurrent: int) -> int:
        return max_concurrent


def main() -> None:
    """Measure every way in turns and print the median of each."""
    parser = argparse.ArgumentParser(prog="python -m bench.small_objects", description=__doc__)
    parser.add_argument("--objects", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--milliseconds", type=int, default=30, help="the latency that the proxy adds")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    topic = _fill_topic(stack.bootstrap_servers, given.objects * RECORDS_PER_OBJECT)
    print("| latency | what | objects/s | CPU ms an object | of 16 threads |\n|---|---|---|---|---|")
    _measure(stack, topic, stack.s3_endpoint, "none", given.objects, given.rounds)
    with delayed(stack.s3_port, given.milliseconds) as port:
        _measure(stack, topic, f"http://127.0.0.1:{port}", f"{given.milliseconds} ms", given.objects, given.rounds)


def _measure(stack: StackSettings, topic: str, endpoint: str, latency: str, objects: int, rounds: int) -> None:
    config = connector(f"small-{uuid4().hex[:8]}", topic)
    store = config.store.model_copy(update={"endpoint_url": endpoint})
    ways: dict[str, Callable[[], Cost]] = {
        "boto3, 1 thread": partial(_put_alone, stack, endpoint, objects // 5, 1),
        f"boto3, {THREADS} threads": partial(_put_alone, stack, endpoint, objects, THREADS),
        "one task": partial(_archive, config.model_copy(update={"store": store})),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            costs[name].append(way())
    rates = {name: median(c.objects / c.seconds for c in found) for name, found in costs.items()}
    for name, found in costs.items():
        cpu = median(c.cpu_seconds / c.objects for c in found) * 1000
        share = rates[name] / rates[f"boto3, {THREADS} threads"]
        expected = f" (expected {EXPECTED})" if name == "one task" else ""
        print(f"| {latency} | {name} | {rates[name]:.0f} | {cpu:.2f} | {share:.2f}{expected} |", flush=True)


def _put_alone(stack: StackSettings, endpoint: str, objects: int, threads: int) -> Cost:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=stack.aws_access_key_id,
        aws_secret_access_key=stack.aws_secret_access_key,
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
    )
    folder = f"bench/boto3-{uuid4().hex}"
    body = _value(0) * RECORDS_PER_OBJECT

    def put(number: int) -> None:
        client.put_object(Bucket=stack.bucket, Key=f"{folder}/{number:010d}", Body=body)

    started, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, range(objects)))
    return Cost(objects, time.monotonic() - started, time.process_time() - cpu)


def _archive(config: ConnectorConfig) -> Cost:
    """Archive the topic anew, in objects of `RECORDS_PER_OBJECT`."""
    name = f"{config.name}-{uuid4().hex[:8]}"
    layout = config.layout.model_copy(update={"topics_dir": f"bench/{name}", "flush_size": RECORDS_PER_OBJECT})
    own = config.model_copy(update={"name": name, "layout": layout})
    runner = InThisProcess()
    report = archive_topic(ArchiveRequest(own, own.topics[0], str(uuid4()), None), runner)
    report.raise_failure()
    return Cost(report.object_count, runner.seconds, runner.cpu_seconds)


def _fill_topic(bootstrap_servers: str, records: int) -> str:
    return ensure_topic_of_one(bootstrap_servers, records, f"bench-small-{records}", _value)


def _value(n: int) -> bytes:
    """Bytes that do not compress."""
    return hashlib.shake_128(b"%d" % n).digest(RECORD_BYTES)


if __name__ == "__main__":
    main()
