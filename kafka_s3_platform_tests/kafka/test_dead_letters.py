"""Dead letters on a real broker, and what becomes of failures that are not tolerated."""

import logging
from collections.abc import Sequence

import pytest

from kafka_s3_platform.config.settings import ErrorSettings, KafkaSettings
from kafka_s3_platform.errors import ConfigError, IntegrityError, PreflightError, RecordError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.dead_letters import DeadLetterQueue, check_tolerance
from kafka_s3_platform.model.connect import RecordFailure
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import record_batch, records_of

CONVERTER = "JsonConverter"
RECORDS = record_batch(
    [
        {"offset": 10, "partition": 3, "key": b"k", "value": b"\xff\x00", "timestamp": 1_700_000_000_123},
        {"offset": 12, "partition": 3},
        {"offset": 15, "partition": 3, "value": None, "headers": [{"key": "h", "value": None}]},
    ]
)


def failure(offset: int, message: str = "no JSON") -> RecordFailure:
    return RecordFailure(offset, "VALUE_CONVERTER", CONVERTER, "DataException", message)


@pytest.fixture
def errors(topic_name: str) -> ErrorSettings:
    return ErrorSettings(
        tolerance="all",
        dead_letter_topic=f"{topic_name}.dlq",
        dead_letter_replication_factor=1,
        dead_letter_headers=True,
    )


def send(kafka: KafkaSettings, errors: ErrorSettings, failures: Sequence[RecordFailure]) -> None:
    with DeadLetterQueue(kafka, errors, "c", "flights") as letters:
        letters.send(RECORDS, failures)
        letters.flush()


