"""Runs of assets on an instance, as Dagster's daemons launch them."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from kafka_s3_platform.cli.runs import plain
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform.defs.checks import index_checks
from kafka_s3_platform.defs.failures import RETRIES_TAG
from kafka_s3_platform.defs.topic import ArchivedTopic


def definitions(config: ConnectorConfig) -> dg.Definitions:
    return build_definitions([config], autostart=False)


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
        asset_selection=frozenset([key]), asset_check_selection=frozenset(index_checks(key))
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
            found.setdefault(reported.partition, []).append(plain(reported.metadata))
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
