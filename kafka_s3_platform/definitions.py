"""The composition root: connector files in, Dagster's definitions out. No network and no Spark are touched."""

import os
from collections.abc import Sequence
from itertools import chain

import dagster as dg

from kafka_s3_platform.config.files import connectors_folder, load_connectors
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.checks import daily_checks, hourly_checks
from kafka_s3_platform.defs.daily import daily_asset
from kafka_s3_platform.defs.folder_sensor import folder_sensor
from kafka_s3_platform.defs.hourly import hourly_asset
from kafka_s3_platform.defs.jobs import connector_jobs
from kafka_s3_platform.defs.lag_sensor import lag_sensor
from kafka_s3_platform.defs.object_checks import object_checks
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.restored import restored_asset
from kafka_s3_platform.defs.schedules import daily_schedule, hourly_schedule, verify_schedule
from kafka_s3_platform.defs.topic import ArchivedTopic, archived_topics
from kafka_s3_platform.defs.topics import topic_specs

AUTOSTART_VARIABLE = "KAFKA_S3_AUTOSTART"
"""`1`: sensors and schedules run from the start; else they wait to be turned on in the UI."""


@dg.definitions
def defs() -> dg.Definitions:
    """What `./connectors`, or the folder in `KAFKA_S3_CONNECTORS`, declares. ConfigError names broken files."""
    connectors = load_connectors(connectors_folder(os.environ), os.environ)
    return build_definitions(connectors, autostart=os.environ.get(AUTOSTART_VARIABLE) == "1")


def build_definitions(connectors: Sequence[ConnectorConfig], *, autostart: bool) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedules of `connectors`."""
    topics = archived_topics(connectors)
    parts = [_connector_definitions(archived_topics([config]), autostart) for config in connectors]
    shared = dg.Definitions(assets=topic_specs(topics), resources={"spark": SparkResource()})
    return dg.Definitions.merge(shared, *parts)


def _connector_definitions(topics: Sequence[ArchivedTopic], autostart: bool) -> dg.Definitions:
    object_level = [object_checks(topic) for topic in topics]
    jobs = connector_jobs(topics, object_level)
    sensing = dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED
    scheduling = dg.DefaultScheduleStatus.RUNNING if autostart else dg.DefaultScheduleStatus.STOPPED
    return dg.Definitions(
        assets=list(chain.from_iterable((hourly_asset(t), daily_asset(t), restored_asset(t)) for t in topics)),
        asset_checks=[*object_level, *map(hourly_checks, topics), *map(daily_checks, topics)],
        jobs=jobs.all,
        sensors=[lag_sensor(topics, jobs.archive, sensing), folder_sensor(topics, jobs.compact, sensing)],
        schedules=[
            hourly_schedule(topics, jobs.archive, scheduling),
            daily_schedule(topics, jobs.compact, scheduling),
            verify_schedule(topics, jobs.verify, scheduling),
        ],
    )
