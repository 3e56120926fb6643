"""The composition root: connector files in, Dagster's definitions out. No Spark is touched, and no network.

Except once, for half a second at the most, where a connector has `topics.regex` and no topics are remembered yet.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.metadata.metadata_value import CodeLocationReconstructionMetadataValue

from kafka_s3_platform.config.files import connectors_folder, load_connectors
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.checks import daily_checks, hourly_checks
from kafka_s3_platform.defs.daily import daily_asset
from kafka_s3_platform.defs.discovery import resolved_from_memory, topics_folder, with_topics
from kafka_s3_platform.defs.file_checks import file_checks
from kafka_s3_platform.defs.folder_sensor import folder_sensor
from kafka_s3_platform.defs.foreign import foreign_asset, foreign_key
from kafka_s3_platform.defs.hourly import hourly_asset
from kafka_s3_platform.defs.jobs import ConnectorJobs, connector_jobs, foreign_job
from kafka_s3_platform.defs.lag_sensor import lag_sensor
from kafka_s3_platform.defs.object_checks import object_checks
from kafka_s3_platform.defs.poll_sensor import poll_sensor
from kafka_s3_platform.defs.resources import NoValues, SparkResource
from kafka_s3_platform.defs.restored import restored_asset
from kafka_s3_platform.defs.schedules import daily_schedule, hourly_schedule, verify_schedule
from kafka_s3_platform.defs.topic import ArchivedTopic, archived_topics
from kafka_s3_platform.defs.topics import topic_specs
from kafka_s3_platform.defs.topics_sensor import topics_sensor
from kafka_s3_platform.text import printable

logger = logging.getLogger(__name__)

AUTOSTART_VARIABLE = "KAFKA_S3_AUTOSTART"
"""`1`: sensors and schedules run from the start; else they wait to be turned on in the UI."""


TOPICS_METADATA = "kafka_s3/topics"
"""What a run's process is told of the code server that launched it: the topics of connectors with `topics.regex`."""


@dg.definitions
def defs() -> dg.Definitions:
    """What `./connectors`, or the folder in `KAFKA_S3_CONNECTORS`, declares. A file that does not load is a red check.

    Every run's process loads the definitions again: a file that broke meanwhile is no matter of other connectors' runs.

    Raises:
        ConfigError: the folder is not there.
    """
    folder = connectors_folder(os.environ)
    files = load_connectors(folder, os.environ)
    # What a source's pattern matches is found in the bucket, by each restore.
    sinks = _resolved([c for c in files.connectors if c.source is None])
    sources = [c for c in files.connectors if c.source is not None]
    parts, undefined = _parts([*sinks, *sources], autostart=os.environ.get(AUTOSTART_VARIABLE) == "1")
    names = {path: config.name for path, config in files.loaded.items()}
    unbuilt = {path: printable(f"{path}: {undefined[name]}") for path, name in names.items() if name in undefined}

    def problems() -> Mapping[Path, str]:
        now = load_connectors(folder, os.environ)
        gone = {path: _gone(path) for path in files.loaded if path not in {*now.loaded, *now.broken}}
        return {**unbuilt, **gone, **now.broken}

    for problem in (*files.broken.values(), *unbuilt.values()):
        logger.warning("a connector file does not load, the others do: %s", problem)
    checks = file_checks(sorted({*files.loaded, *files.broken}), problems)
    found = dg.Definitions.merge(_merged(sinks, parts), checks)
    topics = {c.name: c.topics for c in sinks if c.topics_regex is not None}
    if not topics:
        return found
    told = {TOPICS_METADATA: CodeLocationReconstructionMetadataValue(json.dumps(topics))}
    return dg.Definitions.merge(found, dg.Definitions(metadata=told))


def _gone(path: Path) -> str:
    return printable(
        f"{path} is not there any more. Its connector stays defined, and its runs fail, until this code location is "
        f"loaded again: press Reload on the Deployment page, or put the file back"
    )


def build_definitions(connectors: Sequence[ConnectorConfig], *, autostart: bool) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedules of `connectors`, whose topics are known."""
    return _merged(connectors, {config.name: _connector_definitions(config, autostart) for config in connectors})


def _parts(
    connectors: Sequence[ConnectorConfig], *, autostart: bool
) -> tuple[dict[str, dg.Definitions], dict[str, str]]:
    """The definitions of each connector by its name, or why there are none."""
    parts: dict[str, dg.Definitions] = {}
    undefined: dict[str, str] = {}
    for config in connectors:
        try:
            parts[config.name] = _connector_definitions(config, autostart)
        except Exception as err:
            logger.exception("connector %s", config.name)
            undefined[config.name] = f"connector {config.name} cannot be defined: {type(err).__name__}: {err}"
    return parts, undefined


def _merged(connectors: Sequence[ConnectorConfig], parts: Mapping[str, dg.Definitions]) -> dg.Definitions:
    topics = archived_topics(config for config in connectors if config.name in parts)
    # Configured here, so that the config of a run can neither name modules to import nor folders to write to.
    shared = dg.Definitions(
        assets=topic_specs(topics),
        resources={"spark": SparkResource(), "io_manager": NoValues()},
        executor=dg.multiprocess_executor.configured({}),
    )
    return dg.Definitions.merge(shared, *parts.values())


def _resolved(connectors: Sequence[ConnectorConfig]) -> Sequence[ConnectorConfig]:
    """The connectors with their topics: a run's process takes those that its run was planned with."""
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and TOPICS_METADATA in context.reconstruction_metadata:
        told = json.loads(context.reconstruction_metadata[TOPICS_METADATA])
        return [with_topics(c, told.get(c.name, ())) if c.topics_regex is not None else c for c in connectors]
    return resolved_from_memory(connectors, topics_folder())


def _connector_definitions(config: ConnectorConfig, autostart: bool) -> dg.Definitions:
    if config.source is not None:
        job = foreign_job(config.name, foreign_key(config.name))
        return dg.Definitions(assets=[foreign_asset(config)], jobs=[job], sensors=[poll_sensor(config, job)])
    topics = archived_topics([config])
    looking = dg.Definitions(sensors=[topics_sensor(config)] if config.topics_regex is not None else [])
    if not topics:
        return looking
    object_level = [object_checks(topic) for topic in topics]
    jobs = connector_jobs(topics, object_level)
    sensing = dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED
    scheduling = dg.DefaultScheduleStatus.RUNNING if autostart else dg.DefaultScheduleStatus.STOPPED
    sink = dg.Definitions(
        assets=[hourly_asset(topic) for topic in topics],
        asset_checks=[*object_level, *map(hourly_checks, topics)],
        jobs=jobs.all,
        sensors=[lag_sensor(topics, jobs.archive, sensing)],
        schedules=[
            hourly_schedule(topics, jobs.archive, scheduling),
            verify_schedule(topics, jobs.verify, scheduling),
        ],
    )
    return dg.Definitions.merge(looking, sink, _native_definitions(topics, jobs, sensing, scheduling))


def _native_definitions(
    topics: Sequence[ArchivedTopic],
    jobs: ConnectorJobs,
    sensing: dg.DefaultSensorStatus,
    scheduling: dg.DefaultScheduleStatus,
) -> dg.Definitions:
    """What reads the objects again: days and restores."""
    if jobs.compact is None:
        return dg.Definitions()
    return dg.Definitions(
        assets=[make(topic) for topic in topics for make in (daily_asset, restored_asset)],
        asset_checks=[daily_checks(topic) for topic in topics],
        sensors=[folder_sensor(topics, jobs.compact, sensing)],
        schedules=[daily_schedule(topics, jobs.compact, scheduling)],
    )
