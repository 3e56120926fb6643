"""Questions about many topics: they cost what one topic costs, and a topic that fails leaves the others."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, MissingTopicError
from kafka_s3_platform.core.kafka import admin as admin_module
from kafka_s3_platform.core.kafka import offset_admin
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Untold
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.kafka.counting import counting_broker
from kafka_s3_platform_tests.kafka.topics import ask_offsets, delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.kafka.wire import produce as produce_raw

HOUR_MS = 3_600_000
NOWHERE = KafkaSettings(bootstrap_servers="127.0.0.1:31699")


@pytest.fixture
def topics(lab: Lab) -> list[str]:
    """Six topics with two kafka partitions. Topic n has records of hours 10 + n and 20 + n in the first of them."""
    made = [lab.create(f"{lab.topic}-{n}", 2, retention_ms=-1) for n in range(6)]
    for n, topic in enumerate(made):
        for hour in (10 + n, 20 + n):
            produce_raw(lab.kafka.bootstrap_servers, topic, 0, [WireRecord(hour * HOUR_MS)])
    return made


def count_requests(kafka: KafkaSettings, ask: Callable[[ClusterAdmin], object]) -> Counter[str]:
    with (
        counting_broker(kafka.bootstrap_servers) as broker,
        ClusterAdmin(KafkaSettings(bootstrap_servers=broker.bootstrap_servers)) as admin,
    ):
        admin.list_topics()
        before = Counter(broker.asked)
        ask(admin)
        return broker.asked - before


def count_of_topics(kafka: KafkaSettings, topics: list[str]) -> list[Counter[str]]:
    kafka_partitions = dict.fromkeys(topics, (0, 1))
    return [
        count_requests(kafka, lambda admin: admin.describe_topics(topics)),
        count_requests(kafka, lambda admin: admin.frontiers_of(kafka_partitions)),
        count_requests(kafka, lambda admin: admin.newest_records(kafka_partitions)),
    ]


def test_requests_do_not_grow_with_the_topics(lab: Lab, topics: list[str]) -> None:
    # Where no ACLs are told, a broker is asked whether the cluster keeps any: that is the second DescribeConfigs.
    expected = [{"DescribeConfigs": 2, "DescribeAcls": 1}, {"ListOffsets": 3}, {"ListOffsets": 1}]
    for some in (topics[:1], topics[:2], topics):
        counts = count_of_topics(lab.kafka, some)
        # librdkafka asks for metadata by itself too, when it has connected
        assert all(0 < count.pop("Metadata") <= 4 for count in counts)
        assert counts == expected


def test_searches_of_many_topics_take_their_steps_together(lab: Lab, topics: list[str]) -> None:
    def look_up(some: list[str]) -> Counter[str]:
        wanted = {topic: ((0, 1), [hour * HOUR_MS for hour in range(40)]) for topic in some}
        return count_requests(lab.kafka, lambda admin: admin.offsets_for_times_of(wanted))

    alone, together = look_up(topics[:1]), look_up(topics)
    # Records of other topics lie in other hours: their searches have more steps, or fewer.
    assert together["ListOffsets"] <= 2 * alone["ListOffsets"]
    assert together["Metadata"] <= 3


def test_many_topics_are_answered_what_each_is_answered_alone(lab: Lab, topics: list[str]) -> None:
    delete_records(lab.kafka, topics[3], 1)
    times = {topic: [hour * HOUR_MS for hour in range(n, 40)] for n, topic in enumerate(topics)}
    with ClusterAdmin(lab.kafka) as admin:
        described = admin.describe_topics(topics).all_or_raise()
        looked = admin.frontiers_of(dict.fromkeys(topics, (0, 1))).all_or_raise()
        found = admin.offsets_for_times_of({topic: ((0, 1), times[topic]) for topic in topics}).all_or_raise()
        for topic in topics:
            assert described[topic] == admin.describe_topic(topic)
            assert described[topic].configs == {"retention.ms": "-1"}
            alone = admin.frontiers(topic, (0, 1))
            assert {p: (f.log_start_offset, f.high_watermark) for p, f in looked[topic].all_or_raise().items()} == {
                p: (f.log_start_offset, f.high_watermark) for p, f in alone.items()
            }
            assert found[topic].all_or_raise() == ask_offsets(admin, topic, (0, 1), times[topic]).all_or_raise()
    assert found[topics[0]].results[0][11 * HOUR_MS] == 1
    assert found[topics[5]].results[0][11 * HOUR_MS] == 0
    assert found[topics[3]].results[0][3 * HOUR_MS] in (1, Untold.UNTOLD)


def test_a_topic_that_fails_leaves_the_others(lab: Lab, topics: list[str]) -> None:
    good, bad = topics[0], topics[1]
    wanted = dict.fromkeys((good, bad, "no-such-topic"), (0, 1))
    half = answering(lambda topic, p, _, true: NOTHING if (topic, p) == (bad, 1) else true)
    with ClusterAdmin(lab.kafka) as admin, half:
        described = admin.describe_topics(wanted)
        looked = admin.frontiers_of(wanted)
        told = admin.offsets_for_times_of({topic: (each, [HOUR_MS]) for topic, each in wanted.items()})
    assert described.results.keys() == {good, bad}
    for answers in (described, looked, told):
        assert isinstance(answers.failures["no-such-topic"], MissingTopicError)
        assert answers.failures.keys() == {"no-such-topic"}
    for answers in (looked, told):
        assert set(answers.results[good].all_or_raise()) == {0, 1}
        assert set(answers.results[bad].results) == {0}
        assert isinstance(answers.results[bad].failures[1], BrokerUnavailableError)
        assert f"{bad}, kafka partition 1" in str(answers.results[bad].failures[1])


def test_more_topics_than_fit_into_a_request_are_asked_about_in_parts(
    lab: Lab, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (offset_admin, admin_module):
        monkeypatch.setattr(module, "TOPICS_AT_ONCE", 4)
    monkeypatch.setattr(offset_admin, "PLACES_AT_ONCE", 5)
    monkeypatch.setattr(offset_admin, "ANSWERS_IN_FLIGHT", 6)
    times = [hour * HOUR_MS for hour in range(40)]
    wanted = dict.fromkeys(topics, (0, 1))
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.describe_topics(topics).all_or_raise().keys() == set(topics)
        assert [set(look.all_or_raise()) for look in admin.frontiers_of(wanted).all_or_raise().values()] == [
            {0, 1}
        ] * len(topics)
        told = admin.offsets_for_times_of({topic: (each, times) for topic, each in wanted.items()}).all_or_raise()
    for n, topic in enumerate(topics):
        offsets = told[topic].all_or_raise()[0]
        assert [offsets[hour * HOUR_MS] for hour in (10 + n, 11 + n, 20 + n, 21 + n)] == [0, 1, 1, None]
    asked = count_requests(lab.kafka, lambda admin: admin.frontiers_of(wanted))
    assert asked["ListOffsets"] == 9


def test_a_cluster_that_is_down_is_asked_once_whatever_the_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_admin, "TOPICS_AT_ONCE", 2)
    many = [f"t{n}" for n in range(40)]
    begun = time.monotonic()
    with ClusterAdmin(NOWHERE, 1.0) as admin:
        for answers in (admin.describe_topics(many), admin.frontiers_of(dict.fromkeys(many, (0,)))):
            assert answers.failures.keys() == set(many)
            assert all(isinstance(err, BrokerUnavailableError) for err in answers.failures.values())
    assert time.monotonic() - begun < 30
