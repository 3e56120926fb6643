"""Dead letters on a real broker, and what becomes of failures that are not tolerated."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ErrorSettings, KafkaSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, RecordError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.dead_letters import (
    MAX_LETTERS,
    MAX_REFUSED_ALONE,
    DeadLetterQueue,
    build_record_error,
    check_tolerance,
)
from kafka_s3_platform.core.model.connect import LETTER_HEADER, LETTER_REFUSED, LETTER_RETURNED, RecordFailure
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
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


@pytest.fixture(scope="module")
def _flights(create_topic: CreateTopic) -> None:
    """The topic whose records fail."""
    create_topic("flights")


@pytest.fixture
def errors(topic_name: str, _flights: None) -> ErrorSettings:
    return ErrorSettings(
        tolerance="all",
        dead_letter_topic=f"{topic_name}.dlq",
        dead_letter_replication_factor=1,
        dead_letter_headers=True,
    )


def send(kafka: KafkaSettings, errors: ErrorSettings, failures: Sequence[RecordFailure]) -> None:
    with DeadLetterQueue(kafka, errors, "c", "flights") as letters:
        letters.send(RECORDS, failures)


def test_a_failed_record_arrives_as_it_was_with_connects_headers(lab: Lab, errors: ErrorSettings) -> None:
    send(lab.kafka, errors, [failure(15), failure(10, "ü at 1")])
    first, second = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
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
        "kafka_s3.dead_letter": "c",
    }
    assert (second["key"], second["value"], second["headers"][0]) == (None, None, {"key": "h", "value": None})


def test_without_context_a_letter_has_its_records_headers_and_a_mark(lab: Lab, errors: ErrorSettings) -> None:
    send(lab.kafka, errors.model_copy(update={"dead_letter_headers": False}), [failure(12), failure(15)])
    headers = records_of(lab.kafka, str(errors.dead_letter_topic)).column("headers").to_pylist()
    mark = {"key": LETTER_HEADER, "value": b"c"}
    assert headers == [[mark], [{"key": "h", "value": None}, mark]]


def test_a_letter_that_comes_back_is_no_letter_for_ever(lab: Lab, errors: ErrorSettings) -> None:
    """Two connectors, maybe of two installations, archive each other's dead letter topics."""
    topic = str(errors.dead_letter_topic)
    good = {"offset": 99, "headers": [{"key": LETTER_HEADER, "value": b"other"}] * 9}
    records = record_batch([{"offset": 0}, good])
    for _ in range(MAX_LETTERS):
        with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
            assert not letters.send(records, [failure(0), failure(99)])
        came = records_of(lab.kafka, topic).to_pylist()[-2]
        records = record_batch([{"offset": 0, "headers": came["headers"]}, good])
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        [refused] = letters.send(records, [failure(0), failure(99)])
    assert (refused.offset, refused.stage) == (0, LETTER_RETURNED)
    assert "dead letter of connector c 5 times" in refused.message
    assert "no JSON" in refused.message
    assert records_of(lab.kafka, topic).num_rows == 2 * MAX_LETTERS + 1


def test_a_header_that_the_record_has_already_is_not_replaced(lab: Lab, errors: ErrorSettings) -> None:
    told = [{"key": "__connect.errors.offset", "value": b"1"}]
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        letters.send(record_batch([{"offset": 10, "headers": told}]), [failure(10)])
    [record] = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
    found = [h["value"] for h in record["headers"] if h["key"] == "__connect.errors.offset"]
    assert found == [b"1"]


def test_a_record_that_failed_in_several_ways_is_one_letter(lab: Lab, errors: ErrorSettings) -> None:
    send(lab.kafka, errors, [failure(12, "first"), failure(12, "second")])
    [record] = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
    assert [h["value"] for h in record["headers"] if h["key"].endswith("exception.message")] == [b"first"]


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_a_record_without_a_timestamp_gets_the_time_of_sending(lab: Lab, errors: ErrorSettings, timestamp: int) -> None:
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        letters.send(record_batch([{"offset": 1, "timestamp": timestamp}]), [failure(1)])
    [record] = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
    assert record["timestamp"].year >= 2026


def test_the_topic_is_created_once_with_one_kafka_partition(lab: Lab, errors: ErrorSettings) -> None:
    send(lab.kafka, errors, [failure(10)])
    send(lab.kafka, errors, [failure(12)])
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.describe_topic(str(errors.dead_letter_topic)).kafka_partitions == (0,)
    assert records_of(lab.kafka, str(errors.dead_letter_topic)).num_rows == 2


def test_without_a_failure_nothing_is_created(lab: Lab, errors: ErrorSettings) -> None:
    send(lab.kafka, errors, [])
    with ClusterAdmin(lab.kafka) as admin:
        assert not admin.topic_exists(str(errors.dead_letter_topic))


