import os

import pyarrow as pa
import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, MissingTopicError, PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.producer import Delivered, ReplayProducer, count_timestamp_zero
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import said_to_be_there_already
from kafka_s3_platform_tests.chaos.lies import FOREVER, Lie
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import read, record_batch

MEBIBYTE = 1024 * 1024
KEPT = ["key", "value", "headers", "timestamp"]


@pytest.fixture
def topic(lab: Lab) -> str:
    return lab.create_topic(2, max_message_bytes=4 * MEBIBYTE, message_timestamp_after_max_ms=2**63 - 1)


def read_back(kafka: KafkaSettings, topic: str, count: int) -> pa.Table:
    with ConfluentReader(kafka, topic, end_seconds=5) as reader:
        return read(reader, 0, count)[0]


def deliver(producer: ReplayProducer, batch: pa.RecordBatch, kafka_partition: int) -> None:
    producer.send(batch, kafka_partition)
    producer.flush()


def test_what_comes_back_is_what_was_sent(lab: Lab, topic: str) -> None:
    headers = [{"key": name, "value": value} for name, value in [("a", b"1"), ("a", None), ("", b""), ("é-x", b"\xff")]]
    batch = record_batch(
        [
            {"key": None, "value": None},
            {"key": b"", "value": b""},
            {"key": b"k", "value": None, "headers": headers},
            {"value": b"v", "timestamp": -1},
            {"value": b"v", "timestamp": -5000},
            {"value": b"v", "timestamp": 253_402_300_799_000},
            {"value": b"x" * MEBIBYTE, "headers": headers[:1]},
        ]
    )
    with ReplayProducer(lab.kafka, topic, max_message_bytes=4 * MEBIBYTE) as producer:
        producer.send(batch, 0)
        assert producer.flush() == {0: Delivered(0, records=7, source_offset=12, target_offset=6)}
    sent = pa.Table.from_batches([batch])
    assert read_back(lab.kafka, topic, 7).select(KEPT).equals(sent.select(KEPT))


def test_records_keep_their_order_and_go_to_the_kafka_partition_asked_for(lab: Lab, topic: str) -> None:
    count = 30_000
    batch = record_batch([{"value": b"%d" % i} for i in range(count)])
    with ReplayProducer(lab.kafka, topic) as producer:
        for start in range(0, count, 7_000):
            producer.send(batch.slice(start, 7_000), 0)
            producer.send(batch.slice(start, 10), 1)
        delivered = producer.flush()
    assert delivered[0] == Delivered(0, count, 2 * (count - 1), count - 1)
    assert (delivered[1].records, delivered[1].source_offset, delivered[1].target_offset) == (50, 56_018, 49)
    assert read_back(lab.kafka, topic, count)["value"].to_pylist() == [b"%d" % i for i in range(count)]


def test_a_full_queue_is_waited_for(lab: Lab, topic: str) -> None:
    narrow = lab.kafka.model_copy(update={"producer": {"queue.buffering.max.messages": SecretStr("100")}})
    with ReplayProducer(narrow, topic) as producer:
        producer.send(record_batch([{"value": b"%d" % i} for i in range(3000)]), 0)
        assert producer.flush()[0] == Delivered(0, 3000, 5998, 2999)
    assert read_back(lab.kafka, topic, 3000)["value"].to_pylist() == [b"%d" % i for i in range(3000)]


def test_records_that_would_get_the_time_of_sending_are_counted_and_refused(lab: Lab, topic: str) -> None:
    batch = record_batch([{}, {"timestamp": 0}, {"timestamp": -1}, {"timestamp": 0}])
    assert count_timestamp_zero(batch) == 2
    assert count_timestamp_zero(record_batch([{}])) == 0
    with ReplayProducer(lab.kafka, topic) as producer:
        producer.send(record_batch([{}]), 0)
        with pytest.raises(PreflightError, match="2 records from source offset 2 on have timestamp 0"):
            producer.send(batch, 0)
        assert producer.delivered[0].records == 1
    with ReplayProducer(lab.kafka, topic, allow_now=True) as producer:
        producer.send(batch, 0)
        assert producer.flush()[0].records == 4


def test_an_oversize_record_is_named_and_so_is_what_was_delivered_before_it(lab: Lab, topic: str) -> None:
    small, large = {"value": b"s"}, {"value": b"x" * 5000}
    with ReplayProducer(lab.kafka, topic, max_message_bytes=4000) as producer:
        producer.send(record_batch([small] * 10), 0)
        producer.flush()
        with pytest.raises(PreflightError, match="the record of source offset 4 for kafka partition 0 was refused"):
            producer.send(record_batch([small, small, large, small]), 0)
    place = producer.delivered[0]
    assert place.in_doubt == 0
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.frontiers(topic, [0])[0].high_watermark == place.records


