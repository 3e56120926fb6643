"""`python -m bench.ticks`: ticks of the lag sensor over many topics of which everything is archived.

CPU seconds and memory are of the process that evaluates the sensor, which does nothing else. Those of Dagster, of the
broker and of the store are not in it. Calls are those of the admin client: each is one request to each leader it asks.
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import dagster as dg
from confluent_kafka.admin import AdminClient

from bench.archive import connector, started_session
from bench.fleet import create_topics, produce
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.core.status.topic import find_newest_closed_hour
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

CALLS = ("list_offsets", "list_topics", "describe_topics", "describe_configs", "describe_acls", "describe_cluster")


def main() -> None:
    """Fill and archive the topics, unless `--fleet` names them, then evaluate three ticks in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.ticks", description=__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--kafka-partitions", type=int, default=12)
    parser.add_argument("--records", type=int, default=1, help="of each kafka partition")
    parser.add_argument("--fleet", help="topics that an earlier call has filled, by the name that it has printed")
    parser.add_argument("--evaluate", action="store_true", help="evaluate the ticks here; the bench calls itself so")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    name = given.fleet or f"ticks-{uuid4().hex[:8]}"
    topics = tuple(f"{name}.{n}" for n in range(given.topics))
    config = connector(name, topics[0]).model_copy(update={"topics": topics})
    if given.evaluate:
        _evaluate(config)
        return
    if not given.fleet:
        create_topics(stack.bootstrap_servers, topics, given.kafka_partitions)
        produce(stack.bootstrap_servers, topics, given.kafka_partitions, given.records)
        session, _ = started_session()
        for hours in (None, (_find_newest_closed(config),)):
            archive_topics([ArchiveRequest(config, t, "run", hours) for t in topics], SparkRunner(lambda: session))
        session.stop()
        print(f"the next call may have: --fleet {name}")
    again = [*sys.argv[1:], "--fleet", name, "--evaluate"]
    subprocess.run([sys.executable, "-m", "bench.ticks", *again], check=True)


def _evaluate(config: ConnectorConfig) -> None:
    logging.disable(logging.INFO)
    calls = _count_calls()
    definitions = build_definitions([config], autostart=False)
    sensor = definitions.get_repository_def().get_sensor_def(make_op_name("lag", config.name))
    instance = dg.DagsterInstance.ephemeral()
    for topic in config.topics:
        found = TopicAssets(config, topic)
        for hour in (config.archive.start_hour, _find_newest_closed(config)):
            event = dg.AssetMaterialization(found.key("hourly"), partition=found.hours.key(hour))
            instance.report_runless_asset_event(event)
    print("| tick | observed | requested | CPU s | wall s | MB | calls to Kafka |\n|---|---|---|---|---|---|---|")
    cursor: str | None = None
    for tick in ("first, without a cursor", "second, nothing new", "third, nothing new"):
        calls.clear()
        begun, used = time.monotonic(), time.process_time()
        with dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions) as context:
            result = sensor.evaluate_tick(context)
        seconds, cpu = time.monotonic() - begun, time.process_time() - used
        cursor = result.cursor
        left = json.loads(cursor or "{}").get("/lag")
        what = f"{tick}; cut before {left}" if left else tick
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        counts = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
        observed = len(result.asset_events or ())
        requested = len(result.run_requests or ())
        print(f"| {what} | {observed} | {requested} | {cpu:.1f} | {seconds:.1f} | {megabytes:.0f} | {counts} |")


def _find_newest_closed(config: ConnectorConfig) -> datetime:
    found = find_newest_closed_hour(
        datetime.now(timezone.utc), TopicAssets(config, "").lateness, config.archive.start_hour
    )
    if found is None:
        raise RuntimeError("the connector begins in the future")
    return found


def _count_calls() -> Counter[str]:
    """Count the calls of all admin clients of this process from now on."""
    calls: Counter[str] = Counter()

    def count(name: str) -> None:
        call = getattr(AdminClient, name)

        def counted(*args: Any, **more: Any) -> Any:
            calls[name] += 1
            return call(*args, **more)

        setattr(AdminClient, name, counted)

    for name in CALLS:
        count(name)
    return calls


if __name__ == "__main__":
    main()
