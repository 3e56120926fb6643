"""`make bench-growth`: what a record costs as records, kafka partitions, sizes and distances grow.

All on a stack of its own, which is removed at the end. A session of Spark that is warm archives whole records (the
envelope) of each point, and restores some. CPU seconds and memory are those of the session with its Java and Python
processes. One line of JSON for each point; `python -m bench.growth --report FILE` makes the docs of them.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from confluent_kafka import KafkaError

from bench.archive import connector, started_session
from bench.charts import draw_lines
from bench.cluster import started_stack
from bench.documents import RESULTS, render_table, write_section
from bench.measure import Usage, describe_machine, measured
from bench.workload import KAFKA_PARTITIONS, START_MS, create_topic, delete_topic, key, open_producer, send, value
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.operate.local.settings import StackSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLISECONDS = 30
"""What the proxies before broker and store add to each answer."""
RECORD_DISK_BYTES = 700
"""A record in the log, in the archives of all points, and in a topic that it is restored to."""
SPARE_DISK_BYTES = 10e9
SIZES = (100, 250, 1_024, 10_240, 102_400, 1_048_576)
KAFKA_PARTITION_COUNTS = (1, 8, 50, 100, 250, 500)
CHART = RESULTS / "growth.svg"
EXPECTED = 1.15


def main() -> None:
    """Measure all points, or make the docs of a file."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 2, 4, 8, 16, 32], help="of records")
    parser.add_argument("--far-millions", type=float, default=8.0, help="the most records with latency, and restored")
    parser.add_argument("--spread-records", type=int, default=2_000_000, help="in each number of kafka partitions")
    parser.add_argument("--size-bytes", type=float, default=500e6, help="of the records of each size together")
    parser.add_argument("--minutes", type=float, default=15.0, help="no point is begun after this time")
    parser.add_argument("--output", type=Path, default=Path("artifacts/growth.jsonl"))
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="instead: write bench/results/growth.md and its chart"
    )
    given = parser.parse_args()
    if given.report:
        write_report([json.loads(line) for line in given.report.read_text().splitlines()])
        return
    # So that what was started is ended, too, when `timeout` ends the bench.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-growth-")))
        stack, kafka, s3 = opened.enter_context(started_stack(folder / "stack", MILLISECONDS))
        growth = Growth(stack, kafka, s3, given.output, given.minutes)
        opened.callback(growth.close)
        growth.warm_up()
        growth.grow_records([round(million * 1e6) for million in given.millions], given.far_millions * 1e6)
        growth.spread(given.spread_records)
        growth.enlarge(given.size_bytes)


