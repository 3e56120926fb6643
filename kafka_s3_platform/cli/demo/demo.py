"""`kafka-s3 demo`: archives, compacts, restores and verifies real data."""

import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import click

from kafka_s3_platform.archive.hours import report_hours
from kafka_s3_platform.cli.demo.flights import (
    FLIGHTS,
    JANUARY,
    KAFKA_PARTITIONS,
    TOPIC,
    compare_records,
    ensure_flights,
    read_topic_window,
)
from kafka_s3_platform.cli.output import align_columns, print_result
from kafka_s3_platform.cli.restore import run_restore
from kafka_s3_platform.cli.runs import find_archived_topics, run_job
from kafka_s3_platform.defs.restore.config import ArchivedTargetConfig, RestoreConfig, WhatConfig
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.local.stack import start_stack
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.upkeep.compact.days import report_day

logger = logging.getLogger(__name__)

DAY = timedelta(days=1)
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

    Archives the flights that left New York in January 2013, compacts the days, restores one and verifies it.
    """
    settings = StackSettings.from_environment()
    with _time_step("starting Kafka and S3 on this machine") as seconds:
        start_stack(settings)
    steps = [Step("Kafka and S3", seconds(), f"{settings.bootstrap_servers} and {settings.s3_endpoint}")]
    [topic] = find_archived_topics(TOPIC, TOPIC)
    _check_addresses(topic, settings)
    steps += [_produce_flights(topic), _archive_hours(topic), _compact_days(topic), *_restore_copy(topic)]
    print_result(None, False, [*_format_steps(steps), *_format_places(topic, settings), *_format_next()])  # noqa: FBT003 - no JSON


def _check_addresses(topic: TopicAssets, settings: StackSettings) -> None:
    """Refuse to run if the demo's connector files name other addresses than the stack's."""
    configured = (topic.config.kafka.bootstrap_servers, topic.config.store.endpoint_url)
    expected = (settings.bootstrap_servers, settings.s3_endpoint)
    if configured != expected:
        raise ConfigError(
            f"the connector files name {configured[0]} and {configured[1]}, the embedded stack is at {expected[0]} and "
            f"{expected[1]}: write its addresses into connectors/worker.properties and connectors/{TOPIC}.json"
        )


def _produce_flights(topic: TopicAssets) -> Step:
    with _time_step(f"producing {FLIGHTS:,} flights to topic {TOPIC}, {KAFKA_PARTITIONS} kafka partitions") as seconds:
        produced = ensure_flights(topic.config.kafka)
    facts = f"{FLIGHTS:,} records" + ("" if produced else ", there from an earlier run")
    return Step(f"topic {TOPIC}", seconds(), facts)


def _archive_hours(topic: TopicAssets) -> Step:
    hours = _list_times(HOUR)
    keys = [topic.hours.key(hour) for hour in hours]
    with _time_step(f"archiving the {len(hours)} hours of January 2013 in one run") as seconds:
        run = run_job(topic, make_op_name("archive", topic.config.name), topic.key("hourly"), [keys[0], keys[-1]])
    reports = list(report_hours(topic.index.open(), hours, topic.lateness))
    complete = f"{sum(r.complete for r in reports)} of {len(hours)} hours are complete"
    content = _describe_content(
        sum(r.record_count for r in reports), sum(len(r.segments) for r in reports), sum(r.size for r in reports)
    )
    return Step("hours archived", seconds(), f"{complete}; {content}, run {run.run_id[:8]}")


def _compact_days(topic: TopicAssets) -> Step:
    days = [moment.date() for moment in _list_times(DAY)]
    keys = [days[0].isoformat(), days[-1].isoformat()]
    with _time_step(f"merging the hours of each of {len(days)} days") as seconds:
        run = run_job(topic, make_op_name("compact", topic.config.name), topic.key("daily"), keys)
    reports = [report_day(topic.index.open(), day) for day in days]
    content = _describe_content(
        sum(r.record_count for r in reports), sum(len(r.segments) for r in reports), sum(r.size for r in reports)
    )
    return Step("days merged", seconds(), f"{len(days)} days; {content}, run {run.run_id[:8]}")


def _describe_content(records: int, objects: int, size: int) -> str:
    return f"{records:,} records in {objects:,} objects, {size / 1e6:.1f} MB"


def _list_times(step: timedelta) -> list[datetime]:
    first, end = JANUARY
    return [first + n * step for n in range((end - first) // step)]


def _restore_copy(topic: TopicAssets) -> list[Step]:
    end = RESTORED_DAY + DAY
    target = f"{TOPIC}-{RESTORED_DAY:%Y-%m-%d}-{uuid4().hex[:6]}"
    config = RestoreConfig(
        what=WhatConfig(from_time=RESTORED_DAY.isoformat(), to_time=end.isoformat()),
        to=ArchivedTargetConfig(topic=target, create_topic=True),
    )
    with _time_step(f"restoring {RESTORED_DAY:%Y-%m-%d} to the new topic {target}") as restore_seconds:
        run_restore(topic, config, str(uuid4()))
    with _time_step("comparing it with the source, record by record") as compare_seconds:
        window = (RESTORED_DAY, end)
        source, restored = (read_topic_window(topic.config.kafka, name, window) for name in (TOPIC, target))
        if not compare_records(source, restored):
            raise IntegrityError(f"topic {target} does not hold what {TOPIC} holds of {RESTORED_DAY:%Y-%m-%d}")
    same = "key, value, headers, timestamp, order and kafka partition are the source's"
    return [
        Step("day restored", restore_seconds(), f"{restored.num_rows:,} records in topic {target}"),
        Step("compared", compare_seconds(), same),
    ]


@contextmanager
def _time_step(what: str) -> Iterator[Callable[[], float]]:
    """Log the step's start and end. Yield a function that returns the seconds it took."""
    logger.info("%s ...", what)
    started = time.monotonic()
    ended = [0.0]
    yield lambda: ended[0]
    ended[0] = time.monotonic() - started
    logger.info("  done in %.1f s", ended[0])


