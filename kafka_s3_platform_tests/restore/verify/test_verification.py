"""What "verified" is said of: every record that was sent, each once, in the topic that the restore began with."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import (
    IntegrityError,
    LogTruncatedError,
    MissingTopicError,
    OpenTransactionError,
    PlatformError,
    PreflightError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.times import EPOCH
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.replay import target_log
from kafka_s3_platform.core.restore.report_page import render_page
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, TargetReport, Verdict, judge_report
from kafka_s3_platform.core.restore.verify.read_back import Reached
from kafka_s3_platform.core.restore.verify.verification import is_as_it_was
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.kafka_liar import Asked, KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import EARLIEST
from kafka_s3_platform_tests.chaos.lies import LIST_OFFSETS, Lie
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records, open_transaction
from kafka_s3_platform_tests.restore.own import (
    Archive,
    Between,
    ReadingBack,
    StoppingRunner,
    add_kafka_partitions,
    delete_topic,
    request,
    restored,
    set_configs,
    target_of,
)
from kafka_s3_platform_tests.support import Sent, produce

RECORDS = [Sent(b"v%d" % n, b"k%d" % (n % 8), kafka_partition=n % 2) for n in range(40)]
BY_KEY = Outgoing(partitioning="murmur2")
NEVER_YET = {"min.compaction.lag.ms": "630720000000"}
"""Compaction removes no record of the last twenty years, by its own time."""


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """An archive of 40 records with 8 keys in 2 kafka partitions."""
    return shared_archive(RECORDS, kafka_partitions=2)


def written(config: ConnectorConfig) -> int:
    """Offsets that the target has used."""
    topic = target_of(config)
    with ClusterAdmin(config.kafka) as admin:
        logs = admin.frontiers(topic, admin.describe_topic(topic).kafka_partitions)
    return sum(log.high_watermark for log in logs.values())


def has_report(config: ConnectorConfig) -> bool:
    return ObjectStore(config.restore_store).head(request(config).documents.report) is not None


@pytest.mark.parametrize("records", [1, 40])
def test_where_keys_choose_a_target_that_grew_before_the_first_record_is_refused(
    config: ConnectorConfig, records: int
) -> None:
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay_streams), outgoing=BY_KEY, target_kafka_partitions=4, to_offset=records)
    add_kafka_partitions(config.kafka, target_of(config), 8)
    with pytest.raises(
        PreflightError, match=r"over the 4 kafka partitions that .* had when the restore began, but it now has 8"
    ):
        restored(config, outgoing=BY_KEY, target_kafka_partitions=4, to_offset=records)
    assert written(config) == 0


def test_where_keys_choose_a_target_that_grows_meanwhile_is_not_verified(config: ConnectorConfig) -> None:
    with pytest.raises(PreflightError, match=r"it now has 8\. Records of one key would be in two of them"):
        restored(
            config,
            Between(after_replay=lambda: add_kafka_partitions(config.kafka, target_of(config), 8)),
            outgoing=BY_KEY,
            target_kafka_partitions=4,
        )
    assert not has_report(config)


def test_where_records_keep_their_number_what_grows_is_told(config: ConnectorConfig) -> None:

    def others() -> None:
        add_kafka_partitions(config.kafka, target_of(config), 4)
        produce(config.kafka, target_of(config), [Sent(b"theirs", kafka_partition=3)])

    report = restored(config, Between(after_replay=others))
    assert report.verified
    [told] = [note for note in report.notes if "not read back" in note]
    assert told.startswith(f"{target_of(config)}: kafka partitions 3 grew since the restore began. None of its records")


def test_streams_that_were_read_back_early_are_read_again_if_their_logs_changed(
    config: ConnectorConfig,
) -> None:
    runner = ReadingBack()
    assert restored(config, runner).verified
    assert runner.read_again == []
    written_by_others = Sent(b"theirs", kafka_partition=1)
    runner = ReadingBack(after_replay=lambda: produce(config.kafka, target_of(config), [written_by_others]))
    report = restored(config, runner, restore_id="r2")
    assert runner.read_again == [1]
    assert (report.record_count, [t.foreign_count for t in report.targets]) == (40, [0, 1])


def test_where_compaction_began_meanwhile_all_is_read_again_and_told(config: ConnectorConfig) -> None:
    runner = ReadingBack(
        after_replay=lambda: set_configs(
            config.kafka, target_of(config), NEVER_YET | {"cleanup.policy": "compact,delete"}
        )
    )
    report = restored(config, runner)
    assert report.verified
    assert sorted(runner.read_again) == [0, 1]
    [told] = [note for note in report.notes if "compact" in note]
    assert told.startswith(f"the configs of {target_of(config)} were changed after the first record was sent")


@pytest.fixture
def reading_the_other(config: ConnectorConfig) -> ReadingBack:
    """Reads kafka partition 1 back at the end, since somebody has written there; kafka partition 0 is as it was."""
    theirs = Sent(b"theirs", kafka_partition=1)
    return ReadingBack(after_replay=lambda: produce(config.kafka, target_of(config), [theirs]))


def test_a_target_is_read_again_if_compaction_begins_meanwhile(
    config: ConnectorConfig, reading_the_other: ReadingBack
) -> None:
    reading_the_other.meanwhile = lambda: set_configs(
        config.kafka, target_of(config), NEVER_YET | {"cleanup.policy": "compact"}
    )
    assert restored(config, reading_the_other).verified
    assert reading_the_other.read_again == [1, 0]


def test_records_that_are_deleted_while_other_streams_are_read_are_missing(
    config: ConnectorConfig, reading_the_other: ReadingBack
) -> None:
    reading_the_other.meanwhile = lambda: delete_records(config.kafka, target_of(config), 13)
    with pytest.raises(
        LogTruncatedError, match=r"-0 holds offsets \[13, 21\), but records were restored to it from offset 0 on"
    ):
        restored(config, reading_the_other)
    assert not has_report(config)


def test_configs_that_others_set_meanwhile_are_named_where_records_differ(
    config: ConnectorConfig,
) -> None:
    def restamp() -> None:
        set_configs(config.kafka, target_of(config), {"message.timestamp.type": "LogAppendTime"})

    with pytest.raises(
        IntegrityError, match=r"(?s)was not found.*message\.timestamp\.type=LogAppendTime: every record"
    ):
        restored(config, Between(before_replay=restamp))


def _old_start(_liar: KafkaLies, question: Asked, answer: Any) -> Any:
    if question.api != LIST_OFFSETS:
        return None
    times = {(t.name, p.partition_index): p.timestamp for t in question.request.topics for p in t.partitions}
    starts = [p for t in answer.topics for p in t.partitions if times[t.name, p.partition_index] == EARLIEST]
    for place in starts:
        place.offset = 0
    return answer if starts else None


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("deleted", [7, -1])
def test_a_stale_answer_about_the_logs_start_hides_no_loss(config: ConnectorConfig, nth: int, deleted: int) -> None:
    with lying_broker(config.kafka.bootstrap_servers, KafkaLies(nth)) as broker:
        through = config.model_copy(update={"kafka": KafkaSettings(bootstrap_servers=broker.bootstrap_servers)})

        def delete() -> None:
            delete_records(config.kafka, target_of(config), deleted)
            broker.liar.lie(Lie("an old log start", _old_start, nth))

        with pytest.raises(PlatformError) as caught:
            restored(through, ReadingBack(after_replay=delete))
    assert isinstance(caught.value, LogTruncatedError | IntegrityError), caught.value
    assert not has_report(config)


@pytest.mark.parametrize(
    ("then", "now", "is_taken"),
    [
        ({}, {}, True),
        ({}, {"last_stable_offset": 9, "high_watermark": 9}, False),
        ({}, {"last_stable_offset": 7, "high_watermark": 7}, False),
        ({}, {"high_watermark": 9}, False),
        ({}, {"log_start_offset": 3}, True),
        ({}, {"log_start_offset": 4}, False),
        ({}, {"leader_epoch": 6}, False),
        ({"leader_epoch": None}, {}, False),
        ({"leader_epoch": None}, {"leader_epoch": None}, False),
        ({"open_offset": 8}, {}, False),
    ],
)
def test_a_log_is_as_it_was_with_the_same_end_and_epoch(
    then: dict[str, int | None], now: dict[str, int], is_taken: bool
) -> None:
    target = TargetReport("t", 0, start_offset=3, end_offset=8, open_offset=then.get("open_offset"))
    reached = Reached(target, extra_count=0, leader_epoch=then.get("leader_epoch", 5))
    log = {"log_start_offset": 0, "last_stable_offset": 8, "high_watermark": 8, "leader_epoch": 5} | now
    assert is_as_it_was(reached, Frontier(kafka_partition=0, observed_at=EPOCH, **log)) is is_taken


def test_records_that_come_once_more_are_counted_apart_from_those_of_others(config: ConnectorConfig) -> None:
    extra = [*RECORDS[:6], *RECORDS[:2], Sent(b"theirs"), Sent(b"v0", b"other")]
    report = restored(config, Between(after_replay=lambda: produce(config.kafka, target_of(config), extra)))
    assert (report.record_count, report.doubled_count, report.foreign_count) == (40, 8, 2)
    assert [(p.doubled_count, p.foreign_count) for p in report.kafka_partitions] == [(4, 2), (4, 0)]
    assert "all records were found, plus 8 extra copies" in render_page(report)


def test_a_restore_s_own_records_are_nobody_else_s_where_its_streams_meet(config: ConnectorConfig) -> None:
    report = restored(config, outgoing=BY_KEY, target_kafka_partitions=3)
    assert (report.record_count, report.doubled_count, report.foreign_count) == (40, 0, 0)
    assert [(t.kafka_partition, t.stream_count) for t in report.targets] == [(0, 2), (1, 2), (2, 2)]
    assert "verified: every record sent was found once" in render_page(report)


def test_where_streams_meet_doubled_records_are_counted_too(config: ConnectorConfig) -> None:
    extra = [replace(r, kafka_partition=0) for r in RECORDS[:3]]
    report = restored(
        config,
        Between(after_replay=lambda: produce(config.kafka, target_of(config), [*extra, Sent(b"theirs")])),
        outgoing=BY_KEY,
        target_kafka_partitions=1,
    )
    assert (report.record_count, report.doubled_count, report.foreign_count) == (40, 3, 1)
    assert [(t.doubled_count, t.foreign_count) for t in report.targets] == [(3, 1)]


def test_as_many_as_were_sent_have_to_be_found(config: ConnectorConfig) -> None:
    """What is read back by another condition than it was sent by is a part of it, and all of that is there."""

    def fewer(task: Any) -> Any:
        return replace(task, sent=replace(task.sent, records=RecordFilter(sql='"offset" < 5')))

    with pytest.raises(
        IntegrityError, match=r"20 records of .*-0 were sent, but 5 of those that would be sent now are there; "
    ):
        restored(config, Between(verified=fewer))
    assert not has_report(config)


def test_a_target_that_is_made_anew_meanwhile_is_told_as_that(config: ConnectorConfig, lab: Lab) -> None:

    def anew() -> None:
        delete_topic(config.kafka, target_of(config))
        lab.create(target_of(config), 2)

    with pytest.raises(TopicRecreatedError, match="was deleted and created again"):
        restored(config, Between(after_replay=anew))
    assert not has_report(config)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_log, "STABLE_SECONDS", 0.5)


@pytest.mark.usefixtures("impatient")
def test_an_open_transaction_behind_all_records_hides_none_of_them(config: ConnectorConfig) -> None:
    theirs: list[Any] = []
    report = restored(
        config,
        Between(after_replay=lambda: theirs.append(open_transaction(config.kafka, target_of(config), [b"theirs"]))),
    )
    assert report.verified
    [target, _] = report.targets
    assert target.open_offset == target.end_offset
    assert f"{target_of(config)}-0: a transaction of another writer is open at offset {target.end_offset}" in str(
        report.notes
    )
    theirs[0].abort_transaction(10)


@pytest.mark.usefixtures("impatient")
def test_an_open_transaction_before_a_record_leaves_the_restore_unverified(config: ConnectorConfig, lab: Lab) -> None:
    lab.create(target_of(config), 2)
    theirs = open_transaction(config.kafka, target_of(config), [b"theirs"])
    with pytest.raises(OpenTransactionError, match="a transaction is open at offset 0"):
        restored(config)
    theirs.abort_transaction(10)
    assert restored(config).verified


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_finished_restore_tells_what_became_of_its_target(config: ConnectorConfig, lab: Lab, dry_run: bool) -> None:
    target = restored(config).to_topic
    again = restored(config, dry_run=dry_run)
    assert (again.already_finished, again.dry_run) == (True, dry_run)

    delete_records(config.kafka, target, 5)
    less = restored(config, dry_run=dry_run)
    assert less.doubts == less.notes[-1:]
    gone = "the records that were in offsets [0, 5) when the restore ended have been deleted since"
    assert less.doubts == (f"{target}-0 now begins at offset 5: {gone}",)
    assert judge_report(less) == Verdict("part", f"every record sent was found once, but {less.doubts[0]}")
    delete_topic(config.kafka, target)
    with pytest.raises(MissingTopicError, match="was deleted after the restore began"):
        restored(config, dry_run=dry_run)
    lab.create(target, 2)
    with pytest.raises(TopicRecreatedError, match="was deleted and created again"):
        restored(config, dry_run=dry_run)
