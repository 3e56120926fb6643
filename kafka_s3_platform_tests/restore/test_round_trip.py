"""Whatever a topic holds, its restored copy holds: transactions, holes, tombstones, headers, times out of order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, SourceSettings
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import Delivery, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.target_topic import TopicMap
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, archived, compact_day, connector, send

ON_BROKERS = settings(
    # besides one that has something of everything
    max_examples=2,
    deadline=None,
    # an example takes a second or two: what fails is told as it is
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CONTENT = ["key", "value", "headers", "timestamp"]
DAY = NOON.date()

BYTES = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"\n", b'{"a": 1}', b"\xff\x00", b"x" * 70_000])
TIMES = st.integers(-7_200, 90_000).map(lambda s: NOON + timedelta(seconds=s, milliseconds=7)) | st.sampled_from(
    [datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=timezone.utc), datetime(2019, 12, 31, 23, 59, tzinfo=timezone.utc)]
)
NAMES = st.sampled_from(["", "a", "trace-é", "__connect.errors.topic"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=4)), max_size=3).map(tuple)
RECORDS = st.builds(Sent, BYTES, BYTES, TIMES, HEADERS, st.integers(0, 1))


@dataclass(frozen=True)
class Batch:
    """Records that come together: as they are, or in a transaction that ends like this."""

    ends: Literal["plain", "committed", "aborted"]
    records: Sequence[Sent]


TOPICS = st.lists(
    st.builds(Batch, st.sampled_from(["plain", "committed", "aborted"]), st.lists(RECORDS, max_size=12)),
    min_size=1,
    max_size=6,
)
EVERYTHING = (
    Batch("plain", [Sent(b"1", None, NOON), Sent(None, b"k", NOON - timedelta(hours=2), (("a", None), ("", b"")))]),
    Batch("aborted", [Sent(b"never", None, NOON), Sent(b"never", None, NOON, (), 1)]),
    Batch("committed", [Sent(b"", b"\xff\x00", NOON), Sent(b"x" * 70_000, None, NOON + timedelta(days=1), (), 1)]),
    Batch("plain", [Sent(b"2", b"", datetime(2019, 12, 31, 23, 59, tzinfo=timezone.utc), (("é", b"x"),))]),
)
Filled = Callable[[Sequence[Batch]], str]


@pytest.fixture
def filled(lab: Lab) -> Filled:
    """Creates a topic of two kafka partitions, and a copy of it that is empty."""

    def fill(batches: Sequence[Batch]) -> str:
        topic = lab.create(f"topic-{uuid4().hex[:12]}", 2)
        lab.create(f"{topic}-copy", 2)
        plain = Producer(lab.kafka.properties("producer"))
        in_transactions = Producer(lab.kafka.properties("producer") | {"transactional.id": topic})
        in_transactions.init_transactions(30)
        for batch in batches:
            _produce(plain if batch.ends == "plain" else in_transactions, topic, batch)
        return topic

    return fill


def _produce(client: Producer, topic: str, batch: Batch) -> None:
    if batch.ends != "plain":
        client.begin_transaction()
    for record in batch.records:
        send(client, topic, record)
    # an aborted record is in the log only if it was sent before
    assert client.flush(30) == 0
    if batch.ends == "committed":
        client.commit_transaction(30)
    elif batch.ends == "aborted":
        client.abort_transaction(30)


def content(kafka: KafkaSettings, topic: str) -> list[pa.Table]:
    return [records_of(kafka, topic, p).select(CONTENT) for p in range(2)]


def wanted(batches: Sequence[Batch]) -> list[list[bytes | None]]:
    kept = [r for b in batches if b.ends != "aborted" for r in b.records]
    return [[r.value for r in kept if r.kafka_partition == p] for p in range(2)]


def request(config: ConnectorConfig, topic: str, **more: Any) -> RestoreRequest:
    return RestoreRequest(config, topic, f"{topic}-copy", restore_id=topic, run_id="x", **more)


def check(kafka: KafkaSettings, topic: str, batches: Sequence[Batch], report: RestoreReport) -> None:
    source, copy = content(kafka, topic), content(kafka, f"{topic}-copy")
    assert [t.column("value").to_pylist() for t in source] == wanted(batches)
    assert copy == source
    assert report.verified
    assert report.record_count == sum(t.num_rows for t in source)


@ON_BROKERS
@example(batches=EVERYTHING, layout={"flush_size": 3}, delivery="exactly_once", is_compacted=True)
@given(
    batches=TOPICS,
    layout=st.sampled_from([{}, {"flush_size": 3}, {"partitioner": "Daily"}, {"timezone": "Asia/Kolkata"}]),
    delivery=st.sampled_from(["exactly_once", "at_least_once"]),
    is_compacted=st.booleans(),
)
def test_an_archive_of_ours_gives_back_every_topic_byte_for_byte(
    filled: Filled, lab: Lab, batches: Sequence[Batch], layout: dict[str, Any], delivery: Delivery, is_compacted: bool
) -> None:
    topic = filled(batches)
    config = connector(lab.kafka, lab.store, topic, layout=layout)
    archived(config)
    if is_compacted:
        compact_day(CompactRequest(config, topic, DAY, "day"), InProcessRunner())
    report = restore(ArchiveSource(request(config, topic, delivery=delivery)), InProcessRunner())
    check(lab.kafka, topic, batches, report)


@ON_BROKERS
@example(batches=EVERYTHING, layout={"format": "envelope.avro", "codec": "deflate", "flush_size": 3})
@given(
    batches=TOPICS,
    layout=st.sampled_from(
        [
            {"format": "envelope.parquet", "codec": "zstd"},
            {"format": "envelope.avro", "codec": "deflate", "flush_size": 3},
            {"format": "envelope.json", "codec": "gzip"},
            {"format": "envelope.json", "codec": "none", "partitioner": "Default"},
        ]
    ),
)
def test_envelopes_give_back_every_topic_byte_for_byte_by_their_keys_alone(
    filled: Filled, lab: Lab, batches: Sequence[Batch], layout: dict[str, Any]
) -> None:
    topic = filled(batches)
    config = connector(lab.kafka, lab.store, topic, layout=layout)
    archived(config)
    source = config.model_copy(update={"source": SourceSettings()})
    asked = ForeignSource(request(source, topic), rename=TopicMap({topic: f"{topic}-copy"}))
    if not any(wanted(batches)):
        with pytest.raises(PreflightError, match=f"no object of topic {topic} was found"):
            restore(asked, InProcessRunner())
        return
    check(lab.kafka, topic, batches, restore(asked, InProcessRunner()))
