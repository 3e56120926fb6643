"""A cluster that says that a transaction is committed, and loses its end: a restore goes on from what is really there.

Brokers of Kafka 4.3 do so where a kafka partition has no leader for a moment (KAFKA-20734). Here the end is cut out of
the log of a killed broker, which leaves the same behind.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import IntegrityError, OpenTransactionError, PreflightError
from kafka_s3_platform.core.kafka import groups, transactional_producer
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import Committed, GroupOffset
from kafka_s3_platform.core.kafka.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.core.model import batches
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.replay import target_log
from kafka_s3_platform.core.restore.replay import transactions as marker
from kafka_s3_platform.core.restore.request import Outgoing, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.source.terms import hash_place
from kafka_s3_platform.core.restore.verify.read_back import verify_stream
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.broker import (
    cut_log,
    end_as_the_error_says,
    kafka_jvm,
    kill_broker,
    lose_end,
    start_broker,
)
from kafka_s3_platform_tests.kafka.topics import open_transaction, records_of, until, wait_until_stable
from kafka_s3_platform_tests.restore.own import InterruptedRunner, StoppingRunner, check_restored_once
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, connector, produce

RECORDS = 2_500
BATCH = 1_000
"""Of records, sent as a transaction."""


@pytest.fixture(autouse=True)
def _small_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_OFFSETS", BATCH)
    monkeypatch.setattr(marker, "TRANSACTION_RECORDS", 100)
    # Whole batches are sent at once, so that it is known where transactions end.
    monkeypatch.setattr(transactional_producer, "FIRST_BYTES", 2**30)
    monkeypatch.setattr(target_log, "STABLE_SECONDS", 4.0)
    monkeypatch.setattr(groups, "ANSWER_SECONDS", 5.0)
    monkeypatch.setattr(groups, "CALL_SECONDS", 2.0)


def request(config: ConnectorConfig, case: str, **changes: Any) -> RestoreRequest:
    """To a topic that has the name of the case, under a restore id of the same name."""
    outgoing = Outgoing(partitioning="murmur2") if case == "keyed" else Outgoing()
    given: dict[str, Any] = {"to_topic": case, "restore_id": case, "outgoing": outgoing, "run_id": "x"}
    return RestoreRequest(config, config.topics[0], **given | changes)


def restored(config: ConnectorConfig, case: str, **changes: Any) -> RestoreReport:
    return restore(ArchiveSource(request(config, case, **changes)), InProcessRunner())


def sent_in_part(config: ConnectorConfig, case: str, s3_client: Any) -> None:
    with pytest.raises(IntegrityError, match=r"object .* cannot be opened"):
        restore(ArchiveSource(request(config, case)), InterruptedRunner(config, s3_client))


def sent_to_its_end(config: ConnectorConfig, case: str, _: Any) -> None:
    with pytest.raises(InterruptedError):
        restore(ArchiveSource(request(config, case)), StoppingRunner(verify_stream))


def its_end(log_end: int) -> int:
    return log_end - 1


def its_end_and_records(log_end: int) -> int:
    return log_end - 2


def all_of_it(_: int) -> int:
    """The third: two and their ends are left."""
    return 2 * (BATCH + 1)


def nothing(log_end: int) -> int:
    return log_end


CASES: dict[str, tuple[Callable[[ConnectorConfig, str, Any], None], Callable[[int], int]]] = {
    "aborted": (sent_to_its_end, its_end),
    "hidden": (sent_in_part, its_end),
    "hidden-at-its-end": (sent_to_its_end, its_end),
    "hidden-in-part": (sent_in_part, its_end_and_records),
    "truncated": (sent_to_its_end, all_of_it),
    "keyed": (sent_to_its_end, its_end),
    "without-a-marker": (sent_in_part, nothing),
    "hidden-without-a-marker": (sent_in_part, its_end),
}
"""How far the first run came, and what the log lost of the last transaction then."""

WITHOUT_A_MARKER = ("without-a-marker", "hidden-without-a-marker")
"""The end is missing where the marker is kept too, or there alone."""


def test_a_restore_goes_on_where_a_transactions_end_was_lost(mortal: StackSettings, lab: Lab, jvm: Any) -> None:
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    config = filled(kafka, lab.store, lab.topic)
    ends = send_and_lose(mortal, config, lab.s3)

    for case in ("aborted", "keyed"):
        abort_the_next(config, case)
        assert log_end(kafka, case) > ends[case]

    rest = RECORDS - 2 * BATCH
    sent = {"aborted": rest, "hidden": RECORDS - BATCH, "truncated": rest, "without-a-marker": RECORDS - BATCH}
    for case, count in sent.items():
        report = restored(config, case)
        assert (report.verified, report.sent_count) == (True, count), case
        check_restored_once(config, case)
    for case in ("hidden-at-its-end", "hidden-in-part", "hidden-without-a-marker"):
        with pytest.raises(OpenTransactionError, match="has probably lost its end") as told:
            restored(config, case)
        end_as_the_error_says(jvm, mortal.bootstrap_servers, str(told.value))
        assert restored(config, case).verified
        check_restored_once(config, case)

    with pytest.raises(PreflightError, match=r"not all of them are in the target.* Restore to another topic"):
        restored(config, "keyed")
    create(kafka, "elsewhere")
    assert restored(config, "keyed", to_topic="elsewhere", restore_id="another").verified
    check_restored_once(config, "elsewhere")


def send_and_lose(mortal: StackSettings, config: ConnectorConfig, s3_client: Any) -> dict[str, int]:
    """The first run of every case, and then a broker that has lost what the case says; the log's ends before that."""
    kafka = config.kafka
    for case, (send, _) in CASES.items():
        create(kafka, case)
        send(config, case, s3_client)
        wait_until_stable(kafka, case)
    ends = {case: log_end(kafka, case) for case in CASES}
    kill_broker(mortal)
    for case, (_, cut_at) in CASES.items():
        cut_log(mortal, case, cut_at(ends[case]))
    for case in WITHOUT_A_MARKER:
        lose_end(mortal, marker.make_marker_name(case, 0, place=hash_place(config)))
    start_broker(mortal)
    return ends


