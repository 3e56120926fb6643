"""Every schedule and sensor with no, one, two and forty due topics, as Dagster itself evaluates its ticks."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG, SENSOR_NAME_TAG

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, SourceSettings, StoreSettings
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.instance.work import FAILURE_TAG
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import ConnectorIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions
from kafka_s3_platform_tests.support import NOON, SETTINGS, connector

pytestmark = pytest.mark.integration

COUNTS = [0, 1, 2, 40]
NOWHERE = KafkaSettings(bootstrap_servers="127.0.0.1:31699")
NOW = datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)
YESTERDAY = datetime(2026, 2, 28, 12, tzinfo=timezone.utc)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """One on disk: a schedule opens its own."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as found:
        yield found


def fleet(kafka: KafkaSettings, store: StoreSettings, count: int) -> ConnectorConfig:
    """A connector of `count` topics, or of one, where none is to be due."""
    made = connector(kafka, store, "t", start_hour=NOW.replace(hour=0) - timedelta(days=30))
    return made.model_copy(update={"topics": tuple(f"{uuid4().hex[:12]}-{n}" for n in range(count or 1))})


def asked_by_schedule(config: ConnectorConfig, name: str, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    schedule = definitions(config).get_repository_def().get_schedule_def(name)
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=NOW) as context:
        return list(schedule.evaluate_tick(context).run_requests or ())


