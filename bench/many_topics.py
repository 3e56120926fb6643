"""`python -m bench.many_topics`: 40 topics restored by one command, beside one topic of as many records.

Both are archived, with a group in the middle of each kafka partition, and restored and verified with `--groups` into
new topics, in turns. CPU seconds are of the command with Spark and its workers; those of the broker and the store are
told apart.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil

from bench.fleet import create_topics, produce
from bench.measure import Usage, measured
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import list_daemons, start_stack

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Bench:
    """The stack, the folder with the connector files, and the sizes."""

    stack: StackSettings
    folder: Path
    kafka_partitions: int
    records: int

    def prepare(self, name: str, topics: Sequence[str]) -> None:
        """Fill the topics, let a group read half of each, and archive them by a connector of this name."""
        each = self.records // len(topics) // self.kafka_partitions
        create_topics(self.stack.bootstrap_servers, tuple(topics), self.kafka_partitions)
        produce(self.stack.bootstrap_servers, tuple(topics), self.kafka_partitions, each)
        with ClusterAdmin(KafkaSettings(bootstrap_servers=self.stack.bootstrap_servers)) as admin:
            for topic in topics:
                publish_offsets(admin, f"group-{name}", topic, dict.fromkeys(range(self.kafka_partitions), each // 2))
        keys = {
            "name": name,
            "topics": ",".join(topics),
            "topics.dir": f"bench/{name}",
            "tasks.max": "2",
            "s3.bucket.name": self.stack.bucket,
            "store.url": self.stack.s3_endpoint,
            "aws.access.key.id": self.stack.aws_access_key_id,
            "aws.secret.access.key": self.stack.aws_secret_access_key,
            "archive.consumer.groups": f"group-{name}",
            "archive.start.hour": "2026-01-01T00:00",
            "flush.size": "1000000",
        }
        (self.folder / "connectors" / f"{name}.json").write_text(json.dumps(keys))
        self.run("archive", name, "--until-now")

    def restore(self, name: str) -> tuple[Usage, float, float]:
        """Restore the connector's topics. Return the usage, the servers' CPU seconds, and the seconds of the report."""
        processes = [daemon.process() for daemon in list_daemons(self.stack)]
        servers = [process for process in processes if process is not None]
        before = sum(map(count_cpu, servers))
        prefix = uuid4().hex[:6]
        with measured() as usage:
            options = ["--all-topics", "--to-topic", f"{prefix}.{{topic}}", "--create-topic", "--groups", "--json"]
            report = json.loads(self.run("restore", name, *options))
        rows = report.get("topics", [report])
        if not all(row["verified"] and row["complete"] for row in rows) or not report["groups"]["applied"]:
            raise RuntimeError(f"{name}: {report}")
        return usage, sum(map(count_cpu, servers)) - before, report["records"]

    def run(self, *arguments: str) -> str:
        """Run `kafka-s3` in the folder."""
        command = [sys.executable, "-m", "kafka_s3_platform.cli", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout


def count_cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure in turns, and print a row for each restore."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--records", type=int, default=4_000_000, help="of all topics together")
    parser.add_argument("--kafka-partitions", type=int, default=4, help="of each topic")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    name = uuid4().hex[:6]
    sets = {"one": (f"{name}.one",), "many": tuple(f"{name}.many-{n}" for n in range(given.topics))}
    print("| topics | records | s | CPU s | CPU s of broker and store | memory, MiB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "connectors").mkdir()
        (Path(folder) / "connectors" / "worker.properties").write_text(f"bootstrap.servers={stack.bootstrap_servers}\n")
        bench = Bench(stack, Path(folder), given.kafka_partitions, given.records)
        for label, topics in sets.items():
            bench.prepare(label, topics)
        for _ in range(given.rounds):
            for label, topics in sets.items():
                usage, server_seconds, records = bench.restore(label)
                cells = (f"{usage.seconds:.1f}", f"{usage.cpu_seconds:.1f}", f"{server_seconds:.1f}")
                print(f"| {len(topics)} | {records:,} | {' | '.join(cells)} | {usage.peak_mib:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
