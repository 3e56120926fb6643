"""A run looks at its topic once: what changes while it looks, it looks at again."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_s3_platform.archive.observation import MAX_OBSERVATIONS, complete_frontiers, observe_until_unchanged
from kafka_s3_platform.archive.takeover import record_takeover
from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import Answers, LogEnds
from kafka_s3_platform.kafka.groups import publish_offsets
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, snapshot, stored

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def topic(count: int, topic_id: str = "a") -> TopicDescription:
    return TopicDescription("t", topic_id, tuple(range(count)), {})


@dataclass
class Changing:
    """A cluster whose topic looks otherwise each time it is described; the last answer stays."""

    answers: list[TopicDescription]
    looks: list[TopicDescription] = field(default_factory=list)

    def find_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        return Answers(dict.fromkeys(topics, self.answers[0]), {})

    def describe_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Answers(dict.fromkeys(topics, found), {})

    def settled(self, first: TopicDescription) -> TopicDescription:
        def look(seen: Mapping[str, TopicDescription]) -> Answers[str, str]:
            self.looks.append(seen["t"])
            return Answers({"t": "found"}, {})

        found, _ = observe_until_unchanged(self, {"t": first}, look).all_or_raise()["t"]  # type: ignore[arg-type]
        return found


def test_a_topic_that_stays_as_it_is_is_looked_at_once() -> None:
    cluster = Changing([topic(2)])
    assert cluster.settled(topic(2)) == topic(2)
    assert len(cluster.looks) == 1


@pytest.mark.parametrize("after", [topic(3), topic(2, "created again")])
def test_a_topic_that_changed_meanwhile_is_looked_at_again_as_it_is_now(after: TopicDescription) -> None:
    cluster = Changing([after])
    assert cluster.settled(topic(2)) == after
    assert cluster.looks == [topic(2), after]


def test_a_broker_that_is_behind_does_not_take_kafka_partitions_away() -> None:
    cluster = Changing([topic(1)])
    assert cluster.settled(topic(2)) == topic(2)


def test_a_topic_that_never_keeps_still_is_given_up() -> None:
    cluster = Changing([topic(n) for n in range(2, 99)])
    with pytest.raises(BrokerUnavailableError, match=r"topic t: .* nothing was committed. Run again"):
        cluster.settled(topic(1))
    assert len(cluster.looks) == MAX_OBSERVATIONS


def test_each_frontier_says_how_many_there_must_be() -> None:
    seen = complete_frontiers(topic(3), NOW, {0: Frontier(0, 0, 5, 5, 0, NOW)})
    assert [f.kafka_partition_count for f in seen.values()] == [3]


@pytest.fixture
def added_while_looking(kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Before the topic's frontiers are read the first time, it gets another kafka partition with 20 records."""
    real = ClusterAdmin.log_ends_of

    def arrange(name: str) -> None:
        pending = [name]

        def look(
            self: ClusterAdmin, kafka_partitions: Mapping[str, Iterable[int]]
        ) -> Answers[str, Answers[int, LogEnds]]:
            if pending and pending[0] in kafka_partitions:
                pending.clear()
                admin = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
                admin.create_partitions([NewPartitions(name, 2)])[name].result(10)
                while 1 not in admin.list_topics(name, 10).topics[name].partitions:
                    time.sleep(0.05)
                produce(kafka_settings, name, [Sent(b"new", None, NOON, (), 1) for _ in range(20)])
            return real(self, kafka_partitions)

        monkeypatch.setattr(ClusterAdmin, "log_ends_of", look)

    return arrange


@pytest.mark.integration
def test_a_kafka_partition_added_while_a_run_plans_belongs_to_the_hour(
    lab: Lab, added_while_looking: Callable[[str], None]
) -> None:
    config = lab.fill([Sent() for _ in range(5)])
    added_while_looking(lab.topic)
    assert archived(config, [NOON]).hours[0].complete
    assert stored(config).num_rows == 25
    state = snapshot(config).state
    assert state.topic is not None
    assert state.topic.kafka_partitions == (0, 1)
    assert {(f.kafka_partition, f.kafka_partition_count) for f in state.frontiers} == {(0, 2), (1, 2)}


@pytest.mark.integration
def test_a_kafka_partition_added_while_a_sink_is_taken_over_belongs_to_the_look(
    lab: Lab, added_while_looking: Callable[[str], None]
) -> None:
    config = lab.fill([Sent() for _ in range(5)])
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, f"connect-{lab.topic}", lab.topic, {0: 5})
    added_while_looking(lab.topic)
    report = record_takeover(config, lab.topic, f"connect-{lab.topic}", "run")
    assert report.log_starts == {1: 0}
    state = snapshot(config).state
    assert state.topic is not None
    assert state.topic.kafka_partitions == (0, 1)
    assert not state.judge.is_complete(NOON, timedelta(0))
    assert archived(config, [NOON, NOON + HOUR]).hours[0].complete
    assert stored(config).num_rows == 20
