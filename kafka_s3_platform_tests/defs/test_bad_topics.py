"""Ticks over several topics where the store is slow, one index is damaged, or the broker does not tell of one topic."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.runs import Requests
from kafka_s3_platform.core.errors import BrokerUnavailableError, IndexDamagedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import MARCH_1ST, YESTERDAY, asked_by, fleet, index_hours, observed, tick
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.support import Sent, damage_topic, produce

FIFTH = 0.2
"""The clock of these tests: a tick of 40 s takes 8 s, and a store that needs 20 s for an answer needs 4 s."""

SLACK = 10.0
"""Of the tests' own seconds, for a busy machine. Without a limit, a tick would take several times as long."""


@pytest.fixture
def instance(instance_on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    return instance_on_disk


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of four topics; each has a record to archive, and a day to compact."""
    made = fleet(lab.kafka, lab.store, 4)
    for topic in made.topics:
        lab.create(topic)
        produce(lab.kafka, topic, [Sent(timestamp=YESTERDAY)])
    index_hours(made, made.topics)
    return made


@contextmanager
def slow_store(config: ConnectorConfig, seconds: int) -> Iterator[ConnectorConfig]:
    """The connector, where its store takes so long for each answer, by the clock of these tests."""
    with faulty_proxy(config.store.endpoint_url or "") as proxy:
        proxy.seconds_to_answer = seconds * FIFTH
        yield config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": proxy.endpoint})})


def asked_topics(requests: Any) -> list[str]:
    return [key.path[-1] for request in requests or () for key in request.asset_selection]


@pytest.mark.parametrize("seconds", [1, 3])
@pytest.mark.parametrize("name", ["lag__c", "folders__c"])
def test_ticks_come_to_all_topics_in_time_though_the_store_is_slow(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, name: str, seconds: int
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 40 * FIFTH)
    config = config.model_copy(update={"topics": config.topics[:2]})
    cursor, seen, asked = "{}", set[str](), set[str]()
    with slow_store(config, seconds) as slow:
        for _ in range(4):
            started = time.monotonic()
            found = tick(slow, name, cursor)
            assert time.monotonic() - started < 60 * FIFTH + SLACK
            cursor = found.cursor or ""
            seen |= {event.asset_key.path[-1] for event in found.asset_events}
            asked |= set(asked_topics(found.run_requests))
            if asked == set(config.topics):
                break
    assert asked == set(config.topics)
    assert seen == (asked if name == "lag__c" else set())


@pytest.mark.parametrize("name", ["lag__c", "folders__c"])
def test_a_tick_returns_in_time_from_a_store_that_hardly_answers_and_says_so(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 40 * FIFTH)
    with slow_store(config, 20) as slow:
        started = time.monotonic()
        found = tick(slow, name, json.dumps({"kept": "as it was"}))
        assert time.monotonic() - started < 60 * FIFTH + SLACK
    assert "the store answers slowly: the index of topic" in str(found.skip_reason)
    assert "broker" not in str(found.skip_reason)
    cursor = json.loads(found.cursor or "")
    assert cursor.pop({"lag__c": "/lag", "folders__c": "/days"}[name]) == config.topics[1]
    assert cursor.pop("/silent", None) == (1 if name == "lag__c" else None)
    assert cursor == {"kept": "as it was"}, "what was not observed will be"


@pytest.mark.parametrize("name", ["lag__c", "folders__c"])
def test_a_damaged_index_stops_no_other_topic_of_a_sensor(config: ConnectorConfig, name: str) -> None:
    bad = config.topics[1]
    damage_topic(config, bad)
    for topic in config.topics:
        lost = f"topics/{topic}/year=2020/month=01/day=01/hour=00/other+0+0000000000.parquet"
        ObjectStore(config.store).put_new(lost, b"x")
    found = tick(config, name)
    others = {topic for topic in config.topics if topic != bad}
    assert set(asked_topics(found.run_requests)) == others
    checks = [event for event in found.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    events = {event.asset_key.path[-1] for event in found.asset_events if event not in checks}
    assert events == others, "lags, or folders that a walk found"
    reds = [check.description for check in checks if check.asset_key.path[-1] == bad and not check.passed]
    assert ["What is at risk is not known" in str(red) for red in reds] == [True] * (name == "lag__c")
    alone = config.model_copy(update={"topics": (bad,)})
    with pytest.raises(IndexDamagedError, match=bad):
        # the first tick of the lag sensor reports it in the topic's check
        tick(alone, name, tick(alone, name).cursor)


def test_a_damaged_index_stops_no_other_topic_of_the_daily_schedule(config: ConnectorConfig) -> None:
    bad = config.topics[1]
    damage_topic(config, bad)
    found = asked_by(config, "daily__c", MARCH_1ST)
    assert asked_topics(found) == [topic for topic in config.topics if topic != bad]
    with pytest.raises(dg.DagsterError) as raised:
        asked_by(config.model_copy(update={"topics": (bad,)}), "daily__c", MARCH_1ST)
    assert isinstance(raised.value.__cause__, IndexDamagedError)


def test_the_hourly_schedule_asks_for_the_others_where_one_cannot_be_evaluated(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = config.topics[1]

    def reason(_: Requests, key: dg.AssetKey, __: str) -> None:
        if key.path[-1] == bad:
            raise ValueError("a defect")

    monkeypatch.setattr(Requests, "find_reason_to_wait", reason)
    found = asked_by(config, "hourly__c", MARCH_1ST)
    assert asked_topics(found) == [topic for topic in config.topics if topic != bad]


def test_a_topic_without_an_answer_of_the_broker_stops_no_other(config: ConnectorConfig) -> None:
    bad = config.topics[1]
    with answering(lambda topic, _, __, true: NOTHING if topic == bad else true):
        found = tick(config, "lag__c")
        assert asked_topics(found.run_requests) == [topic for topic in config.topics if topic != bad]
        alone = tick(config.model_copy(update={"topics": (bad,)}), "lag__c")
    assert "the broker answered -1001" in str(alone.skip_reason)


def test_a_lag_of_unknown_age_is_observed_and_again_when_known(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = config.model_copy(update={"topics": config.topics[:1]})

    def lying(_: ClusterAdmin, wanted: Iterable[str]) -> None:
        raise BrokerUnavailableError(f"topics {[*wanted]}: the broker did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(ClusterAdmin, "offsets_for_times_of", lying)
        first = tick(alone, "lag__c")
    [told] = observed(first)
    assert "lag" in told.metadata
    assert "oldest_hour_not_archived" not in told.metadata
    assert "did not answer" in str(first.skip_reason)
    [again] = observed(tick(alone, "lag__c", first.cursor))
    assert "oldest_hour_not_archived" in again.metadata
