"""`python -m bench.storage`: what runs cost in Dagster's storage, and what is left of them when they are deleted.

A run is one op for the hour of all topics, in this process. Each hour has the metadata of an object for each of 12
kafka partitions. Nothing is archived: neither Kafka, S3 nor Spark is in the figures. CPU is that of the whole run, and
of this process alone: what a Postgres server takes is not in it.
Then the observations of a topic's lag, as the lag sensor writes them, and the definitions that are kept with runs.
"""

import argparse
import logging
import os
import socket
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from uuid import uuid4

import dagster as dg
import sqlalchemy as db
from dagster._core.execution.api import create_execution_plan
from dagster._core.snap import ExecutionPlanSnapshot, JobSnap, snapshot_from_execution_plan
from dagster._serdes import serialize_value

from bench.archive import connector
from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.archive.lag_sensor import observe_lag
from kafka_s3_platform.core.defs.metadata import make_kafka_partitions_table, make_segments_metadata
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.tables import delete_run
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.status.backlog import Backlog
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.postgres import Postgres, run_postgres
from kafka_s3_platform_tests.support import SETTINGS

HOUR = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOURS = dg.StaticPartitionsDefinition(
    [f"2026-01-{day:02d}-{hour:02d}:00" for day in range(1, 11) for hour in range(24)]
)
KAFKA_PARTITIONS = 12
FLEET = 500
FLEET_HOURS = FLEET * 24 * 365

TABLES = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_statio_user_tables"
"""Bytes of Dagster's tables and their indexes. Postgres's own catalogues have 8 MB more."""

Look = Callable[..., tuple[int, int, int]]
"""Returns rows, bytes and the number of files."""


def main() -> None:
    """Run the hours in each storage and print what they cost, then delete the runs and print what is left."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description=__doc__)
    parser.add_argument("--hours", type=int, default=10)
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 40])
    parser.add_argument("--checks", type=int, nargs="+", default=[5, 1], help="of each topic")
    parser.add_argument("--observations", type=int, default=1_000)
    given = parser.parse_args()
    print("| storage | topics | checks | CPU ms | rows | kB | files a run | kB left | rows left | CPU ms to delete |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for topics in given.topics:
        for checks in given.checks:
            for storage in ("a file each", "one file", "Postgres"):
                with _open_home(storage) as (home, look):
                    _measure(storage, topics, checks, given.hours, home, look)
    print(f"\nCPU, rows and kB are of a topic and hour. {FLEET} topics have {FLEET_HOURS:,} of them in a year.\n")
    _measure_observations(given.observations)
    _measure_definitions()


@contextmanager
def _open_home(storage: str) -> Iterator[tuple[str, Look]]:
    """Make a home with empty storage, and a function that looks at what is in it."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        home = Path(folder)
        (home / "dagster.yaml").write_text(_configure(home, storage))
        if storage != "Postgres":
            yield folder, partial(_look, home)
            return
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = opened.enter_context(run_postgres(port))
        database = server.create_database()
        os.environ.update(server.environment(database))
        yield folder, partial(_look_at_postgres, server, database, home)


def _measure(storage: str, topics: int, checks: int, hours: int, home: str, look: Look) -> None:
    job = _define(topics, checks).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.from_config(home) as instance:
        _run(instance, job, 0)
    before = look(vacuum=True)
    cpu = time.process_time()
    with dg.DagsterInstance.from_config(home) as instance:
        runs = [_run(instance, job, n) for n in range(1, hours + 1)]
    ran = time.process_time() - cpu
    after = look()
    cpu = time.process_time()
    with dg.DagsterInstance.from_config(home) as instance:
        for run_id in runs:
            delete_run(instance, run_id)
    deleted = time.process_time() - cpu
    left = look(vacuum=True)
    units = topics * hours
    rows, size, files = (after[n] - before[n] for n in range(3))
    cost = f"{1000 * ran / units:.0f} | {rows / units:.1f} | {size / units / 1000:.1f} | {files / hours:.1f}"
    kept = f"{(left[1] - before[1]) / units / 1000:.1f} | {(left[0] - before[0]) / units:.1f}"
    print(f"| {storage} | {topics} | {checks} | {cost} | {kept} | {1000 * deleted / units:.1f} |", flush=True)