class Growth:
    """The points, one after the other. What fails is told in its line, and does not stop the others."""

    def __init__(self, stack: StackSettings, kafka: KafkaSettings, s3: str, output: Path, minutes: float) -> None:
        self._stack, self._kafka, self._s3, self._output = stack, kafka, s3, output
        self._minutes, self._until = minutes, time.monotonic() + minutes * 60
        self._driver = _make_executor(1)
        self._producers = _make_executor(2)
        self._write({"what": "machine", **describe_machine()})

    def close(self) -> None:
        """End the processes."""
        self._driver.shutdown()
        self._producers.shutdown()

    def warm_up(self) -> None:
        """Start Spark, and archive and restore once what nobody counts."""
        with self._topic("growth-warm", KAFKA_PARTITIONS, range(100_000)) as config:
            self._archive(config, 100_000)
            target = f"{config.name}-restored"
            create_topic(self._stack.bootstrap_servers, target)
            self._driver.submit(restore_there, config, target).result()

    def grow_records(self, totals: Sequence[int], most: float) -> None:
        """Archive a topic again and again while it grows. Up to `most` records with latency too, and restored."""
        topic, before = f"growth-{uuid4().hex[:8]}", 0
        create_topic(self._stack.bootstrap_servers, topic)
        for total in totals:
            if (total - before) * RECORD_DISK_BYTES + SPARE_DISK_BYTES > shutil.disk_usage(self._stack.data_dir).free:
                self._write({"what": "records", "records": total, "error": "not begun: too little disk is free"})
                continue
            config = connector(f"{topic}-{total}", topic)
            with self._point("records", total) as line:
                self._check_time()
                self._produce(topic, range(before, total), KAFKA_PARTITIONS)
                before = total
                line.update(self._archive(config, total))
            if total <= most:
                with self._point("records, 30 ms", total) as line:
                    self._check_time()
                    line.update(self._archive(self._move_away(connector(f"{topic}-{total}-far", topic)), total))
                self._restore("restored", config, total)
                self._restore("restored, 30 ms", self._move_away(config), total)
        delete_topic(self._stack.bootstrap_servers, topic)

    def spread(self, records: int) -> None:
        """Archive as many records from topics with ever more kafka partitions."""
        for kafka_partitions in KAFKA_PARTITION_COUNTS:
            with (
                self._point("kafka partitions", records, kafka_partitions=kafka_partitions) as line,
                self._topic(f"spread-{kafka_partitions}", kafka_partitions, range(records)) as config,
            ):
                line.update(self._archive(config, records))

    def enlarge(self, size_bytes: float) -> None:
        """Archive as many bytes in ever larger records."""
        for size in SIZES:
            records = min(2_000_000, round(size_bytes / size))
            with (
                self._point("sizes", records, bytes=size) as line,
                self._topic(f"size-{size}", KAFKA_PARTITIONS, range(records), size) as config,
            ):
                line.update(self._archive(config, records))

    @contextmanager
    def _point(self, what: str, records: int, **told: object) -> Iterator[dict[str, object]]:
        line: dict[str, object] = {"what": what, "records": records, **told}
        try:
            yield line
        except Exception as err:  # noqa: BLE001 - of any point, whatever it is
            line["error"] = f"{type(err).__name__}: {err}"[:500]
            if isinstance(err, BrokenProcessPool):
                self._driver, self._producers = _make_executor(1), _make_executor(2)
        self._write(line)

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError(f"not begun: the bench had run for its {self._minutes:g} minutes")

    @contextmanager
    def _topic(self, name: str, kafka_partitions: int, numbers: range, size: int = 0) -> Iterator[ConnectorConfig]:
        """Fill a topic, and yield a connector for it. Its space is given back at the end."""
        self._check_time()
        name = f"{name}-{uuid4().hex[:8]}"
        create_topic(self._stack.bootstrap_servers, name, kafka_partitions)
        try:
            self._produce(name, numbers, kafka_partitions, size)
            yield connector(name, name)
        finally:
            delete_topic(self._stack.bootstrap_servers, name)

    def _produce(self, topic: str, numbers: range, kafka_partitions: int, size: int = 0) -> None:
        work = partial(produce_numbers, self._stack.bootstrap_servers, topic, kafka_partitions, size)
        list(self._producers.map(work, (numbers[::2], numbers[1::2])))

    def _archive(self, config: ConnectorConfig, records: int) -> Mapping[str, object]:
        found = self._driver.submit(archive_there, config).result()
        if found["records"] != records:
            raise RuntimeError(f"{found['records']} of {records} records were archived")
        return found

    def _restore(self, what: str, config: ConnectorConfig, records: int) -> None:
        target = f"{config.name}-{uuid4().hex[:8]}"
        create_topic(self._stack.bootstrap_servers, target)
        with self._point(what, records) as line:
            self._check_time()
            line.update(self._driver.submit(restore_there, config, target).result())
        delete_topic(self._stack.bootstrap_servers, target)

    def _move_away(self, config: ConnectorConfig) -> ConnectorConfig:
        store = config.store.model_copy(update={"endpoint_url": self._s3})
        return config.model_copy(update={"kafka": self._kafka, "store": store})

    def _write(self, line: Mapping[str, object]) -> None:
        text = json.dumps(line)
        print(text, flush=True)
        with self._output.open("a") as output:
            output.write(text + "\n")


def _make_executor(processes: int) -> Executor:
    # Spawned: the driver of Spark is to have no child but Spark, whose CPU is measured.
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


@cache
def _start_session() -> "SparkSession":
    return started_session()[0]


def archive_there(config: ConnectorConfig) -> dict[str, object]:
    """Archive all of the topic, in the driver. Return what it cost."""
    session = _start_session()
    with measured() as usage:
        report = archive_topic(
            ArchiveRequest(config, config.topics[0], str(uuid4()), None), SparkRunner(lambda: session)
        )
    report.raise_failure()
    return {
        "records": report.record_count,
        "objects": report.object_count,
        "gigabytes": report.record_bytes / 1e9,
        **_round(usage),
    }


def restore_there(config: ConnectorConfig, target: str) -> dict[str, object]:
    """Restore all of the archive exactly once and verify it, in the driver. Return what it cost."""
    session = _start_session()
    request = RestoreRequest(config, config.topics[0], to_topic=target, restore_id=target, run_id=str(uuid4()))
    with measured() as usage:
        report = restore(ArchiveSource(request), SparkRunner(lambda: session))
    if not report.verified:
        raise RuntimeError(f"the restore to {target} is not verified")
    return {"records": report.record_count, **_round(usage)}


def _round(usage: Usage) -> dict[str, float]:
    return {name: round(figure, 2) for name, figure in asdict(usage).items()}


def produce_numbers(bootstrap_servers: str, topic: str, kafka_partitions: int, size: int, numbers: range) -> None:
    """Produce these records, each to the kafka partition that its number names. `size` 0 is the bench's usual JSON."""
    make = _make_values(size)
    failures: list[KafkaError] = []
    limits = {"message.max.bytes": 4_000_000, "queue.buffering.max.kbytes": 131_072}
    producer = open_producer(bootstrap_servers, failures, limits)
    for n in numbers:
        send(producer, topic, n % kafka_partitions, key(n), make(n), START_MS + n)
    left = producer.flush(120)
    if failures or left:
        raise RuntimeError(f"{topic}: {len(failures)} records failed, {left} were not sent: {failures[:1]}")


