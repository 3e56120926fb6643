"""When the lag sensor observes a topic again, against real Kafka and S3: at once what must be seen, else rarely."""

import json
from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.status.backlog import UnansweredError
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, observed, pass_minutes, tick
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.support import Sent, archived, produce


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of a topic with two kafka partitions, and a record of the open hour in the first."""
    lab.create_topic(2)
    found = connector_of_this_hour(lab.kafka, lab.store, lab.topic)
    send(found)
    return found


class Ticks:
    """Ticks one after the other, each with the cursor of the one before, as Dagster's daemon has them."""

    def __init__(self, config: ConnectorConfig, cursor: str | None = None) -> None:
        self.config = config
        self.cursor = cursor
        self.last = dg.SensorResult()

    def observe(self) -> list[dict[str, object]]:
        """The metadata of what one tick observes."""
        self.last = tick(self.config, "lag__c", self.cursor)
        self.cursor = self.last.cursor
        return [{name: told.value for name, told in event.metadata.items()} for event in observed(self.last)]

    def pass_minutes(self, minutes: int) -> None:
        self.cursor = pass_minutes(self.cursor, minutes)


def send(config: ConnectorConfig, hours_ago: int = 0, kafka_partition: int = 0) -> None:
    timestamp = ago(config, hours_ago) + timedelta(seconds=1)
    produce(config.kafka, config.topics[0], [Sent(timestamp=timestamp, kafka_partition=kafka_partition)])


def lags(observed: Sequence[dict[str, object]]) -> list[object]:
    return [each["lag"] for each in observed]


@pytest.fixture
def ticks(config: ConnectorConfig) -> Ticks:
    return Ticks(config)


def test_a_topic_of_which_nothing_is_new_is_observed_once(ticks: Ticks) -> None:
    assert lags(ticks.observe()) == [1]
    before = ticks.cursor
    for minutes in (1, 9):
        assert ticks.observe() == []
        assert ticks.cursor == before
        ticks.pass_minutes(minutes)
        before = ticks.cursor
    assert ticks.observe() == []


def test_a_lag_that_moves_with_each_tick_is_observed_every_ten_minutes(ticks: Ticks) -> None:
    found = []
    for _ in range(10):
        found.append(lags(ticks.observe()))
        send(ticks.config)
        ticks.pass_minutes(4)
    assert found == [[1], [], [], [4], [], [], [7], [], [], [10]]


def test_two_ticks_within_the_interval_are_one_observation(
    ticks: Ticks,
) -> None:
    assert lags(ticks.observe()) == [1]
    for _ in range(2):
        send(ticks.config)
        assert ticks.observe() == []
    ticks.pass_minutes(10)
    assert lags(ticks.observe()) == [3]


def silent(topic: str, kafka_partition: int, question: str | int, true: int) -> int:
    return NOTHING if kafka_partition == 1 else true


def test_a_failure_is_told_at_once_and_so_is_its_end(ticks: Ticks) -> None:
    ticks.observe()
    with answering(silent):
        [began] = ticks.observe()
        assert "kafka partition 1" in str(began["without_an_answer"])
        assert ticks.observe() == [], "it goes on"
    [ceased] = ticks.observe()
    assert "without_an_answer" not in ceased


def test_another_kafka_partition_that_fails_is_told_at_once(ticks: Ticks) -> None:
    for failing in (1, 0):

        def only(topic: str, kafka_partition: int, question: str | int, true: int, failing: int = failing) -> int:
            return NOTHING if kafka_partition == failing else true

        with answering(only):
            [told] = ticks.observe()
        assert f"kafka partition {failing}" in str(told["without_an_answer"])


def test_one_that_fails_and_answers_in_turns_is_observed_five_times(ticks: Ticks) -> None:
    is_silent = True

    def turns(topic: str, kafka_partition: int, question: str | int, true: int) -> int:
        return silent(topic, kafka_partition, question, true) if is_silent else true

    counts = []
    with answering(turns):
        for turn in range(14):
            counts.append(len(ticks.observe()))
            is_silent = not is_silent
            if turn == 6:
                ticks.pass_minutes(10)
    assert counts == [1, 1, 1, 1, 1, 0, 0] * 2


def test_the_lag_is_observed_as_it_comes_and_goes_but_holds_up_no_failure(ticks: Ticks) -> None:
    found = []
    for _ in range(4):
        archived(ticks.config)
        found.append(lags(ticks.observe()))
        send(ticks.config)
        found.append(lags(ticks.observe()))
    assert found == [[0], [1], [0], [], [], [], [], []]
    with answering(silent):
        [told] = ticks.observe()
    assert "kafka partition 1" in str(told["without_an_answer"])
    assert lags(ticks.observe()) == [1]


def test_an_hour_with_records_that_becomes_due_is_observed_at_once(ticks: Ticks) -> None:
    ticks.observe()
    send(ticks.config, hours_ago=3, kafka_partition=1)
    [second] = ticks.observe()
    assert second["hours_due"] == 3
    assert ticks.observe() == []
    send(ticks.config, hours_ago=2, kafka_partition=1)
    assert ticks.observe() == [], "the hours that are due are the same"


def test_a_hole_is_observed_at_once_when_it_appears_and_when_it_goes(ticks: Ticks) -> None:
    """Hours archived on their own leave what came late to others: a record of hour 5 lies among those of hour 2."""
    for hours_ago in (3, 5, 2):
        send(ticks.config, hours_ago, kafka_partition=1)
    [first] = ticks.observe()
    assert not first["has_hole"]
    archived(ticks.config, [ago(ticks.config, 2)])
    [second] = ticks.observe()
    assert second["has_hole"]
    assert ticks.observe() == []
    archived(ticks.config)
    [third] = ticks.observe()
    assert not third["has_hole"]


@pytest.mark.parametrize("kept", ["0123456789abcdef", "a b c d e", "", {"a": 1}, None])
def test_a_cursor_of_another_version_costs_one_more_observation(config: ConnectorConfig, kept: object) -> None:
    ticks = Ticks(config, json.dumps({config.topics[0]: kept, "gone": "0123456789abcdef"}))
    assert lags(ticks.observe()) == [1]
    send(config)
    assert ticks.observe() == []
    assert json.loads(ticks.cursor or "")["gone"] == "0123456789abcdef"


def without_times(topic: str, kafka_partition: int, question: str | int, true: int) -> int:
    return true if isinstance(question, str) else NOTHING


def test_a_lag_of_unknown_age_is_observed_again_in_the_next_interval(ticks: Ticks) -> None:
    with answering(without_times):
        for _ in range(2):
            [first] = ticks.observe()
            with pytest.raises(UnansweredError):
                ticks.observe()
            ticks.pass_minutes(10)
    [told] = ticks.observe()
    assert set(told) - set(first) == {"hours_due", "oldest_hour_not_archived"}
    ticks.pass_minutes(10)
    assert ticks.observe() == []


def test_each_topic_has_an_interval_of_its_own(config: ConnectorConfig, lab: Lab) -> None:
    other = lab.create(f"{config.topics[0]}-other", 1)
    produce(config.kafka, other, [Sent(timestamp=ago(config, 0))])
    first = Ticks(config)
    first.observe()
    first.pass_minutes(10)
    both = Ticks(config.model_copy(update={"topics": (config.topics[0], other)}), first.cursor)
    both.observe()
    assert [event.asset_key.path[-1] for event in observed(both.last)] == [other]
    send(config)
    produce(config.kafka, other, [Sent(timestamp=ago(config, 0))])
    both.observe()
    assert [event.asset_key.path[-1] for event in observed(both.last)] == [config.topics[0]]
