"""`python -m bench.upkeep`: what the upkeep of an index costs, and what it leaves, on the embedded stack.

An index of `--days` is written, of which nothing was ever kept up. After the first upkeep come `--nights` days of runs,
one hour after the other. Each day is merged, and ends with an upkeep. A version stays readable for as long as seven of
these days take. CPU seconds are those of this process, without the store's.
"""

import argparse
import time
from datetime import datetime, timedelta, timezone

from bench.archive import connector
from bench.measure import measured
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.index import CHECKPOINT_INTERVAL, ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_files import list_log
from kafka_s3_platform.core.store.index_reads import list_data_files
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack
from kafka_s3_platform_tests.aged.rows import RECORDS as AGED_RECORDS
from kafka_s3_platform_tests.aged.rows import write_aged_index
from kafka_s3_platform_tests.upkeep.index.hours import RECORDS, archive_hour, merge_day

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
KEPT_DAYS = 7
OPENINGS = 10


def main() -> None:
    """Print a line for the first upkeep and for each night after it."""
    parser = argparse.ArgumentParser(prog="python -m bench.upkeep", description=__doc__)
    parser.add_argument("--days", type=int, nargs="+", default=[30, 365, 5 * 365])
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--kafka-partitions", type=int, default=12)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--opening", type=int, metavar="N", help="instead: what it costs to open an index of N commits")
    given = parser.parse_args()
    start_stack(StackSettings.from_environment())
    if given.opening:
        _measure_opening(_make_config(1), given.opening)
        return
    print("| days | night | upkeep CPU s | wall s | merge of a day: CPU s, MB written | live MB | dead MB | log MB |")
    print("|---|---|---|---|---|---|---|---|")
    for days in given.days:
        _measure(_make_config(given.topics), days, given.kafka_partitions, given.nights)


def _make_config(topics: int) -> ConnectorConfig:
    name = f"upkeep-{time.time_ns()}"
    config = connector(name, f"{name}.0")
    return config.model_copy(update={"topics": tuple(f"{name}.{n}" for n in range(topics))})


def _measure(config: ConnectorConfig, days: int, kafka_partitions: int, nights: int) -> None:
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - nights * DAY
    write_aged_index(config, kafka_partitions, 24 * days, first)
    number = 24 * days * AGED_RECORDS // RECORDS
    _print_night(config, days, 0, timedelta(days=1), "")
    began: list[datetime] = []
    for night in range(nights):
        began.append(datetime.now(timezone.utc))
        day = first + night * DAY
        for hour in range(24):
            archive_hour(config, day + hour * HOUR, number + 24 * night + hour, kafka_partitions)
        before = _list_sizes(config)
        with measured() as usage:
            merge_day(config, config.topics, day)
        written = sum(size for key, size in _list_sizes(config).items() if key not in before) / 1e6
        kept = datetime.now(timezone.utc) - began[max(0, night + 1 - KEPT_DAYS)]
        _print_night(config, days, night + 1, kept, f"{usage.cpu_seconds:.2f}, {written:.2f}")


def _print_night(config: ConnectorConfig, days: int, night: int, kept: timedelta, merge: str) -> None:
    with measured() as usage:
        keep_up_index(config, dry_run=False, retention=kept)
    index = ConnectorIndex.of(config)
    live = sum(file.size for file in list_data_files(index.table, index.table.open())) / 1e6
    sizes = _list_sizes(config)
    log = sum(size for key, size in sizes.items() if "/_delta_log/" in key) / 1e6
    dead = sum(sizes.values()) / 1e6 - live - log
    cells = [f"{usage.cpu_seconds:.2f}", f"{usage.seconds:.1f}", merge, f"{live:.1f}", f"{dead:.1f}", f"{log:.1f}"]
    print(f"| {days} | {night} | {' | '.join(cells)} |", flush=True)


def _measure_opening(config: ConnectorConfig, commits: int) -> None:
    """Print what opening costs by the number of commits since the last checkpoint, and without any checkpoint."""
    index = ConnectorIndex.of(config)
    print("| commits after the checkpoint | open: CPU ms | read again: CPU ms |\n|---|---|---|")
    for _ in range(commits // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL - 1):
        index.open().commit({config.topics[0]: Change()})
    for since in range(CHECKPOINT_INTERVAL):
        _print_opening(config, str(since))
        index.open().commit({config.topics[0]: Change()})
    for info in (*list_log(index.table).checkpoints.values(), index.table.objects.head(_name_hint(index))):
        if info is not None:
            index.table.objects.delete(info.key, info.etag)
    _print_opening(config, f"{index.open().version} without any")


def _print_opening(config: ConnectorConfig, which: str) -> None:
    began = time.process_time()
    opened = [ConnectorIndex.of(config) for _ in range(OPENINGS)]
    for index in opened:
        index.open()
    again = time.process_time()
    for index in opened:
        index.open()
    ended = time.process_time()
    cells = [which, *(f"{seconds / OPENINGS * 1000:.0f}" for seconds in (again - began, ended - again))]
    print(f"| {' | '.join(cells)} |", flush=True)


def _name_hint(index: ConnectorIndex) -> str:
    return f"{index.table.folder}/_delta_log/_last_checkpoint"


def _list_sizes(config: ConnectorConfig) -> dict[str, int]:
    folder = ConnectorIndex.of(config).table.folder
    return {info.key: info.size for info in ObjectStore(config.store).list(f"{folder}/")}


if __name__ == "__main__":
    main()
