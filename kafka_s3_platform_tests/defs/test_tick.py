"""How a tick goes over its topics."""

import json
import logging
import time
from collections.abc import Callable

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    IndexDamagedError,
    MissingTopicError,
    OpenTransactionError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform_tests.support import connector

NAMES = ["a", "b", "c"]
CONFIG = connector(KafkaSettings(bootstrap_servers="b:1"), StoreSettings(bucket="bucket"), "a")
MANY = [TopicAssets(CONFIG, name) for name in "abcde"]
TOPICS = MANY[:3]
LOG = logging.getLogger(__name__)


def failing(topic: str, error: PlatformError, seen: list[str]) -> Callable[[TopicAssets], None]:
    def evaluate(found: TopicAssets) -> None:
        seen.append(found.topic)
        if found.topic == topic:
            raise error

    return evaluate


def failing_from(topic: str, seen: list[str]) -> Callable[[TopicAssets], None]:
    def evaluate(found: TopicAssets) -> None:
        seen.append(found.topic)
        if found.topic >= topic:
            raise BrokerUnavailableError("down")

    return evaluate


def slow(seconds: float) -> Callable[[], str]:
    """A store's answer that comes late."""

    def answer() -> str:
        time.sleep(seconds)
        return "answer"

    return answer


@pytest.mark.parametrize("error", [BrokerUnavailableError("down"), StoreUnavailableError("down")])
def test_one_topic_without_an_answer_leaves_the_others_alone(error: PlatformError) -> None:
    seen: list[str] = []
    tick = Tick({}, LOG)
    assert tick.evaluate_each("lag", TOPICS, failing("b", error, seen))
    assert seen == NAMES
    assert f"c/b: {error}" in str(tick.result().skip_reason)


def test_what_the_topics_share_is_not_asked_again_when_two_in_a_row_got_no_answer() -> None:
    seen: list[str] = []
    first = Tick({}, LOG)
    assert not first.evaluate_each("lag", MANY, failing_from("b", seen))
    assert seen == ["a", "b", "c"]
    second = Tick(json.loads(first.result().cursor or "{}"), LOG)
    second.evaluate_each("lag", MANY, failing("", BrokerUnavailableError("down"), seen))
    assert seen == ["a", "b", "c", "d", "e", "a", "b", "c"]
    assert second.cursor == {}


def test_a_defect_in_one_topic_leaves_the_others_alone_and_is_told() -> None:
    seen: list[str] = []

    def evaluate(topic: TopicAssets) -> None:
        seen.append(topic.topic)
        if topic.topic == "a":
            raise ValueError("not an offset range")

    tick = Tick({}, LOG)
    assert tick.evaluate_each("lag", TOPICS, evaluate)
    assert seen == NAMES
    with pytest.raises(ValueError, match="not an offset range"):
        tick.result()


def test_a_topic_that_was_left_out_is_told_in_the_log_where_others_are_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tick = Tick({}, LOG)
    tick.evaluate_each("days", TOPICS, failing("a", StoreUnavailableError("no answer"), []))
    tick.evaluate_each("days", TOPICS, failing("b", IndexDamagedError("a file is missing"), []))
    tick.requests.append(dg.RunRequest(run_key="c"))
    assert tick.result().skip_reason is None
    assert tick.schedule_result("nothing") == [dg.RunRequest(run_key="c")]
    assert "c/a: [KS-STORE-DOWN] no answer" in caplog.text
    assert "a file is missing" in caplog.text


def test_a_schedule_that_asks_for_nothing_says_why_or_fails() -> None:
    tick = Tick({}, LOG)
    assert tick.schedule_result("nothing is due") == dg.SkipReason("nothing is due")
    tick.evaluate_each("days", TOPICS, failing("a", StoreUnavailableError("no answer"), []))
    assert tick.schedule_result("nothing is due") == dg.SkipReason("c/a: [KS-STORE-DOWN] no answer")
    tick.evaluate_each("days", TOPICS, failing("b", IndexDamagedError("a file is missing"), []))
    with pytest.raises(IndexDamagedError):
        tick.schedule_result("nothing is due")


def test_a_read_ends_with_the_tick_and_it_is_the_store_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 0.5)
    tick = Tick({}, LOG)
    assert tick.read_store("the index", slow(0.0)) == "answer"
    with pytest.raises(StoreUnavailableError, match="the store answers slowly: the index was not read"):
        tick.read_store("the index", slow(30.0))
    with pytest.raises(StoreUnavailableError, match="to ask the broker: the store answers slowly"):
        tick.limit_broker(str)(1)
    assert not tick.evaluate_each("lag", TOPICS, failing("", BrokerUnavailableError(""), []))
    assert "for 3 topics: the store answers slowly" in str(tick.result().skip_reason)


def test_a_read_that_had_too_little_time_is_the_first_of_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 1.5)
    cursor: dict[str, str] = {}
    begun = []
    for _ in range(4):
        tick = Tick(dict(cursor), LOG)
        first: list[str] = []

        def evaluate(topic: TopicAssets, first: list[str] = first, tick: Tick = tick) -> None:
            first.append(topic.topic)
            tick.read_store("the index", slow(0.9))

        tick.evaluate_each("lag", TOPICS, evaluate)
        begun.append(first)
        cursor = json.loads(tick.result().cursor or "{}")
    assert begun == [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]]


def test_what_a_read_raises_is_raised() -> None:
    def missing() -> None:
        raise IndexDamagedError("a file is missing")

    with pytest.raises(IndexDamagedError):
        Tick({}, LOG).read_store("the index", missing)


@pytest.mark.parametrize("error", [OpenTransactionError("open"), MissingTopicError("gone")])
def test_an_error_of_one_topic_leaves_the_others_alone(error: PlatformError) -> None:
    seen: list[str] = []
    assert Tick({}, LOG).evaluate_each("lag", TOPICS, failing("a", error, seen))
    assert seen == NAMES


def test_a_tick_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 0.0)
    tick, seen = Tick({"/lag": "b"}, LOG), list[str]()
    tick.evaluate_each("lag", TOPICS, failing("", BrokerUnavailableError(""), seen))
    assert seen == []
    assert tick.result().cursor == json.dumps({"/lag": "b"})
    assert "no time is left" in str(tick.result().skip_reason)
    with pytest.raises(BrokerUnavailableError, match="slowly"):
        tick.limit_broker(str)(1)


def test_a_bad_topic_fails_the_tick_when_nothing_is_lost_by_that() -> None:
    tick = Tick({"a": "seen"}, LOG)
    tick.evaluate_each("lag", TOPICS, failing("b", MissingTopicError("b is gone"), []))
    with pytest.raises(MissingTopicError, match="b is gone"):
        tick.result()


def test_a_bad_topic_does_not_take_observations_and_cursor_from_the_others() -> None:
    tick = Tick({}, LOG)
    tick.evaluate_each("lag", TOPICS, failing("b", MissingTopicError("b is gone"), []))
    tick.observations.append(dg.AssetObservation("a"))
    tick.cursor["a"] = "seen"
    found = tick.result()
    assert found.cursor == json.dumps({"a": "seen"})
    assert found.asset_events == [dg.AssetObservation("a")]
    assert "b is gone" in str(found.skip_reason)
