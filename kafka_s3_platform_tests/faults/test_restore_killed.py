"""SIGKILL and SIGSTOP of a restore, SIGKILL of an executor and of the broker: every record once, in order."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.resources import start_session
from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError, TransientError
from kafka_s3_platform.core.kafka import producer, transactional_producer
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.replay import transactions as marker
from kafka_s3_platform.core.restore.request import Delivery, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.broker import kill_broker, start_broker
from kafka_s3_platform_tests.faults.children import Child, spark_worker_killed
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.restore.own import check_restored_once, request, restored
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    connector,
    find_children,
    produce,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 3_000
TRANSACTION_RECORDS = 175
"""Sent by the second at 125 records a stream, so a transaction is open every other second."""

Start = Callable[..., Child]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """An archive of 2 kafka partitions of 3,000 records, and an empty target."""
    lab.create_topic(2)
    lab.create(f"{lab.topic}-restored", 2)
    return filled(lab.connector())


def filled(config: ConnectorConfig) -> ConnectorConfig:
    """Two objects a kafka partition; every record twice, so that only its place tells a repeated one."""
    moments = [NOON if n < RECORDS * 17 // 20 else NOON + HOUR for n in range(RECORDS)]
    records = [Sent(b"%d" % (n // 2), None, t, (), p) for p in range(2) for n, t in enumerate(moments)]
    produce(config.kafka, config.topics[0], records)
    archived(config)
    return config


def slowly(config: ConnectorConfig, **changes: Any) -> RestoreRequest:
    """250 records a second, 125 a stream."""
    return request(config, records_per_second=250.0, **changes)


def replay_slowly(config: ConnectorConfig, run_id: str = "x", delivery: Delivery = "exactly_once") -> None:
    marker.TRANSACTION_RECORDS = TRANSACTION_RECORDS
    vars(transactional_producer)["SETTLE_SECONDS"] = 1.0
    restore(ArchiveSource(slowly(config, run_id=run_id, delivery=delivery)), InProcessRunner())


def uncommitted_count(kafka: KafkaSettings, topic: str) -> int:
    """Records of the topic's two kafka partitions for a reader that sees aborted ones too."""
    own = {"group.id": "uncommitted", "isolation.level": "read_uncommitted", "enable.partition.eof": True}
    consumer = Consumer(kafka.properties("consumer") | own)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    count = ended = 0
    while ended < 2:
        for message in consumer.consume(1000, 1.0):
            ended += message.error() is not None
            count += message.error() is None
    consumer.close()
    return count


class Target:
    """The log of the target, asked by one client."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self.topic = topic
        self._kafka = kafka
        self._admin = ClusterAdmin(kafka)

    @property
    def end(self) -> int:
        """Offsets of both kafka partitions, those of aborted records and of control records included."""
        return sum(log.high_watermark for log in self._logs())

    def is_open(self) -> bool:
        """Whether a transaction is."""
        return any(log.last_stable_offset < log.high_watermark for log in self._logs())

    def is_filling(self) -> bool:
        """Whether a transaction is open that lacks records: until they are acknowledged, nobody commits it."""
        return any(0 < log.high_watermark - log.last_stable_offset < TRANSACTION_RECORDS for log in self._logs())

    def has(self, end: int) -> bool:
        """Whether it has come so far. After a broker's restart the client holds on to an old leader epoch: ask anew."""
        try:
            return self.end > end
        except TransientError:
            self._admin = ClusterAdmin(self._kafka)
            return False

    def wait_for(self, more: int, child: Child) -> None:
        """Until the process has sent more records."""
        wanted = self.end + more
        until(lambda: child.has_ended or self.end > wanted)
        assert not child.has_ended, child.said

    def _logs(self) -> Iterable[Frontier]:
        return self._admin.frontiers(self.topic, range(2)).values()


@pytest.fixture
def target(config: ConnectorConfig) -> Target:
    return Target(config.kafka, f"{config.topics[0]}-restored")


