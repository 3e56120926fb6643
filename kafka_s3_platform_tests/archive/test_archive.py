"""Archiving on a real Kafka and a real S3: each offset exactly once, each record in the folder of its own hour."""

import dataclasses
import os
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pydantic import SecretStr

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    MissingBucketError,
    MissingTopicError,
    OffsetGapError,
    SparkUnavailableError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.kafka.offset_admin import OffsetAdmin
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import match_row
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.kafka.topics import delete_records, wait_until_stable
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    NoSpark,
    Sent,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    scanned,
    send,
    snapshot,
    stored,
    tried,
)


def hourly(hours: int, each: int, kafka_partitions: int = 1) -> list[Sent]:
    """`each` records an hour and kafka partition from noon on."""
    return [
        Sent(f"{h}-{p}-{i}".encode(), b"k", NOON + h * HOUR + timedelta(seconds=i), (), p)
        for h in range(hours)
        for i in range(each)
        for p in range(kafka_partitions)
    ]


def folder(hour: datetime) -> str:
    return f"{hour:year=%Y/month=%m/day=%d/hour=%H}"


def test_a_topic_comes_back_byte_for_byte(lab: Lab) -> None:
    lab.create_topic(2, max_message_bytes=3_000_000)
    records = [
        Sent(b"value", b"key"),
        Sent(None, b"tombstone"),
        Sent(b"", b""),
        Sent(b"no key", None),
        Sent(None, None, headers=(("h", None), ("h", b""), ("h", b"1"), ("", b"empty name"), ("x-ü-ł", b"\x00\xff"))),
        Sent(bytes(range(256)) * 4096, b"1 MiB", NOON + timedelta(minutes=59, milliseconds=999)),
        Sent(b"out of order", None, NOON - timedelta(hours=5)),
        Sent(b"25 days apart", None, NOON - timedelta(days=25)),
        Sent(b"on the other", b"k", NOON, (), 1),
    ]
    lab.produce(records)
    config = lab.connector()
    report = archived(config)
    rows = {(r["partition"], r["offset"]): r for r in stored(config).to_pylist()}
    sent = [((0, n), r) for n, r in enumerate(records[:-1])] + [((1, 0), records[-1])]
    assert len(rows) == len(records) == report.record_count
    for place, record in sent:
        row = rows[place]
        headers = [(h["key"], h["value"]) for h in row["headers"]] if row["headers"] is not None else []
        assert (row["key"], row["value"], row["timestamp"]) == (record.key, record.value, record.timestamp)
        assert tuple(headers) == record.headers
        assert row["timestampType"] == 0
        assert folder(record.timestamp) in row["object"]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 1, 3, 0]])
def test_hours_in_any_order_and_twice_give_each_offset_once(lab: Lab, order: list[int]) -> None:
    late = [Sent(b"late", None, NOON + timedelta(minutes=30), (), p) for p in range(2)]
    config = lab.fill(hourly(3, 20, 2) + late + hourly(4, 10, 2)[60:], 2)
    for hour in order:
        archived(config, [NOON + hour * HOUR])
    archived(config)
    table = stored(config)
    assert offsets_by_kafka_partition(table) == {p: list(range(71)) for p in range(2)}
    assert all(folder(t) in o for t, o in zip(table["timestamp"].to_pylist(), table["object"].to_pylist(), strict=True))


def test_where_spark_does_not_start_nothing_is_reserved(lab: Lab) -> None:
    lab.create_topic()
    config = lab.connector()
    archived(config)
    lab.produce(hourly(1, 5))
    before = snapshot(config).version
    asked = ArchiveRequest(config, lab.topic, "run", None)
    with pytest.raises(SparkUnavailableError):
        archive_topic(asked, NoSpark())
    assert snapshot(config).version == before
    assert archived(config).record_count == 5


def test_a_backfill_writes_the_objects_that_single_hours_write(lab: Lab) -> None:
    one = lab.fill(hourly(5, 30))
    many = one.model_copy(update={"name": "d", "layout": one.layout.model_copy(update={"topics_dir": "other"})})
    archived(one, [NOON + h * HOUR for h in range(4)])
    for hour in range(4):
        archived(many, [NOON + hour * HOUR])
    facts = [{(s.key.split("/", 1)[1], s.sha256) for s in snapshot(c).segments} for c in (one, many)]
    # the footer holds nothing of the run: same offsets, same bytes
    assert facts[0] == facts[1]
    assert len(facts[0]) == 4


