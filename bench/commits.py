"""`python -m bench.commits`: what an hour of many topics costs, in one commit for all of them and in one for each.

The rows are those of a run: a reservation, an hour and a frontier for each kafka partition, then a scan and a segment.
CPU seconds are those of this process; the embedded store's are not in it.
"""

import argparse
import dataclasses
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from uuid import uuid4

from pydantic import SecretStr

from bench.measure import measured
from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import HourRange, Reservation, Scan, Segment
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.lease import take_leases
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

HOUR = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
KAFKA_PARTITIONS = 12


def main() -> None:
    """Commit an hour of `--topics` topics in both ways and print the cost of each."""
    parser = argparse.ArgumentParser(prog="python -m bench.commits", description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    topics = [f"topic-{n}" for n in range(parser.parse_args().topics)]
    stack = StackSettings.from_environment()
    start_stack(stack)
    store = StoreSettings(
        bucket=stack.bucket,
        region="us-east-1",
        endpoint_url=stack.s3_endpoint,
        access_key_id=SecretStr(stack.aws_access_key_id),
        secret_access_key=SecretStr(stack.aws_secret_access_key),
    )
    print("| topics | commits | CPU s | wall s |\n|---|---|---|---|")
    for size in (len(topics), 1):
        index = ConnectorIndex(store, "_bench", uuid4().hex)
        index.open()
        started = time.monotonic()
        with measured() as usage:
            for at in range(0, len(topics), size):
                _commit_hour(index, topics[at : at + size])
        commits = 2 * len(topics) // size
        print(f"| {len(topics)} | {commits} | {usage.cpu_seconds:.2f} | {time.monotonic() - started:.1f} |")


def _commit_hour(index: ConnectorIndex, topics: list[str]) -> None:
    snapshot = index.open()
    snapshot.load_states(topics)
    epoch = snapshot.version + 1
    leases = take_leases(snapshot, {t: Change(tuple(_list_plan(epoch)), run_id="run") for t in topics}, {})
    snapshot = index.open()
    snapshot.load_states(topics)
    changes: dict[str, Change] = {}
    for topic in topics:
        leases[topic].refuse_superseded(snapshot.topic(topic).state)
        changes[topic] = Change(tuple(_list_results(epoch)), removed=leases[topic].end, run_id="run")
    snapshot.commit(changes)


def _list_plan(epoch: int) -> Iterator[Reservation | HourRange | Frontier]:
    for p in range(KAFKA_PARTITIONS):
        yield Reservation(p, 0, 1000, "run", epoch, HOUR)
        yield HourRange(HOUR, p, 0, 1000)
        yield dataclasses.replace(Frontier(p, 0, 1000, 1000, 1, HOUR), kafka_partition_count=KAFKA_PARTITIONS)


def _list_results(epoch: int) -> Iterator[Scan | Segment]:
    for p in range(KAFKA_PARTITIONS):
        yield Scan(p, 0, 1000, 1000, 1, epoch, output_count=1000)
        key = f"topics/t/year=2026/month=01/day=01/hour=12/t+{p}+0000000000.parquet"
        sums = (uuid4().hex, uuid4().hex * 2, uuid4().hex * 2)
        yield Segment(key, "hourly", HOUR, "hour=12", p, 0, 1000, 1000, 0, 9000, 5000, *sums, 1, 2, "{}", epoch)


if __name__ == "__main__":
    main()