def _format_steps(steps: Sequence[Step]) -> list[str]:
    rows = [("  " + step.what, f"{step.seconds:.1f} s", step.facts) for step in steps]
    return ["", *align_columns(rows, [1])]


def _format_places(topic: TopicAssets, settings: StackSettings) -> list[str]:
    config = topic.config
    bucket = f"s3://{config.store.bucket}"
    folders = f"{bucket}/{config.layout.topics_dir}/ and {bucket}/{config.layout.daily_dir}/"
    data = os.path.relpath(settings.data_dir)
    return [
        "",
        f"  objects  {folders} at {config.store.endpoint_url}",
        f"  index    {bucket}/{config.archive.index_dir}/connector={config.name}, a Delta table",
        f"  data     {data}; `make down` stops the servers, `make clean` removes the data",
    ]


def _format_next() -> list[str]:
    command = shlex.quote(os.path.relpath(Path(sys.executable).parent / "kafka-s3"))
    copy = f"{TOPIC}-copy-{uuid4().hex[:6]}"
    rows = [
        (f"  {command} show {TOPIC}", "# what is archived, day by day: 24 of 24 hours are complete"),
        (f"  {command} files {TOPIC} --day {RESTORED_DAY:%Y-%m-%d}", "# the objects of a day, for any engine"),
        (f"  {command} verify {TOPIC} --deep", "# read every object back, and compare it with the index"),
        (f"  {command} restore {TOPIC} --topic {TOPIC} --to-topic {copy} --create-topic", "# replay all of it"),
        ("  make dev", "# Dagster's UI at http://127.0.0.1:3000: the runs, and each hour with its numbers"),
    ]
    return ["", "what to do next:", *align_columns(rows)]