def test_each_hour_reports_its_own_numbers(lab: Lab) -> None:
    late = [Sent(b"late", None, NOON + timedelta(minutes=1))]
    config = lab.fill(hourly(2, 10) + late + hourly(3, 10)[20:])
    report = archived(config, [NOON + h * HOUR for h in range(4)])
    assert [(h.record_count, h.late_count, h.scanned) for h in report.hours] == [
        (11, 1, True),
        (10, 0, True),
        (10, 0, True),
        (0, 0, True),
    ]


def test_flush_size_ends_objects_where_connect_ends_them(lab: Lab) -> None:
    """The keys of Confluent's quickstart: nine records, flush.size=3."""
    config = lab.archive(hourly(1, 9), layout={"flush_size": 3})
    prefix = f"topics/{lab.topic}/{folder(NOON)}/{lab.topic}+0+"
    assert [s.key for s in snapshot(config).segments] == [f"{prefix}{o:010d}.parquet" for o in (0, 3, 6)]


def test_rotation_by_bytes_bounds_objects(lab: Lab) -> None:
    config = lab.archive([Sent(bytes(1_000_000), None, NOON) for _ in range(40)], layout={"segment_bytes": 10_000_000})
    assert [s.record_count for s in snapshot(config).segments] == [16, 16, 8]


def test_a_custom_path_format_and_timezone_decide_the_folder(lab: Lab) -> None:
    layout = {
        "partitioner": "TimeBased",
        "path_format": "'dt'=YYYY-MM-dd/'at'=HHmm",
        "partition_duration_ms": 900_000,
        "timezone": "Asia/Kolkata",
    }
    config = lab.archive([Sent(timestamp=datetime(2026, 1, 1, 23, 20, tzinfo=timezone.utc))], layout=layout)
    (segment,) = snapshot(config).segments
    assert segment.encoded_partition == "dt=2026-01-02/at=0445"
    assert segment.chunk_start == datetime(2026, 1, 1, 22, 30, tzinfo=timezone.utc)


def test_timestamps_out_of_range_are_kept_apart_and_counted(lab: Lab) -> None:
    lab.create_topic(message_timestamp_after_max_ms=2**62)
    microseconds = datetime(9000, 1, 1, tzinfo=timezone.utc)
    records = [Sent(b"old", None, NOON - timedelta(days=400)), Sent(b"ok"), Sent(b"future", None, microseconds)]
    lab.produce(records)
    config = lab.connector()
    assert archived(config).out_of_range_count == 2
    places = {s.encoded_partition: s.record_count for s in snapshot(config).segments}
    assert places == {"__out_of_range__": 2, folder(NOON): 1}


def test_an_hour_is_not_complete_whose_records_were_archived_before_the_start_hour_was_moved_back(lab: Lab) -> None:
    lab.create_topic()
    early = NOON - 2 * HOUR
    lab.produce([*(Sent(b"early", None, early) for _ in range(6)), Sent(b"ok")])
    archived(lab.connector(start_hour=NOON))
    config = lab.connector(start_hour=NOON - timedelta(days=1))
    report = tried(config, [early, early + HOUR, NOON])
    assert [(h.complete, h.verdict.out_of_range_count) for h in report.hours] == [(False, 6), (True, 0), (True, 0)]
    said = f"archive.start.hour is {config.archive.start_hour.isoformat()}, and was a later hour"
    assert said in str(report.failure)
    assert tried(config, [NOON]).failure is None


def test_wallclock_files_records_by_arrival(lab: Lab) -> None:
    """A late record stays in the hour in which it arrived, as the offsets of hours tell it."""
    config = lab.fill(
        [*hourly(2, 5), Sent(b"late", None, NOON), *hourly(3, 5)[10:]], layout={"timestamp_extractor": "Wallclock"}
    )
    archived(config, [NOON + h * HOUR for h in range(3)])
    counts = Counter(stored(config)["object"].to_pylist())
    assert {k.split("/hour=")[1][:2]: n for k, n in counts.items()} == {"12": 5, "13": 6, "14": 5}


