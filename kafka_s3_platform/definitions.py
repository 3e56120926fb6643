"""The composition root: builds Dagster's definitions from connector files, without Spark and without the network.

There is one exception: if a connector has `topics.regex` and no topics are remembered yet, Kafka is asked once, for
half a second at most.
"""

from kafka_s3_platform.core.collector import leave_out_imports

with leave_out_imports():
    import json
    import logging
    import os
    from collections.abc import Mapping, Sequence
    from dataclasses import replace
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    import dagster as dg
    from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

    from kafka_s3_platform.connect.config.files import load_connectors
    from kafka_s3_platform.connect.defs.foreign_objects import (
        make_objects_sensor,
        make_objects_specs,
        make_readable_checks,
    )
    from kafka_s3_platform.connect.defs.registry import define_registries
    from kafka_s3_platform.connect.defs.restore.foreign import (
        make_foreign_asset,
        make_foreign_key,
        make_poll_sensor,
        name_poll_sensor,
    )
    from kafka_s3_platform.core.config import environment
    from kafka_s3_platform.core.config.folder import find_connectors_folder, hash_connector_files
    from kafka_s3_platform.core.config.settings import ConnectorConfig
    from kafka_s3_platform.core.defs.archive.checks import make_risk_checks
    from kafka_s3_platform.core.defs.archive.first_hour import FIRST_HOURS, recall_first_hour
    from kafka_s3_platform.core.defs.archive.hourly import make_hourly_assets
    from kafka_s3_platform.core.defs.archive.lag_sensor import make_lag_sensor
    from kafka_s3_platform.core.defs.archive.object_checks import make_object_checks
    from kafka_s3_platform.core.defs.compact.daily import make_daily_assets
    from kafka_s3_platform.core.defs.compact.folder_sensor import make_folder_sensor
    from kafka_s3_platform.core.defs.file_checks import make_file_checks
    from kafka_s3_platform.core.defs.jobs import (
        UPKEEP_TIME,
        VERIFY_TIME,
        ConnectorJobs,
        make_connector_jobs,
        make_foreign_job,
        make_nightly_schedule,
        make_readable_job,
        make_upkeep_job,
    )
    from kafka_s3_platform.core.defs.resources import NoValues, SparkResource
    from kafka_s3_platform.core.defs.restore.replayed import make_replay_jobs
    from kafka_s3_platform.core.defs.restore.restored import make_restored_assets
    from kafka_s3_platform.core.defs.retain import RETAIN_TIME, make_retain_job
    from kafka_s3_platform.core.defs.schedules import make_daily_schedule, make_hourly_schedule
    from kafka_s3_platform.core.defs.topic import TopicAssets, list_topic_assets
    from kafka_s3_platform.core.defs.topics_sensor import make_topic_specs, make_topics_sensor
    from kafka_s3_platform.core.status.discovery import (
        find_memory,
        find_topics_folder,
        give_topics,
        recall_listed_topics,
        resolve_from_memory,
    )
    from kafka_s3_platform.core.text import escape_unprintable
    from kafka_s3_platform.operate.alerts.sensor import choose_alert_status, make_alert_sensor
    from kafka_s3_platform.operate.defs.rehearsal import REHEARSAL_TIME, make_rehearsal_job
    from kafka_s3_platform.operate.defs.retention_sensor import make_retention_sensor
    from kafka_s3_platform.operate.defs.warm_spark import choose_runner

logger = logging.getLogger(__name__)

AUTOSTART_VARIABLE = environment.AUTOSTART
"""If it is `1`, sensors and schedules run from the start. Otherwise, somebody turns them on in the UI."""


TOPICS_METADATA = "kafka_s3/topics"
"""Passes the topics of connectors with `topics.regex` from the code server to the processes of its runs."""

FIRST_HOURS_METADATA = "kafka_s3/first_hours"
"""Passes the earliest hours of connectors likewise, so that a run knows each hour it was planned with."""


