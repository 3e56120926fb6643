"""`kafka-s3 demo`: archive a month of a topic on the embedded stack, merge its days, restore one and compare it."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import click
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.cli.machine.dev import write_settings
from kafka_s3_platform.cli.machine.init import write_connector_file
from kafka_s3_platform.cli.messages import align_columns, print_result
from kafka_s3_platform.cli.restore import run_restore
from kafka_s3_platform.cli.runs import find_archived_topics, raise_failures, run_topics
from kafka_s3_platform.core.archive.hours import report_hours
from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.folder import find_connectors_folder
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.defs.restore.config import ArchivedTargetConfig, RestoreConfig, WhatConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import IntegrityError, PermanentError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.model.segment import SegmentTotals
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.text import count_noun, format_size
from kafka_s3_platform.core.upkeep.compact.days import report_day
from kafka_s3_platform.operate.local.sample import produce_sample
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

logger = logging.getLogger(__name__)

TOPIC = "page-views"
KAFKA_PARTITIONS = 2
DAYS = 31
RECORDS_OF_DAY = 24 * 36
DAY = timedelta(days=1)
_HOURLY = {
    "tasks.max": "2",
    "partitioner.class": "io.confluent.connect.storage.partitioner.HourlyPartitioner",
    "timestamp.extractor": "Record",
    "locale": "en",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Step:
    """One line of the summary."""

    what: str
    seconds: float
    facts: str


@click.command
@click.option("--yes", is_flag=True, help="Do not ask before it starts.")
def demo(yes: bool) -> None:
    """Archive a month of a topic on this machine, merge its days, restore one and compare it. Takes two minutes.

    Starts Kafka and S3 if they are not up, sends page views of the last 31 days to a topic, and writes a connector file
    for it. Nothing leaves this machine. At its end it lists the running servers and the data, and how to remove them.
    """
    settings = StackSettings.from_environment()
    if not yes:
        click.echo(
            f"This starts Kafka and S3 on this machine, their data in {os.path.relpath(settings.data_dir)}, writes "
            f"{find_connectors_folder(os.environ)}/{TOPIC}.json, sends {DAYS * RECORDS_OF_DAY:,} records to the topic "
            f"{TOPIC}, and archives them: two minutes, 20 MB of disk. The first time, it downloads the servers as well."
        )
        click.confirm("Go on?", default=True, abort=True)
    with _time_step("starting Kafka and S3 on this machine") as seconds:
        start_stack(settings)
    # The runs are in the folder's Dagster, where `kafka-s3 dev` shows them. Spark ends with the demo.
    write_settings()
    os.environ.setdefault(environment.WARM_SPARK, "0")
    steps = [Step("Kafka and S3", seconds(), f"{settings.bootstrap_servers} and {settings.s3_endpoint}")]
    if not (find_connectors_folder(os.environ) / f"{TOPIC}.json").exists():
        start = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) - DAYS * DAY
        write_connector_file(TOPIC, TOPIC, settings, {"archive.start.hour": f"{start:%Y-%m-%dT%H:%M}", **_HOURLY})
    [topic] = find_archived_topics(TOPIC, TOPIC)
    start = topic.config.archive.start_hour
    steps += [
        _produce_records(topic, settings, start),
        _archive_hours(topic, start),
        _merge_days(topic, start),
        *_restore_copy(topic, start + DAYS // 2 * DAY),
    ]
    rows = [("  " + step.what, f"{step.seconds:.1f} s", step.facts) for step in steps]
    lines = ["", *align_columns(rows, [1]), *_format_places(topic, settings), *_format_next(start)]
    print_result(None, as_json=False, lines=lines)


def _produce_records(topic: TopicAssets, settings: StackSettings, start: datetime) -> Step:
    """Send the records if the topic is not there yet.

    Raises:
        PermanentError: the topic holds a different number of records, perhaps from an interrupted demo.
    """
    expected_count = DAYS * RECORDS_OF_DAY
    with ClusterAdmin(topic.config.kafka) as admin:
        if is_new := not admin.topic_exists(TOPIC):
            # With a retention time, the broker would delete the oldest records before a second demo reads them.
            admin.create_topic(TOPIC, KAFKA_PARTITIONS, configs={"retention.ms": "-1"})
        with _time_step(f"sending {expected_count:,} records to topic {TOPIC}") as seconds:
            if is_new:
                produce_sample(settings, TOPIC, expected_count, start, start + DAYS * DAY)
        frontiers = admin.frontiers(TOPIC, admin.describe_topic(TOPIC).kafka_partitions)
        record_count = sum(frontier.high_watermark for frontier in frontiers.values())
    if record_count != expected_count:
        raise PermanentError(
            f"topic {TOPIC} holds {record_count:,} records instead of {expected_count:,}: an earlier demo was "
            f"interrupted, or others send to it. Run `kafka-s3 down`, remove {os.path.relpath(settings.data_dir)} and "
            f"the connector file {TOPIC}.json, then run the demo again"
        )
    facts = f"{expected_count:,} records in {KAFKA_PARTITIONS} kafka partitions"
    return Step(f"topic {TOPIC}", seconds(), facts + ("" if is_new else ", there from an earlier run"))


def _archive_hours(topic: TopicAssets, start: datetime) -> Step:
    """Archive all hours of the demo's topic in one run."""
    hours = [start + n * HOUR for n in range(DAYS * 24)]
    with _time_step(f"archiving {len(hours)} hours in one run") as seconds:
        keys = [topic.hours.key(hours[0]), topic.hours.key(hours[-1])]
        [run], _ = run_topics("archive", [topic], keys)
    reports = list(report_hours(topic.index.open(), hours, topic.lateness))
    complete = f"{sum(r.complete for r in reports)} of {len(hours)} hours are complete"
    return Step("hours archived", seconds(), f"{complete}; {_describe_content(reports)}, run {run.run_id[:8]}")


