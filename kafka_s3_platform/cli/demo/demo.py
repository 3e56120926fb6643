"""`kafka-s3 demo`: archives, compacts, restores and verifies real data, in a few minutes."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import click

from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.cli.demo.dagster_ui import DagsterUI, run_dagster_dev
from kafka_s3_platform.cli.demo.flights import (
    FLIGHTS,
    KAFKA_PARTITIONS,
    TOPIC,
    compare_records,
    ensure_flights,
    read_topic_window,
)
from kafka_s3_platform.cli.restore import run_restore
from kafka_s3_platform.cli.runs import find_archived_topics
from kafka_s3_platform.defs.restore.config import RestoreConfig
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.local.stack import start_stack
from kafka_s3_platform.upkeep.compact.days import report_day

JANUARY = datetime(2013, 1, 1, tzinfo=timezone.utc)
DAYS = 31
RESTORED_DAY = datetime(2013, 1, 15, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Step:
    """One line of the summary."""

    what: str
    seconds: float
    facts: str


@click.command
def demo() -> None:
    """Run a demo with real data, in a few minutes.

    Archives all flights from New York in January 2013, compacts the days, restores one and verifies it.
    """
    settings = StackSettings.from_environment()
    start_stack(settings)
    [topic] = find_archived_topics(TOPIC, TOPIC)
    _check_addresses(topic, settings)
    steps = [_produce_flights(topic)]
    with run_dagster_dev(Path(".dagster") / "demo.log") as ui:
        steps += [_archive_hours(ui, topic), _compact_days(ui, topic)]
    steps += _restore_copy(topic)
    _print_summary(topic, settings, steps)


def _check_addresses(topic: ArchivedTopic, settings: StackSettings) -> None:
    """Refuse to run if the demo's connector files name other addresses: they hold the default ports of the stack."""
    found = (topic.config.kafka.bootstrap_servers, topic.config.store.endpoint_url)
    wanted = (settings.bootstrap_servers, settings.s3_endpoint)
    if found != wanted:
        raise ConfigError(
            f"the connector files name {found[0]} and {found[1]}, the embedded stack is at {wanted[0]} and {wanted[1]}"
            f": write its addresses into connectors/worker.properties and connectors/{TOPIC}.json"
        )


def _produce_flights(topic: ArchivedTopic) -> Step:
    with _time_step(f"producing {FLIGHTS:,} flights to topic {TOPIC}, {KAFKA_PARTITIONS} kafka partitions") as seconds:
        produced = ensure_flights(topic.config.kafka)
    facts = f"{FLIGHTS:,} records" + ("" if produced else ", there from an earlier run")
    return Step(f"topic `{TOPIC}`", seconds(), facts)


def _archive_hours(ui: DagsterUI, topic: ArchivedTopic) -> Step:
    hours = [JANUARY + timedelta(hours=h) for h in range(DAYS * 24)]
    with _time_step(f"archiving January 2013 as a backfill of {len(hours)} hours (Dagster, Spark)") as seconds:
        runs = ui.backfill(list(topic.key("hourly").path), [topic.hours.key(h) for h in hours], _print_line)
    reports = list(report_hours(topic.index.open(), hours, topic.lateness))
    records = sum(r.record_count for r in reports)
    size = sum(r.size for r in reports)
    objects = sum(len(r.segments) for r in reports)
    facts = f"{records:,} records in {objects:,} objects, {size / 1e6:.1f} MB, run {', '.join(r[:8] for r in runs)}"
    return Step("hourly chunks", seconds(), facts)


def _compact_days(ui: DagsterUI, topic: ArchivedTopic) -> Step:
    days = [(JANUARY + timedelta(days=d)).date() for d in range(DAYS)]
    with _time_step(f"compacting {DAYS} days") as seconds:
        runs = ui.backfill(list(topic.key("daily").path), [d.isoformat() for d in days], _print_line)
    reports = [report_day(topic.index.open(), d) for d in days]
    records = sum(r.record_count for r in reports)
    size = sum(r.size for r in reports)
    objects = sum(len(r.segments) for r in reports)
    facts = f"{records:,} records in {objects:,} objects, {size / 1e6:.1f} MB, run {', '.join(r[:8] for r in runs)}"
    return Step("daily chunks", seconds(), facts)


def _restore_copy(topic: ArchivedTopic) -> list[Step]:
    end = RESTORED_DAY + timedelta(days=1)
    target = f"{TOPIC}-{RESTORED_DAY:%Y-%m-%d}-{uuid4().hex[:6]}"
    config = RestoreConfig(
        to_topic=target, from_time=RESTORED_DAY.isoformat(), to_time=end.isoformat(), create_topic=True
    )
    with _time_step(f"restoring {RESTORED_DAY:%Y-%m-%d} to the new topic {target}") as restore_seconds:
        run_restore(topic, config, str(uuid4()))
    with _time_step("comparing it with the source, record by record") as compare_seconds:
        window = (RESTORED_DAY, end)
        source, restored = (read_topic_window(topic.config.kafka, name, window) for name in (TOPIC, target))
        if not compare_records(source, restored):
            raise IntegrityError(f"topic {target} does not hold what {TOPIC} holds of {RESTORED_DAY:%Y-%m-%d}")
    return [
        Step("restored day", restore_seconds(), f"{restored.num_rows:,} records in topic `{target}`"),
        Step(
            "verified", compare_seconds(), "key, value, headers, timestamp, order and kafka partition are the source's"
        ),
    ]


@contextmanager
def _time_step(what: str) -> Iterator[Callable[[], float]]:
    """Print the step that begins. Yield a function that returns the seconds that it took."""
    _print_line(f"{what} ...")
    started = time.monotonic()
    ended = [0.0]
    yield lambda: ended[0]
    ended[0] = time.monotonic() - started
    _print_line(f"  done in {ended[0]:.1f} s")


def _print_line(text: str) -> None:
    click.echo(text)


def _print_summary(topic: ArchivedTopic, settings: StackSettings, steps: list[Step]) -> None:
    config = topic.config
    place = f"s3://{config.store.bucket}/{config.layout.topics_dir}/{topic.topic}/"
    _print_line("")
    for step in steps:
        _print_line(f"  {step.what:<16} {step.seconds:>7.1f} s   {step.facts}")
    _print_line("")
    _print_line(f"  objects    {place} at {config.store.endpoint_url} (kafka-s3 status shows the keys)")
    _print_line(
        f"  index      s3://{config.store.bucket}/{config.archive.index_dir}/connector={config.name}, a Delta table"
    )
    _print_line(
        f"  data       {os.path.relpath(settings.data_dir)}; `make clean` removes it, `make down` stops the servers"
    )
    _print_line("  look       make dev, then open http://127.0.0.1:3000 (Assets: each hour has its own numbers)")
