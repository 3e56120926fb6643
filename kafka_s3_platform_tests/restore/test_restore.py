import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pydantic import SecretStr

from kafka_s3_platform.core import extensions
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import MissingTopicError, PlatformError, PreflightError, SparkUnavailableError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore import execution
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.preflight.keeping import bound_largest_log
from kafka_s3_platform.core.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.core.restore.replay.task import replay
from kafka_s3_platform.core.restore.request import Outgoing, RestoreReport, RestoreRequest, judge_report
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, make_archive_target, make_plan
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import Child
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.topics import records_of, values
from kafka_s3_platform_tests.restore.own import (
    Archive,
    Between,
    StoppingRunner,
    admin_client,
    keys,
    numbered,
    request,
    restored,
    run_restore,
    set_configs,
    target_of,
    topics,
)
from kafka_s3_platform_tests.support import NOON, NoSpark, Sent, archived, produce

CONTENT = ["key", "value", "headers", "timestamp"]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    return lab.connector()


ODD = [
    Sent(b"plain", b"key"),
    Sent(None, b"tombstone"),
    Sent(b"", b""),
    Sent(None, None),
    Sent(b"v", None, headers=(("a", b"1"), ("a", b"1"), ("a", None), ("a", b""), ("", b"x"), ("trace-é", b"\xff\x00"))),
    Sent(b"late", b"k", NOON - timedelta(hours=5)),
    Sent(b"early", b"k", NOON + timedelta(hours=3, milliseconds=1)),
    Sent(b"back", b"k", NOON + timedelta(milliseconds=999)),
    Sent(b"ancient", b"k", datetime(1999, 1, 1, tzinfo=timezone.utc)),
    Sent(b"x" * 900_000, b"big"),
]


def test_a_topic_comes_back_as_it_was(shared_archive: Archive) -> None:
    config = shared_archive([*ODD, *numbered(500), *numbered(20, kafka_partition=2)], kafka_partitions=3)

    report = restored(config)

    for kafka_partition in range(3):
        was, now = (records_of(config.kafka, t, kafka_partition) for t in (config.topics[0], report.to_topic))
        assert now.select(CONTENT).equals(was.select(CONTENT))
    assert (report.record_count, report.sent_count, report.foreign_count) == (530, 530, 0)
    assert report.out_of_range_count == 1
    assert report.verified
    assert report.gaps == ()
    first, second = report.kafka_partitions
    assert (first.kafka_partition, second.kafka_partition) == (0, 2)
    assert (first.first_source_offset, first.last_source_offset) == (0, 509)
    last = records_of(config.kafka, report.to_topic)["offset"][-1].as_py()
    assert first.last_target_offset == last


def test_a_topic_comes_back_where_nothing_interprets_records(
    shared_archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = shared_archive(numbered(30))
    with monkeypatch.context() as core_alone:
        core_alone.setattr(extensions, "PARTS", ())
        extensions.load_extensions.cache_clear()
        report = restored(config, outgoing=Outgoing(partitioning="murmur2", provenance_headers=True))
    extensions.load_extensions.cache_clear()
    assert judge_report(report).kind == "good"


def test_the_report_and_the_mapping_are_in_the_bucket(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))
    produce(config.kafka, restored(config, restore_id="first").to_topic, [Sent(b"foreign")])

    report = restored(config, restore_id="second", from_offset=4)

    store = ObjectStore(config.store)
    assert RestoreReport.from_json(store.get(request(config, restore_id="second").documents.report), "r") == report
    (part,) = report.kafka_partitions
    assert part.mapping_key is not None
    mapping = pq.read_table(pa.BufferReader(store.get(part.mapping_key))).to_pylist()
    # after ten records, the end of their transaction, and the foreign one
    assert mapping == [{"source_offset": 4, "target_offset": 12, "count": 6}]
    assert any("is not empty: up to 12 records" in note for note in report.notes)


def test_an_hour_is_an_hour_to_the_millisecond_whatever_the_folders(shared_archive: Archive) -> None:
    half = NOON + 30 * MINUTE
    around = [half + timedelta(milliseconds=n) for n in (-1, 0, 1, 3_599_999, 3_600_000)]
    config = shared_archive([Sent(b"%d" % n, timestamp=t) for n, t in enumerate(around)])

    report = restored(config, from_time=half, to_time=half + timedelta(hours=1))

    assert values(config.kafka, report.to_topic) == [b"1", b"2", b"3"]
    assert report.record_count == 3


