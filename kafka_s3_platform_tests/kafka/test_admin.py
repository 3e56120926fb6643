"""ACLs and rights, on a broker that keeps them."""

import socketserver
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, ConfigError, MissingTopicError, PermanentError
from kafka_s3_platform.core.kafka import client as admin_calls
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Untold
from kafka_s3_platform.core.kafka.groups import list_groups
from kafka_s3_platform.core.model.segment import TopicAcl
from kafka_s3_platform.core.restore.preflight.target import check_rights
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLies, lying_broker
from kafka_s3_platform_tests.conftest import Lab, own_stack
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering, nothing
from kafka_s3_platform_tests.kafka.topics import (
    ask_frontiers,
    ask_offsets,
    delete_records,
    open_transaction,
    produce,
    until,
)
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.kafka.wire import produce as produce_raw
from kafka_s3_platform_tests.restore.plans import request
from kafka_s3_platform_tests.store.http_proxy import running

HOUR_MS = 3_600_000


def test_a_topic_is_described_with_its_id_kafka_partitions_and_own_configs(lab: Lab) -> None:
    lab.create_topic(3, retention_ms=-1)
    with ClusterAdmin(lab.kafka) as admin:
        found = admin.describe_topic(lab.topic)
        assert (found.topic, found.kafka_partitions) == (lab.topic, (0, 1, 2))
        assert dict(found.configs) == {"retention.ms": "-1"}
        assert found.topic_id == admin.describe_topic(lab.topic).topic_id != ""
        assert admin.read_topic_configs(lab.topic)["message.timestamp.type"] == "CreateTime"
        assert found.replication_factor == 1
        assert found.operations is not None
        assert {"READ", "WRITE", "DESCRIBE"} <= found.operations


def test_a_cluster_is_described_with_its_brokers_and_rights(lab: Lab) -> None:
    with ClusterAdmin(lab.kafka) as admin:
        found = admin.describe_cluster()
    assert (found.broker_count, found.cluster_id != "") == (1, True)
    assert found.operations is not None
    assert "CREATE" in found.operations


def test_a_closed_client_has_ended_whoever_still_holds_it(lab: Lab) -> None:
    with ClusterAdmin(lab.kafka) as admin:
        admin.list_topics()
    with pytest.raises(RuntimeError, match="closed"):
        admin.list_topics()


def test_the_acls_of_a_cluster_that_keeps_none_are_unknown(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.read_topic_acls([lab.topic])[lab.topic] is None
        assert admin.describe_topic(lab.topic).generation.acls is None
        with pytest.raises(PermanentError, match=f"giving topic {lab.topic} an ACL for User:a"):
            admin.create_topic_acls(lab.topic, [TopicAcl("User:a", "*", "READ", "ALLOW")])


def test_a_topic_can_be_created_once(lab: Lab) -> None:
    with ClusterAdmin(lab.kafka) as admin:
        assert not admin.topic_exists(lab.topic)
        admin.create_topic(lab.topic, 2, configs={"cleanup.policy": "compact"})
        assert admin.topic_exists(lab.topic)
        assert admin.describe_topic(lab.topic).configs["cleanup.policy"] == "compact"
        with pytest.raises(PermanentError, match=f"creating topic {lab.topic}.*already exists"):
            admin.create_topic(lab.topic, 2)


def test_a_new_topic_is_usable_when_its_leaders_answer_what_can_be(lab: Lab) -> None:
    left = iter([NOTHING] * 4)
    with ClusterAdmin(lab.kafka) as admin:
        with answering(lambda _, __, ___, true: next(left, true)):
            admin.create_topic(lab.topic, 2)
        assert next(left, None) is None
    with (
        ClusterAdmin(lab.kafka, 3.0) as admin,
        answering(nothing),
        pytest.raises(BrokerUnavailableError, match="not every kafka partition has a leader that answers"),
    ):
        admin.create_topic(f"{lab.topic}-2", 2)


def test_all_topics_are_listed(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin:
        assert lab.topic in admin.list_topics()
    nowhere = ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), 1.0)
    with nowhere, pytest.raises(BrokerUnavailableError, match="listing topics"):
        nowhere.list_topics()


