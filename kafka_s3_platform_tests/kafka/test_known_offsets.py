"""Offsets that were asked for ahead are not asked for again, and what fails is not asked for twice."""

from collections.abc import Mapping

from kafka_s3_platform.errors import BrokerUnavailableError, MissingTopicError
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.kafka.known_offsets import KnownOffsets, Wanted

DOWN = BrokerUnavailableError("kafka partition 1 is down")
GONE = MissingTopicError("topic gone")


class Cluster:
    """Answers each timestamp with itself. Kafka partition 1 of topic `half` is down, topic `gone` is not there."""

    def __init__(self) -> None:
        self.asked: list[dict[str, tuple[list[int], list[int]]]] = []

    def __call__(self, wanted: Wanted, /) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
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