def test_a_failed_record_arrives_as_it_was_with_connects_headers(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    send(kafka_settings, errors, [failure(15), failure(10, "ü at 1")])
    first, second = records_of(kafka_settings, str(errors.dead_letter_topic)).to_pylist()
    assert (first["key"], first["value"]) == (b"k", b"\xff\x00")
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert {h["key"]: h["value"].decode() for h in first["headers"]} == {
        "__connect.errors.topic": "flights",
        "__connect.errors.partition": "3",
        "__connect.errors.offset": "10",
        "__connect.errors.connector.name": "c",
        "__connect.errors.task.id": "0",
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": CONVERTER,
        "__connect.errors.exception.class.name": "DataException",
        "__connect.errors.exception.message": "ü at 1",
        "__connect.errors.exception.stacktrace": f"DataException: ü at 1\n\tat {CONVERTER}\n",
    }
    assert (second["key"], second["value"], second["headers"][0]) == (None, None, {"key": "h", "value": None})


def test_without_context_headers_a_letter_has_those_of_the_record_alone(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    send(kafka_settings, errors.model_copy(update={"dead_letter_headers": False}), [failure(12), failure(15)])
    headers = records_of(kafka_settings, str(errors.dead_letter_topic)).column("headers").to_pylist()
    assert headers == [None, [{"key": "h", "value": None}]]


def test_a_header_that_the_record_has_already_is_not_replaced(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    told = [{"key": "__connect.errors.offset", "value": b"1"}]
    with DeadLetterQueue(kafka_settings, errors, "c", "flights") as letters:
        letters.send(record_batch([{"offset": 10, "headers": told}]), [failure(10)])
        letters.flush()
    [record] = records_of(kafka_settings, str(errors.dead_letter_topic)).to_pylist()
    found = [h["value"] for h in record["headers"] if h["key"] == "__connect.errors.offset"]
    assert found == [b"1"]


def test_a_record_that_failed_in_several_ways_is_one_letter(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    send(kafka_settings, errors, [failure(12, "first"), failure(12, "second")])
    [record] = records_of(kafka_settings, str(errors.dead_letter_topic)).to_pylist()
    assert [h["value"] for h in record["headers"] if h["key"].endswith("exception.message")] == [b"first"]


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_a_record_without_a_timestamp_gets_the_time_of_sending(
    kafka_settings: KafkaSettings, errors: ErrorSettings, timestamp: int
) -> None:
    with DeadLetterQueue(kafka_settings, errors, "c", "flights") as letters:
        letters.send(record_batch([{"offset": 1, "timestamp": timestamp}]), [failure(1)])
        letters.flush()
    [record] = records_of(kafka_settings, str(errors.dead_letter_topic)).to_pylist()
    assert record["timestamp"].year >= 2026


def test_the_topic_is_created_once_with_one_kafka_partition(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    send(kafka_settings, errors, [failure(10)])
    send(kafka_settings, errors, [failure(12)])
    with ClusterAdmin(kafka_settings) as admin:
        assert admin.describe_topic(str(errors.dead_letter_topic)).kafka_partitions == (0,)
    assert records_of(kafka_settings, str(errors.dead_letter_topic)).num_rows == 2


def test_without_a_failure_nothing_is_created(kafka_settings: KafkaSettings, errors: ErrorSettings) -> None:
    send(kafka_settings, errors, [])
    with ClusterAdmin(kafka_settings) as admin:
        assert not admin.topic_exists(str(errors.dead_letter_topic))


def test_more_replicas_than_brokers_are_refused_with_the_key(
    kafka_settings: KafkaSettings, errors: ErrorSettings
) -> None:
    three = errors.model_copy(update={"dead_letter_replication_factor": 3})
    with pytest.raises(
        ConfigError, match=r"c, topic flights.*errors\.deadletterqueue\.topic\.replication\.factor is 3"
    ):
        send(kafka_settings, three, [failure(10)])


def test_a_letter_that_the_topic_does_not_take_fails_the_task_with_its_offset(
    kafka_settings: KafkaSettings, errors: ErrorSettings, create_topic: CreateTopic
) -> None:
    create_topic(str(errors.dead_letter_topic), max_message_bytes=2000)
    large = record_batch([{"offset": 7, "value": b"v" * 5000}])
    with (
        DeadLetterQueue(kafka_settings, errors, "c", "flights") as letters,
        pytest.raises(PreflightError, match=r"c, topic flights.*source offset 7"),
    ):
        letters.send(large, [failure(7)])


def test_a_failure_of_a_record_that_is_not_there_is_a_defect(errors: ErrorSettings) -> None:
    for offset in (9, 11, 16):
        with pytest.raises(IntegrityError, match=f"{offset}.*defect"):
            send(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), errors, [failure(offset)])


@pytest.mark.parametrize("include_messages", [False, True])
def test_without_a_topic_failures_are_logged_and_contents_only_if_asked_for(
    caplog: pytest.LogCaptureFixture, include_messages: bool
) -> None:
    logged = ErrorSettings(tolerance="all", log_enable=True, log_include_messages=include_messages)
    with caplog.at_level(logging.ERROR):
        send(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), logged, [failure(10), failure(15)])
    first, second = caplog.messages
    assert "flights-3@10: " in first
    assert "VALUE_CONVERTER by JsonConverter failed: DataException: no JSON" in first
    assert ("key b'k', value b'\\xff\\x00'" in first) == include_messages
    assert ("key null, value null" in second) == include_messages


def test_failures_are_not_logged_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        send(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), ErrorSettings(tolerance="all"), [failure(10)])
    assert caplog.messages == []


def test_a_failure_that_is_not_tolerated_names_its_record_the_stage_and_what_to_do() -> None:
    with pytest.raises(RecordError) as raised:
        check_tolerance(ErrorSettings(), [failure(15), failure(12)], "flights", 3)
    for told in ("flights-3@12", "VALUE_CONVERTER", "no JSON", "errors.tolerance=all", "deadletterqueue.topic.name"):
        assert told in str(raised.value)


def test_tolerated_failures_and_none_at_all_are_no_error() -> None:
    check_tolerance(ErrorSettings(tolerance="all"), [failure(12)], "flights", 3)
    check_tolerance(ErrorSettings(), [], "flights", 3)
