from datetime import datetime, timezone

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError, ConfigError, MissingTopicError, PermanentError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.segment import TopicAcl
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import delete_records, open_transaction, produce, until
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.kafka.wire import produce as produce_raw

HOUR_MS = 3_600_000


def test_a_topic_is_described_with_its_id_kafka_partitions_and_own_configs(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name, 3, retention_ms=-1)
    with ClusterAdmin(kafka_settings) as admin:
        found = admin.describe_topic(topic_name)
        assert (found.topic, found.kafka_partitions) == (topic_name, (0, 1, 2))
        assert dict(found.configs) == {"retention.ms": "-1"}
        assert found.topic_id == admin.describe_topic(topic_name).topic_id != ""
        assert admin.topic_configs(topic_name)["message.timestamp.type"] == "CreateTime"
        assert found.replication_factor == 1
        assert found.operations is not None
        assert {"READ", "WRITE", "DESCRIBE"} <= found.operations


def test_a_cluster_is_described_with_its_brokers_and_rights(kafka_settings: KafkaSettings) -> None:
    with ClusterAdmin(kafka_settings) as admin:
        found = admin.describe_cluster()
    assert (found.broker_count, found.cluster_id != "") == (1, True)
    assert found.operations is not None
    assert "CREATE" in found.operations


def test_a_closed_client_has_ended_whoever_still_holds_it(kafka_settings: KafkaSettings) -> None:
    with ClusterAdmin(kafka_settings) as admin:
        admin.topics()
    with pytest.raises(RuntimeError, match="closed"):
        admin.topics()


def test_the_acls_of_a_cluster_that_keeps_none_are_unknown(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name)
    with ClusterAdmin(kafka_settings) as admin:
        assert admin.topic_acls(topic_name) is None
        assert admin.describe_topic(topic_name).generation.acls is None
        with pytest.raises(PermanentError, match=f"giving topic {topic_name} an ACL for User:a"):
            admin.create_topic_acls(topic_name, [TopicAcl("User:a", "*", "READ", "ALLOW")])


def test_a_topic_can_be_created_once(kafka_settings: KafkaSettings, topic_name: str) -> None:
    with ClusterAdmin(kafka_settings) as admin:
        assert not admin.topic_exists(topic_name)
        admin.create_topic(topic_name, 2, configs={"cleanup.policy": "compact"})
        assert admin.topic_exists(topic_name)
        assert admin.describe_topic(topic_name).configs["cleanup.policy"] == "compact"
        with pytest.raises(PermanentError, match=f"creating topic {topic_name}.*already exists"):
            admin.create_topic(topic_name, 2)


def test_all_topics_are_listed(kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str) -> None:
    create_topic(topic_name)
    with ClusterAdmin(kafka_settings) as admin:
        assert topic_name in admin.topics()
    nowhere = ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), 1.0)
    with nowhere, pytest.raises(BrokerUnavailableError, match="listing topics"):
        nowhere.topics()


def test_a_missing_topic_or_kafka_partition_is_named(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name)
    with ClusterAdmin(kafka_settings) as admin:
        with pytest.raises(MissingTopicError, match="no-such-topic"):
            admin.describe_topic("no-such-topic")
        with pytest.raises(MissingTopicError, match="no-such-topic"):
            admin.frontiers("no-such-topic", [0])
        with pytest.raises(MissingTopicError, match=f"{topic_name}, kafka partition 7"):
            admin.frontiers(topic_name, [0, 7])


def test_an_unreachable_broker_is_named_with_the_reason() -> None:
    with (
        ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1) as admin,
        pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1.*Connection refused"),
    ):
        admin.describe_topic("t")


def test_an_unknown_client_property_is_named_and_its_value_is_not() -> None:
    wrong = KafkaSettings(bootstrap_servers="127.0.0.1:1", common={"no.such.key": SecretStr("hidden")})
    with pytest.raises(ConfigError, match=r"no\.such\.key") as raised:
        ClusterAdmin(wrong)
    assert "hidden" not in str(raised.value)


def test_a_frontier_tells_log_start_last_stable_offset_and_high_watermark_apart(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name, 2)
    produce(kafka_settings, topic_name, [b"a"] * 5)
    delete_records(kafka_settings, topic_name, 2)
    transaction = open_transaction(kafka_settings, topic_name, [b"t"] * 3)
    before = datetime.now(timezone.utc)
    with ClusterAdmin(kafka_settings) as admin:
        found = admin.frontiers(topic_name, (0, 1))
    assert (found[0].log_start_offset, found[0].last_stable_offset, found[0].high_watermark) == (2, 5, 8)
    assert (found[1].log_start_offset, found[1].last_stable_offset, found[1].high_watermark) == (0, 0, 0)
    assert found[0].leader_epoch is not None
    assert before <= found[0].observed_at <= datetime.now(timezone.utc)
    transaction.abort_transaction(30)


def test_offsets_for_times_are_those_of_the_first_record_at_or_after_each(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name, 2)
    hours = {0: [10, 10, 12, 11, 5000], 1: [10]}
    for kafka_partition, each in hours.items():
        for hour in each:
            record = WireRecord(hour * HOUR_MS)
            produce_raw(kafka_settings.bootstrap_servers, topic_name, kafka_partition, [record])
    asked = [hour * HOUR_MS for hour in range(6000)]
    with ClusterAdmin(kafka_settings) as admin:
        found = admin.offsets_for_times(topic_name, (0, 1), asked)
    assert sorted(found) == asked
    for hour in range(6000):
        expected = {p: next((i for i, h in enumerate(each) if h >= hour), None) for p, each in hours.items()}
        assert found[hour * HOUR_MS] == expected


def test_a_record_of_an_open_transaction_is_at_no_time_yet(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name)
    transaction = open_transaction(kafka_settings, topic_name, [b"t"])
    with ClusterAdmin(kafka_settings) as admin:
        assert admin.offsets_for_times(topic_name, [0], [0]) == {0: {0: None}}
        transaction.commit_transaction(30)
        until(30, lambda: admin.offsets_for_times(topic_name, [0], [0]) == {0: {0: 0}})
        assert admin.offsets_for_times(topic_name, [0], []) == {}
        with pytest.raises(ValueError, match="below 0"):
            admin.offsets_for_times(topic_name, [0], [-1])