@dg.definitions
def defs() -> dg.Definitions:
    """Define the connectors of `./connectors`, or of the folder in `KAFKA_S3_CONNECTORS`. A broken file is a red check.

    The process of every run loads the definitions again. A file that broke in the meantime does not stop the runs of
    other connectors.

    Raises:
        ConfigError: the folder does not exist.
    """
    folder = find_connectors_folder(os.environ)
    # before the files are read: what is written meanwhile is a change
    digest = hash_connector_files(folder)
    files = load_connectors(folder, os.environ)
    # Resolve sinks only: each restore of a source finds the topics of its pattern in the bucket.
    sinks = _resolve_topics([c for c in files.connectors if c.source is None])
    sources = [c for c in files.connectors if c.source is not None]
    listed_topics = _find_listed_topics(sources)
    autostart = os.environ.get(AUTOSTART_VARIABLE) == "1"
    first_hours = _recall_first_hours(sinks)
    parts, undefined = _make_parts([*sinks, *sources], listed_topics, first_hours, autostart=autostart)
    names = {path: config.name for path, config in files.loaded.items()}
    unbuilt = {
        path: escape_unprintable(f"{path}: {undefined[name]}") for path, name in names.items() if name in undefined
    }

    def problems() -> Mapping[Path, str]:
        now = load_connectors(folder, os.environ)
        gone = {path: _describe_gone(path) for path in files.loaded if path not in {*now.loaded, *now.broken}}
        return {**unbuilt, **gone, **now.broken}

    for problem in (*files.broken.values(), *unbuilt.values()):
        logger.warning("a connector file does not load, the others do: %s", problem)
    paths = sorted({*files.loaded, *files.broken})
    checks = make_file_checks(paths, problems, lambda: hash_connector_files(folder) != digest)
    sensing = dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED
    alerts = make_alert_sensor([*parts], choose_alert_status(os.environ))
    shared = dg.Definitions(sensors=[make_retention_sensor(sensing), alerts])
    topics = {c.name: c.topics for c in sinks if c.topics_regex is not None} | listed_topics
    _pass_to_runs(TOPICS_METADATA, topics)
    _pass_to_runs(FIRST_HOURS_METADATA, {name: hour.isoformat() for name, hour in first_hours.items()})
    return dg.Definitions.merge(_merge_parts(sinks, parts), checks, shared)


def _pass_to_runs(name: str, metadata: Mapping[str, Any]) -> None:
    """Let the processes of runs planned with these definitions find this by `name` in their load context."""
    context = DefinitionsLoadContext.get()
    if metadata and context.load_type is DefinitionsLoadType.INITIALIZATION:
        context.add_to_pending_reconstruction_metadata(name, json.dumps(metadata))


def _describe_gone(path: Path) -> str:
    return escape_unprintable(
        f"{path} is not there any more. Its connector stays defined, and its runs fail, until this code location is "
        f"loaded again: press Reload on the Deployment page, or put the file back"
    )


def build_definitions(
    connectors: Sequence[ConnectorConfig], *, autostart: bool, hours_folder: Path | None = None
) -> dg.Definitions:
    """Build assets, checks, jobs, sensors and schedules of `connectors` with known topics.

    Their earliest hours are remembered in `hours_folder`. Without it, all hours from archive.start.hour on are offered.
    """
    parts: dict[str, dg.Definitions] = {}
    for config in connectors:
        first_hour = recall_first_hour(config, hours_folder) if hours_folder else None
        parts[config.name] = _define_connector(config, config.topics, autostart, first_hour, hours_folder)
    return _merge_parts(connectors, parts)


def _make_parts(
    connectors: Sequence[ConnectorConfig],
    listed: Mapping[str, tuple[str, ...]],
    first_hours: Mapping[str, datetime],
    *,
    autostart: bool,
) -> tuple[dict[str, dg.Definitions], dict[str, str]]:
    """Return the definitions of each connector by its name, or the reason why there are none."""
    parts: dict[str, dg.Definitions] = {}
    undefined: dict[str, str] = {}
    for config in connectors:
        try:
            topics, first_hour = listed.get(config.name, ()), first_hours.get(config.name)
            parts[config.name] = _define_connector(config, topics, autostart, first_hour, find_memory(FIRST_HOURS))
        except Exception as err:
            logger.exception("connector %s", config.name)
            undefined[config.name] = f"connector {config.name} cannot be defined: {type(err).__name__}: {err}"
    return parts, undefined


def _merge_parts(connectors: Sequence[ConnectorConfig], parts: Mapping[str, dg.Definitions]) -> dg.Definitions:
    topics = list_topic_assets(config for config in connectors if config.name in parts)
    # Configured here, so that the config of a run can neither name modules to import nor folders to write to.
    shared = dg.Definitions(
        assets=make_topic_specs(topics),
        resources={"spark": SparkResource(choose_runner), "io_manager": NoValues()},
        executor=dg.in_process_executor.configured({}),
    )
    return dg.Definitions.merge(shared, *parts.values())


def _resolve_topics(connectors: Sequence[ConnectorConfig]) -> Sequence[ConnectorConfig]:
    """Return the connectors with their topics. The process of a run uses the topics known when the run was planned."""
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and TOPICS_METADATA in context.reconstruction_metadata:
        topics = json.loads(context.reconstruction_metadata[TOPICS_METADATA])
        return [give_topics(c, topics.get(c.name, ())) if c.topics_regex is not None else c for c in connectors]
    return resolve_from_memory(connectors, find_topics_folder())


