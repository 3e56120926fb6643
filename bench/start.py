"""What a command costs as a whole, and what each part of a quick start saves of it, in turn.

`python -m bench.start` needs the embedded stack (`make up`). CPU seconds are those of the command, of a warm
Spark and of all that they start, sampled every 50 ms: what a process uses after its last sample is not in it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import psutil

from bench.measure import measured
from bench.workload import ensure_topic, ensure_topic_of_one, value
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.warm_spark.client import greet_server
from kafka_s3_platform.operate.warm_spark.wire import find_folder

# Java's own default, which counts as chosen: ours is left out.
WITHOUT_CLASS_DATA = {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
SPARKS_DAEMON = "spark.python.daemon.module=pyspark.daemon\n"
WARM = "a warm Spark"
WITHOUT_WARM_SPARK = {"KAFKA_S3_WARM_SPARK": "0"}
VARIANTS: dict[str, tuple[Mapping[str, str], str]] = {
    "neither": ({**WITHOUT_WARM_SPARK, **WITHOUT_CLASS_DATA}, SPARKS_DAEMON),
    "class data": (WITHOUT_WARM_SPARK, SPARKS_DAEMON),
    "class data, forked workers": (WITHOUT_WARM_SPARK, ""),
    WARM: ({"KAFKA_S3_WARM_SPARK": "5"}, ""),
}
"""Variables and properties of Spark of each."""


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--only", choices=VARIANTS, action="append")
    asked = parser.parse_args()
    topic = fill_topic(asked.records)
    names = asked.only or list(VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        if WARM in names:
            archive(Path(folder), topic, asked.records, *VARIANTS[WARM])
        for number in range(asked.rounds):
            for name in names:
                found = archive(Path(folder), topic, asked.records, *VARIANTS[name])
                print(json.dumps({"round": number, "with": name, **found}), flush=True)
        for pid in find_servers():
            psutil.Process(pid).terminate()


def archive(home: Path, topic: str, records: int, variables: Mapping[str, str], properties: str) -> dict[str, float]:
    """Archive all hours of the topic to where nobody has archived it yet, by the command. Return what it cost."""
    name = f"start-{uuid4().hex[:8]}"
    connector = write_connector(home / "connectors", name, topic)
    shutil.copy("dagster.yaml", home)
    given = home / f"{len(properties)}.properties"
    given.write_text(properties)
    env = {**os.environ, "DAGSTER_HOME": str(home), "KAFKA_S3_SPARK_CONF": str(given), **variables}
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "archive", name]
    command += ["--from", "2026-01-01T00:00+00:00", "--to", f"2026-01-01T{records // 3_600_000 + 1:02}:00+00:00"]
    with measured(every=0.05, others=find_servers()) as usage:
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    connector.unlink()
    archived = sum(int(number.replace(",", "")) for number in re.findall(r"([\d,]+) records", done.stdout))
    if done.returncode or archived != records:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout} {done.stderr}")
    return {"seconds": round(usage.seconds, 1), "cpu_seconds": round(usage.cpu_seconds, 1)}


def find_servers() -> list[int]:
    """Return the process ids of the warm Sparks of this bench."""
    found = []
    for path in find_folder().glob("*.sock"):
        warm = greet_server(path)
        warm.peer.close()
        found.append(warm.pid)
    return found


def fill_topic(records: int) -> str:
    """Return a topic with the records: in 8 kafka partitions if there are many, else in one."""
    servers = StackSettings.from_environment().bootstrap_servers
    if records > 10_000:
        return ensure_topic(servers, records)
    return ensure_topic_of_one(servers, records, f"start-{records}", value)


def write_connector(folder: Path, name: str, topic: str, more: Mapping[str, str] = {}) -> Path:
    """Write the file of a sink on the embedded stack, with `more` keys. Return its path."""
    stack = StackSettings.from_environment()
    folder.mkdir(exist_ok=True)
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
        **more,
    }
    connector = folder / f"{name}.json"
    connector.write_text(json.dumps(keys))
    return connector


if __name__ == "__main__":
    main()
