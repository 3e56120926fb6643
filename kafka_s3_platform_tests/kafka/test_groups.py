"""Consumer groups on a real broker.

One committed offset of one group, as a restore's progress marker is read.

Offsets that were asked for ahead are not asked for again, and what fails is not asked for twice.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    BusyError,
    MissingTopicError,
    TransientError,
)
from kafka_s3_platform.core.kafka import groups
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.kafka.groups import (
    Committed,
    GroupOffset,
    publish_offsets,
    read_committed_of,
    read_committed_offsets,
    read_group_state,
    refuse_active_group,
)
from kafka_s3_platform.core.kafka.known_offsets import KnownOffsets, TimeQuestions
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import committing, consuming, produce, until


@pytest.fixture
def topic(lab: Lab) -> str:
    """Three kafka partitions with five records each."""
    lab.create_topic(3)
    for kafka_partition in range(3):
        produce(lab.kafka, lab.topic, [b"v"] * 5, kafka_partition)
    return lab.topic


def test_what_a_group_committed_is_read_by_kafka_partition(lab: Lab, topic: str) -> None:
    with consuming(lab.kafka, topic, f"g-{topic}") as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 2, 5)], asynchronous=False)
    with ClusterAdmin(lab.kafka) as admin:
        assert read_committed_offsets(admin, f"g-{topic}", topic) == {0: 3, 2: 5}
        assert read_committed_offsets(admin, f"g-{topic}", "another") == {}
        assert read_committed_offsets(admin, f"absent-{topic}", topic) == {}


@pytest.mark.parametrize("before", [{}, {0: 3}, {0: 3, 1: 2}])
def test_an_offset_that_a_transaction_is_about_to_commit_is_waited_for(
    lab: Lab, topic: str, before: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for nothing committed, records were archived a second time by whoever took over."""
    group = f"g-{topic}"
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, group, topic, before)
        with committing(lab.kafka, group, [TopicPartition(topic, 1, 5)]) as producer:
            with monkeypatch.context() as patch:
                patch.setattr(groups, "STABLE_SECONDS", 0.5)
                with pytest.raises(TransientError, match=f"consumer group {group}, {topic}-1.*UNSTABLE_OFFSET_COMMIT"):
                    read_committed_offsets(admin, group, topic, range(3))
            assert read_committed_of(admin, group, {topic: range(3)})[topic].keys() == before.keys()
            ending = Timer(1, lambda: producer.commit_transaction(30))
            ending.start()
            assert read_committed_offsets(admin, group, topic, range(3)) == {**before, 1: 5}
            ending.join()


def test_a_transaction_of_another_topic_is_not_waited_for(lab: Lab, topic: str) -> None:
    group, other = f"g-{topic}", lab.create(f"other-{topic}")
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, group, topic, {0: 3})
        publish_offsets(admin, group, other, {0: 0})
        with committing(lab.kafka, group, [TopicPartition(other, 0, 0)]) as producer:
            assert read_committed_offsets(admin, group, topic, range(3)) == {0: 3}
            producer.abort_transaction(30)


@pytest.mark.parametrize("told", [-1, -2, -1002])
def test_a_number_that_is_no_offset_is_not_taken_for_nothing_committed(
    lab: Lab, topic: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Future[ConsumerGroupTopicPartitions] = Future()
    answer.set_result(ConsumerGroupTopicPartitions("g", [TopicPartition(topic, 0, told)]))
    monkeypatch.setattr(AdminClient, "list_consumer_group_offsets", lambda *_, **__: {"g": answer})
    with ClusterAdmin(lab.kafka) as admin:
        message = f"{topic}-0: the broker answered {told} as what the group"
        with pytest.raises(BrokerUnavailableError, match=message):
            read_committed_offsets(admin, "g", topic, [0])
        with pytest.raises(BrokerUnavailableError, match=message):
            read_committed_of(admin, "g", {topic: [0]})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_active_while_it_has_members(lab: Lab, topic: str, protocol: str) -> None:
    group = f"g-{protocol}-{topic}"
    with ClusterAdmin(lab.kafka) as admin:
        assert not read_group_state(admin, group).is_active
        with consuming(lab.kafka, topic, group, **{"group.protocol": protocol}) as consumer:
            assert read_group_state(admin, group).is_active
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            with pytest.raises(BusyError, match=f"taking over: consumer group {group} is STABLE.*stop"):
                refuse_active_group(admin, group, "taking over")
            with pytest.raises(BusyError, match="stop its consumers"):
                publish_offsets(admin, group, topic, {0: 5})
        until(lambda: not read_group_state(admin, group).is_active)
        assert read_committed_offsets(admin, group, topic) == {0: 1}


def test_members_of_an_active_group_are_named(lab: Lab, topic: str) -> None:
    with consuming(lab.kafka, topic, f"g-{topic}"), ClusterAdmin(lab.kafka) as admin:
        [member] = read_group_state(admin, f"g-{topic}").members
        assert member.startswith("sink at /127.0.0.1")


def test_published_offsets_are_those_of_a_group_that_nobody_consumes_with(lab: Lab, topic: str) -> None:
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, f"g-{topic}", topic, {0: 3, 1: 5})
        publish_offsets(admin, f"g-{topic}", topic, {0: 4})
        publish_offsets(admin, f"g-{topic}", topic, {})
        assert read_committed_offsets(admin, f"g-{topic}", topic) == {0: 4, 1: 5}