def test_a_topic_with_log_append_time_keeps_the_brokers_timestamps(lab: Lab) -> None:
    lab.create_topic(message_timestamp_type="LogAppendTime")
    lab.produce([Sent(), Sent()])
    config = lab.connector()
    archived(config)
    table = stored(config)
    assert table["timestampType"].to_pylist() == [1, 1]
    assert all(abs(t - datetime.now(timezone.utc)) < timedelta(minutes=5) for t in table["timestamp"].to_pylist())


def test_transactions_keep_their_committed_records_only(lab: Lab) -> None:
    """Aborted records and control records are holes, not gaps; the range ends in a control record."""
    lab.create_topic()
    client = Producer(lab.kafka.properties("producer") | {"transactional.id": lab.topic})
    client.init_transactions()
    for word, commit in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
        client.begin_transaction()
        send(client, lab.topic, Sent(word))
        client.flush()
        if commit:
            client.commit_transaction()
        else:
            client.abort_transaction()
    wait_until_stable(lab.kafka, lab.topic)
    config = lab.connector()
    report = archived(config)
    assert stored(config)["value"].to_pylist() == [b"kept", b"kept too"]
    assert report.gaps == ()
    assert scanned(config) == (OffsetRange(0, 6),)
    assert archived(config).object_count == 0


def test_an_open_transaction_is_waited_for_and_its_hour_is_not_complete(lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"before")])
    client = Producer(lab.kafka.properties("producer") | {"transactional.id": lab.topic})
    client.init_transactions()
    client.begin_transaction()
    send(client, lab.topic, Sent(b"inside"))
    client.flush()
    lab.produce([Sent(b"behind", None, NOON + 2 * HOUR)])
    config = lab.connector()
    report = archived(config, [NOON])
    assert report.waiting == {0: 1}
    assert not report.hours[0].complete
    client.commit_transaction()
    wait_until_stable(lab.kafka, lab.topic)
    archived(config, [NOON])
    archived(config)
    assert stored(config)["value"].to_pylist() == [b"before", b"inside", b"behind"]
    assert archived(config, [NOON]).hours[0].complete


def test_a_compacted_topic_is_archived_with_its_holes(lab: Lab) -> None:
    lab.create_topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    lab.produce([Sent(b"%d" % n, b"same") for n in range(50)])
    config = lab.connector()
    before = archived(config)
    assert before.record_count <= 50
    assert scanned(config)[0].start_offset == 0
    assert archived(config).record_count == 0


def test_an_idle_kafka_partition_and_an_empty_topic_are_archived_too(lab: Lab) -> None:
    lab.create_topic(3)
    config = lab.connector()
    empty = archived(config, [NOON])
    assert (empty.record_count, empty.hours[0].complete) == (0, True)
    lab.produce([Sent(kafka_partition=1)])
    assert archived(config).record_count == 1
    assert archived(config, [NOON]).hours[0].complete


def test_kafka_partitions_added_later_are_archived_from_their_first_offset(lab: Lab) -> None:
    config = lab.archive(hourly(2, 5))
    assert archived(config, [NOON]).hours[0].complete
    admin = AdminClient({"bootstrap.servers": lab.kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(lab.topic, 2)])[lab.topic].result(10)
    lab.produce([Sent(b"new", None, NOON + HOUR, (), 1) for _ in range(3)])
    report = archived(config, [NOON + 2 * HOUR])
    assert stored(config).filter(pc.field("partition") == 1)["offset"].to_pylist() == [0, 1, 2]
    assert snapshot(config).state.judge.is_complete(NOON, timedelta(0))
    assert report.hours[-1].complete


def test_topics_whose_names_differ_in_punctuation_stay_apart(lab: Lab) -> None:
    """Kafka itself warns that `a.b` and `a_b` collide in metrics; in the archive they do not."""
    names = [f"{lab.topic}.x", f"{lab.topic}-x"]
    for name in names:
        lab.create(name)
        produce(lab.kafka, name, [Sent(name.encode())])
        archived(connector(lab.kafka, lab.store, name))
    values = [stored(connector(lab.kafka, lab.store, n))["value"].to_pylist() for n in names]
    assert values == [[n.encode()] for n in names]


