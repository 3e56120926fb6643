"""`kafka_s3_platform.read` and Spark's data source: the records of a selection, from the objects that hold them."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql.types import StructType  # noqa: TID253 - the test's process has Spark

from kafka_s3_platform import read
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT, SegmentFilter
from kafka_s3_platform.operate.reading.dataset import find_objects
from kafka_s3_platform_tests.cli.conftest import KafkaS3
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.reading.conftest import declare, delete_all_but, fill, list_places, load, sort
from kafka_s3_platform_tests.restore.own import put_in_parts
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, snapshot, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_record_comes_back_as_it_was(config: ConnectorConfig) -> None:
    fill(config)
    found = sort(read("c").to_table())
    assert found.schema.equals(RECORD_SCHEMA)
    assert found.equals(sort(stored(config).select(RECORD_SCHEMA.names)))
    assert found.column("value").to_pylist()[:2] == [None, b""]
    assert found.column("key").to_pylist()[:2] == [b"", None]
    assert found.column("headers").to_pylist()[0][1] == {"key": "trace", "value": None}


def test_a_selection_has_its_records_and_opens_the_objects_that_can_hold_them(config: ConnectorConfig) -> None:
    fill(config)
    hour = NOON + HOUR
    end_of_noon = read("c", end=NOON + timedelta(milliseconds=1))
    assert list_places(end_of_noon) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    just_after = timedelta(microseconds=1)
    assert list_places(read("c", start=NOON + just_after, end=hour + just_after)) == [(0, 3), (1, 1)]
    assert list_places(read("c", kafka_partitions=[1], start=hour)) == [(1, 1), (1, 2)]
    assert list_places(read("c", start=hour, end=hour)) == list_places(read("c", kafka_partitions=[])) == []
    delete_all_but(config, hour, 1)
    assert list_places(read("c", kafka_partitions=[1], start=hour, end=hour + HOUR)) == [(1, 1)]
    moment = pa.scalar(hour, RECORD_SCHEMA.field("timestamp").type)
    pushed = (ds.field("partition") == 1) & (ds.field("timestamp") == moment)
    assert read("c").to_table(filter=pushed).num_rows == 1, "an engine's own condition"
    with pytest.raises(NotFoundError, match="was deleted or never written"):
        read("c").to_table()


def test_each_record_is_in_one_task_also_where_an_object_is_split_by_its_offsets(config: ConnectorConfig) -> None:
    produce(config.kafka, config.topics[0], [Sent(b"%d" % n, b"k", NOON, (), n % 7 == 0) for n in range(200)])
    archived(config)
    whole = find_objects("c", None, EVERY_SEGMENT)
    [small, large] = sorted(segment.size for segment in whole.segments)
    for task_bytes, count in ((small + large, 1), (large, 2), (small, 1 + large // small), (large // 9, 9)):
        tasks = [list_places(task.open()) for task in whole.split(task_bytes)]
        assert len(tasks) >= count
        assert sorted(place for task in tasks for place in task) == list_places(whole.open())
    some = find_objects("c", None, SegmentFilter(offsets=(20, 30)))
    assert len([place for task in some.split(large // 9) for place in list_places(task.open())]) == 19


def test_nothing_archived_is_a_table_without_records(config: ConnectorConfig) -> None:
    assert read("c", config.topics[0]).to_table().equals(RECORD_SCHEMA.empty_table())
    archived(config)
    assert read("c").to_table().num_rows == 0


def test_a_copy_of_an_object_is_read_and_one_that_was_replaced_is_named(
    config: ConnectorConfig, s3_client: Any
) -> None:
    fill(config)
    store = ObjectStore(config.store)
    first, other = snapshot(config).segments[:2]
    put_in_parts(s3_client, config.store.bucket, other.key, store.get(other.key), {})
    assert [found.etag for found in [store.head(other.key)] if found] != [other.etag]
    assert read("c").to_table().num_rows == sum(segment.record_count for segment in snapshot(config).segments)
    store.replace(first.key, store.get(other.key), first.etag)
    with pytest.raises(IntegrityError, match=rf"{re.escape(first.key)} has etag .* it was replaced or damaged"):
        read("c").to_table()


def test_what_cannot_be_read_is_told(kafka_s3_without_spark: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    [topic] = config.topics
    for arguments, told in (
        (("d",), "no connector file declares d; there are: c"),
        (("c", topic[:-1]), f"connector c does not archive topic {topic[:-1]}; did you mean {topic}"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            read(*arguments)
    with pytest.raises(ConfigError, match=r"start 2026-01-01T12:00:00 has no timezone"):
        read("c", start=NOON.replace(tzinfo=None))
    declare(kafka_s3_without_spark, lab.kafka, lab.store, f"{topic},other")
    with pytest.raises(ConfigError, match=r"connector c has 2 topics: name one of "):
        read("c")


def test_spark_reads_what_is_archived_and_opens_the_objects_that_its_options_choose(
    config: ConnectorConfig, session: "SparkSession"
) -> None:
    assert load(session).count() == 0
    fill(config)
    found = load(session)
    assert dict(found.dtypes)["timestamp"] == "timestamp"
    assert sort(found.toArrow().cast(RECORD_SCHEMA)).equals(sort(stored(config).select(RECORD_SCHEMA.names)))
    some = load(session, "value BINARY, offset BIGINT").toArrow()
    assert some.schema.names == ["value", "offset"]
    order = [("offset", "ascending"), ("value", "ascending")]
    assert some.sort_by(order).equals(found.toArrow().select(["value", "offset"]).sort_by(order))
    hour = NOON + HOUR
    delete_all_but(config, hour, 1)
    at = round(hour.timestamp() * 1000)
    one = {"kafkaPartitions": "1"}
    for options in (
        {**one, "startingTimestamp": f"{at}", "endingTimestamp": f"{at + 1}"},
        {"kafkaPartitions": "1, 7", "startingOffset": "1", "endingOffset": "2"},
        {**one, "startingOffset": "1", "endingTimestamp": f"{at + 1}"},
    ):
        assert [row.offset for row in load(session, **options).where("offset < 9").collect()] == [1], options
    assert load(session, startingOffset=f"{2**63 - 1}").count() == 0
    with pytest.raises(Exception, match="was deleted or never written"):
        load(session).count()
    for other in ("size INT", "offset STRING"):
        with pytest.raises(Exception, match=f"no column is {other.lower()}; there are key binary, value binary"):
            load(session, other).count()
    with pytest.raises(
        Exception, match="option topics is unknown; there are connector, topic, connectors, startingTimestamp"
    ):
        load(session, topics="t").count()
    for options, message in (
        ({"kafkaPartitions": ""}, "kafkaPartitions: '' is no whole number"),
        ({"kafkaPartitions": f"0,{2**31}"}, "kafkaPartitions: 2147483648 is beyond 2147483647"),
        ({"endingOffset": f"{2**63}"}, "endingOffset: 9223372036854775808 is beyond 9223372036854775807"),
    ):
        with pytest.raises(Exception, match=message):
            load(session, **options).count()


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_no_query_of_a_frame_sees_what_another_said(
    config: ConnectorConfig, session: "SparkSession", pushdown: str
) -> None:
    """Spark keeps one plan of a Python data source for all queries of a frame."""
    fill(config)
    session.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = load(session)
        frame.createOrReplaceTempView("used")
        one, early = frame.where("partition = 1"), frame.where("offset < 1")
        assert (frame.count(), one.count(), frame.count(), early.count(), frame.count()) == (8, 3, 8, 2, 8)
        assert frame.where("partition = 1 OR offset < 1").count() == 4
        assert frame.where("NOT (partition = 1 AND offset < 1)").count() == 7
        assert session.sql("SELECT * FROM used WHERE partition = 1").count() == 3
        assert session.sql("SELECT * FROM used").count() == 8
        assert frame.where("partition = 0").union(one).count() == 8
        assert frame.where("partition = 0").union(frame).count() == 13
        assert (one.join(frame, "offset").count(), early.join(frame, "offset").count()) == (6, 4)
        cached = one.cache()
        assert (cached.count(), frame.count(), cached.count()) == (3, 8, 3)
        cached.unpersist()
        with ThreadPoolExecutor(2) as threads:
            asked = [frame.where("partition = 1") if n % 2 else frame for n in range(8)]
            assert list(threads.map(lambda each: each.count(), asked)) == [8, 3] * 4
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_times_beyond_the_calendar_of_python_are_compared_by_spark(
    config: ConnectorConfig, session: "SparkSession"
) -> None:
    fill(config)
    frame = load(session)
    assert frame.where("timestamp < TIMESTAMP '+10000-01-01 00:00:00 UTC'").count() == 8
    assert frame.where("timestamp > TIMESTAMP '-0001-01-01 00:00:00 UTC' AND offset < 9223372036854775807").count() == 8


def test_a_frame_without_columns_is_refused(config: ConnectorConfig, session: "SparkSession") -> None:
    fill(config)
    with pytest.raises(Exception, match=r"names no column, so its records could not be counted"):
        load(session, StructType()).count()
