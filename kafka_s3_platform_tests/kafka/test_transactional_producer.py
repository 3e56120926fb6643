import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, MissingTopicError, PreflightError, SupersededError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import Committed, GroupOffset
from kafka_s3_platform.core.kafka.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.core.waits import Waiting
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import record_batch, until, values

TEN = record_batch([{"value": b"%d" % n} for n in range(10)])
AFTER_TEN = Committed(19, "so far")


@pytest.fixture
def topic(lab: Lab) -> str:
    return lab.create_topic(2)


@pytest.fixture
def group(lab: Lab, topic: str) -> Iterator[GroupOffset]:
    with GroupOffset(lab.kafka, f"g-{topic}", topic, 0) as opened:
        yield opened


@contextmanager
def producing(
    kafka: KafkaSettings, topic: str, max_message_bytes: int = 1_048_588
) -> Iterator[TransactionalReplayProducer]:
    """A producer that has begun."""
    with TransactionalReplayProducer(kafka, topic, f"tx-{topic}", max_message_bytes=max_message_bytes) as producer:
        producer.begin()
        yield producer


def is_open(kafka: KafkaSettings, topic: str) -> bool:
    with ClusterAdmin(kafka) as admin:
        log = admin.frontiers(topic, [0])[0]
    return log.last_stable_offset < log.high_watermark


def test_records_and_progress_are_committed_as_one(lab: Lab, topic: str, group: GroupOffset) -> None:
    assert group.read() is None
    with producing(lab.kafka, topic) as producer:
        producer.send(TEN, 0)
        producer.send(TEN.slice(0, 3), 1)
        producer.flush()
        assert group.read() is None
        assert is_open(lab.kafka, topic)
        producer.commit(group, AFTER_TEN)
        assert group.read() == AFTER_TEN
    assert values(lab.kafka, topic) == [b"%d" % n for n in range(10)]
    assert values(lab.kafka, topic, 1) == [b"0", b"1", b"2"]


def test_progress_is_committed_without_records_too(lab: Lab, topic: str, group: GroupOffset) -> None:
    with producing(lab.kafka, topic) as producer:
        producer.commit(group, Committed(0, "begun"))
        assert group.read() == Committed(0, "begun")
        producer.send(TEN, 0)
        producer.commit(group, AFTER_TEN)
    assert group.read() == AFTER_TEN
    with ClusterAdmin(lab.kafka) as admin:
        # the marker of the transaction's end is written after the commit has returned
        until(lambda: admin.frontiers(topic, [0])[0].high_watermark == 11)


@pytest.mark.parametrize("delivered", [False, True])
def test_what_is_not_committed_is_aborted_at_the_end(lab: Lab, topic: str, group: GroupOffset, delivered: bool) -> None:
    with producing(lab.kafka, topic) as producer:
        producer.send(TEN, 0)
        producer.commit(group, AFTER_TEN)
        producer.send(TEN, 0)
        if delivered:
            producer.flush()
    until(lambda: not is_open(lab.kafka, topic))
    assert len(values(lab.kafka, topic)) == 10
    assert group.read() == AFTER_TEN


def test_a_producer_closed_before_its_first_record_is_acknowledged_leaves_nothing(lab: Lab, topic: str) -> None:
    for _ in range(5):
        with producing(lab.kafka, topic) as producer:
            producer.send(TEN, 0)
    until(lambda: not is_open(lab.kafka, topic))
    with producing(lab.kafka, topic):
        assert values(lab.kafka, topic) == []


@pytest.mark.parametrize("sends", [False, True])
def test_a_later_producer_ends_the_transaction_of_an_older_one_which_is_told(
    lab: Lab, topic: str, group: GroupOffset, sends: bool
) -> None:
    with producing(lab.kafka, topic) as older:
        older.send(TEN, 0)
        older.flush()
        with producing(lab.kafka, topic) as newer:
            assert group.read() is None
            newer.send(TEN.slice(0, 5), 0)
            newer.commit(group, Committed(9))
        if sends:
            older.send(TEN, 0)
        with pytest.raises(SupersededError, match=f"as tx-{topic}"):
            older.commit(group, AFTER_TEN)
        assert not older.timed_out
    assert values(lab.kafka, topic) == [b"0", b"1", b"2", b"3", b"4"]
    assert group.read() == Committed(9)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_producer_that_is_fenced_while_it_sends_can_be_closed(lab: Lab, topic: str, times: int) -> None:
    """librdkafka keeps some of what was queued just then, and would wait for it without end: seen once in ten times."""
    many = record_batch([{"value": b"%05d" % n * 20} for n in range(20_000)])

    def send(producer: TransactionalReplayProducer) -> None:
        for n in range(40):
            producer.send(many, n % 2)

    for _ in range(times):
        older = TransactionalReplayProducer(lab.kafka, topic, f"tx-{topic}")
        older.begin()
        older.send(TEN, 0)
        older.flush()
        with producing(lab.kafka, topic), pytest.raises(SupersededError):
            send(older)
        assert Waiting(older.close).ended_within(20)
    assert values(lab.kafka, topic) == []