def test_retention_before_planning_fails_naming_the_offsets_or_is_recorded_when_allowed(lab: Lab) -> None:
    config = lab.fill(hourly(3, 10))
    archived(config, [NOON])
    _delete_before(lab.kafka, lab.topic, 14)
    with pytest.raises(OffsetGapError, match=rf"{lab.topic}-0: offsets \[10, 14\)"):
        archived(config, [NOON + HOUR])
    # what is left of the hour is archived all the same
    assert offsets_by_kafka_partition(stored(config)) == {0: [*range(10), *range(14, 20)]}
    report = archived(_allowing_gaps(config), [NOON + HOUR])
    assert report.gaps == (Gap(0, 10, 14, "retention"),)
    assert report.hours[0].verdict.lacking == report.gaps
    assert report.hours[0].complete
    assert offsets_by_kafka_partition(stored(config)) == {0: [*range(10), *range(14, 30)]}


def _allowing_gaps(config: Any) -> Any:
    return config.model_copy(update={"archive": config.archive.model_copy(update={"allow_gaps": True})})


def _delete_before(kafka: KafkaSettings, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    place = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([place])[place].result(10)


def test_a_record_far_ahead_neither_hides_hours_nor_completes_them_early(lab: Lab) -> None:
    lab.create_topic(message_timestamp_after_max_ms=2**62)
    ahead = Sent(b"ahead", None, datetime.now(timezone.utc) + timedelta(hours=20))
    lab.produce([*hourly(1, 5), ahead, *hourly(3, 5)[5:]])
    config = lab.connector()
    first = archived(config, [NOON])
    assert not first.hours[0].complete
    archived(config, [NOON + HOUR])
    read = scanned(config)
    archived(config, [NOON + HOUR])
    assert scanned(config) == read
    assert stored(config).num_rows == 16
    assert archived(config, [NOON]).hours[0].complete


def test_control_markers_of_an_event_time_topic_do_not_complete_an_hour_early(lab: Lab) -> None:
    lab.create_topic()
    client = Producer(lab.kafka.properties("producer") | {"transactional.id": lab.topic})
    client.init_transactions()
    for hour in range(3):
        client.begin_transaction()
        for record in hourly(hour + 1, 5)[hour * 5 :]:
            send(client, lab.topic, record)
        client.commit_transaction()
    wait_until_stable(lab.kafka, lab.topic)
    config = lab.connector()
    report = archived(config, [NOON])
    assert report.hours[0].record_count == 5
    assert not report.hours[0].complete or snapshot(config).state.coverage(0) == make_span(0, 18)
    archived(config, [NOON])
    assert archived(config, [NOON]).hours[0].complete
    assert stored(config).num_rows == 15


def test_a_settings_change_between_runs_leaves_older_segments_as_they_are(lab: Lab) -> None:
    lab.create_topic()
    lab.produce(hourly(2, 6))
    archived(lab.connector(), [NOON])
    layout = {"partitioner": "Daily", "path_format": "'day'=YYYYMMdd", "topics_dir": "elsewhere", "flush_size": 4}
    edited = lab.connector(layout=layout)
    archived(edited)
    segments = snapshot(edited).segments
    assert [s.key.split("/")[0] for s in segments] == ["topics", "elsewhere", "elsewhere"]
    assert offsets_by_kafka_partition(stored(edited)) == {0: list(range(12))}
    assert '"flush_size":4' in segments[-1].settings


def test_reading_is_throttled(lab: Lab) -> None:
    config = lab.fill(hourly(1, 600), records_per_second=200)
    assert archived(config).seconds > 1.5


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"store": {"bucket": "no-such-bucket"}}, MissingBucketError, "no-such-bucket"),
        ({"store": {"endpoint_url": "http://127.0.0.1:1"}}, StoreUnavailableError, "127.0.0.1:1"),
        ({"store": {"access_key_id": None, "secret_access_key": "wrong"}}, AuthorizationError, "aws"),
        ({"kafka": {"bootstrap_servers": "127.0.0.1:1"}}, BrokerUnavailableError, "127.0.0.1:1"),
        ({"topics": ("no-such-topic",)}, MissingTopicError, "no-such-topic"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_committed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(OffsetAdmin.__init__, "__defaults__", (2.0,))
    config = lab.fill([Sent()])
    update: dict[str, Any] = {}
    for name, value in change.items():
        if isinstance(value, dict):
            inner = {k: SecretStr(v) if k == "secret_access_key" else v for k, v in value.items() if v is not None}
            update[name] = getattr(config, name).model_copy(update=inner)
        else:
            update[name] = value
    with pytest.raises(error, match=words):
        archived(config.model_copy(update=update))
    assert scanned(config) == ()


def test_a_run_without_records_leaves_nothing_where_records_lie(lab: Lab) -> None:
    lab.create_topic()
    archived(lab.connector())
    keys = {o.key for o in ObjectStore(lab.store).list("") if not o.key.startswith("_index/")}
    assert keys == set()


@pytest.mark.parametrize("wrong", ["earliest", "latest", "stable", "times"])
def test_a_broker_going_down_is_not_believed_and_a_later_answer_heals(lab: Lab, wrong: str) -> None:
    """Without an error it answers -1001, which once stood in the index and wedged every later run.

    The other kafka partition is archived meanwhile, where the broker tells of it.
    """
    config = lab.fill(hourly(2, 5, 2), 2)
    index = TopicIndex.of(config, lab.topic)

    def going_down(_: str, kafka_partition: int, question: str | int, true: int) -> int:
        asked = "times" if isinstance(question, int) else question
        return NOTHING if (asked, kafka_partition) == (wrong, 1) else true

    for hours in [[NOON, NOON + HOUR]] if wrong == "times" else [[NOON, NOON + HOUR], None]:
        with (
            answering(going_down),
            pytest.raises(BrokerUnavailableError, match=f"topic {lab.topic}, kafka partition 1.*-1001"),
        ):
            archived(config, hours)
        found = index.peek()
        assert found is None or not found.state.judge.is_complete(NOON, timedelta(0))
        assert found is None or found.state.coverage(1) == RangeSet()
    archived(config, [NOON, NOON + HOUR])
    assert len(stored(config)) == 20
    assert [scanned(config, p) for p in range(2)] == [(OffsetRange(0, 10),)] * 2
    assert snapshot(config).state.judge.is_complete(NOON, timedelta(0))


def test_records_behind_a_log_start_that_was_told_too_high_are_archived_later(lab: Lab) -> None:
    """They are taken for deleted before archiving began, until a later answer shows them."""
    config = lab.fill(hourly(2, 5, 1), 1)
    with answering(lambda _, __, question, true: 4 if question == "earliest" else true):
        archived(config)
    assert snapshot(config).state.judge.left_out == (Gap(0, 0, 4, "before archiving began"),)
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(10))}
    assert snapshot(config).state.judge.left_out == ()