def test_more_replicas_than_brokers_are_refused_with_the_key(lab: Lab, errors: ErrorSettings) -> None:
    three = errors.model_copy(update={"dead_letter_replication_factor": 3})
    with pytest.raises(
        ConfigError, match=r"c, topic flights.*errors\.deadletterqueue\.topic\.replication\.factor is 3"
    ):
        send(lab.kafka, three, [failure(10)])


def large(offset: int) -> dict[str, object]:
    return {"offset": offset, "value": os.urandom(5000)}


def test_a_letter_of_a_record_that_came_compressed_is_compressed(lab: Lab, errors: ErrorSettings) -> None:
    lab.create(str(errors.dead_letter_topic), max_message_bytes=2000)
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        assert not letters.send(record_batch([{"offset": 7, "value": b"v" * 500_000}]), [failure(7)])
    [record] = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
    assert len(record["value"]) == 500_000


@pytest.mark.parametrize(
    ("configs", "refused", "why"),
    [
        ({"max_message_bytes": 2000}, large(7), "MSG_SIZE_TOO_LARGE"),
        ({"message_timestamp_before_max_ms": 3_600_000}, {"offset": 7, "timestamp": 1_700_000_000_000}, "timestamp"),
        ({"retention_ms": 604_800_000}, {"offset": 7, "timestamp": 1_700_000_000_000}, "set retention.ms=-1"),
        ({"cleanup_policy": "compact"}, {"offset": 7, "key": b"k"}, "set cleanup.policy=delete"),
    ],
    ids=["too large", "too old to be taken", "too old to be kept", "compacted"],
)
def test_a_letter_that_the_topic_refuses_keeps_no_other_back(
    lab: Lab, errors: ErrorSettings, configs: dict[str, Any], refused: dict[str, object], why: str
) -> None:
    lab.create(str(errors.dead_letter_topic), **configs)
    now = round(time.time() * 1000)
    records = record_batch([{"offset": 6, "timestamp": now}, refused, {"offset": 8, "timestamp": now}])
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        told = letters.send(records, [failure(6), failure(7), failure(8)])
        assert not letters.send(record_batch([{"offset": 9, "timestamp": now}]), [])
    [first, *more] = told
    arrived = records_of(lab.kafka, str(errors.dead_letter_topic)).num_rows
    assert arrived + len(told) == 3
    if more:
        assert configs == {"cleanup_policy": "compact"}
    else:
        assert (first.offset, arrived) == (7, 2)
    assert f"the dead letter topic {errors.dead_letter_topic} does not take or keep its letter" in first.message
    assert why in first.message
    assert "failed because no JSON" in first.message


def test_a_topic_that_takes_none_of_many_letters_is_not_asked_for_each(lab: Lab, errors: ErrorSettings) -> None:
    lab.create(str(errors.dead_letter_topic), message_timestamp_before_max_ms=3_600_000)
    records = record_batch([{"offset": n, "timestamp": 1_700_000_000_000} for n in range(1000)])
    with DeadLetterQueue(lab.kafka, errors, "c", "flights") as letters:
        told = letters.send(records, [failure(n) for n in range(1000)])
        assert letters._opened is not None  # noqa: SLF001
        assert letters._opened._refused_alone == MAX_REFUSED_ALONE  # noqa: SLF001
    assert [f.offset for f in told] == list(range(1000))


def test_a_created_topic_keeps_letters_of_any_age_with_their_headers(lab: Lab, errors: ErrorSettings) -> None:
    lab.create_topic(max_message_bytes=2_000_000)
    with DeadLetterQueue(lab.kafka, errors, "c", lab.topic) as letters:
        assert not letters.send(record_batch([{"offset": 1, "value": b"v" * 1_999_900}]), [failure(1, "x" * 700_000)])
    with ClusterAdmin(lab.kafka) as admin:
        configs = admin.read_topic_configs(str(errors.dead_letter_topic))
    assert (configs["retention.ms"], configs["retention.bytes"], configs["cleanup.policy"]) == ("-1", "-1", "delete")
    [letter] = records_of(lab.kafka, str(errors.dead_letter_topic)).to_pylist()
    said = [h["value"] for h in letter["headers"] if h["key"] == "__connect.errors.exception.message"]
    assert said == [b"x" * 1000 + b"... (700,000 characters)"]


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


def test_the_refused_letter_of_a_record_that_cannot_be_left_out_names_help() -> None:
    refused = replace(failure(15, "too large"), stage=LETTER_REFUSED)
    said = str(build_record_error([refused], "flights", 3))
    assert "Change the config of the dead letter topic" in said
    assert "errors.tolerance=all" not in said


def test_tolerated_failures_and_none_at_all_are_no_error() -> None:
    check_tolerance(ErrorSettings(tolerance="all"), [failure(12)], "flights", 3)
    check_tolerance(ErrorSettings(), [], "flights", 3)
