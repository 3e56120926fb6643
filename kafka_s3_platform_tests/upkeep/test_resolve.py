"""Deciding what to do without, on a real log: skipping, accepting a truncation, beginning again at an offset."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    BusyError,
    LogTruncatedError,
    OpenTransactionError,
    PermanentError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import Reservation, Scan
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform.core.store.row_filter import match_row
from kafka_s3_platform.core.upkeep.resolve import (
    AcceptTruncation,
    BeginAt,
    Decision,
    ResolveReport,
    Skip,
    resolve_offsets,
)
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.archive.bad_values import BY_VALUE, numbered, unresolved
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records, open_transaction, until, wait_until_stable
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    produce,
    scanned,
    snapshot,
    stored,
    tried,
)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Ten records of which those at 4, 5 and 8 cannot be archived, and a kafka partition without any."""
    found = lab.fill(numbered(10, [4, 5, 8]), kafka_partitions=2, **BY_VALUE)
    tried(found, [NOON])
    return found


def decided(config: ConnectorConfig, decision: Decision, dry_run: bool = False) -> ResolveReport:
    return resolve_offsets(config, config.topics[0], decision, "decision", dry_run)


def commit(config: ConnectorConfig, *rows: IndexRow) -> None:
    snapshot(config).commit(Change(added=rows))


def gaps(config: ConnectorConfig) -> list[tuple[int, int, str]]:
    return [(g.start_offset, g.end_offset, g.reason) for g in sorted(snapshot(config).state.gaps)]


def test_what_is_skipped_is_a_gap_of_its_hour_and_the_hour_completes(config: ConnectorConfig) -> None:
    report = decided(config, Skip(0, OffsetRange(4, 6)))
    assert (report.gaps, report.offset_count) == ((Gap(0, 4, 6, "skipped"),), 2)
    assert unresolved(config) == [(0, 8, 9)]
    assert snapshot(config).state.gaps == (Gap(0, 4, 6, "skipped"),)
    decided(config, Skip(0, OffsetRange(8, 9)))
    (hour,) = archived(config, [NOON]).hours
    assert (hour.complete, hour.record_count, len(hour.verdict.lacking)) == (True, 7, 2)
    assert snapshot(config).state.failures == ()
    assert verify_archive(config, config.topics[0], deep=True, runner=InProcessRunner()).ok


def test_a_dry_run_tells_the_same_and_records_nothing(config: ConnectorConfig) -> None:
    report = decided(config, Skip(0, OffsetRange(4, 6)), dry_run=True)
    assert report.gaps == (Gap(0, 4, 6, "skipped"),)
    assert gaps(config) == []
    assert len(unresolved(config)) == 2


def test_archived_offsets_and_such_that_are_to_come_are_not_skipped(config: ConnectorConfig) -> None:
    with pytest.raises(PermanentError, match=r"\[6, 7\) are archived.*not archived of them: \[4, 6\)"):
        decided(config, Skip(0, OffsetRange(4, 7)))
    with pytest.raises(PermanentError, match="the log ends at offset 10"):
        decided(config, Skip(0, OffsetRange(10, 11)))
    assert gaps(config) == []


def test_archiving_begins_again_at_an_offset(config: ConnectorConfig) -> None:
    assert decided(config, BeginAt(0, 7)).gaps == (Gap(0, 4, 6, "skipped"),)
    assert unresolved(config) == [(0, 8, 9)]
    with pytest.raises(PermanentError, match="everything below offset 7 is archived"):
        decided(config, BeginAt(0, 7))


def test_a_topic_that_was_never_archived_may_begin_at_an_offset(lab: Lab) -> None:
    config = lab.fill(numbered(10))
    decided(config, BeginAt(0, 6))
    archived(config)
    assert stored(config).column("offset").to_pylist() == [6, 7, 8, 9]


