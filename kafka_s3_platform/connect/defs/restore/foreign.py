"""Assets for replaying other writers' objects to topics, and the sensor that requests runs for newer objects."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.jobs import Job
from kafka_s3_platform.core.defs.metadata import Metadata
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.config import FORM, ForeignRestoreConfig, ForeignWhatConfig, HowConfig
from kafka_s3_platform.core.defs.restore.form import describe_form
from kafka_s3_platform.core.defs.restore.restored import (
    STAYS,
    RestoreEvent,
    make_restore_metadata,
    make_restored_check,
    yield_outcome,
)
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.runs import Requests
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets, make_topic_assets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.instance.names import make_op_name, name_restore_pool
from kafka_s3_platform.core.instance.work import name_restored_op
from kafka_s3_platform.core.status.topic import fingerprint_inputs

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.request import RestoreReport
if TYPE_CHECKING:
    from kafka_s3_platform.connect.restore.polls import Polls

SHARE = 2 / 3
"""The share of Dagster's time for a tick. When it is over, the tick waits for no further answer."""


def make_poll_sensor(config: ConnectorConfig, job: Job) -> dg.SensorDefinition:
    """Make a connector's sensor. It requests runs of its restore job. A person turns it on, since its runs send."""
    topics = TopicAssets(config, EVERY_TOPIC)
    name = config.name
    interval_ms = (config.source or SourceSettings()).poll_interval_ms

    @dg.sensor(
        name=name_poll_sensor(name),
        job=job,
        minimum_interval_seconds=-(-interval_ms // 1000),
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Looks every {interval_ms / 1000:g} s for objects that the restores poll.{name}.1, poll.{name}.2 and so "
            f"on have not sent, and requests the next restore of this series. The first one sends all objects. While "
            f"one is under way or has failed, no other is requested. One that failed continues under its own ID."
        ),
    )
    def poll(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # Dagster's own setting gives more time to ticks that list millions of objects.
        seconds = int(os.environ.get("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS") or 60) * SHARE
        tick = Tick(json.loads(context.cursor or "{}"), context.log, seconds)
        tick.evaluate_each("poll", [topics], lambda every: request_poll(context.instance, every, job.name, tick))
        return tick.result()

    return poll


def request_poll(instance: dg.DagsterInstance, topics: TopicAssets, job_name: str, tick: Tick) -> None:
    """Request the newest restore if it is not finished, or else the next one if there is anything new.

    The cursor only saves a listing. The restores' own documents record the sent objects.
    """
    # what restores is not needed to load definitions
    from kafka_s3_platform.connect.restore.polls import Polls

    polls = Polls(topics.config)
    key = make_foreign_key(topics.config.name)
    known_number = tick.cursor.get(EVERY_TOPIC, 0)
    newest = tick.read_store("which restores there are", lambda: polls.newest(known_number))
    if newest:
        tick.cursor[EVERY_TOPIC] = newest
    newest_id = polls.restore_id(newest)
    is_open = bool(newest) and not tick.read_store(
        f"the report of restore {newest_id}", lambda: polls.is_finished(newest)
    )
    number = newest if is_open else newest + 1
    restore_id = polls.restore_id(number)
    fingerprint = fingerprint_inputs([topics.config_digest, restore_id])
    requests = Requests(instance, [key])
    if runs := requests.list_unfinished(key):
        tick.reasons.append(f"restore {restore_id}: run {runs[0].run_id} is queued or under way")
    elif reason := requests.find_reason_to_wait(key, fingerprint):
        tick.reasons.append(f"restore {restore_id}: {reason}")
    elif is_open or _is_anything_new(polls, newest, tick):
        previous_id = polls.restore_id(number - 1) if number > 1 else None
        selection = ForeignWhatConfig(everything=True, after=previous_id)
        config = ForeignRestoreConfig(what=selection, how=HowConfig(restore_id=restore_id))
        requests.ask(key, [], fingerprint)
        form = config.model_dump(exclude_unset=True, exclude_none=True)
        tick.requests += requests.make(job_name, {"ops": {name_restored_op(topics.config.name): {"config": form}}})


def _is_anything_new(polls: "Polls", newest: int, tick: Tick) -> bool:
    """Return True if there are objects to send. If not, add the reason to the tick."""
    unsent = tick.read_store("which objects there are", lambda: polls.new_objects(newest))
    if not unsent.objects:
        since = f"no new object since restore {polls.restore_id(newest)}" if newest else "there are no objects"
        tick.reasons.extend([since, *unsent.notes, *unsent.skipped])
    return bool(unsent.objects)


EVERY_TOPIC = "every topic"
"""Stands in for a topic's name to mean all topics of a source connector."""


def make_foreign_key(connector: str) -> dg.AssetKey:
    """Return the key of the asset for restores by a connector's file: `<connector>/restored`."""
    return dg.AssetKey([connector, "restored"])


def name_poll_sensor(connector: str) -> str:
    """Return the name of the sensor that requests the asset."""
    return make_op_name("poll", connector)


def make_foreign_asset(config: ConnectorConfig, sensor: str | None = None) -> dg.AssetsDefinition:
    """Make the asset `<connector>/restored`. A run of it restores the objects described by the connector's file.

    `sensor` is the name of the sensor that requests later runs. It is None if the file is a sink's, whose objects are
    read back.
    """
    key = make_foreign_key(config.name)
    topics = TopicAssets(config, EVERY_TOPIC)
    spec = topics.make_spec(
        "restored",
        key=key,
        kinds={"kafka", "spark"},
        description=f"Objects that the file of connector `{config.name}` describes, replayed to topics. What their "
        "format does not hold cannot come back: `kafka-s3 check` explains it. "
        f"{f'Turn on the sensor `{sensor}` to replay later objects too.' if sensor else ''}\n\n"
        f"{describe_form(config.name, {'topics': [*config.topics[:1]] or ['orders']})}",
        skippable=True,
    )

    def restored(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[RestoreEvent]:
        # what restores is not needed to load definitions
        from kafka_s3_platform.connect.defs.restore.foreign_request import make_foreign_request
        from kafka_s3_platform.core.restore.run import restore

        run = context.run
        with raise_dagster_failures(context, STAYS):
            config_of_run = read_config(context, ForeignRestoreConfig)
            restore_id = config_of_run.how.restore_id or run.root_run_id or run.run_id
            report = restore(make_foreign_request(topics, config_of_run, restore_id, run.run_id), spark.make_runner())
        metadata: Metadata = {
            "topic": dg.MetadataValue.text(report.topic),
            **make_restore_metadata(report, topics.config.restore_store.bucket),
            **_make_after_metadata(report),
        }
        yield from yield_outcome(context, key, report, metadata)

    return make_topic_assets(
        restored,
        name=name_restored_op(config.name),
        specs=[spec],
        checks=[make_restored_check(key)],
        pool=name_restore_pool(config.name),
        config_schema=make_plain_schema(ForeignRestoreConfig, FORM),
    )


def _make_after_metadata(report: "RestoreReport") -> Metadata:
    """Return the id of the restore `after` as metadata, or nothing if this restore follows none."""
    previous_id = report.terms.get("after")
    if previous_id is None:
        return {}
    return {"after": dg.MetadataValue.text(previous_id)}


def can_select_foreign(topic: TopicAssets, hours: Sequence[str]) -> bool:
    """Return True if a restore by these hours, or days, sends exactly the records in these hours' objects.

    `topic` belongs to a sink of objects in other formats than our own archive's.
    """
    # what restores is not needed to load definitions
    from kafka_s3_platform.connect.sources.objects import has_record_times
    from kafka_s3_platform.core.restore.target_topic import routes_by_record, routes_by_topic

    config = topic.config
    steps = config.records.transforms
    if config.reader is None or routes_by_topic(steps) or routes_by_record(steps):
        return False
    if has_record_times(config.reader):
        # Hours of a restore are those of timestamps, and there hours are those of places in the log.
        return config.layout.timestamp_extractor != "Wallclock"
    # Of classes of a user nothing is known. Tombstones are in one folder for all times.
    is_own = "." in f"{config.layout.partitioner}{config.layout.timestamp_extractor}"
    return not is_own and config.layout.null_values != "write" and all(_has_folders(topic, hour) for hour in hours)


def _has_folders(topic: TopicAssets, hour: str) -> bool:
    """Return True if the records of this hour lie in folders that hold no others."""
    from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
    from kafka_s3_platform.core.layouts.new_layout import new_key_reader
    from kafka_s3_platform.core.layouts.segment_key import ReadKey

    start, end = topic.hours.start(hour), topic.hours.end(hour)
    try:
        keys = make_sample_keys(topic.config, Sample(topic.topic, start))
    except ConfigError:
        return False  # folders of a field
    key = new_key_reader(topic.config.reader or topic.config).read(keys[0])
    if not isinstance(key, ReadKey) or key.window is None:
        return False
    first, past = (moment.timestamp() * 1000 for moment in (start, end))
    return first <= key.window[0] and key.window[1] <= past