def _merge_days(topic: TopicAssets, start: datetime) -> Step:
    """Merge the archived hours of each day."""
    days = [(start + n * DAY).date() for n in range(DAYS)]
    with _time_step(f"merging the hours of each of {DAYS} days") as seconds:
        keys = [days[0].isoformat(), days[-1].isoformat()]
        [run], _ = run_topics("compact", [topic], keys)
    reports = [report_day(topic.index.open(), day) for day in days]
    return Step("days merged", seconds(), f"{DAYS} days; {_describe_content(reports)}, run {run.run_id[:8]}")


def _describe_content(reports: Sequence[SegmentTotals]) -> str:
    """Describe how much is archived in some hours or days."""
    records = count_noun(sum(report.record_count for report in reports), "record")
    objects = count_noun(sum(len(report.segments) for report in reports), "object")
    return f"{records} in {objects}, {format_size(sum(report.size for report in reports))}"


def _restore_copy(topic: TopicAssets, day: datetime) -> list[Step]:
    """Restore the day to a new topic, and compare it with the source."""
    target = f"{TOPIC}-{day:%Y-%m-%d}-{uuid4().hex[:6]}"
    config = RestoreConfig(
        what=WhatConfig(from_time=day.isoformat(), to_time=(day + DAY).isoformat()),
        to=ArchivedTargetConfig(topic=target, create_topic=True),
    )
    with _time_step(f"restoring {day:%Y-%m-%d} to the new topic {target}") as restore_seconds:
        _, failures = run_restore([topic], config, str(uuid4()))
        raise_failures(failures)
    with _time_step("comparing it with the source, record by record") as compare_seconds:
        source, restored = (_read_topic_of_day(topic.config.kafka, name, day) for name in (TOPIC, target))
        if not source.equals(restored):
            raise IntegrityError(f"topic {target} does not hold what {TOPIC} holds of {day:%Y-%m-%d}")
    same = "key, value, headers, timestamp, order and kafka partition are the source's"
    return [
        Step("day restored", restore_seconds(), f"{restored.num_rows:,} records in topic {target}"),
        Step("compared", compare_seconds(), same),
    ]


def _read_topic_of_day(kafka: KafkaSettings, topic: str, day: datetime) -> pa.Table:
    """Read the records with a timestamp of the day, sorted by kafka partition and offset, without topic and offset."""
    tables = []
    with ClusterAdmin(kafka) as admin, ConfluentReader(kafka, topic) as reader:
        for kafka_partition, frontier in sorted(admin.frontiers(topic, range(KAFKA_PARTITIONS)).items()):
            for span in make_span(frontier.log_start_offset, frontier.last_stable_offset):
                tables += [pa.Table.from_batches([b]) for b in reader.read(kafka_partition, span)]
    times = pc.field("timestamp")
    records = pa.concat_tables(tables).filter((times >= pa.scalar(day)) & (times < pa.scalar(day + DAY)))
    return records.drop(["topic", "offset"])


@contextmanager
def _time_step(step_name: str) -> Iterator[Callable[[], float]]:
    """Log the step's start and end. Yield a function that returns its seconds, once the step has ended."""
    logger.info("%s ...", step_name)
    started_at = time.monotonic()
    seconds = [0.0]
    yield lambda: seconds[0]
    seconds[0] = time.monotonic() - started_at
    logger.info("  done in %.1f s", seconds[0])


def _format_places(topic: TopicAssets, settings: StackSettings) -> list[str]:
    """Return the lines about where the demo's data is."""
    config = topic.config
    bucket = f"s3://{config.store.bucket}"
    folders = f"{bucket}/{config.layout.topics_dir}/ and {bucket}/{config.layout.daily_dir}/"
    data = os.path.relpath(settings.data_dir)
    return [
        "",
        f"  objects  {folders} at {config.store.endpoint_url}",
        f"  index    {bucket}/{config.archive.index_dir}/connector={config.name}, a Delta table",
        "  servers  Kafka and S3 go on: `kafka-s3 down` stops them",
        f"  data     {data}, .dagster and {find_connectors_folder(os.environ)}/{TOPIC}.json: remove them after that",
    ]


def _format_next(start: datetime) -> list[str]:
    """Return the lines with commands to try next."""
    copy = f"{TOPIC}-copy-{uuid4().hex[:6]}"
    rows = [
        (f"  kafka-s3 show {TOPIC}", "# what is archived, day by day: 24 of 24 hours are complete"),
        (f"  kafka-s3 files {TOPIC} --day {start:%Y-%m-%d}", "# the objects of a day, for any engine"),
        (f"  kafka-s3 verify {TOPIC} --deep", "# read every object back, and compare it with the index"),
        (f"  kafka-s3 restore {TOPIC} --topic {TOPIC} --to-topic {copy} --create-topic", "# replay all of it"),
        ("  kafka-s3 dev", "# Dagster's UI at http://127.0.0.1:3000: the runs, and each hour with its numbers"),
    ]
    return ["", "what to do next:", *align_columns(rows)]
