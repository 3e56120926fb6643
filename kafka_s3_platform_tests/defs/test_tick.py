"""How a tick goes over its topics."""

import json
import logging
from collections.abc import Callable

import dagster as dg
import pytest

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    OpenTransactionError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform_tests.support import connector

NAMES = ["a", "b", "c"]
CONFIG = connector(KafkaSettings(bootstrap_servers="b:1"), StoreSettings(bucket="bucket"), "a")
TOPICS = [ArchivedTopic(CONFIG, name) for name in NAMES]
LOG = logging.getLogger(__name__)


def failing(topic: str, error: PlatformError, seen: list[str]) -> Callable[[ArchivedTopic], None]:
    def evaluate(found: ArchivedTopic) -> None:
        seen.append(found.topic)
        if found.topic == topic:
            raise error

    return evaluate


@pytest.mark.parametrize("error", [BrokerUnavailableError("down"), StoreUnavailableError("down")])
def test_what_the_topics_share_is_not_asked_again_when_it_did_not_answer(error: PlatformError) -> None:
    seen: list[str] = []
    tick = Tick({})
    assert not tick.each("lag", TOPICS, failing("b", error, seen), LOG)
    assert seen == ["a", "b"]
    assert "down" in str(tick.result().skip_reason)


def test_the_next_tick_begins_after_the_topic_that_did_not_answer_and_comes_to_all() -> None:
    first = Tick({})
    first.each("lag", TOPICS, failing("b", BrokerUnavailableError("down"), []), LOG)
    seen: list[str] = []
    second = Tick(json.loads(first.result().cursor or "{}"))
    second.each("lag", TOPICS, failing("", BrokerUnavailableError("down"), seen), LOG)
    assert seen == ["c", "a", "b"]
    assert second.cursor == {}


@pytest.mark.parametrize("error", [OpenTransactionError("open"), MissingTopicError("gone")])
def test_an_error_of_one_topic_leaves_the_others_alone(error: PlatformError) -> None:
    seen: list[str] = []
    assert Tick({}).each("lag", TOPICS, failing("a", error, seen), LOG)
    assert seen == NAMES


def test_a_tick_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.defs.tick.TICK_SECONDS", -1.0)
    tick, seen = Tick({"/lag": "b"}), list[str]()
    tick.each("lag", TOPICS, failing("", BrokerUnavailableError(""), seen), LOG)
    assert seen == []
    assert tick.result().cursor == json.dumps({"/lag": "b"})
    assert "no time is left" in str(tick.result().skip_reason)
    with pytest.raises(BrokerUnavailableError, match="slowly"):
        tick.within(str)(1)


def test_a_bad_topic_fails_the_tick_when_nothing_is_lost_by_that() -> None:
    tick = Tick({"a": "seen"})
    tick.each("lag", TOPICS, failing("b", MissingTopicError("b is gone"), []), LOG)
    with pytest.raises(MissingTopicError, match="b is gone"):
        tick.result()


def test_a_bad_topic_does_not_take_observations_and_cursor_from_the_others() -> None:
    tick = Tick({})
    tick.each("lag", TOPICS, failing("b", MissingTopicError("b is gone"), []), LOG)
    tick.observations.append(dg.AssetObservation("a"))
    tick.cursor["a"] = "seen"
    found = tick.result()
    assert found.cursor == json.dumps({"a": "seen"})
    assert found.asset_events == [dg.AssetObservation("a")]
    assert "b is gone" in str(found.skip_reason)