def test_a_compressed_record_may_be_larger_than_the_topic_takes_before_compression(lab: Lab, topic: str) -> None:
    narrow = lab.create(f"{topic}-compressed", max_message_bytes=3000)
    records = record_batch([{"value": b"s"}, {"value": b"x" * 5_000_000}, {"value": b"s"}])
    with ReplayProducer(lab.kafka, narrow, max_message_bytes=3000, codec="zstd") as producer:
        producer.send(records, 0)
        assert producer.flush()[0].records == 3
    too_large = record_batch([{"value": os.urandom(5000)}])
    for codec in ("none", "zstd"):
        with ReplayProducer(lab.kafka, narrow, max_message_bytes=3000, codec=codec) as producer:
            with pytest.raises(PreflightError) as raised:
                deliver(producer, too_large, 0)
            assert ("producer.compression.type=zstd" in str(raised.value)) == (codec == "none"), "what helps is advised"


def test_records_the_broker_rejects_are_named_and_nothing_after_them_is_delivered(lab: Lab, topic: str) -> None:
    narrow = lab.create(f"{topic}-narrow", max_message_bytes=3000)
    with ReplayProducer(lab.kafka, narrow, max_message_bytes=100_000) as producer:
        producer.send(record_batch([{"value": b"s"}] * 10), 0)
        producer.flush()
        with pytest.raises(PreflightError, match=r"source offsets? 1000 .*too large") as raised:
            deliver(producer, record_batch([{"value": b"x" * 1000, "offset": 1000 + i} for i in range(50)]), 0)
    assert "10 records delivered, the last from offset 18 to 9" in str(raised.value)
    assert producer.delivered == {0: Delivered(0, 10, 18, 9)}
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.frontiers(narrow, [0])[0].high_watermark == 10


def test_a_kafka_partition_that_the_target_lacks_is_named(lab: Lab, topic: str) -> None:
    with ReplayProducer(lab.kafka, topic) as producer:
        producer.send(record_batch([{}]), 0)
        producer.flush()
        with pytest.raises(MissingTopicError, match=r"source offset.*kafka partition 5"):
            deliver(producer, record_batch([{}]), 5)


def test_an_unreachable_broker_is_named_with_the_reason() -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    with ReplayProducer(nowhere, "t", answer_seconds=1) as producer:
        producer.send(record_batch([{}]), 0)
        with pytest.raises(BrokerUnavailableError, match=r"topic t at 127\.0\.0\.1:1.*0 records.*Connection refused"):
            producer.flush()


def test_what_is_not_flushed_is_taken_back_or_delivered_and_known(lab: Lab, topic: str) -> None:
    with ReplayProducer(lab.kafka, topic) as producer:
        producer.send(record_batch([{"value": b"%d" % i} for i in range(20_000)]), 0)
    place = producer.delivered[0]
    assert place.in_doubt == 0
    with ClusterAdmin(lab.kafka) as admin:
        assert admin.frontiers(topic, [0])[0].high_watermark == place.records
    if place.records:
        with ConfluentReader(lab.kafka, topic) as reader:
            assert sum(map(len, reader.read(0, OffsetRange(0, place.records)))) == place.records


def test_where_a_broker_does_not_tell_where_a_record_lies_nothing_is_made_up(lab: Lab, topic: str) -> None:
    """As it does of a batch that was sent again and that it has already."""
    with lying_broker(lab.kafka.bootstrap_servers, KafkaLies(1)) as broker:
        through = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        with ReplayProducer(through, topic) as producer:
            producer.send(record_batch([{"value": b"a"}] * 3), 0)
            assert producer.flush() == {0: Delivered(0, 3, 4, 2)}
            broker.liar.lie(Lie("duplicate", said_to_be_there_already, times=FOREVER))
            producer.send(record_batch([{"value": b"b", "offset": n} for n in (5, 6)]), 0)
            assert producer.flush() == {0: Delivered(0, 5, 6, None)}
            assert "from offset 6 to an offset that the broker did not tell" in str(producer.delivered[0])
            broker.liar.lie()
            producer.send(record_batch([{"value": b"c", "offset": 8}]), 0)
            assert producer.flush() == {0: Delivered(0, 6, 8, 5)}
    assert broker.liar.told["duplicate"] == 1
    assert read_back(lab.kafka, topic, 6)["value"].to_pylist() == [b"a", b"a", b"a", b"b", b"b", b"c"]
