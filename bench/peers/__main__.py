"""`make bench-peers`: the same job by the tools that a user would pick instead, on the embedded stack.

Each command starts from nothing, but for the platform with its warm Spark. Every object, and every restored record, is
read back and compared. One line of JSON for each command; `python -m bench.peers.report` makes the docs of them.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.measure import Usage, describe_machine, measured
from bench.peers.read_back import Comparison, Expected, read_envelopes, read_lines, read_topic
from bench.peers.tools import Command, Job, Tool, find_tools, find_variables
from bench.start import find_servers
from bench.workload import KAFKA_PARTITIONS, create_topic, delete_topic, ensure_topic, record_bytes
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

LIMIT_SECONDS = 300.0
"""Of one command."""
SMALL = 1_000
"""Records of the job that shows what starting costs."""


def main() -> None:
    """Measure in rounds, each tool in its turn, until all is measured or the time is over."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="of archives; the first has the restores")
    parser.add_argument("--minutes", type=float, default=12.0, help="no command is begun after this time")
    parser.add_argument("--output", type=Path, default=Path("artifacts/peers.jsonl"))
    parser.add_argument("--only", action="append", help="tools whose name begins so")
    given = parser.parse_args()
    # So that what was started and written is removed, too, when `timeout` ends the bench.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    stack = StackSettings.from_environment()
    start_stack(stack)
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as home:
        os.environ["XDG_RUNTIME_DIR"] = home
        Bench(stack, Path(home), given.output, given.minutes, given.records).run(given.rounds, given.only)