@cache
def _make_values(size: int) -> Callable[[int], bytes]:
    """Return what makes the value of a record. What is repeated lies further apart than a compressor looks back."""
    if size <= 250:
        tails = [value(n * 7919).partition(b",")[2] for n in range(100_000)]
        return lambda n: (b'{"id":%d,' % n + tails[n % len(tails)])[: size or None]
    noise = random.Random(1).randbytes(2**25).hex().encode()  # noqa: S311 - no secret
    return lambda n: b"%d," % n + noise[(start := n * size % (len(noise) - size)) : start + size]


def write_report(lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the tables of bench/results/growth.md, and its chart."""
    machine = next(line for line in reversed(lines) if line["what"] == "machine")
    lines = lines[lines.index(machine) + 1 :]
    done = [line for line in lines if "error" not in line]
    measured_at = (
        f"Measured at {machine['when']} on {machine['cores']} cores and {machine['memory_gib']} GiB, with a load of "
        f"{machine['load']:.1f} before it; Python {machine['python']}.\n"
    )
    parts = [measured_at]
    for title, by, whats in PANELS:
        rows = [line for line in done if line["what"] in whats]
        if rows:
            parts.append(f"{title}:\n")
            parts.append(_render(rows, by))
    for what, by, count in FITS:
        rows = [line for line in done if line["what"] == what]
        if len(rows) > 1:
            parts.append(f"- {what}: {_fit(rows, by, count)}")
    failed = [line for line in lines if "error" in line]
    parts += [f"- Not measured: {line['what']} {_name(line)}: {' '.join(line['error'].split())}" for line in failed]
    parts.append("\n![CPU seconds by records, kafka partitions and sizes](growth.svg)")
    write_section("growth", "\n".join(parts))
    panels = {}
    for title, by, whats in PANELS:
        unit = "GB" if by == "bytes" else "million records"
        curves = {what: [(float(line[by]), _cost(line, by)) for line in done if line["what"] == what] for what in whats}
        panels[f"{title}: CPU s a {unit}"] = {what: curve for what, curve in curves.items() if curve}
    CHART.write_text(draw_lines({title: curves for title, curves in panels.items() if curves}))


PANELS = (
    ("Archive, by records", "records", ("records", "records, 30 ms")),
    ("Restore, verified, by records", "records", ("restored", "restored, 30 ms")),
    ("Archive, by kafka partitions", "kafka_partitions", ("kafka partitions",)),
    ("Archive, by bytes of a record", "bytes", ("sizes",)),
)
"""Title, the key on the x axis, and the points of each curve."""

FITS = (
    ("records", "records", 1e6),
    ("records, 30 ms", "records", 1e6),
    ("restored", "records", 1e6),
    ("restored, 30 ms", "records", 1e6),
    ("kafka partitions", "kafka_partitions", 1),
)
"""Points that may lie on a line: the key of x, and its unit."""


def _fit(rows: Sequence[Mapping[str, Any]], by: str, unit: float) -> str:
    """Say by how much the points differ, and how much of each is what every run costs."""
    costs = [_cost(line, "records") for line in rows]
    each, fixed = np.polyfit([line[by] / unit for line in rows], [line["cpu_seconds"] for line in rows], 1)
    return (
        f"the dearest point costs {max(costs) / min(costs):.2f} times the CPU of the cheapest, a record (expected "
        f"{EXPECTED:g} at most). A line through them: {fixed:.2f} CPU s, and {each:.2g} for each "
        f"{'million records' if unit > 1 else by.replace('_', ' ').removesuffix('s')}."
    )


def _cost(line: Mapping[str, Any], by: str) -> float:
    """Return CPU seconds: of a GB where sizes differ, else of a million records."""
    share = line["gigabytes"] if by == "bytes" else line["records"] / 1e6
    return float(line["cpu_seconds"] / share)


def _name(line: Mapping[str, Any]) -> str:
    return next((f"{line[key]:,}" for key in ("kafka_partitions", "bytes") if key in line), f"{line['records']:,}")


def _render(rows: Sequence[Mapping[str, Any]], by: str) -> str:
    unit = "GB" if by == "bytes" else "million"
    columns = [
        "what",
        by.replace("_", " "),
        "records/s",
        "s",
        f"CPU s a {unit}",
        "memory, MiB",
        "largest Python process",
    ]
    return render_table(
        columns,
        (
            (
                line["what"],
                _name(line),
                f"{line['records'] / line['seconds']:,.0f}",
                f"{line['seconds']:.1f}",
                f"{_cost(line, by):.2f}",
                f"{line['peak_mib']:,.0f}",
                f"{line['peak_python_mib']:,.0f}",
            )
            for line in rows
        ),
    )


if __name__ == "__main__":
    main()