def _measure_observations(count: int) -> None:
    """Write the same observation as often as that, and print what one takes."""
    observation = _make_observation()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "dagster.yaml").write_text(_configure(home, "one file"))
        with dg.DagsterInstance.from_config(folder) as instance:
            instance.report_runless_asset_event(observation)
        before = _look(home, vacuum=True)
        cpu = time.process_time()
        with dg.DagsterInstance.from_config(folder) as instance:
            for _ in range(count):
                instance.report_runless_asset_event(observation)
        written = time.process_time() - cpu
        after = _look(home, vacuum=True)
    rows, size = ((after[n] - before[n]) / count for n in range(2))
    print("| an observation of the lag | CPU ms | rows | kB |\n|---|---|---|---|")
    print(f"| {KAFKA_PARTITIONS} kafka partitions | {1000 * written / count:.1f} | {rows:.1f} | {size / 1000:.1f} |")


def _measure_definitions() -> None:
    """Print what Dagster keeps of the job and the plan of a run (snapshots), compressed as it does it."""
    topics = tuple(f"orders-team-{n:03d}.events" for n in range(FLEET))
    config = connector("c", topics[0]).model_copy(update={"topics": topics})
    whole = build_definitions([config], autostart=False).resolve_job_def("archive__c")
    print(f"\n| definitions of {FLEET} topics | job, kB | plan, kB |\n|---|---|---|")
    print(f"| whole job | {_measure_stored(whole.get_job_snapshot()):.1f} | |")
    for count in (FLEET, FLEET - 1, FLEET // 2, 1):
        keys = frozenset(TopicAssets(config, topic).key("hourly") for topic in topics[:count])
        checks = frozenset(check for key in keys for check in list_index_checks(key))
        job = whole.get_subset(asset_selection=keys, asset_check_selection=checks)
        plan = snapshot_from_execution_plan(create_execution_plan(job), job.get_job_snapshot_id())
        sizes = f"{_measure_stored(job.get_job_snapshot()):.1f} | {_measure_stored(plan):.1f}"
        print(f"| selection of {count} | {sizes} |")


def _measure_stored(snapshot: JobSnap | ExecutionPlanSnapshot) -> float:
    """Return kB."""
    return len(zlib.compress(serialize_value(snapshot).encode())) / 1000


def _make_observation() -> dg.AssetObservation:
    """Make the lag sensor's observation of a topic that is behind in all kafka partitions."""
    frontiers = {p: Frontier(p, 0, 1_000_000, 1_000_000, 1, HOUR) for p in range(KAFKA_PARTITIONS)}
    found: OffsetAtTime = RecordOffset(0)

    def find_first(asked: Iterable[int], times: Sequence[int]) -> Answers[int, Mapping[int, OffsetAtTime]]:
        return Answers({p: dict.fromkeys(times, found) for p in asked}, {})

    configs = {"retention.ms": "604800000", "cleanup.policy": "delete"}
    topic = TopicAssets(connector("c", "topic"), "topic")
    tick = Tick({}, logging.getLogger())
    now = HOUR + timedelta(hours=2)
    read = (find_first, lambda: configs, lambda *_: None)
    observe_lag(topic, Backlog(topic, "id", now, frontiers, IndexState(), frozenset(), *read), tick)
    [observation] = [each for each in tick.observations if isinstance(each, dg.AssetObservation)]
    return observation


def _configure(home: Path, storage: str) -> str:
    """Return the storage keys of a `dagster.yaml`."""
    base = home / "storage"
    if storage == "a file each":
        return f"storage: {{sqlite: {{base_dir: {base}}}}}\ntelemetry: {{enabled: false}}\n"
    if storage == "Postgres":
        deployed = (REPOSITORY / "deploy/dagster.yaml").read_text()
        return deployed[deployed.index("storage:") : deployed.index("\n\n")] + "\ntelemetry: {enabled: false}\n"
    parts = {
        "run_storage": ("dagster._core.storage.runs", "SqliteRunStorage", "history"),
        "event_log_storage": ("kafka_s3_platform.operate.instance.event_log", "OneFileEventLogStorage", "history/runs"),
        "schedule_storage": ("dagster._core.storage.schedules", "SqliteScheduleStorage", "schedules"),
    }
    lines = [
        f"{key}: {{module: {module}, class: {name}, config: {{base_dir: {base / path}}}}}"
        for key, (module, name, path) in parts.items()
    ]
    return "\n".join([*lines, "telemetry: {enabled: false}\n"])


def _define(topics: int, checks: int) -> dg.Definitions:
    keys = [dg.AssetKey(["c", "hourly", f"topic-{n}"]) for n in range(topics)]
    names = [f"check_{n}" for n in range(checks)]
    segments = [_make_segment(p) for p in range(KAFKA_PARTITIONS)]

    @dg.multi_asset(
        name="hourly",
        specs=[dg.AssetSpec(key, partitions_def=HOURS) for key in keys],
        check_specs=[dg.AssetCheckSpec(name, asset=key) for key in keys for name in names],
    )
    def hourly() -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        for key in keys:
            table = make_kafka_partitions_table(segments, [])
            yield dg.MaterializeResult(
                asset_key=key, metadata={**make_segments_metadata(segments, "bucket"), "kafka_partitions": table}
            )
            for name in names:
                yield dg.AssetCheckResult(
                    passed=True, asset_key=key, check_name=name, metadata={"count": 0, "offsets": 0}
                )

    return dg.Definitions(assets=[hourly], executor=dg.in_process_executor)


def _make_segment(kafka_partition: int) -> Segment:
    key = f"topics/topic/year=2026/month=01/day=01/hour=12/topic+{kafka_partition}+0000000000.parquet"
    sums = (uuid4().hex, uuid4().hex * 2, uuid4().hex * 2)
    return Segment(
        key, "hourly", HOUR, "hour=12", kafka_partition, 0, 1000, 1000, 0, 9000, 5000, *sums, 1, 2, SETTINGS, 1
    )


def _run(instance: dg.DagsterInstance, job: dg.JobDefinition, hour: int) -> str:
    quiet = dg.RunConfig(loggers={"console": {"config": {"log_level": "CRITICAL"}}})
    key = HOURS.get_partition_keys()[hour]
    return job.execute_in_process(instance=instance, partition_key=key, run_config=quiet).run_id


def _look(home: Path, *, vacuum: bool = False) -> tuple[int, int, int]:
    """Return the rows of all event logs, the bytes of all files and their number."""
    rows = 0
    for path in home.rglob("*.db"):
        database = sqlite3.connect(path)
        if vacuum:
            database.execute("VACUUM")
        if path.parent.name == "runs":
            rows += database.execute("SELECT count(*) FROM event_logs").fetchone()[0]
        database.close()
    sizes = [path.stat().st_size for path in home.rglob("*") if path.is_file()]
    return rows, sum(sizes), len(sizes)


def _look_at_postgres(server: Postgres, database: str, home: Path, *, vacuum: bool = False) -> tuple[int, int, int]:
    """Return the rows of the event log, the bytes of its tables and of the home's files, and the files' number."""
    with server.connect(database) as connection:
        connection.execute(db.text("VACUUM FULL" if vacuum else "CHECKPOINT"))
        rows = connection.execute(db.text("SELECT count(*) FROM event_logs")).scalar_one()
        size = connection.execute(db.text(TABLES)).scalar_one()
    sizes = [path.stat().st_size for path in home.rglob("*") if path.is_file()]
    return rows, size + sum(sizes), len(sizes)


if __name__ == "__main__":
    main()