def test_a_window_of_offsets_and_a_subset_of_kafka_partitions(shared_archive: Archive) -> None:
    config = shared_archive(
        [*numbered(50), *numbered(50, kafka_partition=1), *numbered(50, kafka_partition=2)], kafka_partitions=3
    )

    report = restored(config, kafka_partitions=(1, 2), from_offset={1: 10}, to_offset=20)

    assert values(config.kafka, report.to_topic, 0) == []
    assert values(config.kafka, report.to_topic, 1) == [b"%d" % n for n in range(10, 20)]
    assert values(config.kafka, report.to_topic, 2) == [b"%d" % n for n in range(20)]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))
    before = keys(config.store)

    report = restored(config, dry_run=True)
    refused = restored(config, dry_run=True, create_topic=False)

    assert (report.record_count, report.exact, report.sent_count, report.object_count) == (10, True, 0, 1)
    assert report.refusals == ()
    assert "does not exist" in refused.refusals[0]
    assert report.to_topic not in topics(config.kafka)
    assert keys(config.store) == before


def test_a_dry_run_of_part_of_an_object_gives_an_upper_bound(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))

    report = restored(config, dry_run=True, to_time=NOON + timedelta(milliseconds=3))

    assert (report.record_count, report.exact) == (10, False)


def test_other_writers_records_are_counted_and_left_alone(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive(numbered(10))
    target = lab.create(target_of(config))
    others = Producer(config.kafka.properties("producer") | {"linger.ms": 0})

    def meddle() -> None:
        others.produce(target, b"not ours")
        others.flush(10)

    report = restored(config, Between(before_verify=meddle))

    assert report.foreign_count == 1
    assert report.record_count == 10


@pytest.mark.parametrize("checkpoint_records", [1_000_000, 200])
def test_a_killed_restore_without_transactions_goes_on_where_it_ended(
    shared_archive: Archive, lab: Lab, tmp_path: Path, checkpoint_records: int
) -> None:
    # Every record twice, so that only position and not content tells a repeated one.
    config = shared_archive([r for n in numbered(3000) for r in (n, n)])
    target = lab.create(target_of(config))
    given = request(config, records_per_second=600, delivery="at_least_once")
    process = Child(tmp_path / "said", run_restore, given, checkpoint_records, 100)
    with ClusterAdmin(config.kafka) as admin:
        while admin.frontiers(target, [0])[0].high_watermark < 1000:
            assert not process.has_ended, f"it ended before it was killed: {process.said}"
            time.sleep(0.05)
    process.kill()
    produce(config.kafka, target, [Sent(b"foreign")])

    report = restored(config, delivery="at_least_once")

    found = [v for v in values(config.kafka, target) if v != b"foreign"]
    assert found == values(config.kafka, config.topics[0])
    assert report.record_count == 6000
    assert 0 < report.sent_count <= 5000
    assert report.foreign_count == 1


def test_a_failed_restore_says_how_far_it_came_and_goes_on_from_there(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive([*numbered(100), Sent(b"x" * 5000, timestamp=NOON), *numbered(50)])
    target = lab.create(target_of(config), max_message_bytes=2000)

    with pytest.raises(PreflightError, match=r"source offset 100 .*\nProgress of restore r1: .*-0: "):
        restored(config)
    set_configs(config.kafka, target, {"max.message.bytes": "100000"})
    report = restored(config)

    assert values(config.kafka, target) == values(config.kafka, config.topics[0])
    assert report.record_count == 151


def test_a_record_that_came_compressed_fits_where_it_came_from(config: ConnectorConfig, lab: Lab) -> None:
    """The target is created as the source was, with a limit that the record meets only compressed."""
    topic = lab.create(config.topics[0], max_message_bytes=100_000)
    compressed = {"compression.type": "zstd", "message.max.bytes": 10_000_000}
    produce(config.kafka, topic, [Sent(b"x" * 5_000_000, timestamp=NOON)], **compressed)
    archived(config)
    assert restored(config).record_count == 1
    assert values(config.kafka, target_of(config)) == [b"x" * 5_000_000]


def test_a_target_that_its_brokers_defaults_spoil_is_taken_back(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))
    admin = admin_client(config.kafka)
    name = "log.message.timestamp.before.max.ms"
    set_broker_config(admin, ConfigEntry(name, "3600000", incremental_operation=AlterConfigOpType.SET))
    try:
        with pytest.raises(PreflightError, match=r"(?s)message\.timestamp\.before\.max\.ms=3600000.*deleted again"):
            restored(config)
    finally:
        set_broker_config(admin, ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE))
    assert target_of(config) not in topics(config.kafka)
    assert restored(config).record_count == 10


