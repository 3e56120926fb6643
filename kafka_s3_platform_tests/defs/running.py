"""Runs of assets on an instance, as Dagster's daemons launch them."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.defs.archive.checks import list_index_checks
from kafka_s3_platform.defs.failures import RETRIES_TAG
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform_tests.support import HOUR, connector

ARCHIVE_AGE = timedelta(days=30)
LONGEST_TEST = timedelta(minutes=1)


def definitions(config: ConnectorConfig) -> dg.Definitions:
    return build_definitions([config], autostart=False)


def connector_of_this_hour(kafka: KafkaSettings, store: StoreSettings, topic: str) -> ConnectorConfig:
    """A connector for tests of what is due now. Close to the end of an hour it waits for the next one."""
    hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) + HOUR
    left = hour - datetime.now(timezone.utc)
    if left > LONGEST_TEST:
        hour -= HOUR
    else:
        time.sleep(left.total_seconds())
    return connector(kafka, store, topic, start_hour=hour - ARCHIVE_AGE)


def ago(config: ConnectorConfig, hours: int) -> datetime:
    """The hour that many before the one in which `connector_of_this_hour` made the connector."""
    return config.archive.start_hour + ARCHIVE_AGE - hours * HOUR


def topic_of(config: ConnectorConfig) -> ArchivedTopic:
    return ArchivedTopic(config, config.topics[0])


def run(
    config: ConnectorConfig,
    job_name: str,
    key: dg.AssetKey,
    keys: Sequence[str] = (),
    *,
    instance: dg.DagsterInstance,
    tags: dict[str, str] | None = None,
    ops: Mapping[str, dg.Config] | None = None,
) -> dg.ExecuteInProcessResult:
    """One run for a contiguous range of partition keys, without retries."""
    picked = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]} if keys else {}
    job = definitions(config).resolve_job_def(job_name)
    return job.get_subset(
        asset_selection=frozenset([key]), asset_check_selection=frozenset(list_index_checks(key))
    ).execute_in_process(
        instance=instance,
        tags={RETRIES_TAG: "0", **picked, **(tags or {})},
        run_config=dg.RunConfig(ops=dict(ops or {}), loggers={"console": {"config": {"log_level": "ERROR"}}}),
        raise_on_error=False,
    )


def launch(config: ConnectorConfig, asked: dg.RunRequest, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """The run that a sensor asked for."""
    assert asked.job_name is not None
    job = definitions(config).resolve_job_def(asked.job_name)
    return job.get_subset(
        asset_selection=frozenset(asked.asset_selection or ()),
        asset_check_selection=frozenset(asked.asset_check_keys or ()),
    ).execute_in_process(
        instance=instance,
        tags={RETRIES_TAG: "0", **asked.tags},
        run_config={**asked.run_config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        raise_on_error=False,
    )


def events(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str | None, list[dict[str, Any]]]:
    """Partition key -> the metadata of each of its materializations."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for event in result.get_asset_materialization_events():
        reported = event.step_materialization_data.materialization
        if reported.asset_key == key:
            found.setdefault(reported.partition, []).append(convert_metadata(reported.metadata))
    return found


def tick(
    config: ConnectorConfig, name: str, instance: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorResult:
    """One evaluation of a sensor."""
    sensor = definitions(config).get_repository_def().get_sensor_def(name)
    with dg.build_sensor_context(instance=instance, cursor=cursor, definitions=definitions(config)) as context:
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def asked_keys(asked: dg.RunRequest) -> tuple[str | None, str | None]:
    """First and last partition key of a run request."""
    return asked.tags.get(ASSET_PARTITION_RANGE_START_TAG), asked.tags.get(ASSET_PARTITION_RANGE_END_TAG)
