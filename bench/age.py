"""`python -m bench.age`: what an index costs by its age, on the embedded stack. Each path in a process of its own.

CPU seconds, wall seconds and the peak of memory are of the path, without the imports before it. MB written are those of
the files of the index that the path's commits added.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bench.archive import connector
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack
from kafka_s3_platform_tests.aged.paths import PATHS
from kafka_s3_platform_tests.aged.rows import Age, write_aged_index

MONTH_DAYS = 30


def main() -> None:
    """Write an index of each age, unless it is there, and print what each path costs with it."""
    parser = argparse.ArgumentParser(prog="python -m bench.age", description=__doc__)
    parser.add_argument("--days", type=int, nargs="+", default=[MONTH_DAYS, 365, 5 * 365])
    parser.add_argument("--kafka-partitions", type=int, default=12)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--upkeep", action="store_true", help="measure after an upkeep, which folds old rows")
    parser.add_argument("--name", default=f"aged-{time.time_ns()}", help="an index that is there under it is used")
    parser.add_argument("--paths", nargs="+", default=list(PATHS), metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_measure(given.name, given.topics, given.kafka_partitions, given.days[0], given.one)))
        return
    start_stack(StackSettings.from_environment())
    for days in given.days:
        config = _make_config(given.name, given.topics, days)
        _write(config, given.kafka_partitions, days)
        if given.upkeep:
            _keep_up(config)
    print(f"| CPU s / wall s / peak MB / MB written | {' | '.join(f'{days} days' for days in given.days)} |")
    print(f"|---|{'---|' * len(given.days)}")
    for path in given.paths:
        cells = [_run(given, path, days) for days in given.days]
        print(f"| {path} | {' | '.join(cells)} |", flush=True)


def _make_config(name: str, topics: int, days: int) -> ConnectorConfig:
    name = f"{name}-{days}"
    config = connector(name, f"{name}.0")
    archive = config.archive.model_copy(update={"start_hour": _make_age(config, 1, days).start})
    return config.model_copy(update={"topics": tuple(f"{name}.{n}" for n in range(topics)), "archive": archive})


def _make_age(config: ConnectorConfig, kafka_partitions: int, days: int) -> Age:
    """Return the age of an index that ends with yesterday: a process of its own makes the same."""
    end = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    return Age(config.topics, kafka_partitions, 24 * days, end, config.layout)


def _write(config: ConnectorConfig, kafka_partitions: int, days: int) -> None:
    store = ObjectStore(config.store)
    if any(True for _ in store.list(f"{config.archive.index_dir}/connector={config.name}/")):
        return
    age = _make_age(config, kafka_partitions, days)
    begun = time.monotonic()
    write_aged_index(config, kafka_partitions, age.hours, age.end)
    print(f"wrote {config.name} in {time.monotonic() - begun:.0f} s", file=sys.stderr)


def _keep_up(config: ConnectorConfig) -> None:
    begun = time.process_time()
    report = keep_up_index(config, dry_run=False, retention=timedelta())
    cpu = time.process_time() - begun
    print(f"{config.name}: folded {report.fold.rows:,} rows; upkeep {cpu:.1f} CPU s", file=sys.stderr)


def _run(given: argparse.Namespace, path: str, days: int) -> str:
    command = [sys.executable, "-m", "bench.age", "--one", path, "--name", given.name, "--days", str(days)]
    command += ["--topics", str(given.topics), "--kafka-partitions", str(given.kafka_partitions)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return f"{found['cpu']:.2f} / {found['wall']:.1f} / {found['peak']:.0f} / {found['written']:.1f}"


def _measure(name: str, topics: int, kafka_partitions: int, days: int, path: str) -> dict[str, float]:
    config = _make_config(name, topics, days)
    age = _make_age(config, kafka_partitions, days)
    before = _list_sizes(config)
    imported = _read_memory("VmRSS")
    begun = time.monotonic()
    cpu = time.process_time()
    PATHS[path](config, age)
    figures = {"cpu": time.process_time() - cpu, "wall": time.monotonic() - begun}
    peak = max(0.0, _read_memory("VmHWM") - imported)
    after = _list_sizes(config)
    written = sum(size for key, size in after.items() if key not in before) / 1e6
    return {**figures, "peak": peak, "written": written}


def _read_memory(name: str) -> float:
    """Return a figure of Linux on this process's memory, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def _list_sizes(config: ConnectorConfig) -> dict[str, int]:
    """Return the size of each object of the index, its log among them."""
    folder = f"{config.archive.index_dir}/connector={config.name}/"
    return {each.key: each.size for each in ObjectStore(config.store).list(folder)}


if __name__ == "__main__":
    main()