@pytest.mark.parametrize("kills", [3, pytest.param(12, marks=pytest.mark.long)])
def test_a_restore_killed_again_and_again_at_random_moments_sends_every_record_once(
    config: ConnectorConfig, target: Target, start: Start, kills: int
) -> None:
    """Before it sends anything or soon after, between two transactions or in one, and in one."""
    seed = random.randrange(1000)
    moments = random.Random(seed)
    for kill in range(kills):
        child = start(replay_slowly, config)
        if kill % 3 == 0:
            time.sleep(moments.uniform(0.1, 3.0))
        elif kill % 3 == 1:
            target.wait_for(0, child)
            time.sleep(moments.uniform(0, 2.0))
        else:
            stop_in_transaction(target, child)
        assert not child.has_ended, f"seed {seed}: it ended before it was killed: {child.said}"
        child.kill()

    report = restored(config)

    check_restored_once(config, kafka_partitions=2)
    assert report.record_count == 2 * RECORDS, f"seed {seed}"
    assert 0 < report.sent_count < 2 * RECORDS, f"seed {seed}"
    assert uncommitted_count(config.kafka, target.topic) > 2 * RECORDS, f"seed {seed}: no kill met an open transaction"
    assert restored(config).already_finished


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_older_run_that_resumes_after_a_newer_one_sends_nothing_more(
    config: ConnectorConfig, target: Target, start: Start, delivery: Delivery
) -> None:
    """By transactions it is fenced. Without them, it asks the bucket after it stood still, before it sends more."""
    older = start(replay_slowly, config, "older", delivery)
    target.wait_for(125, older)
    older.send(signal.SIGSTOP)

    report = restored(config, delivery=delivery)
    older.send(signal.SIGCONT)

    assert older.wait() != 0
    assert "SupersededError" in older.said, older.said
    assert re.search(r"another run of this restore id (has taken over|is active)", older.said), older.said
    assert report.verified
    check_restored_once(config, kafka_partitions=2)


def test_a_run_that_stood_still_beyond_its_transaction_says_so_and_is_made_good(
    config: ConnectorConfig, target: Target, start: Start
) -> None:
    child = start(replay_slowly, with_timeout(config, 10_000))
    stop_in_transaction(target, child)
    until(lambda: not target.is_open())
    child.send(signal.SIGCONT)

    assert child.wait() != 0
    assert "TransientError" in child.said, child.said
    assert "open for longer than its timeout of 10 s" in child.said
    restored(config)
    check_restored_once(config, kafka_partitions=2)


def stop_in_transaction(target: Target, child: Child) -> None:
    """Stop the process while a transaction of it is open, and not about to be committed."""

    def is_stopped() -> bool:
        assert not child.has_ended, child.said
        if not target.is_filling():
            return False
        child.send(signal.SIGSTOP)
        child.wait_until_stopped()
        stopped = target.is_filling()
        if not stopped:
            child.send(signal.SIGCONT)
        return stopped

    target.wait_for(0, child)
    until(is_stopped)


def with_timeout(config: ConnectorConfig, milliseconds: int) -> ConnectorConfig:
    producer = {"transaction.timeout.ms": SecretStr(str(milliseconds))}
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"producer": producer})})


def test_a_store_that_is_slower_than_a_transaction_lasts_is_waited_for(config: ConnectorConfig) -> None:
    assert config.store.endpoint_url is not None
    with faulty_proxy(config.store.endpoint_url) as proxy:
        slow_store = config.store.model_copy(update={"endpoint_url": proxy.endpoint})
        slow = with_timeout(config, 4000).model_copy(update={"store": slow_store})
        held = proxy.hold_response("GET", r"/topics/.*hour=13.*\+0\+.*\.parquet")

        def release() -> None:
            held.hit.wait(60)
            time.sleep(6)
            held.release()

        thread = threading.Thread(target=release)
        thread.start()
        report = restored(slow)
        thread.join()
    assert held.hit.is_set()
    assert report.sent_count == 2 * RECORDS
    check_restored_once(config, kafka_partitions=2)