def asked_by_sensor(config: ConnectorConfig, name: str, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    sensor = definitions(config).get_repository_def().get_sensor_def(name)
    with dg.build_sensor_context(instance=instance, definitions=definitions(config), sensor_name=name) as context:
        return list(sensor.evaluate_tick(context).run_requests or ())


def all_in_one(config: ConnectorConfig, group: str, count: int, asked: list[dg.RunRequest]) -> bool:
    """Whether all topics are asked for by one request, each once and with its check; none if none is due."""
    wanted = [dg.AssetKey([config.name, group, topic]) for topic in config.topics[:count]]
    checked = [[check.asset_key for check in request.asset_check_keys or ()] for request in asked]
    selected = [request.asset_selection for request in asked]
    return selected == ([wanted] if wanted else []) and all(set(keys) == set(wanted) for keys in checked)


def index_an_hour(topic: TopicAssets, hour: datetime) -> None:
    """An index that says an hourly object is there to compact."""
    index_hours(topic.config, [topic.topic], hour)


def index_hours(config: ConnectorConfig, topics: Sequence[str], hour: datetime) -> None:
    """An index that says an hourly object of each topic is there to compact."""
    row = Segment("key", "hourly", hour, "h", 0, 0, 1, 1, 0, 1, 1, "e", "s", "d", 1, 2, SETTINGS, 1)
    if topics:
        ConnectorIndex.of(config).open().commit({topic: Change((row,)) for topic in topics})


@pytest.mark.parametrize("count", COUNTS)
def test_the_hourly_schedule_asks_for_all_topics_at_once(instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, StoreSettings(bucket="bucket"), count)
    if not count:
        shown = dg.AssetMaterialization(["c", "hourly", config.topics[0]], partition="2026-03-01-11:00")
        instance.report_runless_asset_event(shown)
    assert all_in_one(config, "hourly", count, asked_by_schedule(config, "hourly__c", instance))


@pytest.mark.parametrize("count", COUNTS)
def test_the_daily_schedule_asks_for_all_topics_at_once(lab: Lab, instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count)
    index_hours(config, config.topics[:count], YESTERDAY)
    assert all_in_one(config, "daily", count, asked_by_schedule(config, "daily__c", instance))


@pytest.mark.parametrize("count", [1, 40])
def test_the_verify_schedule_asks_for_one_run_of_all_topics(instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, StoreSettings(bucket="bucket"), count)
    assert len(asked_by_schedule(config, "verify__c", instance)) == 1


@pytest.mark.parametrize("count", COUNTS)
def test_the_folder_sensor_asks_for_all_topics_at_once(lab: Lab, instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count)
    index_hours(config, config.topics[:count], YESTERDAY)
    assert all_in_one(config, "daily", count, asked_by_sensor(config, "folders__c", instance))


@pytest.mark.parametrize("later", [0, 1, 2])
def test_a_sensor_goes_by_an_index_that_was_put_back_from_a_backup(
    lab: Lab, instance: dg.DagsterInstance, later: int
) -> None:
    """The index's newest version is then an earlier one, or one of the same number or a higher, and another."""
    config = fleet(NOWHERE, lab.store, 2)
    lost, kept = config.topics
    ConnectorIndex.of(config).open()
    store, folder = ObjectStore(lab.store), f"{config.archive.index_dir}/"
    backup = {info.key: store.get(info.key) for info in store.list(folder)}
    index_hours(config, [lost], YESTERDAY)
    assert [key.path[-1] for key in asked_keys(config, instance)] == [lost]
    for info in store.list(folder):
        store.delete(info.key, info.etag)
    for key, content in backup.items():
        store.put_new(key, content)
    for n in range(later):
        index_hours(config, [kept], YESTERDAY + timedelta(hours=n))
    assert [key.path[-1] for key in asked_keys(config, instance)] == [kept][:later]


def test_a_sensor_goes_by_an_index_that_was_removed(lab: Lab, instance: dg.DagsterInstance) -> None:
    config = fleet(NOWHERE, lab.store, 1)
    index_hours(config, config.topics, YESTERDAY)
    assert asked_keys(config, instance)
    store = ObjectStore(lab.store)
    for info in store.list(f"{config.archive.index_dir}/"):
        store.delete(info.key, info.etag)
    assert not asked_keys(config, instance)


def asked_keys(config: ConnectorConfig, instance: dg.DagsterInstance) -> list[dg.AssetKey]:
    return [key for asked in asked_by_sensor(config, "folders__c", instance) for key in asked.asset_selection or ()]


@pytest.mark.parametrize("count", COUNTS)
def test_the_lag_sensor_asks_for_all_topics_at_once(lab: Lab, instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(lab.kafka, lab.store, count)
    with ClusterAdmin(lab.kafka) as admin:
        for topic in config.topics:
            admin.create_topic(topic, 1)
    if not count:
        # not yet one closed hour
        late = config.archive.model_copy(update={"allowed_lateness_ms": 10**12})
        config = config.model_copy(update={"archive": late})
    assert all_in_one(config, "hourly", count, asked_by_sensor(config, "lag__c", instance))


@pytest.mark.parametrize("count", COUNTS)
def test_the_poll_sensor_asks_for_one_run_of_all_topics(lab: Lab, instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count).model_copy(update={"source": SourceSettings()})
    for topic in config.topics[:count]:
        hour = f"year={NOON:%Y}/month={NOON:%m}/day={NOON:%d}/hour={NOON:%H}"
        ObjectStore(lab.store).put_new(f"topics/{topic}/{hour}/{topic}+0+0000000000.parquet", b"x")
    if not count:
        with pytest.raises(PreflightError, match=f"no object of topic {config.topics[0]} is there"):
            asked_by_sensor(config, "poll__c", instance)
        return
    [request] = asked_by_sensor(config, "poll__c", instance)
    assert request.run_key


def test_a_request_that_failed_for_a_while_is_made_again_under_another_run_key(
    lab: Lab, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster never launches a second run with the run key of a sensor's earlier one."""
    monkeypatch.setattr("kafka_s3_platform.defs.runs.FIRST_WAIT", timedelta())
    config = fleet(NOWHERE, lab.store, 1)
    index_hours(config, config.topics, YESTERDAY)
    known: set[str] = set()
    for _ in range(3):
        [asked] = asked_by_sensor(config, "folders__c", instance)
        [same] = asked_by_sensor(config, "folders__c", instance)
        assert asked.run_key
        assert asked.run_key == same.run_key
        assert asked.run_key not in known
        known.add(asked.run_key)
        tags = {**asked.tags, RUN_KEY_TAG: asked.run_key, SENSOR_NAME_TAG: "folders__c", FAILURE_TAG: "transient"}
        job = definitions(config).resolve_job_def("compact__c")
        run = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
        instance.report_run_failed(run)
    assert sum(" after " in key for key in known) == 2
