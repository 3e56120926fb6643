"""Record batches that a broker takes, and that come to a thousand times as much: they stop no topic, and no worker."""

from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np
import pytest
import xxhash

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.hostile.containers import archived_apart, long
from kafka_s3_platform_tests.kafka.wire import GZIP, LZ4, NO_PRODUCER, ZSTD, WireRecord, framed, produce_batch
from kafka_s3_platform_tests.support import NOON, Sent, connector, produce, snapshot, stored, tried

MEGABYTE, MEGABYTES = 2**20, 300
AT = round(NOON.timestamp() * 1000)
_COMPRESSORS: dict[int, Any] = {GZIP: cramjam.gzip, ZSTD: cramjam.zstd}


def one_value(codec: int, megabytes: int) -> bytes:
    """A batch of one record, whose value is zeros."""
    size = megabytes * MEGABYTE
    head = b"\0" + long(0) + long(0) + long(-1) + long(size)
    pieces = [long(len(head) + size + 1) + head, *[bytes(MEGABYTE)] * megabytes, b"\0"]
    return framed(_compressed(codec, pieces), [WireRecord(AT)], 0, codec, NO_PRODUCER)


def many(codec: int, count: int) -> bytes:
    """A batch of records that have nothing but an offset."""
    ends = [0, *(min(count, 2**bits) for bits in (6, 13, 20, 27))]
    pieces = [_nothing(size, np.arange(ends[size - 1], ends[size])) for size in range(1, 5)]
    return framed(_compressed(codec, pieces), [WireRecord(AT)] * count, 0, codec, NO_PRODUCER)


def _nothing(size: int, deltas: Any) -> bytes:
    """Records at offsets whose differences take so many bytes as varints."""
    rows = np.zeros((len(deltas), size + 6), np.uint8)
    rows[:, 0] = 2 * (size + 5)
    for at in range(size):
        rows[:, 3 + at] = 2 * deltas >> 7 * at & 127 | 128 * (at < size - 1)
    rows[:, 3 + size : 5 + size] = 1
    return rows.tobytes()


def _compressed(codec: int, pieces: list[bytes]) -> bytes:
    if codec == LZ4:
        return _lz4(pieces)
    stream = _COMPRESSORS[codec].Compressor()
    for piece in pieces:
        stream.compress(piece)
    return bytes(stream.finish())


def _lz4(pieces: list[bytes]) -> bytes:
    """A frame of blocks of at most 4 MB that do not refer to each other: Kafka knows no others."""
    flags = b"\x60\x70"
    blocks = [bytes(cramjam.lz4.compress_block(piece, store_size=False)) for piece in pieces]
    body = b"".join(len(block).to_bytes(4, "little") + block for block in blocks)
    return b"\x04\x22\x4d\x18" + flags + bytes([xxhash.xxh32_intdigest(flags) >> 8 & 255]) + body + bytes(4)


@pytest.fixture
def topic(lab: Lab) -> str:
    return lab.create_topic()


@pytest.fixture
def before(lab: Lab) -> ConnectorConfig:
    """Another topic, that the process has archived before."""
    other = lab.create(f"{lab.topic}-before")
    produce(lab.kafka, other, [Sent(b"%d" % n) for n in range(1000)])
    return connector(lab.kafka, lab.store, other)


def surrounded(kafka: KafkaSettings, topic: str, batch: bytes) -> None:
    """Three records, the batch, and three more."""
    produce(kafka, topic, [Sent(b"%d" % n) for n in range(3)])
    produce_batch(kafka.bootstrap_servers, topic, 0, batch)
    produce(kafka, topic, [Sent(b"%d" % n) for n in range(3)])


@pytest.mark.parametrize(
    ("batch", "count", "tolerance"),
    [
        (lambda: one_value(ZSTD, 512), 1, "none"),
        (lambda: one_value(ZSTD, 512), 1, "all"),
        (lambda: one_value(GZIP, 512), 1, "all"),
        (lambda: one_value(LZ4, 240), 1, "none"),
        (lambda: many(ZSTD, 2_500_000), 2_500_000, "all"),
    ],
    ids=["zstd", "zstd that may fail", "gzip", "lz4", "records without a value"],
)
def test_a_bomb_is_unresolved_offsets_and_costs_little(
    lab: Lab, topic: str, before: ConnectorConfig, batch: Callable[[], bytes], count: int, tolerance: str
) -> None:
    surrounded(lab.kafka, topic, batch())
    errors = {"tolerance": tolerance}
    config = connector(lab.kafka, lab.store, topic, records={"errors": errors})
    bomb = OffsetRange(3, 3 + count)
    found = archived_apart([before, config])
    # Each million offsets is a task of its own.
    assert (found.records, RangeSet(OffsetRange(*pair) for pair in found.offsets)) == (6, RangeSet([bomb]))
    assert f"{topic}-0 {OffsetRange(3, min(bomb.end_offset, 1_000_000))}" in found.failure
    assert "archive.read.max.batch.bytes" in found.failure
    assert found.megabytes < MEGABYTES, found
    produce(lab.kafka, topic, [Sent(b"later")])
    tried(config)
    assert sum(s.record_count for s in snapshot(config).segments) == 7


def test_what_is_too_large_is_archived_where_the_key_allows_it(lab: Lab, topic: str) -> None:
    surrounded(lab.kafka, topic, one_value(ZSTD, 140))
    config = connector(lab.kafka, lab.store, topic)
    assert "archive.read.max.batch.bytes" in str(tried(config).failure)
    allowing = lab.kafka.model_copy(update={"batch_bytes": 2**30})
    report = tried(config.model_copy(update={"kafka": allowing}))
    assert (report.failure, report.record_count) == (None, 1)
    assert not snapshot(config).state.unresolved


def test_a_batch_of_fifty_megabytes_is_archived(lab: Lab, topic: str) -> None:
    surrounded(lab.kafka, topic, one_value(ZSTD, 50))
    config = connector(lab.kafka, lab.store, topic)
    tried(config).raise_failure()
    assert [len(v) for v in stored(config)["value"].to_pylist()] == [1, 1, 1, 50 * MEGABYTE, 1, 1, 1]


def test_confluents_reader_passes_zstd_by_too(lab: Lab, topic: str) -> None:
    """Of gzip and LZ4, librdkafka holds what they come to, whatever that is."""
    surrounded(lab.kafka, topic, one_value(ZSTD, 240))
    with ConfluentReader(lab.kafka, topic, skip_unreadable=True) as reader:
        read = reader.read(0, OffsetRange(0, 7))
        assert sum(batch.num_rows for batch in read) == 6
        assert [(u.start_offset, u.end_offset) for u in read.end.unreadable] == [(3, 4)]
