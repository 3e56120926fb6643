"""Envelopes that are not what the index or their key says: refused by name, and never restored to the wrong place."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import IndexDamagedError, IntegrityError
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.source.archive_plan import make_plan
from kafka_s3_platform.sources.objects import group_objects
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.predicates import match_segments
from kafka_s3_platform.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, archived, connector, produce, snapshot

pytestmark = pytest.mark.integration

COUNT = 20


@pytest.fixture(params=["envelope.parquet", "envelope.avro", "envelope.json"])
def config(
    request: pytest.FixtureRequest,
    kafka_settings: KafkaSettings,
    store_settings: StoreSettings,
    topic_name: str,
    create_topic: CreateTopic,
) -> ConnectorConfig:
    """A topic with 20 records in each of two kafka partitions, and another with one; both are archived."""
    create_topic(topic_name, 2)
    create_topic(f"{topic_name}-restored", 2)
    other = create_topic(f"{topic_name}-other")
    layout = {"format": request.param}
    config = connector(kafka_settings, store_settings, topic_name, layout=layout)
    for topic, kafka_partition in ((topic_name, 0), (topic_name, 1), (other, 0)):
        produce(
            kafka_settings,
            topic,
            [Sent(b"%d" % (100 * kafka_partition + n), None, NOON, (), kafka_partition) for n in range(COUNT)],
        )
    archived(config)
    archived(config.model_copy(update={"topics": (other,)}))
    return config


def index_of(config: ConnectorConfig, topic: str) -> TopicIndex:
    return TopicIndex(config.store, "_index", "c", topic)


def in_the_place_of(segment: Segment, other: Segment) -> Segment:
    """The row of a segment, as whoever writes to the index makes it: its object is another one."""
    names = ("key", "size", "etag", "sha256", "digest", "record_count", "record_bytes", "epoch")
    return replace(segment, **{name: getattr(other, name) for name in names})


def of_another_kafka_partition(config: ConnectorConfig) -> tuple[Segment, Segment]:
    first, second = snapshot(config).segments
    return first, in_the_place_of(first, second)


def of_another_topic(config: ConnectorConfig) -> tuple[Segment, Segment]:
    (other,) = index_of(config, f"{config.topics[0]}-other").open().segments
    first = snapshot(config).segments[0]
    return first, in_the_place_of(first, other)


def of_other_offsets(config: ConnectorConfig) -> tuple[Segment, Segment]:
    first = snapshot(config).segments[0]
    return first, replace(first, end_offset=first.end_offset - 5)


LIES = [of_another_kafka_partition, of_another_topic, of_other_offsets]
Lie = Callable[[ConnectorConfig], tuple[Segment, Segment]]


def told(config: ConnectorConfig, lie: Lie) -> Segment:
    """The row that the index has now in the place of the true one."""
    was, row = lie(config)
    index = index_of(config, config.topics[0])
    index.open().commit(Change(removed=(match_segments([was.key]),), added=()))
    index.open().commit(Change(added=(row,)))
    return row


def restored(config: ConnectorConfig, **changes: Any) -> RestoreReport:
    topic = config.topics[0]
    given: dict[str, Any] = {"to_topic": f"{topic}-restored", "restore_id": topic, "run_id": "x"}
    return restore(ArchiveSource(RestoreRequest(config, topic, **given | changes)), InProcessRunner())


def sent(config: ConnectorConfig) -> dict[int, list[bytes]]:
    topic = f"{config.topics[0]}-restored"
    return {p: records_of(config.kafka, topic, p).column("value").to_pylist() for p in (0, 1)}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("window", [{}, {"from_offset": 3, "to_offset": 15}])
def test_such_an_object_is_refused_by_name_and_nothing_of_it_is_sent(
    config: ConnectorConfig, lie: Lie, window: dict[str, int]
) -> None:
    """A window is read without the digest over all records."""
    row = told(config, lie)
    if lie is of_other_offsets and window:
        # records of the window are all where they are due
        window = {"from_offset": 3}
    with pytest.raises(IntegrityError, match=rf"object {re.escape(row.key)} (is not the one of the index|was written)"):
        restored(config, **window)
    assert sent(config)[0] == []


@pytest.mark.parametrize("lie", LIES)
def test_where_bad_objects_are_ignored_it_is_left_out_whole(config: ConnectorConfig, lie: Lie) -> None:
    row = told(config, lie)
    report = restored(config, behavior_on_error="ignore")
    assert sent(config) == {0: [], 1: [b"%d" % (100 + n) for n in range(COUNT)]}
    (line,) = report.skipped
    assert row.key in line


@pytest.mark.parametrize("lie", [of_another_kafka_partition, of_other_offsets])
def test_a_deep_verify_names_it(config: ConnectorConfig, lie: Lie) -> None:
    row = told(config, lie)
    report = verify_archive(config, config.topics[0], deep=True, runner=InProcessRunner())
    assert any(row.key == d.key and "where" in d.message for d in report.damages)


def test_the_index_of_another_connector_is_none_of_this_one(config: ConnectorConfig, s3_client: Any) -> None:
    """A folder that was copied to another connector's."""
    topic, bucket = config.topics[0], config.store.bucket
    for item in s3_client.list_objects_v2(Bucket=bucket, Prefix="_index/connector=c/")["Contents"]:
        copy = item["Key"].replace("connector=c/", "connector=d/")
        s3_client.copy_object(Bucket=bucket, Key=copy, CopySource={"Bucket": bucket, "Key": item["Key"]})
    copied = config.model_copy(update={"name": "d"})
    request = RestoreRequest(copied, topic, to_topic="t", restore_id="r", run_id="x")
    with pytest.raises(IndexDamagedError, match="connector=d is the index of connector c: its folder was copied"):
        make_plan(request)


@pytest.mark.parametrize(
    ("old", "new"),
    [("TOPIC+0+", "TOPIC+1+"), ("+0000000000", "+0000000007"), ("TOPIC/", "TOPIC-other/")],
)
def test_of_objects_without_an_index_the_key_has_to_be_true(
    config: ConnectorConfig, s3_client: Any, old: str, new: str
) -> None:
    topic, bucket = config.topics[0], config.store.bucket
    key = snapshot(config).segments[0].key
    old, new = old.replace("TOPIC", topic), new.replace("TOPIC", topic)
    copy = key.replace(old, new)
    if old == f"{topic}/":
        copy = copy.replace(f"{topic}+", f"{topic}-other+")
    body = s3_client.get_object(Bucket=bucket, Key=key)["Body"].read()
    for item in s3_client.list_objects_v2(Bucket=bucket, Prefix="topics/")["Contents"]:
        s3_client.delete_object(Bucket=bucket, Key=item["Key"])
    s3_client.put_object(Bucket=bucket, Key=copy, Body=body)
    source = config.model_copy(update={"topics": ()})
    (group,) = group_objects(tuple(scan_objects(source)))
    with pytest.raises(IntegrityError, match=re.escape(copy)):
        list(ForeignStream(source, group))