def test_what_a_transaction_keeps_back_is_not_given_up(config: ConnectorConfig) -> None:
    writer = open_transaction(config.kafka, config.topics[0], [b"v"] * 5)
    for decision in (BeginAt(0, 12), Skip(0, OffsetRange(10, 12))):
        with pytest.raises(OpenTransactionError, match=r"-0: a transaction is open at offset 10.* when it has ended"):
            decided(config, decision)
    writer.abort_transaction(30)
    wait_until_stable(config.kafka, config.topics[0])
    decided(config, BeginAt(0, 12))


def test_a_dry_run_about_a_topic_without_an_index_makes_none_and_counts_what_the_log_holds(lab: Lab) -> None:
    config = lab.fill(numbered(10))
    delete_records(config.kafka, config.topics[0], 4)
    report = decided(config, BeginAt(0, 6), dry_run=True)
    assert (report.gaps, report.offset_count) == ((Gap(0, 0, 6, "skipped"),), 2)
    assert TopicIndex.of(config, config.topics[0]).within_connector.peek() is None


def test_a_decision_before_any_archiving_is_about_the_topic_that_was_there(lab: Lab) -> None:
    config = lab.fill(numbered(10))
    decided(config, BeginAt(0, 6))
    with ClusterAdmin(config.kafka) as admin:
        admin.ask(lambda client, timeout: client.delete_topics([lab.topic], request_timeout=timeout)[lab.topic], "")
        until(lambda: not admin.topic_exists(lab.topic))
    lab.create_topic()
    produce(config.kafka, lab.topic, numbered(10))
    with pytest.raises(TopicRecreatedError, match="it was deleted and created again"):
        archived(config)


def test_nothing_is_decided_while_a_run_is_at_work(config: ConnectorConfig) -> None:
    now = datetime.now(timezone.utc)
    commit(config, Reservation(0, 5, 9, "other", 99, now))
    with pytest.raises(BusyError, match=r"run other has reserved \[5, 9\).*vacuum c --topic .* --older-than 0m"):
        decided(config, Skip(0, OffsetRange(4, 6)))
    assert gaps(config) == []