def create(kafka: KafkaSettings, topic: str) -> None:
    with ClusterAdmin(kafka) as admin:
        admin.create_topic(topic, 1)


def filled(kafka: KafkaSettings, store: StoreSettings, source: str) -> ConnectorConfig:
    """An archive in four objects; every record twice, so that only its place tells."""
    create(kafka, source)
    # some batches of the log for each transaction, so that it can lose some of them
    kafka = kafka.model_copy(update={"producer": {"batch.num.messages": SecretStr("400")}})
    config = connector(kafka, store, source, layout={"flush_size": RECORDS // 4})
    produce(kafka, source, [Sent(b"%d" % (n // 2), b"k") for n in range(RECORDS)])
    archived(config)
    return config


def log_end(kafka: KafkaSettings, topic: str) -> int:
    with ClusterAdmin(kafka) as admin:
        return admin.frontiers(topic, [0])[0].high_watermark


@pytest.fixture(scope="module")
def jvm(stack_settings: StackSettings) -> Iterator[Any]:
    with kafka_jvm(stack_settings.cache) as started:
        yield started


def test_what_lies_behind_the_marker_is_neither_sent_again_nor_committed_by_chance(
    mortal: StackSettings, lab: Lab, jvm: Any
) -> None:
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    config = filled(kafka, lab.store, lab.topic)
    for case in ("hidden-abort", "later-marker", "behind-another"):
        create(kafka, case)
    another = open_transaction(kafka, "behind-another", [b"another's"], timeout_seconds=600)
    for case in ("hidden-abort", "later-marker", "behind-another"):
        sent_in_part(config, case, lab.s3)
    abort_the_next(config, "hidden-abort")
    wait_until_stable(kafka, "hidden-abort")
    lose_ends(mortal, config)

    with pytest.raises(OpenTransactionError, match="has probably lost its end") as told:
        restored(config, "hidden-abort")
    end_as_the_error_says(jvm, mortal.bootstrap_servers, str(told.value))
    abort_the_next(config, "later-marker", with_marker=True)
    for case in ("hidden-abort", "later-marker"):
        report = restored(config, case)
        assert (report.verified, report.sent_count) == (True, RECORDS - BATCH), case
        check_restored_once(config, case)

    check_behind_another(config, another)


def lose_ends(mortal: StackSettings, config: ConnectorConfig) -> None:
    ends = {case: log_end(config.kafka, case) for case in ("hidden-abort", "behind-another")}
    kill_broker(mortal)
    for case, end in ends.items():
        cut_log(mortal, case, end - 1)
    lose_end(mortal, marker.make_marker_name("later-marker", 0, place=hash_place(config)))
    start_broker(mortal)


def check_behind_another(config: ConnectorConfig, another: Producer) -> None:
    """Whether the marker tells the truth is not known before another's transaction has ended: nothing is sent."""
    abort_the_next(config, "behind-another")
    before = log_end(config.kafka, "behind-another")
    with pytest.raises(OpenTransactionError):
        restored(config, "behind-another")
    assert log_end(config.kafka, "behind-another") == before
    another.abort_transaction(30)
    wait_until_stable(config.kafka, "behind-another")
    report = restored(config, "behind-another")
    assert (report.verified, report.sent_count) == (True, RECORDS)
    check_restored_once(config, "behind-another")


def abort_the_next(config: ConnectorConfig, case: str, *, with_marker: bool = False) -> None:
    """Another run of the restore, which sends some of what comes next and ends before it has committed that."""
    name = marker.make_marker_name(case, 0, place=hash_place(config))
    [batch] = records_of(config.kafka, config.topics[0]).slice(BATCH, 100).combine_chunks().to_batches()
    end = log_end(config.kafka, case)
    with (
        GroupOffset(config.kafka, name, case, 0) as group,
        TransactionalReplayProducer(config.kafka, case, name) as producer,
    ):
        producer.begin()
        producer.send(batch, 0)
        producer.flush()
        if with_marker:
            producer._send_offset(group, Committed(BATCH + 100), 10.0)  # noqa: SLF001 - and no commit
    with ClusterAdmin(config.kafka) as admin:
        until(lambda: admin.frontiers(case, [0])[0].high_watermark > end + batch.num_rows)
