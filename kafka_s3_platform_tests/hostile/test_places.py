"""Envelopes that are not what the index or their key says: refused by name, and never restored to the wrong place."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.connect.sources.objects import group_objects
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IndexDamagedError, IntegrityError
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.source.archive_plan import make_plan
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.row_filter import match_segments
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, archived, produce, snapshot

COUNT = 20


@pytest.fixture
def config(request: pytest.FixtureRequest, lab: Lab) -> ConnectorConfig:
    """A topic with 20 records in each of two kafka partitions, and another with one; both are archived."""
    lab.create_topic(2)
    lab.create(f"{lab.topic}-restored", 2)
    other = lab.create(f"{lab.topic}-other")
    layout = {"format": request.param}
    config = lab.connector(layout=layout)
    for topic, kafka_partition in ((lab.topic, 0), (lab.topic, 1), (other, 0)):
        produce(
            lab.kafka,
            topic,
            [Sent(b"%d" % (100 * kafka_partition + n), None, NOON, (), kafka_partition) for n in range(COUNT)],
        )
    archived(config)
    archived(config.model_copy(update={"topics": (other,)}))
    return config


def index_of(config: ConnectorConfig, topic: str) -> TopicIndex:
    return TopicIndex(ConnectorIndex(config.store, "_index", "c"), topic)


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


def sent(config: ConnectorConfig, topic: str = "") -> dict[int, list[bytes]]:
    target = topic or f"{config.topics[0]}-restored"
    return {p: values(config.kafka, target, p) for p in (0, 1)}


CASES = [
    *((form, lie) for form in ("envelope.parquet", "envelope.avro") for lie in LIES),
    ("envelope.json", of_another_kafka_partition),
    # read as those of Avro are
    pytest.param("envelope.json", of_another_topic, marks=pytest.mark.long),
    pytest.param("envelope.json", of_other_offsets, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("config", "lie"), CASES, indirect=["config"])
def test_such_an_object_is_refused_or_left_out_and_a_deep_verify_names_it(config: ConnectorConfig, lie: Lie) -> None:
    """A window is read without the digest over all records."""
    row = told(config, lie)
    # of other offsets, records of a window that ends earlier are all where they are due
    window = {"from_offset": 3} if lie is of_other_offsets else {"from_offset": 3, "to_offset": 15}
    said = rf"object {re.escape(row.key)} (is not the object in the index|was written)"
    for restore_id, bounds in (("whole", {}), ("window", window)):
        with pytest.raises(IntegrityError, match=said):
            restored(config, restore_id=restore_id, **bounds)
    assert sent(config)[0] == []

    copy = f"{config.topics[0]}-copy"
    report = restored(config, to_topic=copy, create_topic=True, behavior_on_error="ignore")
    assert sent(config, copy) == {0: [], 1: [b"%d" % (100 + n) for n in range(COUNT)]}
    (line,) = report.skipped
    assert row.key in line

    if lie is not of_another_topic:
        damages = verify_archive(config, config.topics[0], deep=True, runner=InProcessRunner()).damages
        assert any(row.key == d.key and "where" in d.message for d in damages)


@pytest.mark.parametrize("config", ["envelope.parquet"], indirect=True)
def test_the_index_of_another_connector_is_none_of_this_one(config: ConnectorConfig, lab: Lab) -> None:
    """A folder that was copied to another connector's."""
    topic, bucket = config.topics[0], config.store.bucket
    for item in lab.s3.list_objects_v2(Bucket=bucket, Prefix="_index/connector=c/")["Contents"]:
        copy = item["Key"].replace("connector=c/", "connector=d/")
        lab.s3.copy_object(Bucket=bucket, Key=copy, CopySource={"Bucket": bucket, "Key": item["Key"]})
    copied = config.model_copy(update={"name": "d"})
    request = RestoreRequest(copied, topic, to_topic="t", restore_id="r", run_id="x")
    with pytest.raises(IndexDamagedError, match="connector=d is the index of connector c: its folder was copied"):
        make_plan(request)


@pytest.mark.parametrize("config", ["envelope.parquet", "envelope.avro", "envelope.json"], indirect=True)
def test_of_objects_without_an_index_the_key_has_to_be_true(config: ConnectorConfig, lab: Lab) -> None:
    topic, bucket = config.topics[0], config.store.bucket
    key = snapshot(config).segments[0].key
    body = lab.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    for item in lab.s3.list_objects_v2(Bucket=bucket, Prefix="topics/")["Contents"]:
        lab.s3.delete_object(Bucket=bucket, Key=item["Key"])
    source = config.model_copy(update={"topics": ()})
    for old, new in ((f"{topic}+0+", f"{topic}+1+"), ("+0000000000", "+0000000007"), (topic, f"{topic}-other")):
        copy = key.replace(old, new)
        lab.s3.put_object(Bucket=bucket, Key=copy, Body=body)
        (group,) = group_objects(tuple(SourceListing(source)))
        with pytest.raises(IntegrityError, match=re.escape(copy)):
            list(ForeignStream(source, group))
        lab.s3.delete_object(Bucket=bucket, Key=copy)
