"""`kafka-s3 demo`: the whole job on real data, in a few minutes."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import click

from kafka_s3_platform.archive.hours import hour_reports
from kafka_s3_platform.cli.dagster_ui import DagsterUI, dagster_dev
from kafka_s3_platform.cli.flights import FLIGHTS, KAFKA_PARTITIONS, TOPIC, ensure_flights, records_of, same_records
from kafka_s3_platform.cli.restore import run_restore
from kafka_s3_platform.cli.runs import topics_of
from kafka_s3_platform.compact.days import day_report
from kafka_s3_platform.defs.restore_config import RestoreConfig
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.local.stack import up

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
    """Archive January 2013 of all flights from New York, compact its days, restore one and verify it."""
    settings = StackSettings.from_environment()
    up(settings)
    [topic] = topics_of(TOPIC, TOPIC)
    _check_addresses(topic, settings)
    steps = [_produce(topic)]
    with dagster_dev(Path(".dagster") / "demo.log") as ui:
        steps += [_archive(ui, topic), _compact(ui, topic)]
    steps += _restore(topic)
    _summary(topic, settings, steps)


def _check_addresses(topic: ArchivedTopic, settings: StackSettings) -> None:
    """The connector files name the stack's default ports; somebody who moved the stack has to move them too."""
    found = (topic.config.kafka.bootstrap_servers, topic.config.store.endpoint_url)
    wanted = (settings.bootstrap_servers, settings.s3_endpoint)
    if found != wanted:
        raise ConfigError(
            f"the connector files name {found[0]} and {found[1]}, the embedded stack is at {wanted[0]} and {wanted[1]}"
            f": write its addresses into connectors/worker.properties and connectors/{TOPIC}.json"
        )


def _produce(topic: ArchivedTopic) -> Step:
    with _told(f"producing {FLIGHTS:,} flights to topic {TOPIC}, {KAFKA_PARTITIONS} kafka partitions") as seconds:
        produced = ensure_flights(topic.config.kafka)
    facts = f"{FLIGHTS:,} records" + ("" if produced else ", there from an earlier run")
    return Step(f"topic `{TOPIC}`", seconds(), facts)


def _archive(ui: DagsterUI, topic: ArchivedTopic) -> Step:
    hours = [JANUARY + timedelta(hours=h) for h in range(DAYS * 24)]
    with _told(f"archiving January 2013 as a backfill of {len(hours)} hours (Dagster, Spark)") as seconds:
        runs = ui.backfill(list(topic.key("hourly").path), [topic.hours.key(h) for h in hours], _tell)
    reports = list(hour_reports(topic.index.open(), hours, topic.lateness))
    records, size = sum(r.record_count for r in reports), sum(r.size for r in reports)
    objects = sum(len(r.segments) for r in reports)
    facts = f"{records:,} records in {objects:,} objects, {size / 1e6:.1f} MB, run {', '.join(r[:8] for r in runs)}"
    return Step("hourly chunks", seconds(), facts)


def _compact(ui: DagsterUI, topic: ArchivedTopic) -> Step:
    days = [(JANUARY + timedelta(days=d)).date() for d in range(DAYS)]
    with _told(f"compacting {DAYS} days") as seconds:
        runs = ui.backfill(list(topic.key("daily").path), [d.isoformat() for d in days], _tell)
    reports = [day_report(topic.index.open(), d) for d in days]
    records, size = sum(r.record_count for r in reports), sum(r.size for r in reports)
    objects = sum(len(r.segments) for r in reports)
    facts = f"{records:,} records in {objects:,} objects, {size / 1e6:.1f} MB, run {', '.join(r[:8] for r in runs)}"
    return Step("daily chunks", seconds(), facts)


def _restore(topic: ArchivedTopic) -> list[Step]:
    end = RESTORED_DAY + timedelta(days=1)
    target = f"{TOPIC}-{RESTORED_DAY:%Y-%m-%d}-{uuid4().hex[:6]}"
    config = RestoreConfig(
        to_topic=target, from_time=RESTORED_DAY.isoformat(), to_time=end.isoformat(), create_topic=True
    )
    with _told(f"restoring {RESTORED_DAY:%Y-%m-%d} to the new topic {target}") as restore_seconds:
        run_restore(topic, config)
    with _told("comparing it with the source, record by record") as compare_seconds:
        window = (RESTORED_DAY, end)
        source, restored = (records_of(topic.config.kafka, name, window) for name in (TOPIC, target))
        if not same_records(source, restored):
            raise IntegrityError(f"topic {target} does not hold what {TOPIC} holds of {RESTORED_DAY:%Y-%m-%d}")
    return [
        Step("restored day", restore_seconds(), f"{restored.num_rows:,} records in topic `{target}`"),
        Step(
            "verified", compare_seconds(), "key, value, headers, timestamp, order and kafka partition are the source's"
        ),
    ]


@contextmanager
def _told(what: str) -> Iterator[Callable[[], float]]:
    """Say what begins; the value is a function that gives the seconds it took."""
    _tell(f"{what} ...")
    started, ended = time.monotonic(), [0.0]
    yield lambda: ended[0]
    ended[0] = time.monotonic() - started
    _tell(f"  done in {ended[0]:.1f} s")


def _tell(text: str) -> None:
    click.echo(text)


def _summary(topic: ArchivedTopic, settings: StackSettings, steps: list[Step]) -> None:
    config = topic.config
    place = f"s3://{config.store.bucket}/{config.layout.topics_dir}/{topic.topic}/"
    _tell("")
    for step in steps:
        _tell(f"  {step.what:<16} {step.seconds:>7.1f} s   {step.facts}")
    _tell("")
    _tell(f"  objects    {place} at {config.store.endpoint_url} (kafka-s3 status shows the keys)")
    _tell(
        f"  index      s3://{config.store.bucket}/{config.archive.index_dir}/{config.name}/{topic.topic}, a Delta table"
    )
    _tell(f"  data       {os.path.relpath(settings.data_dir)}; `make clean` removes it, `make down` stops the servers")
    _tell("  look       make dev, then open http://127.0.0.1:3000 (Assets: each hour has its own numbers)")