def test_an_executor_process_killed_in_the_middle_is_retried_by_spark(
    config: ConnectorConfig, target: Target, spark: "SparkSession"
) -> None:
    with spark_worker_killed(lambda: target.end > 100):
        report = restored(config, SparkRunner(lambda: spark), records_per_second=2000.0)
    assert report.record_count == 2 * RECORDS
    check_restored_once(config, kafka_partitions=2)


def test_a_killed_java_process_ends_a_run_for_now_and_the_next_one_goes_on(
    config: ConnectorConfig, target: Target, start: Start
) -> None:
    child = start(restore, ArchiveSource(slowly(config)), SparkRunner(start_session))
    target.wait_for(100, child)
    [java] = find_children(child.pid, "java")
    java.kill()

    assert child.wait() != 0
    assert "SparkUnavailableError: [KS-SPARK]" in child.said, child.said
    assert restored(config).verified
    check_restored_once(config, kafka_partitions=2)


def test_a_broker_killed_under_a_restore_loses_nothing_and_doubles_nothing(
    mortal: StackSettings, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker, "TRANSACTION_RECORDS", 4 * TRANSACTION_RECORDS)
    config, target = own_topics(mortal, lab.store, lab.topic)
    # A killed broker may end a run for now: the next one goes on, as Dagster's retry would.
    thread, errors = in_background(config, tries=10)
    for end in (500, 2_000):
        restart_broker(mortal, thread, partial(target.has, end))
    thread.join(120)

    assert not thread.is_alive()
    assert [e for e in errors if not isinstance(e, TransientError)] == []
    restored(config)
    check_restored_once(config, kafka_partitions=2)


def own_topics(mortal: StackSettings, store: StoreSettings, topic: str) -> tuple[ConnectorConfig, Target]:
    """An archive and an empty target on a Kafka that may be killed."""
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    with ClusterAdmin(kafka) as admin:
        admin.create_topic(topic, 2)
        admin.create_topic(f"{topic}-restored", 2)
    return filled(connector(kafka, store, topic)), Target(kafka, f"{topic}-restored")


def in_background(config: ConnectorConfig, tries: int = 1) -> tuple[threading.Thread, list[Exception]]:
    errors: list[Exception] = []

    def run() -> None:
        for _ in range(tries):
            try:
                restored(config, records_per_second=1000.0)
                return
            except PlatformError as err:
                errors.append(err)
                if not isinstance(err, TransientError):
                    return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def restart_broker(mortal: StackSettings, thread: threading.Thread, when: Callable[[], bool]) -> None:
    until(lambda: not thread.is_alive() or when())
    assert thread.is_alive()
    kill_broker(mortal)
    start_broker(mortal)


def test_a_client_that_is_stuck_in_its_commit_is_left_and_fenced(
    mortal: StackSettings, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's issues 5456 and 5511: sending offsets never ends when the group's coordinator has gone."""

    def forgetful(kind: Any, settings: KafkaSettings, reasons: Reasons, defaults: Any, fixed: Any) -> Any:
        return open_client(kind, settings, reasons, defaults, {**fixed, "metadata.recovery.strategy": "rebootstrap"})

    config, target = own_topics(mortal, lab.store, lab.topic)
    with monkeypatch.context() as patch:
        patch.setattr(marker, "TRANSACTION_RECORDS", 4 * TRANSACTION_RECORDS)
        patch.setattr(producer, "open_client", forgetful)
        patch.setattr(transactional_producer, "STUCK_SECONDS", 5.0)
        thread, errors = in_background(config)
        restart_broker(mortal, thread, partial(target.has, 500))
        thread.join(60)

    assert [type(e) for e in errors] == [BrokerUnavailableError]
    assert "the client does not come back from committing" in str(errors[0])
    restored(config)
    check_restored_once(config, kafka_partitions=2)
