"""Restores of objects that others wrote, at their limits: very many tiny ones, and a very large one.

`python -m bench.others --objects 200000 --restored 4000 --gigabytes 2` on the embedded stack. Each restore runs in a
process of its own, without Spark; its memory is told above what it takes before it begins.
"""

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import boto3

from bench.archive import connector
from bench.workload import create_topic, delete_topic
from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.config.settings import ConverterSettings, LayoutSettings, RecordSettings, SourceSettings
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.target_topic import Template
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

T = TypeVar("T")
R = TypeVar("R")

LINE_BYTES = 1_000
PUTS_AT_ONCE = 16


class _InThisProcess(TaskRunner):
    """One task after the other."""

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], _: int) -> Iterator[R]:
        for at, task in enumerate(tasks):
            yield function(task, Attempt(at, 0))

    def start(self) -> None:
        """There is nothing to start."""

    def at_once(self, max_concurrent: int) -> int:
        return max_concurrent


def main() -> None:
    """Make the objects, restore them, print a line of JSON for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.others", description=__doc__)
    parser.add_argument("--objects", type=int, default=200_000, help="tiny objects to plan a restore of")
    parser.add_argument("--restored", type=int, default=4_000, help="tiny objects to restore")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="lines in one object, before compression")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _restored(*given.child)
        return
    stack = StackSettings.from_environment()
    start_stack(stack)
    stamp = f"o{time.time_ns()}"
    for what, objects, mode in (("planned", given.objects, "dry"), ("restored", given.restored, "real")):
        seconds = _tiny(stack, f"{stamp}-{what}", objects)
        _told(stack, f"{objects:,} objects of a record each, {what}", f"{stamp}-{what}", mode, put_seconds=seconds)
    size = _large(stack, f"{stamp}-large", given.gigabytes)
    _told(stack, f"one object of {given.gigabytes:g} GB of lines", f"{stamp}-large", "real", object_bytes=size)


def _told(stack: StackSettings, what: str, topic: str, mode: str, **known: float) -> None:
    create_topic(stack.bootstrap_servers, f"{topic}-to")
    command = [sys.executable, "-m", "bench.others", "--child", topic, mode, topic]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"what": what, **known, **found}), flush=True)
    delete_topic(stack.bootstrap_servers, f"{topic}-to")


def _client(stack: StackSettings) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=stack.s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id=stack.aws_access_key_id,
        aws_secret_access_key=stack.aws_secret_access_key,
    )


def _tiny(stack: StackSettings, topic: str, objects: int) -> float:
    """Put that many objects of a line each; how long that took."""
    client, started = _client(stack), time.monotonic()

    def put(at: int) -> None:
        key = f"{topic}/topics/{topic}/partition=0/{topic}+0+{at:010d}.json"
        client.put_object(Bucket=stack.bucket, Key=key, Body=b'{"n":%d}\n' % at)

    with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
        for _ in pool.map(put, range(objects)):
            pass
    return round(time.monotonic() - started, 1)


def _large(stack: StackSettings, topic: str, gigabytes: float) -> int:
    """Put one object of lines, compressed; its bytes."""
    lines, numbers = round(gigabytes * 1e9 / LINE_BYTES), count(10**9)
    text = "x" * (LINE_BYTES - 20)
    parts = bytearray()
    left = lines
    while left:
        some = min(left, 100_000)
        block = b"".join(b'{"n":%d,"t":"%s"}\n' % (next(numbers), text.encode()) for _ in range(some))
        parts += gzip.compress(block, 1)
        left -= some
    key = f"{topic}/topics/{topic}/partition=0/{topic}+0+0000000000.json.gz"
    _client(stack).put_object(Bucket=stack.bucket, Key=key, Body=bytes(parts))
    return len(parts)


def _restored(topic: str, mode: str, restore_id: str) -> None:
    config = connector("others", topic).model_copy(
        update={
            "tasks_max": 1,
            "layout": LayoutSettings(topics_dir=f"{topic}/topics", partitioner="Default", format="json", codec="gzip"),
            "records": RecordSettings(value=ConverterSettings(format="JSON")),
            "source": SourceSettings(),
        }
    )
    request = RestoreRequest(
        config, topic="", to_topic="", restore_id=restore_id, run_id="bench", dry_run=mode == "dry"
    )
    before, started = _memory("VmRSS"), time.monotonic()
    Path("/proc/self/clear_refs").write_text("5")
    report = restore(ForeignSource(request, (), Template(f"{topic}-to")), _InThisProcess())
    found = {
        "seconds": round(time.monotonic() - started, 1),
        "restore_seconds": round(report.seconds, 1),
        "objects": report.object_count,
        "records": report.record_count,
        "verified": report.verified,
        "refusals": report.refusals,
        "megabytes_above_the_base": round((_memory("VmHWM") - before) / 1e6),
    }
    print(json.dumps(found))


def _memory(name: str) -> int:
    """Read this process's memory from Linux, in bytes: `VmRSS` is now, `VmHWM` the most since it was reset."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
