"""Every schedule and sensor with no, one, two and forty due topics, as Dagster itself evaluates its ticks."""

from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG, SENSOR_NAME_TAG

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, SourceSettings, StoreSettings
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    MARCH_1ST,
    YESTERDAY,
    asked_by,
    definitions,
    fleet,
    index_hours,
    open_instance,
)
from kafka_s3_platform_tests.support import NOON

COUNTS = [0, 1, 2, 40]
NOWHERE = KafkaSettings(bootstrap_servers="127.0.0.1:31699")


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    return instance_on_disk


def asked_by_sensor(config: ConnectorConfig, name: str) -> list[dg.RunRequest]:
    sensor = definitions(config).get_repository_def().get_sensor_def(name)
    with dg.build_sensor_context(
        instance=open_instance(), definitions=definitions(config), sensor_name=name
    ) as context:
        return list(sensor.evaluate_tick(context).run_requests or ())


def all_in_one(config: ConnectorConfig, group: str, count: int, asked: list[dg.RunRequest]) -> bool:
    """Whether all topics are asked for by one request, each once and with its check; none if none is due."""
    wanted = [dg.AssetKey([config.name, group, topic]) for topic in config.topics[:count]]
    checked = [[check.asset_key for check in request.asset_check_keys or ()] for request in asked]
    selected = [request.asset_selection for request in asked]
    return selected == ([wanted] if wanted else []) and all(set(keys) == set(wanted) for keys in checked)


@pytest.mark.parametrize("count", COUNTS)
def test_the_hourly_schedule_asks_for_all_topics_at_once(instance: dg.DagsterInstance, count: int) -> None:
    config = fleet(NOWHERE, StoreSettings(bucket="bucket"), count)
    if not count:
        shown = dg.AssetMaterialization(["c", "hourly", config.topics[0]], partition="2026-03-01-11:00")
        instance.report_runless_asset_event(shown)
    assert all_in_one(config, "hourly", count, asked_by(config, "hourly__c", MARCH_1ST))


@pytest.mark.parametrize("count", COUNTS)
def test_the_daily_schedule_asks_for_all_topics_at_once(lab: Lab, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count)
    index_hours(config, config.topics[:count], YESTERDAY)
    assert all_in_one(config, "daily", count, asked_by(config, "daily__c", MARCH_1ST))


@pytest.mark.parametrize("count", [1, 40])
def test_the_verify_schedule_asks_for_one_run_of_all_topics(count: int) -> None:
    config = fleet(NOWHERE, StoreSettings(bucket="bucket"), count)
    assert len(asked_by(config, "verify__c", MARCH_1ST)) == 1


@pytest.mark.parametrize("count", COUNTS)
def test_the_folder_sensor_asks_for_all_topics_at_once(lab: Lab, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count)
    index_hours(config, config.topics[:count], YESTERDAY)
    assert all_in_one(config, "daily", count, asked_by_sensor(config, "folders__c"))


@pytest.mark.parametrize("later", [0, 1, 2])
def test_a_sensor_goes_by_an_index_that_was_put_back_from_a_backup(lab: Lab, later: int) -> None:
    """The index's newest version is then an earlier one, or one of the same number or a higher, and another."""
    config = fleet(NOWHERE, lab.store, 2)
    lost, kept = config.topics
    ConnectorIndex.of(config).open()
    store, folder = ObjectStore(lab.store), f"{config.archive.index_dir}/"
    backup = {info.key: store.get(info.key) for info in store.list(folder)}
    index_hours(config, [lost], YESTERDAY)
    assert [key.path[-1] for key in asked_keys(config)] == [lost]
    for info in store.list(folder):
        store.delete(info.key, info.etag)
    for key, content in backup.items():
        store.put_new(key, content)
    for n in range(later):
        index_hours(config, [kept], YESTERDAY + timedelta(hours=n))
    assert [key.path[-1] for key in asked_keys(config)] == [kept][:later]


def test_a_sensor_goes_by_an_index_that_was_removed(lab: Lab) -> None:
    config = fleet(NOWHERE, lab.store, 1)
    index_hours(config, config.topics, YESTERDAY)
    assert asked_keys(config)
    store = ObjectStore(lab.store)
    for info in store.list(f"{config.archive.index_dir}/"):
        store.delete(info.key, info.etag)
    assert not asked_keys(config)


def asked_keys(config: ConnectorConfig) -> list[dg.AssetKey]:
    return [key for asked in asked_by_sensor(config, "folders__c") for key in asked.asset_selection or ()]


@pytest.mark.parametrize("count", COUNTS)
def test_the_lag_sensor_asks_for_all_topics_at_once(lab: Lab, count: int) -> None:
    config = fleet(lab.kafka, lab.store, count)
    with ClusterAdmin(lab.kafka) as admin:
        for topic in config.topics:
            admin.create_topic(topic, 1)
    if not count:
        # not yet one closed hour
        late = config.archive.model_copy(update={"allowed_lateness_ms": 10**12})
        config = config.model_copy(update={"archive": late})
    assert all_in_one(config, "hourly", count, asked_by_sensor(config, "lag__c"))


@pytest.mark.parametrize("count", COUNTS)
def test_the_poll_sensor_asks_for_one_run_of_all_topics(lab: Lab, count: int) -> None:
    config = fleet(NOWHERE, lab.store, count).model_copy(update={"source": SourceSettings()})
    for topic in config.topics[:count]:
        hour = f"year={NOON:%Y}/month={NOON:%m}/day={NOON:%d}/hour={NOON:%H}"
        ObjectStore(lab.store).put_new(f"topics/{topic}/{hour}/{topic}+0+0000000000.parquet", b"x")
    if not count:
        with pytest.raises(PreflightError, match=f"no object of topic {config.topics[0]} was found"):
            asked_by_sensor(config, "poll__c")
        return
    [request] = asked_by_sensor(config, "poll__c")
    assert request.run_key


def test_a_request_that_failed_for_a_while_is_made_again_under_another_run_key(
    lab: Lab, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster never launches a second run with the run key of a sensor's earlier one."""
    monkeypatch.setattr("kafka_s3_platform.core.defs.runs.FIRST_WAIT", timedelta())
    config = fleet(NOWHERE, lab.store, 1)
    index_hours(config, config.topics, YESTERDAY)
    known: set[str] = set()
    for _ in range(3):
        [asked] = asked_by_sensor(config, "folders__c")
        [same] = asked_by_sensor(config, "folders__c")
        assert asked.run_key
        assert asked.run_key == same.run_key
        assert asked.run_key not in known
        known.add(asked.run_key)
        tags = {**asked.tags, RUN_KEY_TAG: asked.run_key, SENSOR_NAME_TAG: "folders__c", FAILURE_TAG: "transient"}
        job = definitions(config).resolve_job_def("compact__c")
        run = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
        instance.report_run_failed(run)
    assert sum(" after " in key for key in known) == 2
