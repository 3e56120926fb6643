"""Progress markers: where a restore goes on, and what it refuses to guess."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Thread, Timer
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, IntegrityError, PreflightError, SupersededError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import Committed, GroupOffset, publish_offsets
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.replay import transactions as marker
from kafka_s3_platform.core.restore.replay.checkpoint import save_document
from kafka_s3_platform.core.restore.replay.spec import ReplayTask
from kafka_s3_platform.core.restore.replay.target_log import read_target
from kafka_s3_platform.core.restore.replay.task import replay
from kafka_s3_platform.core.restore.replay.transactions import Marker
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.restore.source.terms import hash_place
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.restore.verify.read_back import verify_stream
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import said_to_be_there_already
from kafka_s3_platform_tests.chaos.lies import FOREVER, Lie
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.answering import answering, nothing
from kafka_s3_platform_tests.kafka.topics import delete_group, open_transaction, until, values
from kafka_s3_platform_tests.restore.own import (
    Archive,
    Between,
    InterruptedRunner,
    StoppingRunner,
    request,
    restored,
    target_of,
)
from kafka_s3_platform_tests.support import InProcessRunner, Sent, produce

RECORDS = 40_000


@pytest.fixture
def config(shared_archive: Archive, lab: Lab) -> ConnectorConfig:
    """An archive in four objects, which is sent in three batches; every record twice, so that only its place tells."""
    config = shared_archive([Sent(b"%d" % (n // 2)) for n in range(RECORDS)], layout={"flush_size": 10_000})
    lab.create(target_of(config))
    return config


@pytest.fixture(autouse=True)
def short_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker, "TRANSACTION_RECORDS", 100)


def is_restored_once(config: ConnectorConfig) -> bool:
    found = [v for v in values(config.kafka, target_of(config)) if v != b"foreign"]
    return found == values(config.kafka, config.topics[0])


def group_of(config: ConnectorConfig) -> str:
    return marker.make_marker_name("r1", 0, place=hash_place(config))


def marker_of(config: ConnectorConfig) -> Committed | None:
    with GroupOffset(config.kafka, group_of(config), target_of(config), 0) as group:
        return group.read()


def delete_marker(config: ConnectorConfig) -> None:
    with ClusterAdmin(config.kafka) as admin:
        delete_group(admin, group_of(config))


@pytest.fixture
def interrupted(config: ConnectorConfig, lab: Lab) -> Callable[..., None]:
    """Runs a restore that ends in the middle."""

    def run(**changes: Any) -> None:
        with pytest.raises(IntegrityError, match=r"object .* cannot be opened"):
            restored(config, InterruptedRunner(config, lab.s3), **changes)

    return run


def test_progress_is_committed_with_the_records_under_the_plan_s_digest(config: ConnectorConfig) -> None:
    report = restored(config)

    assert is_restored_once(config)
    (part,) = report.kafka_partitions
    assert part.first_target_offset == 0
    assert part.last_target_offset is not None
    # some transactions, each with a control record at its end
    assert RECORDS + 2 <= part.last_target_offset + 1 < RECORDS + 100
    end = part.last_target_offset + 1
    assert marker_of(config) == Marker(report.plan_digest, RECORDS, RECORDS, {0: end}).committed
    assert (report.sent_count, report.foreign_count, report.verified) == (RECORDS, 0, True)


def test_restores_of_one_id_whose_documents_lie_apart_do_not_fence_each_other(
    config: ConnectorConfig, lab: Lab
) -> None:
    targets = target_of(config), lab.create(f"{target_of(config)}-other")
    archive = config.archive.model_copy(update={"restore_dir": "_other"})
    other = config.model_copy(update={"archive": archive})
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(restored, given, records_per_second=20_000, to_topic=target)
            for given, target in zip((config, other), targets, strict=True)
        ]
        assert [run.result().verified for run in runs] == [True, True]
    assert values(config.kafka, targets[1]) == values(config.kafka, targets[0])


def test_a_plan_whose_place_was_changed_is_refused(config: ConnectorConfig) -> None:
    """Transactional ids are made of it."""
    store, asked = ObjectStore(config.store), request(config)
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay_streams))
    plan = TopicsPlan.from_json(store.get(asked.documents.plan), asked.documents.plan)
    for place in ("", "x/../y"):
        save_document(store, asked.documents.plan, replace(plan, place=place).to_json())
        with pytest.raises(IntegrityError, match=f"its place is {place}, but the request makes it"):
            restored(config)


def test_an_interrupted_restore_goes_on_from_its_marker(
    config: ConnectorConfig, interrupted: Callable[..., None]
) -> None:
    interrupted()
    reached = marker_of(config)
    assert reached is not None
    assert reached.offset in range(1, RECORDS)

    report = restored(config)

    assert is_restored_once(config)
    assert report.sent_count == RECORDS - reached.offset
    assert report.record_count == RECORDS


def test_records_of_an_aborted_transaction_are_no_part_of_what_is_verified(
    config: ConnectorConfig, interrupted: Callable[..., None]
) -> None:
    target = target_of(config)
    others = open_transaction(config.kafka, target, [b"0", b"0", b"1"])
    interrupted()
    others.abort_transaction(10)

    report = restored(config)

    assert is_restored_once(config)
    assert report.foreign_count == 0


def test_a_marker_that_is_gone_over_records_is_refused(
    config: ConnectorConfig, interrupted: Callable[..., None]
) -> None:
    interrupted()
    before = values(config.kafka, target_of(config))
    delete_marker(config)

    with pytest.raises(PreflightError, match=r"its progress marker is gone .* delivery=at_least_once"):
        restored(config)
    assert values(config.kafka, target_of(config)) == before
    assert marker_of(config) is None

    report = restored(config, delivery="at_least_once")
    assert is_restored_once(config)
    assert report.sent_count == RECORDS - len(before)


def test_that_a_target_has_records_is_not_denied_by_a_broker_going_down(
    config: ConnectorConfig, interrupted: Callable[..., None]
) -> None:
    """Where the marker is gone as well, the restore was begun again over its own records."""
    interrupted()
    before = values(config.kafka, target_of(config))
    delete_marker(config)

    class GoingDownRunner(InProcessRunner):
        def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
            with answering(nothing):
                yield from super().run(function, tasks, max_concurrent)

    with pytest.raises(BrokerUnavailableError, match=r"-restored-.*, kafka partition 0.*-1001"):
        restored(config, GoingDownRunner())
    with pytest.raises(PreflightError, match="its progress marker is gone"):
        restored(config)
    assert values(config.kafka, target_of(config)) == before


def test_a_marker_that_is_gone_over_an_empty_target_is_begun_again(config: ConnectorConfig) -> None:
    class DeletingRunner(InProcessRunner):
        def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
            if function is replay_streams:
                list(super().run(begin_only, [t for group in tasks for t in group], max_concurrent))
                delete_marker(config)
            return super().run(function, tasks, max_concurrent)

    restored(config, DeletingRunner())

    assert is_restored_once(config)


def begin_only(task: ReplayTask, attempt: Attempt) -> None:
    """A try that is ended before its first record."""

    def interrupt(*_: object) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marker.Transactions, "send", interrupt)
        with pytest.raises(InterruptedError):
            replay(task, attempt)


def test_other_writers_do_not_hinder_a_stream_that_has_not_begun(config: ConnectorConfig) -> None:
    target = target_of(config)

    def meddle() -> None:
        produce(config.kafka, target, [Sent(b"foreign")] * 3)

    report = restored(config, Between(before_replay=meddle))

    assert is_restored_once(config)
    assert report.foreign_count == 3


def test_a_finished_restore_sends_nothing_again(config: ConnectorConfig) -> None:
    restored(config)
    target = target_of(config)
    with ClusterAdmin(config.kafka) as admin:
        end = admin.frontiers(target, [0])[0].high_watermark
        again = restored(config)
        assert admin.frontiers(target, [0])[0].high_watermark == end
    assert again.already_finished


def test_a_restore_that_was_sent_but_not_verified_sends_nothing_again(config: ConnectorConfig) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(verify_stream))
    report = restored(config)

    assert (report.sent_count, report.record_count, report.verified) == (0, RECORDS, True)
    assert is_restored_once(config)


def test_an_older_try_that_wakes_up_is_told_and_leaves_nothing(config: ConnectorConfig) -> None:
    class TwiceRunner(InProcessRunner):
        """Runs another restore of the same id while this one has its first transaction open."""

        def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
            if function is replay_streams:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(marker.Transactions, "note_passed", taken_over(config, patch))
                    yield from super().run(function, tasks, max_concurrent)
            else:
                yield from super().run(function, tasks, max_concurrent)

    with pytest.raises(
        SupersededError, match=r"another run of this restore id has taken over(.|\n)*Progress of restore"
    ):
        restored(config, TwiceRunner())

    assert is_restored_once(config)


def taken_over(config: ConnectorConfig, patch: pytest.MonkeyPatch) -> Callable[..., None]:
    original = marker.Transactions.note_passed

    def passed(self: marker.Transactions, next_source_offset: int) -> None:
        patch.undo()
        assert restored(config, run_id="y").verified
        original(self, next_source_offset)

    return passed


def test_at_least_once_is_seen_by_every_reader_at_once(config: ConnectorConfig) -> None:
    report = restored(config, delivery="at_least_once")

    (part,) = report.kafka_partitions
    assert (part.first_target_offset, part.last_target_offset) == (0, RECORDS - 1)
    assert marker_of(config) is None


@pytest.mark.parametrize("before", ["exactly_once", "at_least_once"])
def test_what_was_taken_on_at_least_once_is_not_taken_on_exactly_once(
    config: ConnectorConfig, interrupted: Callable[..., None], before: str
) -> None:
    """The marker of the first run, if there is one, knows nothing of what the second has sent."""
    interrupted(delivery=before)
    interrupted(delivery="at_least_once")
    with pytest.raises(PreflightError, match=r"Continue with delivery=at_least_once"):
        restored(config)
    restored(config, delivery="at_least_once")
    assert is_restored_once(config)


def test_verification_waits_for_a_transaction_of_others_that_ends_soon(config: ConnectorConfig) -> None:
    target = target_of(config)

    def meddle() -> None:
        client = open_transaction(config.kafka, target, [b"foreign"])
        Timer(1.0, client.commit_transaction, [10]).start()

    report = restored(config, Between(after_replay=meddle))

    assert report.foreign_count == 1


def test_a_target_that_others_never_stop_writing_to_is_read_as_far_as_it_went(lab: Lab) -> None:
    """There is always a transaction open: each of theirs begins when the last one ends."""
    lab.create_topic()
    lab.produce([Sent(b"ours")] * 5)
    ended = Event()

    def write() -> None:
        client = Producer(lab.kafka.properties("producer") | {"transactional.id": lab.topic, "linger.ms": 0})
        client.init_transactions(30)
        while not ended.is_set():
            client.begin_transaction()
            client.produce(lab.topic, b"theirs")
            client.flush(30)
            ended.wait(0.3)
            client.commit_transaction(30)

    writer = Thread(target=write)
    writer.start()
    try:
        with ClusterAdmin(lab.kafka) as admin:
            until(lambda: admin.frontiers(lab.topic, [0])[0].high_watermark > 8)
        found = [v for b in read_target(lab.kafka, lab.topic, 0, 0) for v in b.column("value").to_pylist()]
    finally:
        ended.set()
        writer.join()
    assert found[:6] == [b"ours"] * 5 + [b"theirs"]


def test_without_transactions_a_restore_goes_on_where_a_broker_told_no_place(config: ConnectorConfig, lab: Lab) -> None:
    with lying_broker(config.kafka.bootstrap_servers, KafkaLies(1)) as broker:
        through = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        lied_to = config.model_copy(update={"kafka": through})
        broker.liar.lie(Lie("duplicate", said_to_be_there_already, times=FOREVER))
        # What is only queued when it is interrupted is taken back. At this rate, of which a second's worth goes at
        # once, more than a second passes before that: some of it has arrived then.
        slow: dict[str, Any] = {"delivery": "at_least_once", "records_per_second": RECORDS / 4}
        with pytest.raises(IntegrityError, match=r"object .* cannot be opened"):
            restored(lied_to, InterruptedRunner(config, lab.s3), **slow)
        report = restored(lied_to, delivery="at_least_once")
        assert broker.liar.told["duplicate"] > 1
    assert report.verified
    assert 0 < report.sent_count < RECORDS
    assert is_restored_once(config)


def test_a_marker_that_fell_back_is_refused_where_comparing_cannot_tell(
    config: ConnectorConfig, interrupted: Callable[..., None]
) -> None:
    keyed = {"outgoing": Outgoing(partitioning="murmur2")}
    interrupted(**keyed)
    reached = marker_of(config)
    assert reached is not None
    assert reached.offset > 0
    earlier = Marker(json.loads(reached.metadata)["plan"], 0, 0).committed
    with ClusterAdmin(config.kafka) as admin:
        target = target_of(config)
        publish_offsets(admin, group_of(config), target, {0: earlier.offset}, {0: earlier.metadata})
    with pytest.raises(PreflightError, match=f"below source offset 0, but an earlier run reported {reached.offset}"):
        restored(config, **keyed)
