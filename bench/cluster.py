"""`python -m bench.cluster`: archive, merge and restore on a Spark cluster of one worker, and of two.

Each worker has one core. Broker and S3 server are behind proxies that add a latency. All of it is on this machine:
"cores used" are those of driver, workers, proxies, broker and store together.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

from bench.archive import connector
from bench.latency import delayed
from bench.measure import measured
from bench.workload import create_topic, ensure_topic
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.operate.local.settings import HOST, StackSettings
from kafka_s3_platform.operate.local.stack import read_stack_status, start_stack
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, stopped_at_exit
from kafka_s3_platform_tests.spark.standalone import StandaloneCluster, opened_driver
from kafka_s3_platform_tests.support import compact_day

RECORDS_PER_OBJECT = 2_000
EXPECTED = 1.7
DAY = date(2026, 1, 1)


def main() -> None:
    """Measure clusters of one and of two workers in turns, and print medians and ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--milliseconds", type=int, default=30, help="the latency that the proxies add")
    given = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-cluster-")))
        stack, kafka, s3 = opened.enter_context(started_stack(folder / "stack", given.milliseconds))
        small, topic = (ensure_topic(stack.bootstrap_servers, n) for n in (8_000, given.records))
        servers = [server.pid for server in read_stack_status(stack).servers if server.pid]
        seconds: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for workers in (1, 2):
            own = folder / f"spark-{workers}"
            own.mkdir()
            with _started_cluster(own, workers) as driver:
                # not measured: what executors import and compile once
                for _, work in _list_work(stack, kafka, s3, small):
                    _measure(driver, servers, work)
                for _ in range(given.rounds):
                    for what, work in _list_work(stack, kafka, s3, topic):
                        found = _measure(driver, servers, work)
                        print(f"{what}, {workers}: {found[0]:.1f} s, {found[1]:.2f} cores", file=sys.stderr, flush=True)
                        seconds.setdefault((what, workers), []).append(found)
    print("| what | one worker, s | two workers, s | ratio | cores used, one and two |\n|---|---|---|---|---|")
    for what in dict.fromkeys(what for what, _ in seconds):
        one, two = (median(s for s, _ in seconds[what, n]) for n in (1, 2))
        busy = " and ".join(f"{median(c for _, c in seconds[what, n]):.2f}" for n in (1, 2))
        print(f"| {what} | {one:.1f} | {two:.1f} | {one / two:.2f} (expected {EXPECTED}) | {busy} |")


@contextmanager
def started_stack(folder: Path, milliseconds: int) -> Iterator[tuple[StackSettings, KafkaSettings, str]]:
    """Yield the stack, and behind the proxies: where clients find Kafka, and the endpoint of S3."""
    [far] = free_ports(1)
    plain = StackSettings(data_dir=folder, cache=StackSettings.from_environment().cache, **free_port_settings())
    with stopped_at_exit(plain), delayed(far, milliseconds) as far_kafka:
        controller = f"CONTROLLER://{HOST}:{plain.kafka_controller_port}"
        near = f"PLAINTEXT://{plain.bootstrap_servers}"
        listeners = {
            "listeners": f"{near},FAR://{HOST}:{far},{controller}",
            # Brokers tell clients where to find them: for those that came through the proxy, that is the proxy.
            "advertised.listeners": f"{near},FAR://{HOST}:{far_kafka},{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        stack = replace(plain, kafka_properties=listeners)
        start_stack(stack)
        os.environ.update(stack.environment())
        with delayed(stack.s3_port, milliseconds) as far_s3:
            yield stack, KafkaSettings(bootstrap_servers=f"{HOST}:{far_kafka}"), f"http://{HOST}:{far_s3}"


@contextmanager
def _started_cluster(folder: Path, workers: int) -> Iterator[Executor]:
    """Yield a driver whose executors have all started their Python."""
    cluster = StandaloneCluster(folder)
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.add_worker()
        # No run begins on half of the cluster.
        whole = {"spark.scheduler.minRegisteredResourcesRatio": "1", "spark.cores.max": str(workers)}
        with opened_driver(cluster.write_properties(whole)) as driver:
            driver.submit(_warm_there).result()
            yield driver
    finally:
        cluster.stop()


def _list_work(
    stack: StackSettings, kafka: KafkaSettings, s3: str, topic: str
) -> "Iterator[tuple[str, partial[None]]]":
    """Yield what is measured, one after the other: an archive of its own, its restore, and its merge."""
    config = connector(f"cluster-{uuid4().hex[:8]}", topic)
    store = config.store.model_copy(update={"endpoint_url": s3})
    layout = config.layout.model_copy(update={"flush_size": RECORDS_PER_OBJECT})
    config = config.model_copy(update={"kafka": kafka, "store": store, "layout": layout})
    target = f"{config.name}-restored"
    create_topic(stack.bootstrap_servers, target)
    yield "archive", partial(_archive_there, config)
    yield "restore, verified", partial(_restore_there, config, target)
    yield "merge of the day", partial(_merge_there, config)


def _measure(driver: Executor, servers: Sequence[int], work: "partial[None]") -> tuple[float, float]:
    """Return the seconds that it took, and how many cores driver, cluster, proxies and stack used meanwhile."""
    with measured(every=0.5, others=servers) as usage:
        driver.submit(work).result()
    return usage.seconds, usage.cpu_seconds / usage.seconds


def _warm_there() -> None:
    def wait(task: int, _: Attempt) -> int:
        """Leave the next task to another executor. Made here, since workers have no module of the bench."""
        time.sleep(1)
        return task

    list(SparkResource().make_runner().run(wait, range(8), 8))


def _archive_there(config: ConnectorConfig) -> None:
    request = ArchiveRequest(config, config.topics[0], str(uuid4()), None)
    archive_topic(request, SparkResource().make_runner()).raise_failure()


def _merge_there(config: ConnectorConfig) -> None:
    compact_day(CompactRequest(config, config.topics[0], DAY, str(uuid4())), SparkResource().make_runner())


def _restore_there(config: ConnectorConfig, target: str) -> None:
    request = RestoreRequest(config, config.topics[0], to_topic=target, restore_id=target, run_id=str(uuid4()))
    restore(ArchiveSource(request), SparkResource().make_runner())


if __name__ == "__main__":
    main()