def test_a_leader_epoch_that_never_was_does_not_stop_a_topic_for_ever(lab: Lab) -> None:
    """A broker's answer bore it: no checksum of a batch holds its epoch."""
    config = lab.archive(hourly(1, 5, 1), 1)
    [scan] = snapshot(config).state.scans
    told = dataclasses.replace(scan, leader_epoch=7)
    snapshot(config).commit(Change(added=(told,), removed=(match_row("scan", {}),)))
    lab.produce(hourly(1, 5, 1))
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(10))}
    assert {s.leader_epoch for s in snapshot(config).state.scans} == {7, 0}


def test_an_hour_whose_offset_a_broker_does_not_tell_holds_the_log_until_that_is_archived(lab: Lab) -> None:
    """It looks into a segment whose latest record is deleted. The hours were complete then, without their records."""
    lab.create_topic(segment_bytes=1_048_576)
    config = lab.connector()
    lab.produce([Sent(b"", None, NOON - HOUR), Sent(b"", None, NOON + 24 * 300 * HOUR)])
    archived(config)
    lab.produce([Sent(os.urandom(900_000), None, NOON - HOUR) for _ in range(2)])
    lab.produce([Sent(b"", None, NOON), Sent(b"", None, NOON + 2 * HOUR)])
    delete_records(lab.kafka, lab.topic, 2)
    report = archived(config, [NOON])
    assert stored(config).num_rows == 6
    assert report.hours[0].complete == (snapshot(config).state.coverage(0) == make_span(0, 6))
    assert archived(config, [NOON]).hours[0].complete
