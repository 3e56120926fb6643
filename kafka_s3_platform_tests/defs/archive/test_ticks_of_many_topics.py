"""Ticks of the lag sensor over many topics: what they ask of broker and store, and where one goes on that was cut."""

import json
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.defs.archive.lag_sensor import request_hours
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, observed, pass_minutes, tick
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.kafka.counting import counting_broker
from kafka_s3_platform_tests.support import InProcessRunner, Sent, produce


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of five topics with two kafka partitions each, and a record of three hours ago in the first."""
    topics = tuple(lab.create(f"{lab.topic}-{n}", 2) for n in range(5))
    found = connector_of_this_hour(lab.kafka, lab.store, topics[0])
    for topic in topics:
        produce(lab.kafka, topic, [Sent(timestamp=ago(found, 3) + timedelta(minutes=1))])
    return found.model_copy(update={"topics": topics})


def archive_all(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    """Archive the last three hours of the topics, and show them in Dagster."""
    hours = tuple(ago(config, n) for n in (3, 2, 1))
    archive_topics([ArchiveRequest(config, topic, "run", hours) for topic in config.topics], InProcessRunner())
    for name in config.topics:
        topic = TopicAssets(config, name)
        for partition in map(topic.hours.key, hours):
            instance.report_runless_asset_event(dg.AssetMaterialization(topic.key("hourly"), partition=partition))


def count_idle_tick(config: ConnectorConfig) -> tuple[Counter[str], Counter[str]]:
    """Count what a tick asks of the broker and of the store, if all was seen by the tick before."""
    with ExitStack() as stack:
        broker = stack.enter_context(counting_broker(config.kafka.bootstrap_servers))
        store = stack.enter_context(faulty_proxy(config.store.endpoint_url or ""))
        between = config.model_copy(
            update={
                "kafka": KafkaSettings(bootstrap_servers=broker.bootstrap_servers),
                "store": config.store.model_copy(update={"endpoint_url": store.endpoint}),
            }
        )
        first = tick(between, "lag__c")
        assert {event.asset_key.path[-1] for event in observed(first)} == set(config.topics)
        asked, requests = Counter(broker.asked), len(store.requests)
        again = tick(between, "lag__c", first.cursor)
        assert (again.asset_events, again.run_requests, again.cursor) == ([], [], first.cursor)
        return broker.asked - asked, Counter(method for method, _ in store.requests[requests:])


def test_a_tick_without_news_asks_for_many_topics_what_it_asks_for_one(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    archive_all(config, instance)
    for count in (1, 2, 5):
        some = config.model_copy(update={"topics": config.topics[:count]})
        asked, requests = count_idle_tick(some)
        assert asked.pop("Metadata") <= 3
        assert asked == {"ListOffsets": 3}
        # the look for a newer version of the index and for another one in its place, whatever the number of topics
        assert requests == {"GET": 1, "HEAD": 1}


def test_what_is_archived_of_one_topic_is_no_news_of_the_others(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    archive_all(config, instance)
    first = tick(config, "lag__c")
    assert len(observed(first)) == 5
    produce(config.kafka, config.topics[2], [Sent(timestamp=ago(config, 3) + timedelta(minutes=1))])
    archive_topics([ArchiveRequest(config, config.topics[2], "later", None)], InProcessRunner())
    again = tick(config, "lag__c", pass_minutes(first.cursor, 10))
    assert [event.asset_key.path[-1] for event in observed(again)] == [config.topics[2]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of ticks, by which each topic's requests take 15 seconds."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("kafka_s3_platform.core.status.deadline.time", clock)

    def slowly(*given: Any, **named: Any) -> None:
        clock.now += 15
        request_hours(*given, **named)

    monkeypatch.setattr("kafka_s3_platform.core.defs.archive.lag_sensor.request_hours", slowly)
    return clock


@pytest.mark.parametrize("at_once", [2, 100])
def test_a_tick_that_is_cut_keeps_what_it_has_and_the_next_goes_on_there(
    config: ConnectorConfig, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.status.backlogs.TOPICS_AT_ONCE", at_once)
    cursor = None
    reached = []
    for _ in range(3):
        found = tick(config, "lag__c", cursor)
        cursor = found.cursor
        reached.append(([event.asset_key.path[-1] for event in observed(found)], json.loads(cursor or "").get("/lag")))
    assert clock.now == 9 * 15
    a, b, c, d, e = config.topics
    # of the topics that it comes to again nothing is new
    assert reached == [([a, b, c], d), ([d, e], b), ([], e)]