def test_an_offset_is_read_with_its_metadata_or_there_is_none(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin, GroupOffset(lab.kafka, f"g-{lab.topic}", lab.topic, 0) as group:
        assert group.read() is None
        publish_offsets(admin, f"g-{lab.topic}", lab.topic, {0: 7}, {0: "said"})
        assert group.read() == Committed(7, "said")


class Answering:
    """A consumer whose coordinator answers `offset`, or the error of `code`."""

    def __init__(self, offset: int, code: int | None) -> None:
        self._offset, self._code = offset, code

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout
        [place] = places

        class Place:
            offset, metadata = self._offset, ""
            error = None if self._code is None else KafkaError(self._code)
            topic, partition = place.topic, place.partition

        return [Place()]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("offset", "code", "kind", "said"),
    [
        (-1, None, BrokerUnavailableError, "answered -1 as what the group consumes next"),
        (-1002, None, BrokerUnavailableError, "answered -1002"),
        (-1001, KafkaError.UNSTABLE_OFFSET_COMMIT, TransientError, "UNSTABLE_OFFSET_COMMIT"),
        (-1001, KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_an_error_and_what_is_no_offset_are_not_taken_for_nothing_committed(
    monkeypatch: pytest.MonkeyPatch, offset: int, code: int | None, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(groups, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(groups, "open_client", lambda *_: Answering(offset, code))
    with (
        GroupOffset(KafkaSettings(bootstrap_servers="127.0.0.1:1"), "g", "t", 3) as group,
        pytest.raises(kind, match=f"group g has committed of t-3: .*{said}"),
    ):
        group.read()


DOWN = BrokerUnavailableError("kafka partition 1 is down")
GONE = MissingTopicError("topic gone")


class Cluster:
    """Answers each timestamp with itself. Kafka partition 1 of topic `half` is down, topic `gone` is not there."""

    def __init__(self) -> None:
        self.asked: list[dict[str, tuple[list[int], list[int]]]] = []

    def __call__(self, wanted: TimeQuestions, /) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
        self.asked.append({topic: ([*each], [*times]) for topic, (each, times) in wanted.items()})
        found: dict[str, Answers[int, Mapping[int, OffsetAtTime]]] = {}
        for topic, (kafka_partitions, times) in self.asked[-1].items():
            down = {1: DOWN} if topic == "half" and 1 in kafka_partitions else {}
            offsets: Mapping[int, OffsetAtTime] = {time: RecordOffset(time) for time in times}
            found[topic] = Answers({p: offsets for p in kafka_partitions if p not in down}, down)
        found.pop("gone", None)
        return Answers(found, {"gone": GONE} if "gone" in wanted else {})


def test_what_was_asked_for_ahead_is_not_asked_for_again() -> None:
    cluster = Cluster()
    offsets = KnownOffsets(cluster)
    offsets.ask_ahead({"a": ((0, 1), [5, 7]), "b": ((0,), [9])})
    assert offsets.of_topic("a")([1, 0], [7]).all_or_raise() == {1: {7: 7}, 0: {7: 7}}
    assert offsets.of_topic("b")([0], [9]).all_or_raise() == {0: {9: 9}}
    assert offsets.of_topic("b")([], [9]).all_or_raise() == {}
    assert cluster.asked == [{"a": ([0, 1], [5, 7]), "b": ([0], [9])}]


def test_what_nobody_asked_for_ahead_is_asked_for() -> None:
    cluster = Cluster()
    offsets = KnownOffsets(cluster)
    offsets.ask_ahead({"a": ((0,), [5])})
    assert offsets.of_topic("a")([0, 1], [5, 6]).all_or_raise() == {0: {5: 5, 6: 6}, 1: {5: 5, 6: 6}}
    assert offsets.of_topic("a")([0, 1], [5, 6]).all_or_raise() == {0: {5: 5, 6: 6}, 1: {5: 5, 6: 6}}
    assert cluster.asked[1:] == [{"a": ([0, 1], [5, 6])}]


def test_a_failure_is_kept_and_leaves_the_others() -> None:
    cluster = Cluster()
    offsets = KnownOffsets(cluster)
    offsets.ask_ahead({"half": ((0, 1), [5]), "gone": ((0,), [5]), "a": ((0,), [5])})
    for time in (5, 6):
        told = offsets.of_topic("half")([0, 1], [time])
        assert (told.results, told.failures) == ({0: {time: time}}, {1: DOWN})
        assert offsets.of_topic("gone")([0], [time]).failures == {0: GONE}
    assert offsets.of_topic("a")([0], [5]).all_or_raise() == {0: {5: 5}}
    assert cluster.asked[1:] == [{"half": ([0], [6])}]