def test_a_transaction_timeout_that_brokers_refuse_is_told_first(
    shared_archive: Archive,
) -> None:
    config = shared_archive(numbered(10))
    longer = {"transaction.timeout.ms": SecretStr("1000000")}
    with pytest.raises(PlatformError, match=r"is 1000000 ms, but a broker has transaction\.max\.timeout\.ms="):
        restored(config, target=config.kafka.model_copy(update={"producer": longer}))
    assert target_of(config) not in topics(config.kafka)
    assert keys(config.store, config.archive.restore_dir) == []


def test_where_spark_does_not_start_nothing_is_created(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))
    with pytest.raises(SparkUnavailableError):
        restored(config, NoSpark())
    assert target_of(config) not in topics(config.kafka)
    assert keys(config.store, config.archive.restore_dir) == []


@pytest.mark.parametrize(("large_stream", "at_once"), [(20_000_000, 6), (1, 2)])
def test_small_streams_are_sent_together_and_large_ones_two_at_once(
    shared_archive: Archive, monkeypatch: pytest.MonkeyPatch, large_stream: int, at_once: int
) -> None:
    """More large ones take turns with Python's lock, which costs CPU seconds (`bench/results/speed.md`)."""
    archived = shared_archive([s for p in range(6) for s in numbered(2, kafka_partition=p)], kafka_partitions=6)
    config = archived.model_copy(update={"tasks_max": 1})
    # As many as expected go on together: with fewer, the barrier breaks.
    together = Barrier(at_once, timeout=20)
    running: list[ReplayTask] = []
    peaks: list[int] = []

    def replay_watched(task: ReplayTask, attempt: Attempt) -> ReplayResult:
        running.append(task)
        peaks.append(len(running))
        together.wait()
        result = replay(task, attempt)
        running.remove(task)
        return result

    monkeypatch.setattr(execution, "LARGE_STREAM_BYTES", large_stream)
    monkeypatch.setattr(execution, "replay", replay_watched)
    report = restored(config)

    assert (report.record_count, report.verified) == (12, True)
    assert max(peaks) == at_once


def test_a_restore_of_nothing_needs_no_spark(shared_archive: Archive) -> None:
    later = ((NOON + timedelta(days=2), NOON + timedelta(days=3)),)
    report = restored(shared_archive(numbered(10)), NoSpark(), windows=later)
    assert (report.verified, report.record_count) == (True, 0)


def set_broker_config(admin: AdminClient, entry: ConfigEntry) -> None:
    [broker] = admin.list_topics(timeout=10).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_limit_is_held_against_what_the_log_takes(
    shared_archive: Archive, lab: Lab, stack_settings: StackSettings
) -> None:
    """Retention would delete the first of what was verified: records that come slowly have a batch each."""
    config = shared_archive(numbered(20))
    topic = config.topics[0]
    report = restored(config, records_per_second=20.0)
    [plan] = TopicsPlan.from_json(ObjectStore(config.store).get(report.plan_key), report.plan_key).topics
    taken = sum(log.stat().st_size for log in stack_settings.data_dir.glob(f"**/{target_of(config)}-0/*.log"))
    assert report.record_bytes < 100 < taken <= (bound_largest_log(make_archive_target(request(config), plan), {}) or 0)

    lab.create(f"{topic}-limited", retention_bytes=taken - 1)
    limited = restored(config, restore_id="r2", to_topic=f"{topic}-limited", dry_run=True)
    assert "so the first of them may be deleted. Set retention.bytes=-1" in limited.refusals[0]


