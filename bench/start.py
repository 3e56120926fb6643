"""What a command costs as a whole, and what each part of a quick start saves of it, in turn.

`python -m bench.start` needs the embedded stack (`make up`). CPU seconds are those of the command and of all that it
starts, sampled every 50 ms: what a process uses after its last sample is not in it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from bench.measure import measured
from bench.workload import ensure_topic, ensure_topic_of_one, value
from kafka_s3_platform.local.settings import StackSettings

# Java's own default, which counts as chosen: ours is left out.
WITHOUT_CLASS_DATA = {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
SPARKS_DAEMON = "spark.python.daemon.module=pyspark.daemon\n"
VARIANTS: dict[str, tuple[Mapping[str, str], str]] = {
    "neither": (WITHOUT_CLASS_DATA, SPARKS_DAEMON),
    "class data": ({}, SPARKS_DAEMON),
    "class data, forked workers": ({}, ""),
}
"""Variables and properties of Spark of each."""


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1000)
    asked = parser.parse_args()
    topic = fill_topic(asked.records)
    for number in range(asked.rounds):
        for name, (variables, properties) in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                found = archive(Path(folder), topic, asked.records, variables, properties)
            print(json.dumps({"round": number, "with": name, **found}), flush=True)


def archive(home: Path, topic: str, records: int, variables: Mapping[str, str], properties: str) -> dict[str, float]:
    """Archive all hours of the topic to where nobody has archived it yet, by the command. Return what it cost."""
    name = f"start-{uuid4().hex[:8]}"
    write_connector(home / "connectors", name, topic)
    (home / "spark.properties").write_text(properties)
    env = {**os.environ, "DAGSTER_HOME": str(home), "KAFKA_S3_SPARK_CONF": str(home / "spark.properties"), **variables}
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "archive", name]
    command += ["--from", "2026-01-01T00:00+00:00", "--to", f"2026-01-01T{records // 3_600_000 + 1:02}:00+00:00"]
    with measured(every=0.05) as usage:
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    archived = sum(int(number.replace(",", "")) for number in re.findall(r"([\d,]+) records", done.stdout))
    if done.returncode or archived != records:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout} {done.stderr}")
    return {"seconds": round(usage.seconds, 1), "cpu_seconds": round(usage.cpu_seconds, 1)}


def fill_topic(records: int) -> str:
    """Return a topic with the records: in 8 kafka partitions if there are many, else in one."""
    servers = StackSettings.from_environment().bootstrap_servers
    if records > 10_000:
        return ensure_topic(servers, records)
    return ensure_topic_of_one(servers, records, f"start-{records}", value)


def write_connector(folder: Path, name: str, topic: str) -> None:
    """Write the file of a sink on the embedded stack."""
    stack = StackSettings.from_environment()
    folder.mkdir()
    (folder / "worker.properties").write_text(f"bootstrap.servers={stack.bootstrap_servers}\n")
    keys = {
        "name": name,
        "topics": topic,
        "tasks.max": "2",
        "s3.bucket.name": stack.bucket,
        "s3.region": "us-east-1",
        "store.url": stack.s3_endpoint,
        "topics.dir": f"bench/{name}",
        "aws.access.key.id": stack.aws_access_key_id,
        "aws.secret.access.key": stack.aws_secret_access_key,
        "archive.start.hour": "2026-01-01T00:00",
    }
    (folder / f"{name}.json").write_text(json.dumps(keys))


if __name__ == "__main__":
    main()