def test_a_producer_that_learns_at_its_end_that_it_is_fenced_can_be_closed(lab: Lab, topic: str) -> None:
    """The client logs much while it fails. What it raises must not be mixed up with that: its error would be lost."""
    talkative = lab.kafka.model_copy(update={"producer": {"debug": SecretStr("all")}})
    with producing(talkative, topic) as older:
        older.send(TEN, 0)
        older.flush()
        with producing(lab.kafka, topic):
            older.send(TEN, 0)
            older.close()
    assert values(lab.kafka, topic) == []


def test_a_transaction_whose_time_is_up_is_not_committed_silently(lab: Lab, topic: str, group: GroupOffset) -> None:
    hasty = lab.kafka.model_copy(update={"producer": {"transaction.timeout.ms": SecretStr("1000")}})
    with producing(hasty, topic) as producer:
        producer.send(TEN, 0)
        producer.flush()
        until(lambda: not is_open(lab.kafka, topic))
        time.sleep(0.1)
        with pytest.raises(SupersededError):
            producer.commit(group, AFTER_TEN)
        assert producer.timed_out
    assert values(lab.kafka, topic) == []
    assert group.read() is None


def test_a_record_the_broker_rejects_is_named_and_its_transaction_is_aborted(
    lab: Lab, topic: str, group: GroupOffset
) -> None:
    narrow = lab.create(f"{topic}-narrow", max_message_bytes=3000)
    large = record_batch([{"value": b"x" * 1000, "offset": 1000 + i} for i in range(50)])
    with producing(lab.kafka, narrow, max_message_bytes=100_000) as producer:
        producer.send(TEN, 0)
        producer.commit(group, AFTER_TEN)
        with pytest.raises(
            PreflightError, match=r"source offsets? 1000 .*committed are the records below source offset 19.*too large"
        ):
            send_and_commit(producer, large, group)
    until(lambda: not is_open(lab.kafka, narrow))
    assert len(values(lab.kafka, narrow)) == 10
    assert group.read() == AFTER_TEN


def send_and_commit(producer: TransactionalReplayProducer, batch: object, group: GroupOffset) -> None:
    producer.send(batch, 0)
    producer.commit(group, Committed(5000))


def test_a_kafka_partition_that_the_target_lacks_is_named(lab: Lab, topic: str, group: GroupOffset) -> None:
    def send_and_commit(producer: TransactionalReplayProducer) -> None:
        # the first of the two that hears of it raises
        producer.send(TEN, 5)
        producer.commit(group, AFTER_TEN)

    with (
        producing(lab.kafka, topic) as producer,
        pytest.raises(MissingTopicError, match=r"source offset.*kafka partition 5"),
    ):
        send_and_commit(producer)
    assert group.read() is None


def test_a_full_queue_is_waited_for(lab: Lab, topic: str, group: GroupOffset) -> None:
    narrow = lab.kafka.model_copy(update={"producer": {"queue.buffering.max.messages": SecretStr("100")}})
    many = record_batch([{"value": b"%d" % n} for n in range(3000)])
    with producing(narrow, topic) as producer:
        producer.send(many, 0)
        producer.commit(group, Committed(6000))
    assert values(lab.kafka, topic) == [b"%d" % n for n in range(3000)]


def test_an_unreachable_broker_is_named_with_the_reason() -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    with (
        TransactionalReplayProducer(nowhere, "t", "tx", answer_seconds=1) as producer,
        pytest.raises(BrokerUnavailableError, match=r"topic t at 127\.0\.0\.1:1 as tx: fencing.*"),
    ):
        producer.begin()
