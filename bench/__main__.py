"""`make bench`: archive and restore against the least that the machine needs for the same job.

Everything runs on the embedded stack, one after the other, so figures of one run compare; those of two runs do not.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace

from bench.floor import Work, consume_to_arrow, produce_alone, started_processes
from bench.measure import measured
from bench.sinks import SINKS, avro_values, registered
from bench.workload import create_topic, delete_topic, ensure_topic, record_bytes, spread
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_registry, start_stack


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    records: int
    megabytes: float
    seconds: float
    cpu_seconds: float
    peak_python_mib: float
    again_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def main() -> None:
    """Run what the arguments name and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="repeat; the best round of each is shown")
    parser.add_argument("--scale", action="store_true", help="archive and restore 1, 4 and 16 million records instead")
    parser.add_argument("--sinks", action="store_true", help="only the sinks of open formats")
    given = parser.parse_args()
    stack = StackSettings.from_environment()
    start_stack(stack)
    if given.scale:
        _print(_scale(stack))
        return
    if not given.sinks:
        _print(_compare(stack, given.records, given.rounds))
    _print(_sinks(stack, given.records, given.rounds))


def _compare(stack: StackSettings, records: int, rounds: int) -> list[Row]:
    servers = stack.bootstrap_servers
    tell(f"preparing {records:,} records (once)")
    topic = ensure_topic(servers, records)
    rows: list[Row] = []
    for _ in range(rounds):
        stamp = f"b{time.time_ns()}"
        rows.append(_floor("confluent-kafka to Arrow alone (the floor)", consume_to_arrow, servers, topic, records))
        rows.append(_child("archive (Spark, to zstd Parquet in S3)", "archive", stamp, topic))
        rows += _producing(servers, stamp, topic, records)
    return _best(rows)


def _sinks(stack: StackSettings, records: int, rounds: int) -> list[Row]:
    """Every pair of an input and an output, against the floor of its own topic: Avro records are smaller."""
    start_registry(stack)
    servers, registry_url = stack.bootstrap_servers, stack.registry_url
    tell(f"preparing {records:,} records of JSON and of Avro (once)")
    topics = {"JSON": ensure_topic(servers, records), "AVRO": _avro_topic(servers, registry_url, records)}
    rows: list[Row] = []
    for _ in range(rounds):
        for name, topic in topics.items():
            rows.append(_floor(f"confluent-kafka to Arrow alone, {name}", consume_to_arrow, servers, topic, records))
        for at, sink in enumerate(SINKS):
            topic = topics[floor_of(sink)]
            rows.append(_child(sink, "archive", f"k{time.time_ns()}-{at}", topic, sink, registry_url))
    return _best(rows)


def _avro_topic(servers: str, registry_url: str, records: int) -> str:
    """Name a topic for each id of the schema: a Registry in memory forgets the ids that it gave out."""
    schema_id = registered(registry_url, "bench-avro")
    topic = f"bench-avro-{schema_id}-{records}"
    sample = avro_values(schema_id, spread(records))
    return ensure_topic(servers, records, topic, lambda n: sample[n % len(sample)])


def floor_of(sink: str) -> str:
    """Which topic's floor a sink is held against."""
    return "AVRO" if SINKS[sink][0] == "AVRO" else "JSON"


def _best(rows: list[Row]) -> list[Row]:
    best = {row.what: min((r for r in rows if r.what == row.what), key=lambda r: r.seconds) for row in rows}
    return list(best.values())


def _producing(servers: str, stamp: str, topic: str, records: int) -> list[Row]:
    alone = f"{stamp}-alone"
    create_topic(servers, alone)
    rows = [_floor("producer alone", produce_alone, servers, alone, records)]
    delete_topic(servers, alone)
    return [*rows, *(_restoring(servers, stamp, topic, delivery) for delivery in ("at_least_once", "exactly_once"))]


def _restoring(servers: str, stamp: str, topic: str, delivery: str) -> Row:
    target = f"{stamp}-{delivery}"
    create_topic(servers, target)
    what = f"restore, {delivery.replace('_', ' ')} (Spark, verified by reading back)"
    row = _child(what, "restore", stamp, topic, target, delivery)
    delete_topic(servers, target)
    return row


def _floor(what: str, work: Work, servers: str, topic: str, records: int) -> Row:
    tell(what)
    with started_processes() as run, measured() as usage:
        handled = run(work, servers, topic, records)
    size = handled * record_bytes(records)
    return Row(what, handled, size / 1e6, usage.seconds, usage.cpu_seconds, usage.peak_python_mib)


EXPECTED = {"JSON to gzip JSON": 0.75, "registry Avro to Avro": 0.6}
"""Shares of their floor that sinks are to reach; the others are as fast as their library."""


def _child(what: str, mode: str, *arguments: str) -> Row:
    tell(what)
    command = [sys.executable, "-m", "bench.archive", mode, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    tell(f"  Spark started in {figures['spark_start_seconds']:.1f} s (not counted)")
    return Row(
        what,
        figures["records"],
        figures["bytes"] / 1e6,
        figures["seconds"],
        figures["cpu_seconds"],
        figures["peak_python_mib"],
        figures.get("again_seconds", 0.0),
    )


def _scale(stack: StackSettings) -> list[Row]:
    rows = []
    for records in (1_000_000, 4_000_000, 16_000_000):
        tell(f"preparing {records:,} records (once)")
        servers, stamp = stack.bootstrap_servers, f"s{time.time_ns()}"
        topic = ensure_topic(servers, records)
        rows.append(_child(f"archive {records:,} records", "archive", stamp, topic))
        restored = _restoring(servers, stamp, topic, "exactly_once")
        rows.append(replace(restored, what=f"restore {records:,} records"))
    return rows


def tell(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def _print(rows: list[Row]) -> None:
    print("\n| what | records/s | MB/s | s | second run, records/s | CPU s per million | largest Python process MiB |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        cpu = f"{row.cpu_seconds / row.records * 1e6:.2f}" if row.cpu_seconds else "-"
        memory = f"{row.peak_python_mib:,.0f}" if row.peak_python_mib else "-"
        speed = f"{row.rate:,.0f} | {row.megabytes / row.seconds:,.0f} | {row.seconds:.1f}"
        again = f"{row.records / row.again_seconds:,.0f}" if row.again_seconds else "-"
        print(f"| {row.what} | {speed} | {again} | {cpu} | {memory} |")
    for line in _ratios({row.what.split(" (")[0]: row for row in rows}):
        print(line)
    print(json.dumps([asdict(row) for row in rows]), file=sys.stderr)


def _ratios(rows: dict[str, Row]) -> list[str]:
    pairs = [
        ("archive", "confluent-kafka to Arrow alone", 0.7),
        ("restore, exactly once", "producer alone", 0.6),
        ("restore", "producer alone", 0.6),
        ("restore, exactly once", "restore, at least once", 0.9),
        *((sink, f"confluent-kafka to Arrow alone, {floor_of(sink)}", EXPECTED.get(sink)) for sink in SINKS),
    ]
    found = [(a, b, rows[a].rate / rows[b].rate, e) for a, b, e in pairs if a in rows and b in rows]
    return [
        "",
        *(
            f"{a}: {ratio:.2f} of {b}" + (f" (expected {expected})" if expected else "")
            for a, b, ratio, expected in found
        ),
    ]


if __name__ == "__main__":
    main()
