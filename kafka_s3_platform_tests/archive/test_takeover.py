"""Taking over from a sink, against real Kafka and S3: its consumer group is a real one that has gone."""

import logging
from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.archive.takeover import TakeOverReport, name_group, publish_coverage, record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    BusyError,
    LogTruncatedError,
    OffsetGapError,
    OpenTransactionError,
    PermanentError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import read_committed_offsets
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.answering import answering, nothing
from kafka_s3_platform_tests.kafka.topics import (
    commit_offsets,
    consuming,
    delete_records,
    open_transaction,
    until,
    wait_until_stable,
)
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    offsets_by_kafka_partition,
    scanned,
    snapshot,
    stored,
)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Ten records, two an hour from noon on, in each of two kafka partitions; nobody has archived any."""
    times = [NOON + HOUR * (n // 2) for n in range(10)]
    records = [Sent(timestamp=t, kafka_partition=p) for p in range(2) for t in times]
    return lab.fill(records, kafka_partitions=2).model_copy(update={"name": lab.topic})


def sink_committed(config: ConnectorConfig, offsets: Mapping[int, int]) -> None:
    wanted = [TopicPartition(config.topics[0], p, o) for p, o in offsets.items()]
    commit_offsets(config.kafka, name_group(config.name), wanted)


def taken_over(config: ConnectorConfig, group: str = "") -> TakeOverReport:
    return record_takeover(config, config.topics[0], group or name_group(config.name), "run")


def test_archiving_goes_on_where_the_sink_ended_without_gap_or_repeat(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4, 1: 7})
    report = taken_over(config)
    assert report.gaps == (Gap(0, 0, 4, "taken over"), Gap(1, 0, 7, "taken over"))
    for hour in range(5):
        archived(config, [NOON + hour * HOUR])
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(4, 10)), 1: list(range(7, 10))}
    assert [scanned(config, p) for p in range(2)] == [(OffsetRange(0, 10),)] * 2


def test_hours_that_the_sink_archived_are_shown_as_such_and_nothing_is_lost(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 3, 1: 3})
    taken_over(config)
    report = archived(config, [NOON + n * HOUR for n in range(3)])
    assert [(h.record_count, h.verdict.taken_over_count, h.verdict.lacking, h.scanned) for h in report.hours] == [
        (0, 6, (), True),
        (2, 2, (), True),
        (4, 0, (), True),
    ]
    verified = verify_archive(config, config.topics[0], False, InProcessRunner())
    assert (verified.ok, verified.holes, verified.gaps) == (True, (), ())
    assert verified.taken_over == (Gap(0, 0, 3, "taken over"), Gap(1, 0, 3, "taken over"))


def test_a_kafka_partition_without_a_committed_offset_is_archived_from_its_log_start(config: ConnectorConfig) -> None:
    delete_records(config.kafka, config.topics[0], 2)
    sink_committed(config, {1: 7})
    report = taken_over(config)
    assert (report.offsets, report.log_starts) == ({1: 7}, {0: 2})
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(2, 10)), 1: list(range(7, 10))}


def test_a_sink_that_has_read_nothing_or_everything_is_taken_over_too(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 0, 1: 10})
    assert taken_over(config).gaps == (Gap(1, 0, 10, "taken over"),)
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(10))}


def test_done_twice_it_changes_nothing_also_after_archiving(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4, 1: 7})
    taken_over(config)
    version = snapshot(config).version
    assert taken_over(config).gaps == ()
    assert snapshot(config).version == version
    archived(config)
    assert taken_over(config).gaps == ()


def test_a_sink_that_ran_on_before_anything_was_archived_is_taken_over_again(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4, 1: 7})
    taken_over(config)
    sink_committed(config, {0: 6})
    assert taken_over(config).gaps == (Gap(0, 4, 6, "taken over"),)
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(6, 10)), 1: list(range(7, 10))}


def test_a_sink_that_went_back_is_refused(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4, 1: 7})
    taken_over(config)
    sink_committed(config, {0: 3})
    with pytest.raises(PermanentError, match=r"stands at offset 3, but connector .* has archived \[0, 4\)"):
        taken_over(config)


@pytest.mark.parametrize("offset", [2, 10])
def test_what_is_archived_already_cannot_be_taken_over(config: ConnectorConfig, offset: int) -> None:
    archived(config, [NOON, NOON + HOUR])
    sink_committed(config, {0: offset})
    before = snapshot(config).version
    with pytest.raises(
        PermanentError, match=rf"-0: consumer group .* {offset}, but connector .* \[0, 4\).*topics\.dir"
    ):
        taken_over(config)
    assert snapshot(config).version == before


def test_an_active_group_is_refused(config: ConnectorConfig) -> None:
    said = f"{config.topics[0]}: taking over: consumer group connect-.*stop its consumers"
    with consuming(config.kafka, config.topics[0], name_group(config.name)), pytest.raises(BusyError, match=said):
        taken_over(config)


def test_a_group_that_never_committed_is_told_and_nothing_is_created(config: ConnectorConfig) -> None:
    with pytest.raises(PermanentError, match=r"consumer group absent has no committed offset.*--group"):
        taken_over(config, "absent")
    assert TopicIndex(ConnectorIndex(config.store, "_index", config.name), config.topics[0]).peek() is None


def test_a_group_that_stands_beyond_the_log_is_refused(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 11})
    with pytest.raises(LogTruncatedError, match="stands at offset 11, and it ends at 10"):
        taken_over(config)


def test_a_group_that_stands_in_an_open_transaction_is_tried_again_later(config: ConnectorConfig) -> None:
    producer = open_transaction(config.kafka, config.topics[0], [b"a", b"b"])
    sink_committed(config, {0: 11})
    with pytest.raises(OpenTransactionError, match="open at 10"):
        taken_over(config)
    producer.commit_transaction(30)
    wait_until_stable(config.kafka, config.topics[0])
    assert taken_over(config).gaps == (Gap(0, 0, 11, "taken over"),)


def test_what_retention_took_before_the_sink_read_it_is_lost_and_said_so(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4, 1: 7})
    delete_records(config.kafka, config.topics[0], 6)
    with pytest.raises(OffsetGapError, match=r"\[4, 6\) were deleted.*archive\.allow\.gaps=true"):
        taken_over(config)
    allowed = config.model_copy(update={"archive": config.archive.model_copy(update={"allow_gaps": True})})
    assert taken_over(allowed).gaps == (Gap(0, 0, 4, "taken over"), Gap(0, 4, 6), Gap(1, 0, 7, "taken over"))
    archived(allowed)
    assert scanned(config) == (OffsetRange(0, 10),)


def test_a_topic_that_was_created_again_is_refused(config: ConnectorConfig, create_topic: CreateTopic) -> None:
    sink_committed(config, {0: 4, 1: 7})
    taken_over(config)
    client = AdminClient({**config.kafka.properties("admin")})
    client.delete_topics(list(config.topics))[config.topics[0]].result(30)
    with ClusterAdmin(config.kafka) as admin:
        until(lambda: not admin.topic_exists(config.topics[0]))
    create_topic(config.topics[0], 2)
    sink_committed(config, {0: 0})
    with pytest.raises(TopicRecreatedError):
        taken_over(config)


def test_coverage_is_published_up_to_its_first_hole(config: ConnectorConfig) -> None:
    archived(config, [NOON, NOON + HOUR])
    archived(config, [NOON + 4 * HOUR])
    with ClusterAdmin(config.kafka) as admin:
        publish_coverage(admin, config.name, config.topics[0], snapshot(config).state)
        assert read_committed_offsets(admin, name_group(config.name), config.topics[0]) == {0: 4, 1: 4}
        archived(config)
        publish_coverage(admin, config.name, config.topics[0], snapshot(config).state)
        assert read_committed_offsets(admin, name_group(config.name), config.topics[0]) == {0: 10, 1: 10}


def test_coverage_is_not_published_over_a_group_at_work_and_the_run_goes_on(
    config: ConnectorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    archived(config)
    group = consuming(config.kafka, config.topics[0], name_group(config.name))
    with group, ClusterAdmin(config.kafka) as admin, caplog.at_level(logging.WARNING):
        publish_coverage(admin, config.name, config.topics[0], snapshot(config).state)
        assert "was not published" in caplog.text
        assert read_committed_offsets(admin, name_group(config.name), config.topics[0]) == {}


def test_coverage_that_cannot_be_published_is_a_warning(
    caplog: pytest.LogCaptureFixture, config: ConnectorConfig
) -> None:
    archived(config)
    state = snapshot(config).state
    with ClusterAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:31699"), 1.0) as admin:
        publish_coverage(admin, config.name, config.topics[0], state)
    assert "127.0.0.1:31699" in caplog.text


def test_a_broker_going_down_is_taken_over_from_only_when_it_is_back(config: ConnectorConfig) -> None:
    sink_committed(config, {0: 4})
    with answering(nothing), pytest.raises(BrokerUnavailableError, match=r"kafka partition 0.*-1001"):
        taken_over(config)
    assert taken_over(config).log_starts == {1: 0}
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(4, 10)), 1: list(range(10))}
