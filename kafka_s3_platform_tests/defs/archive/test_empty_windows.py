"""Hours and days that are complete and hold no record: the sensors report them, since no run has anything to do."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive import empty_windows
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.upkeep.hour_states import describe_hours, find_empty_hours, find_hour_states
from kafka_s3_platform.definitions import build_definitions
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, topic_of
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.support import NOON, Sent, archived, produce, snapshot


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    return connector_of_this_hour(lab.kafka, lab.store, lab.create_topic())


class Sensors:
    """The sensors of one code server. What they report is stored, as the daemon does."""

    def __init__(self, config: ConnectorConfig, folder: Path, instance: dg.DagsterInstance) -> None:
        self._repository = build_definitions([config], autostart=False, hours_folder=folder).get_repository_def()
        self._instance = instance

    def tick(self, name: str) -> dict[str, dict[str, object]]:
        """What one tick materialized: metadata by partition key."""
        with dg.build_sensor_context(instance=self._instance, repository_def=self._repository) as context:
            found = self._repository.get_sensor_def(name)(context)
        assert isinstance(found, dg.SensorResult)
        for event in found.asset_events:
            self._instance.report_runless_asset_event(event)
        told = [event for event in found.asset_events if isinstance(event, dg.AssetMaterialization)]
        return {str(e.partition): {name: value.value for name, value in e.metadata.items()} for e in told}


@pytest.fixture
def sensors(config: ConnectorConfig, tmp_path: Path, instance: dg.DagsterInstance) -> Sensors:
    """Sensors that know where the partitions begin: 60 hours ago, on the day of the first record."""
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, h)) for h in (60, 40)])
    archived(config)
    Sensors(config, tmp_path, instance).tick("lag__c")
    return Sensors(config, tmp_path, instance)


def hours_since(config: ConnectorConfig, first: int) -> list[str]:
    """The partition keys from the day of that many hours ago to the newest closed hour but one."""
    hour = ago(config, first).astimezone(ZoneInfo("UTC")).replace(hour=0)
    count = (ago(config, 2) - hour) // HOUR
    return [topic_of(config).hours.key(hour + n * HOUR) for n in range(count + 1)]


def test_empty_hours_are_shown_without_records_but_those_a_run_is_due_for(
    config: ConnectorConfig, sensors: Sensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(empty_windows, "MAX_EMPTY", 50)
    first = sensors.tick("lag__c")
    assert len(first) == 50, "a tick is not held up, and the next one goes on"
    second = sensors.tick("lag__c")
    with_records = {topic_of(config).hours.key(ago(config, h)) for h in (60, 40)}
    assert [*first, *second] == [key for key in hours_since(config, 60) if key not in with_records]
    assert first.popitem()[1] | {"index_version": 0} == {
        "dagster/partition_row_count": 0,
        "complete": True,
        "index_version": 0,
    }
    assert sensors.tick("lag__c") == {}


def test_a_day_without_a_record_is_shown_when_it_is_over(config: ConnectorConfig, sensors: Sensors) -> None:
    midnight = ago(config, 0).astimezone(ZoneInfo("UTC")).replace(hour=0)
    days = {(midnight - timedelta(days=n)).date().isoformat() for n in (1, 2, 3)}
    with_records = {ago(config, h).date().isoformat() for h in (60, 40)}
    assert {*sensors.tick("folders__c")} == {day for day in days if day >= min(with_records)} - with_records
    assert sensors.tick("folders__c") == {}


def test_hours_whose_records_lie_in_hours_of_a_former_timezone_are_not_called_empty(
    config: ConnectorConfig, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, h)) for h in (60, 40)])
    archived(config)
    config = config.model_copy(update={"layout": config.layout.model_copy(update={"timezone": "Asia/Kolkata"})})
    Sensors(config, tmp_path, instance).tick("lag__c")
    told = Sensors(config, tmp_path, instance).tick("lag__c")
    overlapped = [ago(config, h) + sign * HOUR / 2 for h in (60, 40) for sign in (-1, 1)]
    assert told
    assert {topic_of(config).hours.key(hour) for hour in overlapped}.isdisjoint(told)
    found = snapshot(config)
    now = ago(config, 0)
    states = find_hour_states(found, overlapped, timedelta(), now, None)
    assert states == [hour.state for hour in describe_hours(found, overlapped, timedelta(), now)]
    assert states == ["complete"] * 4


def test_an_hour_whose_records_were_days_ahead_when_they_were_archived_is_not_called_empty(lab: Lab) -> None:
    config = lab.archive([Sent(timestamp=NOON - timedelta(days=40)), Sent(timestamp=NOON + 5 * HOUR)])
    before = snapshot(config)
    [apart] = (segment for segment in before.segments if segment.chunk_start is None)
    ms = to_epoch_ms(NOON + HOUR)
    before.commit(Change((replace(apart, key="ahead", min_timestamp=ms, max_timestamp=ms),)))
    found = snapshot(config)
    hours = [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert find_empty_hours(found, hours, timedelta()) == [NOON, NOON + 2 * HOUR]
    states = find_hour_states(found, hours, timedelta(), NOON + 9 * HOUR, None)
    assert states == [hour.state for hour in describe_hours(found, hours, timedelta(), NOON + 9 * HOUR)]
    assert states == ["empty", "complete", "empty"]


def test_hours_that_may_have_lost_records_are_not_called_empty(
    config: ConnectorConfig, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Kafka had deleted the first record: it was of any hour before that, if records were out of order."""
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, h)) for h in (80, 60, 40)])
    delete_records(config.kafka, config.topics[0], 1)
    archived(config)
    Sensors(config, tmp_path, instance).tick("lag__c")
    told = Sensors(config, tmp_path, instance).tick("lag__c")
    assert not told
