"""Runs of assets on an instance, as Dagster's daemons launch them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.failures import RETRIES_TAG
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.support import HOUR, NOON, SETTINGS, connector

ARCHIVE_AGE = timedelta(days=30)
LONGEST_TEST = timedelta(minutes=1)

MARCH_1ST = datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)
YESTERDAY = datetime(2026, 2, 28, 12, tzinfo=timezone.utc)
"""A moment at which schedules are evaluated, and an hour of the day before."""

OPEN_INSTANCE: ContextVar[Callable[[], dg.DagsterInstance]] = ContextVar("open_instance")
"""Gives the test's own instance, where runs and ticks of these functions are. It is made when it is first used."""


@contextmanager
def daemon_context(
    folder: Path, dagster_yaml: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkspaceProcessContext]:
    """The daemons' view of the home `folder/dagster` and of the connectors in `folder/connectors`, sensors on.

    Definitions are loaded by a code server, a process of its own.
    """
    home = folder / "dagster"
    (home / "dagster.yaml").write_text(
        f"{dagster_yaml}\ncode_servers: {{wait_for_local_processes_on_shutdown: true}}\n"
    )
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(folder / "connectors"))
    monkeypatch.setenv("KAFKA_S3_AUTOSTART", "1")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    target = ModuleTarget("kafka_s3_platform.definitions", None, str(REPOSITORY), "kafka_s3_platform")
    with dg.DagsterInstance.get() as instance, create_test_daemon_workspace_context(target, instance) as context:
        yield context


def open_instance() -> dg.DagsterInstance:
    return OPEN_INSTANCE.get()()


def definitions(of: ConnectorConfig | dg.Definitions) -> dg.Definitions:
    return of if isinstance(of, dg.Definitions) else build_definitions([of], autostart=False)


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


def topic_of(config: ConnectorConfig) -> TopicAssets:
    return TopicAssets(config, config.topics[0])


def group_terms(given: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a restore, from its fields by their paths: `{"to.topic": "a"}` is `{"to": {"topic": "a"}}`."""
    found: dict[str, Any] = {}
    for path, value in given.items():
        group, _, name = path.partition(".")
        found.setdefault(group, {})[name] = value
    return found


def run(
    config: ConnectorConfig,
    job_name: str,
    key: dg.AssetKey,
    keys: Sequence[str] = (),
    *,
    instance: dg.DagsterInstance | None = None,
    tags: dict[str, str] | None = None,
    ops: Mapping[str, dg.Config] | None = None,
) -> dg.ExecuteInProcessResult:
    """One run for a contiguous range of partition keys, without retries."""
    picked = {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]} if keys else {}
    job = definitions(config).resolve_job_def(job_name)
    return job.get_subset(
        asset_selection=frozenset([key]), asset_check_selection=frozenset(list_index_checks(key))
    ).execute_in_process(
        instance=instance or open_instance(),
        tags={RETRIES_TAG: "0", **picked, **(tags or {})},
        run_config=dg.RunConfig(ops=dict(ops or {}), loggers={"console": {"config": {"log_level": "ERROR"}}}),
        raise_on_error=False,
    )


def launch(
    of: ConnectorConfig | dg.Definitions, asked: dg.RunRequest, instance: dg.DagsterInstance | None = None
) -> dg.ExecuteInProcessResult:
    """The run that a sensor asked for."""
    assert asked.job_name is not None
    job = definitions(of).resolve_job_def(asked.job_name)
    if asked.asset_selection is not None:
        job = job.get_subset(
            asset_selection=frozenset(asked.asset_selection),
            asset_check_selection=frozenset(asked.asset_check_keys or ()),
        )
    return job.execute_in_process(
        instance=instance or open_instance(),
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
    of: ConnectorConfig | dg.Definitions,
    name: str,
    cursor: str | None = None,
    instance: dg.DagsterInstance | None = None,
) -> dg.SensorResult:
    """One evaluation of a sensor."""
    loaded = definitions(of)
    with dg.build_sensor_context(instance or open_instance(), cursor, definitions=loaded) as context:
        found = loaded.get_repository_def().get_sensor_def(name)(context)
    assert isinstance(found, dg.SensorResult)
    return found


def observed(result: dg.SensorResult) -> list[dg.AssetObservation]:
    """What the tick observed. It may have evaluated checks besides."""
    return [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]


def evaluated(result: dg.SensorResult) -> list[dg.AssetCheckEvaluation]:
    """The checks that the tick evaluated."""
    return [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]


def pass_minutes(cursor: str | None, minutes: int) -> str:
    """The cursor of the lag sensor, of which all observations, and the first look, are older by that."""
    aged = {}
    for topic, kept in json.loads(cursor or "").items():
        digest, first, since, *rest = kept.split()
        aged[topic] = " ".join([digest, str(int(first) - minutes), str(int(since) - minutes), *rest])
    return json.dumps(aged)


def asked_keys(asked: dg.RunRequest) -> tuple[str | None, str | None]:
    """First and last partition key of a run request."""
    return asked.tags.get(ASSET_PARTITION_RANGE_START_TAG), asked.tags.get(ASSET_PARTITION_RANGE_END_TAG)


def asked_by(config: ConnectorConfig, name: str, at: datetime | None = None) -> list[dg.RunRequest]:
    """The requests of a schedule, at that moment or when the hour begins in which the connector was made."""
    schedule = definitions(config).get_repository_def().get_schedule_def(name)
    with dg.build_schedule_context(instance=open_instance(), scheduled_execution_time=at or ago(config, 0)) as context:
        return list(schedule.evaluate_tick(context).run_requests or ())


def tags_of(result: dg.ExecuteInProcessResult) -> Mapping[str, str]:
    """The tags that a run has in the end."""
    run = open_instance().get_run_by_id(result.run_id)
    assert run is not None
    return run.tags


def fleet(kafka: KafkaSettings, store: StoreSettings, count: int) -> ConnectorConfig:
    """A connector of `count` topics, or of one, where none is to be due."""
    made = connector(kafka, store, "t", start_hour=MARCH_1ST.replace(hour=0) - timedelta(days=30))
    return made.model_copy(update={"topics": tuple(f"{uuid4().hex[:12]}-{n}" for n in range(count or 1))})


def index_hours(config: ConnectorConfig, topics: Sequence[str], hour: datetime = YESTERDAY) -> None:
    """An index that says an hourly object of each topic is there to compact."""
    row = Segment("key", "hourly", hour, "h", 0, 0, 1, 1, 0, 1, 1, "e", "s", "d", 1, 2, SETTINGS, 1)
    if topics:
        ConnectorIndex.of(config).open().commit({topic: Change((row,)) for topic in topics})


def hour_keys(config: ConnectorConfig, *hours: int) -> list[str]:
    return [topic_of(config).hours.key(NOON + h * HOUR) for h in hours]


def failure(found: dg.ExecuteInProcessResult) -> str:
    [failed] = found.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    assert told is not None
    return str(told.description)
