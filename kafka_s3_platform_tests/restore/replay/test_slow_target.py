"""A target that takes records more slowly than a transaction may last."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.errors import TransientError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.transactional_producer import FIRST_BYTES, MOST_BYTES_PER_SECOND, Pace
from kafka_s3_platform.model.batches import read_offset_column
from kafka_s3_platform.restore.outgoing.stream import SentBatch
from kafka_s3_platform.restore.replay.transactions import USUAL_OVERHEAD, split_to_room
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import record_batch, records_of
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.support import Sent, archived, connector, produce

TIMEOUT_MS = 10_000
QUOTA = 400_000.0


@pytest.fixture
def config(lab: Lab) -> Iterator[ConnectorConfig]:
    """A connector whose producers have a quota of their own, by their client id, and a short timeout."""
    producer = {"client.id": SecretStr(lab.topic), "transaction.timeout.ms": SecretStr(str(TIMEOUT_MS))}
    kafka = lab.kafka.model_copy(update={"producer": producer})
    with quota(kafka, lab.topic, QUOTA):
        yield connector(kafka, lab.store, lab.topic)


@pytest.fixture
def source(config: ConnectorConfig, lab: Lab) -> Callable[[list[Sent]], None]:
    """Archives records that were produced without a quota."""

    def prepare(records: list[Sent]) -> None:
        topic = lab.create(config.topics[0], max_message_bytes=5_000_000)
        produce(lab.kafka, topic, records, **{"message.max.bytes": 5_000_000})
        archived(config)

    return prepare


@contextmanager
def quota(kafka: KafkaSettings, client_id: str, bytes_per_second: float) -> Iterator[None]:
    """A broker's quota of what one client id produces."""
    _alter_quota(kafka, client_id, bytes_per_second, remove=False)
    yield
    _alter_quota(kafka, client_id, 0.0, remove=True)


def _alter_quota(kafka: KafkaSettings, client_id: str, value: float, *, remove: bool) -> None:
    """AlterClientQuotas 0, which confluent-kafka has no call for."""
    entity = struct.pack(">i", 1) + _text("client-id") + _text(client_id)
    change = struct.pack(">i", 1) + _text("producer_byte_rate") + struct.pack(">d?", value, remove)
    body = struct.pack(">i", 1) + entity + change + struct.pack(">?", False)
    framed = struct.pack(">hhi", 49, 0, 1) + _text("test") + body
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(framed)) + framed)
        with connection.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    assert struct.unpack_from(">h", answer, 12) == (0,), answer


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def aborted_and_control_records(config: ConnectorConfig, record_count: int) -> int:
    target = f"{config.topics[0]}-restored"
    with ClusterAdmin(config.kafka) as admin:
        return admin.frontiers(target, [0])[0].high_watermark - record_count


def test_what_a_quota_lets_through_slower_than_a_transaction_lasts_is_restored_in_one_run(
    config: ConnectorConfig, source: Callable[[list[Sent]], None]
) -> None:
    """Of a quota, ten seconds' worth pass at once: the rest takes longer than the timeout."""
    small = [Sent(b"%06d" % n + b"x" * 994) for n in range(6500)]
    source([*small[:6000], Sent(b"y" * 1_000_000), *small[6000:], Sent(b"z" * 1_000_000)])

    report = restored(config)

    target = records_of(config.kafka, report.to_topic)["value"].to_pylist()
    assert target == records_of(config.kafka, config.topics[0])["value"].to_pylist()
    assert (report.verified, report.sent_count) == (True, 6502)
    # the ends of transactions, and nothing that was aborted
    assert aborted_and_control_records(config, 6502) < 20


def records(*sizes: int, at: int = 0) -> pa.RecordBatch:
    return record_batch([{"value": b"x" * size, "offset": at + 2 * n} for n, size in enumerate(sizes)])


def test_a_batch_is_cut_to_what_there_is_room_for_and_never_inside_of_a_source_offset() -> None:
    """Also where keys have dealt it to two kafka partitions, and a transform made two records of one."""
    room = 2 * (100 + USUAL_OVERHEAD)
    batch = SentBatch(20, ((0, records(100, 100, 100, 9000, 1)), (1, records(100, 100, 1, at=2))))

    pieces = list(split_to_room(batch, lambda: room))

    assert [
        [(part.kafka_partition, read_offset_column(part.records).tolist()) for part in p.parts] for p in pieces
    ] == [
        [(0, [0])],
        [(0, [2]), (1, [2])],
        [(0, [4]), (1, [4])],
        [(0, [6]), (1, [6])],
        [(0, [8])],
    ]
    assert [p.next_source_offset for p in pieces] == [2, 4, 6, 7, 20]
    [whole] = split_to_room(batch, lambda: 10**6)
    assert whole.next_source_offset == 20
    assert tuple((part.kafka_partition, part.records) for part in whole.parts) == batch.parts
    assert whole.byte_count == 9502
    assert whole.log_bytes == sum(p.log_bytes for p in pieces) == 9502 + 8 * USUAL_OVERHEAD


def test_what_is_on_its_way_begins_small_and_is_bounded_whatever_was_acknowledged() -> None:
    pace = Pace(60)
    assert pace.room == FIRST_BYTES
    assert pace.admits(10**9)
    pace.sent(FIRST_BYTES)
    assert not pace.admits(1)
    pace.acknowledged(FIRST_BYTES, time.monotonic() - 2)
    assert 2 <= pace.delay < 60
    for size in (FIRST_BYTES, 10**9):
        pace.sent(size)
        pace.acknowledged(size, time.monotonic())
    assert pace.room == 60 * MOST_BYTES_PER_SECOND
    assert not pace.on_its_way


def test_a_transaction_that_no_time_is_enough_for_says_what_to_do(
    config: ConnectorConfig, source: Callable[[list[Sent]], None]
) -> None:
    source([Sent(b"x" * 900_000)])
    producer = {**config.kafka.producer, "transaction.timeout.ms": SecretStr("1000")}
    hasty = config.kafka.model_copy(update={"producer": producer})
    with (
        quota(config.kafka, config.topics[0], 60_000.0),
        pytest.raises(TransientError, match=r"timeout of 1 s(.|\n)*set producer\.transaction\.timeout\.ms .* higher"),
    ):
        restored(config.model_copy(update={"kafka": hasty}))
