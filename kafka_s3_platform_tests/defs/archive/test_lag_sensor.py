"""The lag sensor's states, against real Kafka and S3. Nothing here needs Spark: runs find all archived already."""

import json
import time
from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import MissingTopicError
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import HourRange, Scan
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.status.backlog import MAX_HOURS, Archived
from kafka_s3_platform.core.status.backlogs import Backlogs
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    ago,
    asked_keys,
    connector_of_this_hour,
    evaluated,
    launch,
    observed,
    tags_of,
    tick,
    topic_of,
)
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.kafka.topics import ask_offsets, wait_until_stable
from kafka_s3_platform_tests.support import Sent, archived, produce, scanned, send, snapshot

HALF_AN_HOUR = timedelta(minutes=30)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    lab.create_topic()
    return connector_of_this_hour(lab.kafka, lab.store, lab.topic)


def send_hours(config: ConnectorConfig, hours: Sequence[int]) -> None:
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, h) + timedelta(minutes=1)) for h in hours])


def keys(config: ConnectorConfig, first: int, last: int) -> tuple[str, str]:
    hours = topic_of(config).hours
    return hours.key(ago(config, first)), hours.key(ago(config, last))


def archive_hours(config: ConnectorConfig, first: int, last: int) -> None:
    archived(config, [ago(config, h) for h in range(first, last - 1, -1)])


def archive_in_time(config: ConnectorConfig, hour: int, *ends: int) -> None:
    """Have the index say that the hour was archived up to these ends of the logs, when it was over."""
    at, over = ago(config, hour), ago(config, hour - 1)
    rows: list[IndexRow] = []
    for number, end in enumerate(ends):
        rows += [HourRange(at, number, 0, end), Frontier(number, 0, end, end, None, over, len(ends))]
        rows += [Scan(number, 0, end, end, None, 1, 0, 0, end)] if end else []
    TopicIndex.of(config, config.topics[0]).open().commit(Change(tuple(rows), run_id="earlier"))


def test_a_new_topic_asks_for_its_hours_in_one_run_and_shows_its_lag(config: ConnectorConfig) -> None:
    send_hours(config, [5, 4, 2])
    found = tick(config, "lag__c")
    assert found.run_requests is not None
    assert [asked_keys(r) for r in found.run_requests] == [keys(config, 5, 1)]
    [told] = observed(found)
    assert told.asset_key == topic_of(config).key("kafka")
    assert told.metadata["lag"].value == 3