class Bench:
    """The stack, the tools, and where the lines go."""

    def __init__(self, stack: StackSettings, home: Path, output: Path, minutes: float, records: int) -> None:
        self._stack, self._home, self._output = stack, home, output
        self._records = records
        self._minutes, self._until = minutes, float("inf")
        self._numbers = count(1)
        self._jobs: dict[Tool, Job] = {}
        self._store: Any = boto3.client(
            "s3",
            endpoint_url=stack.s3_endpoint,
            region_name="us-east-1",
            aws_access_key_id=stack.aws_access_key_id,
            aws_secret_access_key=stack.aws_secret_access_key,
        )
        servers = stack.bootstrap_servers
        self._topics = {n: ensure_topic(servers, n) for n in (SMALL, records)}
        self._expected = {n: Expected(read_topic(servers, topic), n) for n, topic in self._topics.items()}

    def run(self, rounds: int, only: Sequence[str] | None) -> None:
        """Measure everything, and remove what was written."""
        shutil.copy("dagster.yaml", self._home)
        tools = find_tools(self._stack, self._home)
        chosen = [tool for tool in tools.found if not only or any(tool.name.startswith(name) for name in only)]
        told = {
            "records": self._records,
            "record_bytes": round(record_bytes(self._records)),
            "left_out": tools.left_out,
        }
        self._write(what="machine", **describe_machine(), **told)
        self._until = time.monotonic() + self._minutes * 60
        try:
            for warm in [tool for tool in chosen if tool.warm][:1]:
                self._archive(warm, SMALL, what="start of the warm Spark")
            for number in range(rounds):
                self._run_round(number, chosen[number:] + chosen[:number])
        finally:
            for job in self._jobs.values():
                self._remove(job)
            for pid in find_servers():
                psutil.Process(pid).terminate()

    def _run_round(self, number: int, tools: Sequence[Tool]) -> None:
        # All that is not repeated comes first: the time may be over before the last round is.
        for records in self._topics if number == 0 else [self._records]:
            for tool in tools:
                self._archive(tool, records, round=number)
        if number == 0:
            for tool in self._jobs:
                self._restore(tool)
            for tool in self._jobs:
                self._restore_killed(tool)

    def _archive(self, tool: Tool, records: int, *, what: str = "archive", **told: object) -> None:
        job = Job(f"peer-{time.time_ns()}", self._topics[records], self._home / f"job-{next(self._numbers)}")
        job.folder.mkdir()
        with self._line(tool, what=what, records=records, **told) as line:
            self._check_time()
            line.update(self._measure(tool, tool.archive(job), job))
            keys = self._list(job, tool)
            line["stored_mb"] = round(sum(keys.values()) / 1e6, 1)
            line["objects"] = len(keys)
            if tool.layout != "own":
                line.update(asdict(self._read_back(tool, job, records, list(keys))))
        kept = records == self._records and tool.restore is not None and "error" not in line
        if (useless := self._jobs.pop(tool, None) if kept else job) is not None:
            self._remove(useless)
        if kept:
            self._jobs[tool] = job

    def _restore(self, tool: Tool) -> None:
        with (
            self._line(tool, what="restore", records=self._records) as line,
            self._target(tool) as (job, command),
        ):
            line.update(self._measure(tool, command, job))
            line.update(asdict(self._compare_target(job)))

    def _restore_killed(self, tool: Tool) -> None:
        """Kill the restore when half of the records have come, run the same command again, and count."""
        with (
            self._line(tool, what="killed restore", records=self._records) as line,
            self._target(tool) as (job, command),
        ):
            killed = subprocess.Popen(
                command.arguments,
                cwd=command.folder,
                env=find_variables(command),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            begun = time.monotonic()
            try:
                while (sent := self._count_sent(job.target)) < self._records // 2:
                    if killed.poll() is not None or time.monotonic() - begun > LIMIT_SECONDS:
                        raise RuntimeError(f"it ended with {killed.poll()} before half was sent")
                    time.sleep(0.05)
            finally:
                _kill(killed)
            line["killed_at"] = sent
            line.update(self._measure(tool, command, job))
            line.update(asdict(self._compare_target(job)))

    @contextmanager
    def _target(self, tool: Tool) -> Iterator[tuple[Job, Command]]:
        """Make a topic for a restore of the tool's last archive."""
        self._check_time()
        job = replace(self._jobs[tool], target=f"{self._jobs[tool].name}-{next(self._numbers)}")
        assert tool.restore is not None
        create_topic(self._stack.bootstrap_servers, job.target)
        try:
            self._await_leaders(job.target)
            yield job, tool.restore(job)
        finally:
            delete_topic(self._stack.bootstrap_servers, job.target)

    @contextmanager
    def _line(self, tool: Tool, **told: object) -> Iterator[dict[str, object]]:
        """Write a line of what the block finds. What fails is told in it, and does not stop the others."""
        line: dict[str, object] = {"tool": tool.name, "writes": tool.writes, **told}
        try:
            yield line
        except Exception as err:  # noqa: BLE001 - of any tool, whatever it is
            line["error"] = f"{type(err).__name__}: {err}"
        self._write(**line)

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError(f"not begun: the bench had run for its {self._minutes:g} minutes")

    def _measure(self, tool: Tool, command: Command, job: Job) -> dict[str, object]:
        log = job.folder / "output.log"
        with log.open("wb") as output, _charged(find_servers() if tool.warm else []) as usage:
            done = subprocess.run(
                command.arguments,
                cwd=command.folder,
                env=find_variables(command),
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {log.read_text(errors='replace')[-500:]}")
        return {
            "seconds": round(usage.seconds, 2),
            "cpu_seconds": round(usage.cpu_seconds, 2),
            "peak_mib": round(usage.peak_mib),
        }

    def _list(self, job: Job, tool: Tool) -> dict[str, int]:
        """Return the objects with records, and their sizes."""
        pages = self._store.get_paginator("list_objects_v2").paginate(
            Bucket=self._stack.bucket, Prefix=f"{job.prefix}/"
        )
        sizes = {found["Key"]: found["Size"] for page in pages for found in page.get("Contents", ())}
        suffix = {"lines": ".gz", "envelope": ".parquet", "own": ""}[tool.layout]
        return {key: size for key, size in sizes.items() if key.endswith(suffix)}

    def _read_back(self, tool: Tool, job: Job, records: int, keys: list[str]) -> Comparison:
        bucket = self._stack.bucket
        if tool.layout == "envelope":
            return self._expected[records].compare(read_envelopes(self._store, bucket, keys))
        return self._expected[records].compare(read_lines(self._store, bucket, keys, job.folder / "lines"))

    def _compare_target(self, job: Job) -> Comparison:
        return self._expected[self._records].compare(read_topic(self._stack.bootstrap_servers, job.target))

    def _count_sent(self, topic: str) -> int:
        kafka_partitions = [TopicPartition(topic, p) for p in range(KAFKA_PARTITIONS)]
        # A new one each time: a consumer that asked too early for a new topic goes on believing that it has no leader.
        consumer = Consumer({"bootstrap.servers": self._stack.bootstrap_servers, "group.id": "bench"})
        try:
            return sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in kafka_partitions)
        finally:
            consumer.close()

    def _await_leaders(self, topic: str) -> None:
        """Wait until a topic that was just created answers: what counts its records must not be late."""
        for _ in range(100):
            try:
                self._count_sent(topic)
                return
            except KafkaException:
                time.sleep(0.1)
        raise TimeoutError(f"{topic} has no leaders")

    def _remove(self, job: Job) -> None:
        pages = self._store.get_paginator("list_objects_v2").paginate(
            Bucket=self._stack.bucket, Prefix=f"{job.prefix}/"
        )
        for page in pages:
            for found in page.get("Contents", ()):
                self._store.delete_object(Bucket=self._stack.bucket, Key=found["Key"])
        shutil.rmtree(job.folder)

    def _write(self, **line: object) -> None:
        text = json.dumps(line)
        print(text, flush=True)
        with self._output.open("a") as output:
            output.write(text + "\n")


@contextmanager
def _charged(servers: Sequence[int]) -> Iterator[Usage]:
    """Measure the commands of the block, and the servers, but not this process.

    What a process uses after its last sample is not in the samples. Of all that ended, the kernel keeps the sum.
    """
    usage, own, ended = Usage(), time.process_time(), _sum_ended()
    with measured(usage, every=0.05, others=servers):
        yield usage
    usage.cpu_seconds = max(usage.cpu_seconds - (time.process_time() - own), _sum_ended() - ended)


def _sum_ended() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command with all that it started."""
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        tree = []
    for each in tree:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
    psutil.wait_procs(tree, timeout=30)


if __name__ == "__main__":
    main()