def _find_listed_topics(sources: Sequence[ConnectorConfig]) -> dict[str, tuple[str, ...]]:
    """Return the topics of source connectors. The process of a run uses those known when the run was planned."""
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and TOPICS_METADATA in context.reconstruction_metadata:
        topics = json.loads(context.reconstruction_metadata[TOPICS_METADATA])
        return {c.name: tuple(topics.get(c.name, ())) for c in sources}
    return {c.name: recall_listed_topics(c, find_topics_folder()) for c in sources}


def _recall_first_hours(connectors: Sequence[ConnectorConfig]) -> Mapping[str, datetime]:
    """Return the earliest hours of connectors. The process of a run uses those known when the run was planned."""
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION:
        texts = json.loads(context.reconstruction_metadata.get(FIRST_HOURS_METADATA, "{}"))
        return {name: datetime.fromisoformat(hour) for name, hour in texts.items()}
    first_hours = {config.name: recall_first_hour(config, find_memory(FIRST_HOURS)) for config in connectors}
    return {name: hour for name, hour in first_hours.items() if hour is not None}


def _define_connector(
    config: ConnectorConfig,
    listed: Sequence[str],
    autostart: bool,
    first_hour: datetime | None,
    hours_folder: Path | None,
) -> dg.Definitions:
    """Define a connector's part. `listed` are a source connector's topics with known objects."""
    sensing = dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED
    if config.source is not None:
        job = make_foreign_job(config.name, make_foreign_key(config.name))
        asset = make_foreign_asset(config, name_poll_sensor(config.name))
        checks = [make_readable_checks([TopicAssets(config, topic) for topic in listed])] if listed else []
        return dg.Definitions(
            assets=[asset, *make_objects_specs(config, listed)],
            asset_checks=checks,
            jobs=[job, *(make_readable_job(config.name, found) for found in checks)],
            sensors=[make_poll_sensor(config, job), make_objects_sensor(config, listed, sensing)],
        )
    topics = [replace(topic, first_hour=first_hour) for topic in list_topic_assets([config])]
    looking = dg.Definitions(sensors=[make_topics_sensor(config)] if config.topics_regex is not None else [])
    if config.reader is not None:
        job = make_foreign_job(config.name, make_foreign_key(config.name))
        reading = dg.Definitions(assets=[make_foreign_asset(config.reader)], jobs=[job])
        looking = dg.Definitions.merge(looking, reading)
    if not topics:
        return looking
    object_level = make_object_checks(topics)
    jobs = make_connector_jobs(topics, object_level)
    upkeep = make_upkeep_job(config)
    scheduling = dg.DefaultScheduleStatus.RUNNING if autostart else dg.DefaultScheduleStatus.STOPPED
    sink = dg.Definitions(
        assets=[make_hourly_assets(topics)],
        asset_checks=[object_level, make_risk_checks(topics)],
        jobs=[*jobs.all, upkeep],
        sensors=[make_lag_sensor(topics, jobs.archive, sensing, hours_folder)],
        schedules=[
            make_hourly_schedule(topics, jobs.archive, scheduling),
            make_nightly_schedule(config, jobs.verify, VERIFY_TIME, scheduling),
            make_nightly_schedule(config, upkeep, UPKEEP_TIME, scheduling),
        ],
    )
    if config.archive.retention.has_rule:
        retain = make_retain_job(topics)
        schedule = make_nightly_schedule(config, retain, RETAIN_TIME, scheduling)
        sink = dg.Definitions.merge(sink, dg.Definitions(jobs=[retain], schedules=[schedule]))
    if config.archive.rehearsal_days:
        rehearsal = make_rehearsal_job(config)
        schedule = make_nightly_schedule(config, rehearsal, REHEARSAL_TIME, scheduling)
        sink = dg.Definitions.merge(sink, dg.Definitions(jobs=[rehearsal], schedules=[schedule]))
    registries = define_registries(config, scheduling)
    return dg.Definitions.merge(looking, sink, registries, _define_native(topics, jobs, sensing, scheduling))


def _define_native(
    topics: Sequence[TopicAssets],
    jobs: ConnectorJobs,
    sensing: dg.DefaultSensorStatus,
    scheduling: dg.DefaultScheduleStatus,
) -> dg.Definitions:
    """Define the assets that read objects again: days and restores."""
    if jobs.compact is None:
        return dg.Definitions()
    return dg.Definitions(
        assets=[make_daily_assets(topics), make_restored_assets(topics)],
        jobs=make_replay_jobs(topics),
        sensors=[make_folder_sensor(topics, jobs.compact, sensing)],
        schedules=[make_daily_schedule(topics, jobs.compact, scheduling)],
    )