def test_a_missing_topic_or_kafka_partition_is_named(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin:
        with pytest.raises(MissingTopicError, match="no-such-topic"):
            admin.describe_topic("no-such-topic")
        with pytest.raises(MissingTopicError, match="no-such-topic"):
            admin.frontiers("no-such-topic", [0])
        with pytest.raises(MissingTopicError, match=f"{lab.topic}, kafka partition 7"):
            admin.frontiers(lab.topic, [0, 7])
        with pytest.raises(MissingTopicError, match=rf"create the topic\. Did you mean {lab.topic}\?"):
            admin.describe_topic(f"{lab.topic}s")


def test_leaders_are_known_before_offsets_are_asked_for(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka would look for them in the thread that asks, which is unsafe while another answer arrives."""
    lab.create_topic(2)
    other = lab.create(f"{lab.topic}-2")
    talkative = lab.kafka.model_copy(update={"common": {**lab.kafka.common, "debug": SecretStr("metadata")}})
    # the package's logger too: a command that ran in this process before has set its level
    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", "kafka_s3_platform"):
        with ClusterAdmin(talkative) as admin:
            admin.frontiers(lab.topic, [0, 1])
        with ClusterAdmin(talkative) as admin:
            ask_offsets(admin, lab.topic, [0, 1], range(0, 100 * HOUR_MS, HOUR_MS)).all_or_raise()
        with ClusterAdmin(talkative) as admin:
            admin.newest_records({lab.topic: [0, 1], other: [0]})
        with ClusterAdmin(talkative) as admin:
            admin.frontiers_of({lab.topic: [0, 1], other: [0]})
    said = [record.getMessage() for record in caplog.records]
    assert any("describe topics" in line for line in said)
    assert not [line for line in said if "query partition leaders" in line]


def test_one_without_a_leader_says_so_and_the_others_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.create_topic(2)
    describe_topics = AdminClient.describe_topics

    def without_leader(client: AdminClient, *args: Any, **more: Any) -> Any:
        found = describe_topics(client, *args, **more)
        found[lab.topic].result(30).partitions[1].leader = None
        return found

    monkeypatch.setattr(AdminClient, "describe_topics", without_leader)
    with ClusterAdmin(lab.kafka) as admin:
        looked = ask_frontiers(admin, lab.topic, [0, 1])
        told = ask_offsets(admin, lab.topic, [0, 1], [0])
    for answers in (looked, told):
        assert set(answers.results) == {0}
        assert isinstance(answers.failures[1], BrokerUnavailableError)
        assert "kafka partition 1 has no leader" in str(answers.failures[1])


def test_leaders_that_were_just_seen_are_not_asked_for_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning may ask for each kafka partition alone, and every answer names all leaders of the topic."""
    lab.create_topic(3)
    asked: list[str] = []
    describe_topics = AdminClient.describe_topics

    def counted(client: AdminClient, topics: TopicCollection, **more: Any) -> Any:
        asked.extend(topics.topic_names)
        return describe_topics(client, topics, **more)

    monkeypatch.setattr(AdminClient, "describe_topics", counted)
    with ClusterAdmin(lab.kafka) as admin:
        for kafka_partition in range(3):
            ask_offsets(admin, lab.topic, [kafka_partition], [0, HOUR_MS]).all_or_raise()
        assert asked == [lab.topic]
        with pytest.raises(MissingTopicError, match="kafka partition 3"):
            admin.frontiers(lab.topic, [3])
        assert asked == [lab.topic] * 2


def test_a_topic_deleted_after_its_leaders_were_seen_is_told_and_found_again(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin:
        admin.frontiers(lab.topic, [0])
        admin.ask(lambda client, timeout: client.delete_topics([lab.topic], request_timeout=timeout)[lab.topic], "")
        until(lambda: not admin.topic_exists(lab.topic))
        with pytest.raises(MissingTopicError, match=lab.topic):
            admin.frontiers(lab.topic, [0])
        admin.create_topic(lab.topic, 2)
        assert admin.frontiers(lab.topic, [0, 1]).keys() == {0, 1}


def test_an_unreachable_broker_is_named_with_the_reason() -> None:
    with (
        ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1) as admin,
        pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1.*Connection refused"),
    ):
        admin.describe_topic("t")


def test_a_port_that_answers_by_another_protocol_is_told_from_a_broker_that_is_down() -> None:
    class Http(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # as nginx, which waits for no whole request

    with (
        running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Http)) as server,
        ClusterAdmin(KafkaSettings(bootstrap_servers=f"127.0.0.1:{server.server_address[1]}"), 1) as admin,
        pytest.raises(BrokerUnavailableError, match=r"KS-KAFKA-TLS.*does not speak Kafka"),
    ):
        admin.describe_cluster()


def test_a_cluster_that_never_answered_is_soon_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with lying_broker(lab.kafka.bootstrap_servers, KafkaLies("none")) as broker:
        gone = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        with ClusterAdmin(gone, begins=True) as admin:
            admin.describe_cluster()
    monkeypatch.setattr(admin_calls, "GRACE_SECONDS", 2.0)
    monkeypatch.setattr(admin_calls, "BEGIN_SECONDS", 1.0)

    def wait_for(settings: KafkaSettings, timeout_seconds: int, *, begins: bool) -> float:
        begun = time.monotonic()
        with (
            ClusterAdmin(settings, timeout_seconds, begins=begins) as admin,
            pytest.raises(BrokerUnavailableError, match="Connection refused"),
        ):
            admin.describe_cluster()
        return time.monotonic() - begun

    never = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    with ClusterAdmin(never, timeout_seconds=1) as admin:
        assert list_groups(admin).errors  # is a result of the client, and no answer of the cluster
    assert wait_for(never, 20, begins=True) < 10
    assert wait_for(never, 2, begins=False) > 1.9
    assert wait_for(gone, 2, begins=True) > 1.9


def test_an_unknown_client_property_is_named_and_its_value_is_not() -> None:
    wrong = KafkaSettings(bootstrap_servers="127.0.0.1:1", common={"no.such.key": SecretStr("hidden")})
    with pytest.raises(ConfigError, match=r"no\.such\.key") as raised:
        ClusterAdmin(wrong)
    assert "hidden" not in str(raised.value)


def test_a_frontier_tells_log_start_last_stable_offset_and_high_watermark_apart(lab: Lab) -> None:
    lab.create_topic(2)
    produce(lab.kafka, lab.topic, [b"a"] * 5)
    delete_records(lab.kafka, lab.topic, 2)
    transaction = open_transaction(lab.kafka, lab.topic, [b"t"] * 3)
    before = datetime.now(timezone.utc)
    with ClusterAdmin(lab.kafka) as admin:
        found = admin.frontiers(lab.topic, (0, 1))
    assert (found[0].log_start_offset, found[0].last_stable_offset, found[0].high_watermark) == (2, 5, 8)
    assert (found[1].log_start_offset, found[1].last_stable_offset, found[1].high_watermark) == (0, 0, 0)
    assert found[0].leader_epoch is not None
    assert before <= found[0].observed_at <= datetime.now(timezone.utc)
    transaction.abort_transaction(30)


def test_offsets_for_times_are_those_of_the_first_record_at_or_after_each(lab: Lab) -> None:
    lab.create_topic(2)
    hours = {0: [10, 10, 12, 11, 5000], 1: [10]}
    for kafka_partition, each in hours.items():
        for hour in each:
            record = WireRecord(hour * HOUR_MS)
            produce_raw(lab.kafka.bootstrap_servers, lab.topic, kafka_partition, [record])
    asked = [hour * HOUR_MS for hour in range(6000)]
    with ClusterAdmin(lab.kafka) as admin:
        found = ask_offsets(admin, lab.topic, (0, 1), asked).all_or_raise()
    for kafka_partition, each in hours.items():
        assert sorted(found[kafka_partition]) == asked
        for hour in range(6000):
            expected = next((i for i, h in enumerate(each) if h >= hour), None)
            assert found[kafka_partition][hour * HOUR_MS] == expected


def test_whether_a_record_of_an_open_transaction_is_at_a_time_is_not_known_yet(lab: Lab) -> None:
    lab.create_topic()
    transaction = open_transaction(lab.kafka, lab.topic, [b"t"])
    with ClusterAdmin(lab.kafka) as admin:
        assert ask_offsets(admin, lab.topic, [0], [0, 2**50]).all_or_raise() == {0: {0: Untold.UNTOLD, 2**50: None}}
        transaction.commit_transaction(30)
        until(lambda: ask_offsets(admin, lab.topic, [0], [0]).all_or_raise() == {0: {0: 0}})
        assert ask_offsets(admin, lab.topic, [0], []).all_or_raise() == {0: {}}
        with pytest.raises(ValueError, match="below 0"):
            ask_offsets(admin, lab.topic, [0], [-1])


@pytest.mark.parametrize("question", ["earliest", "latest", "stable"])
@pytest.mark.parametrize("told", [NOTHING, -1, -2])
def test_a_negative_offset_is_no_bound_of_a_log(lab: Lab, question: str, told: int) -> None:
    lab.create_topic(2)
    one = answering(lambda _, p, asked, true: told if (p, asked) == (1, question) else true)
    with ClusterAdmin(lab.kafka) as admin, one:
        with pytest.raises(BrokerUnavailableError, match=f"{lab.topic}, kafka partition 1.*answered {told} as"):
            admin.frontiers(lab.topic, (0, 1))
        seen = ask_frontiers(admin, lab.topic, (0, 1))
    assert (list(seen.results), list(seen.failures)) == ([0], [1])


def test_no_log_ends_before_it_starts(lab: Lab) -> None:
    lab.create_topic()
    with ClusterAdmin(lab.kafka) as admin:
        for latest in (9, 4):
            starts_at_five = {"earliest": 5, "latest": latest, "stable": 4}
            with (
                answering(lambda *asked: starts_at_five[asked[2]]),  # noqa: B023 - used at once
                pytest.raises(BrokerUnavailableError, match=r"log starts at offset 5 and .* 4, which cannot be"),
            ):
                admin.frontiers(lab.topic, [0])
        # one answer that is too low is contradicted by the other
        too_low = {"earliest": 5, "latest": 4, "stable": 9}
        with answering(lambda *asked: too_low[asked[2]]):
            assert admin.frontiers(lab.topic, [0])[0].high_watermark == 9


def test_an_answer_that_is_right_a_moment_later_is_waited_for(lab: Lab) -> None:
    lab.create_topic(3)
    produce(lab.kafka, lab.topic, [b"v"] * 2, 1)
    left = {(1, "latest"): 3, (2, "earliest"): 1, (1, 0): 2}

    def goes_down(_: str, kafka_partition: int, question: str | int, true: int) -> int:
        place = kafka_partition, question
        left[place] = left.get(place, 0) - 1
        return NOTHING if left[place] >= 0 else true

    with ClusterAdmin(lab.kafka) as admin, answering(goes_down, 30.0) as lies:
        found = admin.frontiers(lab.topic, range(3))
        assert {p: f.high_watermark for p, f in found.items()} == {0: 0, 1: 2, 2: 0}
        assert len({f.observed_at for f in found.values()}) == 1
        assert ask_offsets(admin, lab.topic, range(3), [0]).all_or_raise() == {
            0: {0: None},
            1: {0: 0},
            2: {0: None},
        }
    assert sum(p == 0 for _, p, _ in lies.asked) == 5


def test_no_record_so_late_is_not_believed_where_a_later_one_was_there(lab: Lab) -> None:
    """A broker looks into the first segment that ever had one: here the first, whose only late record is deleted."""
    lab.create_topic(2, segment_bytes=1_048_576)
    for hour, size in ((100, 1), (1, 700_000), (2, 700_000), (3, 700_000)):
        produce_raw(lab.kafka.bootstrap_servers, lab.topic, 0, [WireRecord(hour * HOUR_MS, value=b"v" * size)])
    delete_records(lab.kafka, lab.topic, 1)
    asked = [hour * HOUR_MS for hour in (1, 2, 3, 100, 101)]
    with ClusterAdmin(lab.kafka) as admin:
        found = ask_offsets(admin, lab.topic, (0, 1), asked).all_or_raise()
        assert set(found[1].values()) == {None}
        assert [found[0][t] for t in asked] == [1, Untold.UNTOLD, Untold.UNTOLD, Untold.UNTOLD, None]
        produce_raw(lab.kafka.bootstrap_servers, lab.topic, 0, [WireRecord(101 * HOUR_MS)])
        assert ask_offsets(admin, lab.topic, [0], asked).all_or_raise()[0][101 * HOUR_MS] == 4


def test_a_record_that_comes_while_the_newest_is_asked_for_is_no_doubt(lab: Lab) -> None:
    lab.create_topic()
    produce_raw(lab.kafka.bootstrap_servers, lab.topic, 0, [WireRecord(HOUR_MS)])
    late = [5 * HOUR_MS]

    def comes_then(_: str, __: int, question: str | int, true: int) -> int:
        if question == 5 * HOUR_MS and late:
            produce_raw(lab.kafka.bootstrap_servers, lab.topic, 0, [WireRecord(late.pop())])
        return true

    with ClusterAdmin(lab.kafka) as admin, answering(comes_then):
        assert ask_offsets(admin, lab.topic, [0], [5 * HOUR_MS]).all_or_raise() == {0: {5 * HOUR_MS: 1}}


def test_only_minus_one_says_that_there_is_no_record_so_late(lab: Lab) -> None:
    lab.create_topic()
    produce(lab.kafka, lab.topic, [b"v"])
    with ClusterAdmin(lab.kafka) as admin:
        with answering(lambda *_: -1):
            assert ask_offsets(admin, lab.topic, [0], [5]).all_or_raise() == {0: {5: None}}
        with (
            answering(nothing),
            pytest.raises(
                BrokerUnavailableError, match=f"timestamp 5 ms in topic {lab.topic}, kafka partition 0.*-1001"
            ),
        ):
            ask_offsets(admin, lab.topic, [0], [5]).all_or_raise()


def test_looking_tolerates_single_kafka_partitions_and_no_missing_topic(lab: Lab) -> None:
    lab.create_topic(2)
    with ClusterAdmin(lab.kafka) as admin:
        seen = ask_frontiers(admin, lab.topic, (1, 7, 0))
        assert set(seen.results) == {0, 1}
        assert isinstance(seen.failures[7], MissingTopicError)
        assert ask_frontiers(admin, lab.topic, ()).results == {}
        with pytest.raises(MissingTopicError, match="no-such-topic"):
            ask_frontiers(admin, "no-such-topic", [0])


def test_the_last_stable_offset_is_asked_for_after_the_high_watermark(lab: Lab) -> None:
    """Records that come between the two questions must not look like an open transaction."""
    lab.create_topic()

    def writes(topic: str, _: int, question: str | int, true: int) -> int:
        if question == "latest":
            produce(lab.kafka, topic, [b"v"])
        return true

    with ClusterAdmin(lab.kafka) as admin, answering(writes):
        for _ in range(3):
            found = admin.frontiers(lab.topic, [0])[0]
            assert found.last_stable_offset == found.high_watermark


def test_the_newest_record_is_one_that_is_there(lab: Lab) -> None:
    lab.create_topic(2)
    times = [12, 10]
    produce_raw(lab.kafka.bootstrap_servers, lab.topic, 0, [WireRecord(h * HOUR_MS) for h in times])
    with ClusterAdmin(lab.kafka) as admin:
        told = admin.newest_records({lab.topic: (0, 1), "no-such-topic": (0,)})
        assert isinstance(told.failures["no-such-topic"], MissingTopicError)
        assert told.results[lab.topic].all_or_raise() == {0: (0, 12 * HOUR_MS)}
        with answering(nothing), pytest.raises(BrokerUnavailableError, match=r"newest record of .*-1001"):
            admin.newest_records({lab.topic: (0, 1)}).all_or_raise()[lab.topic].all_or_raise()


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ACLS = (
    TopicAcl("User:alice", "*", "READ", "ALLOW"),
    TopicAcl("User:bob", "10.0.0.1", "ALL", "ALLOW"),
    TopicAcl("User:mallory", "*", "WRITE", "DENY"),
)


@pytest.fixture(scope="module")
def guarded(stack_settings: StackSettings) -> Iterator[KafkaSettings]:
    """A cluster with an authorizer, which allows everyone what has no ACL."""
    with own_stack(stack_settings, kafka_properties=AUTHORIZER) as settings:
        embedded.start_servers((Broker(settings),))
        yield KafkaSettings(bootstrap_servers=settings.bootstrap_servers)


def test_acls_of_a_topic_are_given_and_read_back_by_its_literal_name(guarded: KafkaSettings, topic_name: str) -> None:
    with ClusterAdmin(guarded) as admin:
        admin.create_topic(topic_name, 1)
        assert admin.read_topic_acls([topic_name])[topic_name] == ()
        assert admin.read_topic_acls(["no-such-topic"])["no-such-topic"] == ()
        before = admin.describe_topic(topic_name)
        assert before.operations is not None
        assert list(check_rights(request(), before.operations, None)) == []

        admin.create_topic_acls(topic_name, ACLS)
        admin.create_topic_acls(topic_name, ACLS[:1])

        until(lambda: admin.read_topic_acls([topic_name])[topic_name] == ACLS)
        assert admin.read_topic_acls([topic_name[:-1]])[topic_name[:-1]] == ()


def test_rights_that_an_acl_takes_away_are_found_missing(guarded: KafkaSettings, topic_name: str) -> None:
    with ClusterAdmin(guarded) as admin:
        admin.create_topic(topic_name, 1)
        before = admin.describe_topic(topic_name)
        everyone = [TopicAcl("User:ANONYMOUS", "*", name, "ALLOW") for name in ("READ", "DESCRIBE_CONFIGS")]
        admin.create_topic_acls(topic_name, everyone)
        # the controller has taken them, and the broker learns of it some time later
        until(lambda: admin.describe_topic(topic_name).operations != before.operations)

        found = admin.describe_topic(topic_name)

        assert found.operations is not None
        [finding] = check_rights(request(), found.operations, None)
        assert (finding.refuses, "lack WRITE on" in finding.text) == (True, True)
        assert found.generation.acls == tuple(sorted(everyone))
