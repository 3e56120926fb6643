"""What the schedules ask for, and what they do not ask for twice."""

from datetime import datetime, timedelta

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    ago,
    asked_by,
    asked_keys,
    connector_of_this_hour,
    definitions,
    launch,
    tags_of,
    topic_of,
)
from kafka_s3_platform_tests.support import Sent, archived, produce


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    lab.create_topic()
    return connector_of_this_hour(lab.kafka, lab.store, lab.topic)


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    return instance_on_disk


def broken(config: ConnectorConfig) -> ConnectorConfig:
    """The connector, where its runs fail for good."""
    return config.model_copy(update={"store": config.store.model_copy(update={"bucket": "no-such-bucket"})})


def fail(config: ConnectorConfig, asked: dg.RunRequest) -> None:
    assert tags_of(launch(broken(config), asked))[FAILURE_TAG] == "permanent"


def test_an_hour_that_failed_for_good_is_not_asked_for_again_and_the_next_is(config: ConnectorConfig) -> None:
    [asked] = asked_by(config, "hourly__c")
    assert asked_keys(asked)[0] == topic_of(config).hours.key(ago(config, 1))
    fail(config, asked)
    assert not asked_by(config, "hourly__c")
    assert asked_by(config, "hourly__c", ago(config, -1))


def test_a_day_that_failed_for_good_is_asked_for_again_when_its_inputs_change(config: ConnectorConfig) -> None:
    yesterday = ago(config, 0).replace(hour=12) - timedelta(days=1)
    produce(config.kafka, config.topics[0], [Sent(timestamp=yesterday)])
    archived(config)
    [asked] = asked_by(config, "daily__c")
    fail(config, asked)
    assert not asked_by(config, "daily__c")
    produce(config.kafka, config.topics[0], [Sent(timestamp=yesterday)])
    archived(config)
    assert asked_by(config, "daily__c")


@pytest.mark.parametrize("lateness", [timedelta(), timedelta(hours=30)])
def test_the_daily_schedule_asks_for_the_newest_day_that_is_over(config: ConnectorConfig, lateness: timedelta) -> None:
    late = config.archive.model_copy(update={"allowed_lateness_ms": round(lateness.total_seconds() * 1000)})
    config = config.model_copy(update={"archive": late})
    noons = [ago(config, 0).replace(hour=12) - timedelta(days=n) for n in (1, 2, 3)]
    produce(config.kafka, config.topics[0], [Sent(timestamp=noon) for noon in noons])
    archived(config)
    zone = noons[0].tzinfo
    cron = definitions(config).get_repository_def().get_schedule_def("daily__c").cron_schedule
    minute, hour = map(int, str(cron).split()[:2])
    at = datetime.now(zone).replace(hour=hour, minute=minute, second=0, microsecond=0)
    at -= timedelta(days=at > datetime.now(zone))
    [asked] = asked_by(config, "daily__c", at)
    over = at - lateness
    assert asked_keys(asked)[0] == (over.date() - timedelta(days=1)).isoformat()