def test_a_log_that_ends_before_the_archive_goes_on_after_it(config: ConnectorConfig) -> None:
    """The index as it is when the log has lost ten offsets that were archived."""
    produce(config.kafka, config.topics[0], numbered(5, kafka_partition=1))
    commit(config, Scan(0, 10, 20, 0, 3, 1), *(Gap(0, a, b, "skipped") for a, b in ((4, 6), (8, 9))))
    with pytest.raises(LogTruncatedError, match=rf"resolve c --topic {config.topics[0]} --kafka-partition 0 --accept"):
        archived(config)
    assert scanned(config, 1) == (OffsetRange(0, 5),)
    produce(config.kafka, config.topics[0], numbered(4))
    report = decided(config, AcceptTruncation(0))
    lost = Gap(0, 10, 20, "truncated")
    assert (report.gaps, report.offset_count, report.later_count) == ((lost,), 4, 6)
    # its leader knows nothing of the epoch at the archive's end
    assert not report.is_start_exact
    assert archived(config).record_count == 0
    later = NOON + HOUR
    produce(config.kafka, config.topics[0], [Sent(timestamp=later)] * 6)
    # what is written up to the archive's end is of an hour that shows why it holds none of it
    (hour,) = archived(config, [later]).hours
    assert (hour.record_count, hour.verdict.lacking[-1]) == (0, lost)
    produce(config.kafka, config.topics[0], numbered(3))
    assert archived(config).record_count == 3
    assert scanned(config) == (OffsetRange(0, 23),)


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_a_log_that_was_truncated_and_has_grown_past_the_archive_goes_on_after_it(config: ConnectorConfig) -> None:
    """The index as it is when offsets 10 to 14 were archived at a leader epoch that the log has lost."""
    commit(config, Scan(0, 10, 15, 0, 9, 1), *(Gap(0, a, b, "skipped") for a, b in ((4, 6), (8, 9))))
    produce(config.kafka, config.topics[0], numbered(10))
    with pytest.raises(LogTruncatedError, match=r"-0 \[15, 20\) is not archived.*--kafka-partition 0 --accept-trunc"):
        archived(config)
    report = decided(config, AcceptTruncation(0))
    assert (report.gaps, report.offset_count) == ((Gap(0, 10, 15, "truncated"),), 5)
    assert archived(config).record_count == 5
    assert scanned(config) == (OffsetRange(0, 20),)


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_a_log_that_was_truncated_and_has_grown_to_the_archives_end_is_found_out(config: ConnectorConfig) -> None:
    """Nothing is left to read: an hour would be called complete by what it does not hold."""
    commit(config, Scan(0, 10, 15, 0, 8, 1), *(Gap(0, a, b, "skipped") for a, b in ((4, 6), (8, 9))))
    produce(config.kafka, config.topics[0], [*numbered(5), *numbered(3, kafka_partition=1)])
    for hours in ([NOON], None):
        with pytest.raises(
            LogTruncatedError,
            match=r"-0: the archive reaches offset 15, the log holds other records from .*--accept-truncation",
        ):
            archived(config, hours)
    assert scanned(config, 1) == (OffsetRange(0, 3),)
    assert decided(config, AcceptTruncation(0)).gaps == (Gap(0, 10, 15, "truncated"),)
    produce(config.kafka, config.topics[0], numbered(2))
    assert archived(config).record_count == 2


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_a_truncated_log_is_found_out_behind_offsets_that_could_not_be_archived(config: ConnectorConfig) -> None:
    """What is read again first lies before what the log has lost, so its own epoch tells nothing of that."""
    commit(config, Scan(0, 10, 15, 0, 9, 1))
    produce(config.kafka, config.topics[0], numbered(10))
    with pytest.raises(LogTruncatedError, match=r"-0 \[15, 20\) is not archived.*--accept-trunc"):
        archived(config)
    assert decided(config, AcceptTruncation(0)).gaps == (Gap(0, 10, 15, "truncated"),)
    assert tried(config).record_count == 5
    assert unresolved(config) == [(0, 4, 6), (0, 8, 9)]


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_nothing_behind_a_truncation_is_archived_before_it_is_accepted(config: ConnectorConfig) -> None:
    """Of several tasks only the first one sees it. What the others read would hide where the log was truncated."""
    commit(config, Scan(0, 10, 15, 0, 9, 1), *(Gap(0, a, b, "skipped") for a, b in ((4, 6), (8, 9))))
    produce(config.kafka, config.topics[0], numbered(8, hours=2)[:10] + numbered(3, kafka_partition=1))
    small = config.model_copy(update={"archive": config.archive.model_copy(update={"task_size": 1})})
    hours = [NOON, NOON + HOUR]
    with pytest.raises(LogTruncatedError, match=r"-0 \[15, 18\) is not archived"):
        archived(small, hours)
    assert (scanned(config), scanned(config, 1)) == ((OffsetRange(0, 15),), (OffsetRange(0, 3),))
    assert decided(config, AcceptTruncation(0)).gaps == (Gap(0, 10, 15, "truncated"),)
    assert archived(small, hours).record_count == 5
    assert scanned(config) == (OffsetRange(0, 20),)


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_what_lies_before_an_accepted_truncation_is_read_again(config: ConnectorConfig) -> None:
    """The epoch of the scan that ends at offset 8 is that of its range's end, which the log has lost."""
    rows = Scan(0, 6, 8, 2, 9, 1), Gap(0, 4, 6, "skipped"), Gap(0, 9, 10, "truncated")
    snapshot(config).commit(Change(added=rows, removed=(match_row("scan", {"end_offset": 8}),)))
    produce(config.kafka, config.topics[0], numbered(10))
    assert tried(config).record_count == 10
    assert unresolved(config) == [(0, 8, 9)]


def test_a_log_that_holds_what_is_archived_has_no_truncation_to_accept(config: ConnectorConfig) -> None:
    with pytest.raises(PermanentError, match="nothing of it is truncated"):
        decided(config, AcceptTruncation(0))