def test_hours_whose_run_died_between_commit_and_event_are_reported_by_the_next(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    send_hours(config, [3, 2, 1])
    archive_hours(config, 3, 1)
    before = scanned(config)
    [asked] = tick(config, "lag__c").run_requests or ()
    assert asked_keys(asked) == keys(config, 3, 1)
    assert launch(config, asked).success
    assert scanned(config) == before
    assert instance.get_materialized_partitions(topic_of(config).key("hourly")) >= set(keys(config, 3, 1))
    idle = tick(config, "lag__c")
    assert not idle.run_requests
    assert idle.skip_reason


def test_hours_of_a_former_timezone_hold_up_no_hour_of_the_new_one(config: ConnectorConfig) -> None:
    send_hours(config, [60])
    archive_hours(config, 60, 4)
    send_hours(config, [3])
    layout = config.layout.model_copy(update={"timezone": "Asia/Kolkata"})
    changed = config.model_copy(update={"layout": layout})
    found = tick(changed, "lag__c")
    assert found.run_requests is not None
    [(first, last)] = [asked_keys(r) for r in found.run_requests]
    hours = topic_of(changed).hours
    assert first == hours.key(ago(config, 4) + HALF_AN_HOUR)
    assert last in {hours.key(ago(config, n) - HALF_AN_HOUR) for n in (0, 1)}


def test_hours_of_a_run_under_way_are_not_asked_for(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    send_hours(config, [5, 4, 3, 2])
    asked = tick(config, "lag__c").run_requests
    assert asked
    key = topic_of(config).key("hourly")
    manual = {"dagster/partition": keys(config, 4, 4)[0]}
    start(config, instance, key, manual)
    found = tick(config, "lag__c").run_requests or ()
    assert [asked_keys(r) for r in found] == [keys(config, 5, 5), keys(config, 3, 1)]
    start(config, instance, key, dict(asked[0].tags))
    assert not tick(config, "lag__c").run_requests


def start(config: ConnectorConfig, instance: dg.DagsterInstance, key: dg.AssetKey, tags: dict[str, str]) -> None:
    """A run of the topic that is under way."""

    @dg.asset(key=key, partitions_def=topic_of(config).hours.definition)
    def hourly() -> None: ...

    job = dg.Definitions(assets=[hourly]).resolve_implicit_global_asset_job_def()
    selected = frozenset([key])
    instance.create_run_for_job(job, asset_selection=selected, tags=tags, status=dg.DagsterRunStatus.STARTED)


def test_a_permanent_failure_is_not_asked_for_again_until_something_changes(config: ConnectorConfig) -> None:
    send_hours(config, [3, 2])
    [asked] = tick(config, "lag__c").run_requests or ()
    elsewhere = config.store.model_copy(update={"bucket": "no-such-bucket"})
    failed = launch(config.model_copy(update={"store": elsewhere}), asked)
    assert tags_of(failed)[FAILURE_TAG] == "permanent"
    assert not tick(config, "lag__c").run_requests
    assert "same inputs" in str(tick(config, "lag__c").skip_reason)
    archive = config.archive.model_copy(update={"allow_gaps": True})
    assert tick(config.model_copy(update={"archive": archive}), "lag__c").run_requests


def test_an_open_transaction_neither_completes_the_hour_nor_makes_the_sensor_loop(config: ConnectorConfig) -> None:
    send_hours(config, [2])
    producer = Producer(config.kafka.properties("producer") | {"transactional.id": config.topics[0]})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, config.topics[0], Sent(timestamp=ago(config, 1)))
    assert producer.flush(30) == 0
    archive_hours(config, 2, 1)
    [asked] = tick(config, "lag__c").run_requests or ()
    assert launch(config, asked).success
    assert not tick(config, "lag__c").run_requests
    assert not topic_of(config).index.open().state.judge.is_complete(ago(config, 1), timedelta())
    producer.commit_transaction(30)
    wait_until_stable(config.kafka, config.topics[0])
    assert tick(config, "lag__c").run_requests


def test_a_kafka_partition_that_keeps_many_hours_open_holds_up_no_other(lab: Lab) -> None:
    lab.create_topic(2)
    config = connector_of_this_hour(lab.kafka, lab.store, lab.topic)
    producer = Producer(config.kafka.properties("producer") | {"transactional.id": lab.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, lab.topic, Sent(timestamp=ago(config, MAX_HOURS + 10), kafka_partition=1))
    assert producer.flush(30) == 0
    archive_hours(config, MAX_HOURS + 10, 2)
    send_hours(config, [1])
    asked = tick(config, "lag__c").run_requests or ()
    assert (None, None) in [asked_keys(r) for r in asked], "the oldest hours wait for the transaction"
    archived(config)
    send_hours(config, [0])
    asked = tick(config, "lag__c").run_requests or ()
    assert asked_keys(asked[0])[0] is not None, "the open hour is not asked for, and the oldest ones are tried again"
    producer.abort_transaction(30)


def test_records_older_than_the_first_hour_are_archived_by_a_run_up_to_now(config: ConnectorConfig) -> None:
    send_hours(config, [24 * 60])
    found = tick(config, "lag__c").run_requests or ()
    assert asked_keys(found[-1]) == (None, None)
    archived(config)
    remaining = tick(config, "lag__c").run_requests or ()
    assert (None, None) not in [asked_keys(r) for r in remaining]


def rotated(config: ConnectorConfig, interval_ms: int) -> ConnectorConfig:
    layout = config.layout.model_copy(update={"rotate_schedule_interval_ms": interval_ms})
    return config.model_copy(update={"layout": layout})


def test_the_open_hour_is_asked_for_at_each_interval_by_one_run_at_a_time(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    often = rotated(config, 1)
    archive_hours(config, 2, 1)
    for hour in (2, 1):
        key = topic_of(config).hours.key(ago(config, hour))
        instance.report_runless_asset_event(dg.AssetMaterialization(topic_of(config).key("hourly"), partition=key))
    for sent in range(1, 3):
        send_hours(config, [0])
        [asked] = tick(often, "lag__c").run_requests or ()
        assert asked_keys(asked) == (None, None)
        archived(config)
        assert scanned(config) == (OffsetRange(0, sent),)
        assert not tick(often, "lag__c").run_requests, "nothing is left to archive"
    send_hours(config, [0])
    assert not tick(rotated(config, 3_600_000), "lag__c").run_requests, "a run looked a moment ago"
    assert not tick(config, "lag__c").run_requests, "no interval is set"
    start(config, instance, topic_of(config).key("hourly"), {})
    assert not tick(often, "lag__c").run_requests, "a run is under way"


def test_a_topic_that_a_pattern_found_may_go_without_failing_the_tick(config: ConnectorConfig) -> None:
    found = tick(config.model_copy(update={"topics": ("gone",), "topics_regex": "gone.*"}), "lag__c")
    assert "c/gone: the topic is not at Kafka any more" in str(found.skip_reason)


def delete_before(config: ConnectorConfig, offset: int) -> None:
    """What retention does, at once."""
    admin = AdminClient({"bootstrap.servers": config.kafka.bootstrap_servers})
    gone = TopicPartition(config.topics[0], 0, offset)
    admin.delete_records([gone])[gone].result(30)


def wait_until_first_is(config: ConnectorConfig, offset: int) -> None:
    """Until the broker has deleted the segments too: before that it says of their times that no record is so late."""
    at = to_epoch_ms(config.archive.start_hour)
    with ClusterAdmin(config.kafka) as admin:
        deadline = time.monotonic() + 60
        while ask_offsets(admin, config.topics[0], [0], [at]).results[0][at] != offset:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_hours_that_retention_cut_are_told_and_the_rest_archived(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.runs.FIRST_WAIT", timedelta())
    send_hours(config, [7])
    archive_in_time(config, 7, 1)
    send_hours(config, [5, 5, 4, 2])
    delete_before(config, 2)
    [first] = tick(config, "lag__c").run_requests or ()
    assert asked_keys(first) == keys(config, 7, 7)
    assert launch(config, first).success
    [asked] = tick(config, "lag__c").run_requests or ()
    # what was deleted may have been of each of the others
    assert asked_keys(asked) == (None, None)
    assert not launch(config, asked).success
    assert scanned(config) == (OffsetRange(0, 1), OffsetRange(2, 5))
    told = tick(config, "lag__c")
    assert not told.run_requests
    assert "retention took records of 6 hours" in str(told.skip_reason)


@pytest.mark.parametrize("is_led", [True, False], ids=["no answer to times", "no leader"])
def test_a_kafka_partition_that_does_not_answer_hides_no_other(
    config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch, is_led: bool
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.runs.FIRST_WAIT", timedelta())
    topic = lab.create(f"{config.topics[0]}-of-two", 2)
    config = config.model_copy(update={"topics": (topic,)})
    records = [Sent(timestamp=ago(config, 2), kafka_partition=p) for p in (0, 1)]
    produce(config.kafka, topic, records)

    def silent(_: str, kafka_partition: int, question: str | int, true: int) -> int:
        is_silent = kafka_partition == 1 and not (is_led and isinstance(question, str))
        return NOTHING if is_silent else true

    with answering(silent):
        found = tick(config, "lag__c")
        [asked] = found.run_requests or ()
        assert not launch(config, asked).success
    assert asked_keys(asked) == keys(config, 2, 1)
    [told] = observed(found)
    assert "kafka partition 1" in str(told.metadata["without_an_answer"].value)
    assert scanned(config) == (OffsetRange(0, 1),)
    [asked] = tick(config, "lag__c").run_requests or ()
    assert launch(config, asked).success
    assert scanned(config, 1) == (OffsetRange(0, 1),)


def test_more_lost_hours_than_are_looked_at_at_once_hide_none_that_can_be_archived(
    config: ConnectorConfig, lab: Lab
) -> None:
    """A quiet kafka partition keeps what is old, while size takes from a busy one what was not archived."""
    config = config.model_copy(update={"topics": (lab.create(f"{config.topics[0]}-of-two", 2),)})
    send_hours(config, [350])
    archive_in_time(config, 350, 1, 0)
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, 300), kafka_partition=1)])
    send_hours(config, [200, 60, 5])
    delete_before(config, 3)
    wait_until_first_is(config, 3)
    [first] = tick(config, "lag__c").run_requests or ()
    assert asked_keys(first) == keys(config, 350, 350)
    assert launch(config, first).success
    [asked] = tick(config, "lag__c").run_requests or ()
    assert asked_keys(asked) == (None, None)
    assert not launch(config, asked).success
    assert scanned(config, 1) == (OffsetRange(0, 1),)


def test_a_log_that_retention_cut_before_archiving_began_is_archived_by_its_hours(config: ConnectorConfig) -> None:
    send_hours(config, [5, 5, 4, 2])
    delete_before(config, 1)
    [first] = tick(config, "lag__c").run_requests or ()
    assert asked_keys(first) == keys(config, 5, 1)
    assert launch(config, first).success
    assert scanned(config) == (OffsetRange(1, 4),)
    assert [(g.start_offset, g.end_offset) for g in snapshot(config).state.judge.left_out] == [(0, 1)]
    assert not tick(config, "lag__c").run_requests


def test_a_hole_that_no_hour_reads_is_archived_by_a_run_up_to_now(config: ConnectorConfig) -> None:
    """Hours archived on their own leave what came late to others: a record of hour 5 lies among those of hour 2."""
    send_hours(config, [6, 3, 5, 2])
    archive_hours(config, 6, 6)
    archive_hours(config, 2, 1)
    assert scanned(config) == (OffsetRange(0, 1), OffsetRange(3, 4))
    for _ in range(3):
        for asked in tick(config, "lag__c").run_requests or ():
            assert launch(config, asked).success
    assert scanned(config) == (OffsetRange(0, 4),)


def test_the_retention_that_the_broker_sets_is_known_though_the_topic_sets_none(config: ConnectorConfig) -> None:
    with ClusterAdmin(config.kafka) as admin:
        topics = [topic_of(config)]
        found = Backlogs(topics, admin, lambda _: Archived(), Deadline(40.0)).read(topics[0])
        configs = found.read_configs()
        assert "retention.ms" not in admin.describe_topic(config.topics[0]).configs
    assert (configs["cleanup.policy"], int(configs["retention.ms"]) != 0) == ("delete", True)


def test_a_broker_that_does_not_answer_is_a_reason_to_skip(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.archive.lag_sensor.BROKER_SECONDS", 1.0)
    unreachable = config.model_copy(update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:31699")})
    found = tick(unreachable, "lag__c", json.dumps({"x": "kept"}))
    assert "127.0.0.1:31699" in str(found.skip_reason)
    assert json.loads(found.cursor or "{}") == {"x": "kept", "/silent": 1}


def test_a_broker_that_does_not_answer_is_waited_for_twice_a_tick(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.archive.lag_sensor.BROKER_SECONDS", 1.0)
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:31699")
    many = config.model_copy(update={"kafka": kafka, "topics": tuple(f"t{n}" for n in range(30))})
    started = time.monotonic()
    found = tick(many, "lag__c")
    assert time.monotonic() - started < 25
    assert json.loads(found.cursor or "{}") == {"/lag": "t2", "/silent": 1}


def test_a_missing_topic_fails_the_tick_but_not_the_other_topics(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    send_hours(config, [2])
    both = config.model_copy(update={"topics": ("not-there", *config.topics)})
    found = tick(both, "lag__c")
    assert len(found.run_requests or ()) == 1
    start(config, instance, topic_of(config).key("hourly"), dict((found.run_requests or ())[0].tags))
    waiting = tick(both, "lag__c")
    assert "not-there" in str(waiting.skip_reason)
    assert waiting.cursor == found.cursor
    assert len(observed(waiting)) == 1
    alone = config.model_copy(update={"topics": ("not-there",)})
    first = tick(alone, "lag__c")
    [red] = evaluated(first)
    assert (red.passed, "not-there" in str(red.description)) == (False, True), "green would be what nobody knows"
    with pytest.raises(Exception, match="not-there") as raised:
        tick(alone, "lag__c", first.cursor)
    assert isinstance(raised.value, MissingTopicError) or isinstance(raised.value.__cause__, MissingTopicError)