def test_configs_that_the_targets_brokers_do_not_take_are_told_and_left_out(
    config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a source with brokers of another version, with which creating the topic fails."""
    topic = lab.create_topic(segment_ms=3_600_000)
    lab.produce(numbered(5))
    archived(config)

    def planned(asked: RestoreRequest, index: ConnectorIndex) -> ArchivePlan:
        made = make_plan(asked, index)
        odd = (("message.format.version", "2.8-IV0"), ("segment.bytes", "1"))
        return replace(made, source=replace(made.source, configs=(*made.source.configs, *odd)))

    monkeypatch.setattr("kafka_s3_platform.core.restore.archive_source.make_plan", planned)
    told = restored(config, dry_run=True)
    for name in ("message.format.version=2.8-IV0", "segment.bytes=1"):
        assert any(f"is created without the archived {name}, which the target's brokers" in note for note in told.notes)
    assert told.refusals == ()
    assert restored(config).verified
    with ClusterAdmin(config.kafka) as admin:
        assert admin.read_topic_configs(f"{topic}-restored")["segment.ms"] == "3600000"

    [refusal] = restored(
        config, restore_id="r2", to_topic=f"{topic}-3", dry_run=True, target_kafka_partitions=2**30
    ).refusals
    assert f"the brokers would not create {topic}-3: " in refusal


def test_the_source_topic_is_a_target_only_in_words(lab: Lab) -> None:
    config, topic = lab.archive(numbered(5)), lab.topic

    with pytest.raises(PreflightError, match="is the source topic itself"):
        restored(config, to_topic=topic)
    report = restored(config, to_topic=topic, allow_source_topic=True)

    assert len(values(config.kafka, topic)) == 10
    assert report.kafka_partitions[0].first_target_offset == 5


def test_timestamp_zero_is_refused_unless_it_is_allowed_or_left_out(config: ConnectorConfig, lab: Lab) -> None:
    topic = lab.create(config.topics[0])
    wire.produce(
        config.kafka.bootstrap_servers, topic, 0, [wire.WireRecord(t, value=b"%d" % t) for t in (0, -1, 5, 0, 7)]
    )
    archived(config)

    with pytest.raises(
        PreflightError, match=r"(?s)2 records have timestamp 0 \(2 in kafka partition 0\).*allow-unsendable"
    ):
        restored(config)
    from_one = datetime.fromtimestamp(0.001, timezone.utc)
    assert restored(config, restore_id="by-time", to_topic=f"{topic}-by-time", from_time=from_one).record_count == 2
    assert restored(config, restore_id="by-offset", to_topic=f"{topic}-by-offset", from_offset=4).record_count == 1
    report = restored(config, allow_unsendable_timestamps=True)

    found = records_of(config.kafka, report.to_topic)
    times = found.column("timestamp").cast(pa.int64()).to_pylist()
    assert found.column("value").to_pylist() == [b"0", b"-1", b"5", b"0", b"7"]
    assert [times[n] for n in (1, 2, 4)] == [-1, 5, 7]
    assert report.kafka_partitions[0].altered_timestamps == 2


def test_a_resumed_restore_uses_its_first_plan(lab: Lab) -> None:
    config, topic = lab.archive(numbered(10)), lab.topic
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay_streams))
    produce(config.kafka, topic, numbered(5))
    archived(config)

    assert restored(config).record_count == 10
    assert restored(config, restore_id="r2", to_topic=f"{topic}-all").record_count == 15


def test_gaps_and_hours_that_are_not_complete_are_told(config: ConnectorConfig, lab: Lab) -> None:
    topic = lab.create(config.topics[0])
    produce(config.kafka, topic, numbered(10))
    admin = admin_client(config.kafka)
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(30)
    archived(config)
    now = datetime.now(timezone.utc)

    whole = restored(config, dry_run=True)
    today = restored(config, dry_run=True, from_time=now - timedelta(hours=1), to_time=now + timedelta(hours=1))

    assert [gap.text for gap in whole.gaps] == [f"{topic}-0: offsets [0, 4) were deleted before archiving began"]
    assert "1 of 2 hours are not complete in the archive" in today.gaps[0].text
    assert any("holds no record in the window" in note for note in today.notes)


def test_a_topic_that_is_like_an_archived_one_is_told_its_name(config: ConnectorConfig, lab: Lab) -> None:
    topic = lab.create(config.topics[0])
    archived(config)
    with pytest.raises(MissingTopicError, match=rf"no index at .* that has it\. .* Did you mean {topic}\?"):
        restored(config.model_copy(update={"topics": (topic[:-1],)}))
