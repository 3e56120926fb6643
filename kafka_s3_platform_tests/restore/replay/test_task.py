"""Tasks of a restore: their transactions, reading ahead, checkpoints, and shares of a limit.

A target that takes records more slowly than a transaction may last.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import PreflightError, SupersededError, TransientError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import Committed
from kafka_s3_platform.core.kafka.transactional_producer import FIRST_BYTES, MOST_BYTES_PER_SECOND, Pace
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.restore.execution import share_out_limit
from kafka_s3_platform.core.restore.outgoing.sent import SentBatch
from kafka_s3_platform.core.restore.replay.checkpoint import Checkpoint, Position, read_positions
from kafka_s3_platform.core.restore.replay.task import ReadAhead
from kafka_s3_platform.core.restore.replay.transactions import (
    METADATA_BYTES,
    USUAL_OVERHEAD,
    Marker,
    make_marker_name,
    split_to_room,
)
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import record_batch, values
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.support import Sent, archived, connector, produce

OFFSETS = st.integers(0, 2**62)

T = TypeVar("T")

KEY = "_restore/r/0.json"


@given(
    st.text("0123456789abcdef", min_size=64, max_size=64),
    OFFSETS,
    OFFSETS,
    st.dictionaries(st.integers(0, 10_000), OFFSETS, max_size=100),
)
def test_a_marker_comes_back_from_what_the_group_holds(
    digest: str, offset: int, count: int, ends: dict[int, int]
) -> None:
    marker = Marker(digest, offset, count, ends)
    assert marker.committed.offset == offset
    assert Marker.of(marker.committed, digest, "here") == marker


@pytest.mark.parametrize(("kafka_partitions", "fit"), [(200, True), (2000, False)])
def test_ends_are_left_out_where_a_group_s_metadata_cannot_hold_them(kafka_partitions: int, fit: bool) -> None:
    marker = Marker("aa", 5, 3, dict.fromkeys(range(kafka_partitions), 1_000_000))
    assert len(marker.committed.metadata) <= METADATA_BYTES
    assert Marker.of(marker.committed, "aa", "here").target_ends == (marker.target_ends if fit else {})


def test_the_marker_of_another_plan_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"here: the progress marker belongs to plan aa, but .* is bb"):
        Marker.of(Marker("aa", 5, 3).committed, "bb", "here")


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[" * 4000,
        '{"plan": "aa", "records": 1e999}',
        '{"plan": "aa", "records": -1}',
        '{"plan": "aa", "records": 3, "ends": {"0": -1}}',
        '{"plan": "aa", "records": 3, "ends": {"-1": 5}}',
        "x" * 4096,
        "{",
        "5",
        "[]",
        '{"plan": "aa"}',
        '{"plan": "aa", "records": "many"}',
        '{"plan": "aa", "records": 3, "ends": 5}',
        '{"plan": "aa", "records": 3, "ends": {"0": null}}',
    ],
)
def test_an_offset_that_something_else_has_committed_is_refused(metadata: str) -> None:
    with pytest.raises(PreflightError, match="is not a progress marker"):
        Marker.of(Committed(5, metadata), "aa", "here")


def test_streams_have_names_of_their_own() -> None:
    assert make_marker_name("incident-7", 3, place="0123abcd") == "restore.incident-7@0123abcd.3"
    assert make_marker_name("incident-7", 3, place="0123abcd", topic="a") == "restore.incident-7@0123abcd/a.3"


@contextmanager
def ahead(items: Iterable[T], patience: float | None = None) -> Iterator[Iterator[T | None]]:
    with closing(ReadAhead(items)) as reading:
        yield reading.items(lambda: patience)


def test_items_come_as_they_are_and_none_is_no_end() -> None:
    with ahead(range(5)) as reading:
        assert list(reading) == [0, 1, 2, 3, 4]
    with ahead([], 0.0) as none:
        assert list(none) == []


def test_the_first_item_is_read_before_anybody_asks() -> None:
    first = threading.Event()

    def items() -> Iterator[int]:
        first.set()
        yield 1

    with ahead(items()) as reading:
        assert first.wait(60)
        assert list(reading) == [1]


def test_the_next_item_is_read_while_the_last_is_worked_on() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with ahead(items()) as reading:
        assert next(reading) == 1
        assert second.wait(60)
        assert list(reading) == [2]


def test_a_wait_beyond_patience_is_told_and_the_item_comes_later() -> None:
    arrived = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert arrived.wait(60)
        yield 2

    with ahead(items(), 0.01) as reading:
        assert next(reading) == 1
        assert next(reading) is None
        assert next(reading) is None
        arrived.set()
        assert [item for item in reading if item is not None] == [2]


def test_what_reading_raises_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    with ahead(items()) as reading:
        assert next(reading) == 1
        with pytest.raises(OSError, match="broken"):
            next(reading)


def test_closed_early_its_thread_ends() -> None:
    before = threading.active_count()
    with ahead(range(1000)) as reading:
        assert next(reading) == 0
    assert threading.active_count() == before


@given(st.floats(0.001, 1e9), st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 20))
def test_the_tasks_that_run_at_once_never_exceed_the_limit(limit: float, sizes: list[int], at_once: int) -> None:
    found = [s for s in share_out_limit(limit, sizes, at_once) if s is not None]

    assert len(found) == len(sizes)
    assert all(share > 0 for share in found)
    assert sum(sorted(found)[-at_once:]) <= limit * (1 + 1e-9)


def test_tasks_that_run_at_once_end_together_and_use_the_whole_limit() -> None:
    sizes = [900, 90, 10]

    found = share_out_limit(100, sizes, 8)

    assert [size / share for size, share in zip(sizes, found, strict=True) if share] == pytest.approx([10, 10, 10])


def test_tasks_that_follow_each_other_have_equal_shares() -> None:
    assert share_out_limit(100, [900, 90, 10], 2) == [50, 50, 50]


def test_no_limit_is_no_share() -> None:
    assert share_out_limit(None, [1, 2], 2) == [None, None]


def test_a_position_comes_back_and_none_before_the_first(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    checkpoint = Checkpoint(store, KEY, "one")

    assert checkpoint.load() is None
    checkpoint.save(Position(3, 7, 2))
    checkpoint.save(Position(5, 9, 4))

    assert Checkpoint(store, KEY, "two").load() == Position(5, 9, 4)
    assert read_positions(store, [KEY, "_restore/r/1.json"]) == [Position(5, 9, 4), None]


def test_a_run_that_another_one_has_overtaken_is_told_at_its_next_checkpoint(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    older, newer = Checkpoint(store, KEY, "older"), Checkpoint(store, KEY, "newer")
    older.save(Position(0, 0))

    newer.load()
    newer.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        older.save(Position(5, 5, 5))
    assert newer.load() == Position(0, 0)


def test_two_runs_that_begin_at_once_are_told_apart(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    first, second = Checkpoint(store, KEY, "first"), Checkpoint(store, KEY, "second")
    assert first.load() is second.load() is None
    first.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        second.save(Position(0, 0))


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


def test_what_a_quota_slows_is_restored_in_one_run(
    config: ConnectorConfig, source: Callable[[list[Sent]], None]
) -> None:
    """Of a quota, ten seconds' worth pass at once: the rest takes longer than the timeout."""
    small = [Sent(b"%06d" % n + b"x" * 994) for n in range(6500)]
    source([*small[:6000], Sent(b"y" * 1_000_000), *small[6000:], Sent(b"z" * 1_000_000)])

    report = restored(config)

    target = values(config.kafka, report.to_topic)
    assert target == values(config.kafka, config.topics[0])
    assert (report.verified, report.sent_count) == (True, 6502)
    # the ends of transactions, and nothing that was aborted
    assert aborted_and_control_records(config, 6502) < 20


def records(*sizes: int, at: int = 0) -> pa.RecordBatch:
    return record_batch([{"value": b"x" * size, "offset": at + 2 * n} for n, size in enumerate(sizes)])


def test_a_batch_is_cut_to_the_room_there_is_never_inside_of_a_source_offset() -> None:
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
    pace.note_sent(FIRST_BYTES)
    assert not pace.admits(1)
    pace.note_acknowledged(FIRST_BYTES, time.monotonic() - 2)
    assert 2 <= pace.delay < 60
    for size in (FIRST_BYTES, 10**9):
        pace.note_sent(size)
        pace.note_acknowledged(size, time.monotonic())
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
        pytest.raises(TransientError, match=r"timeout of 1 s(.|\n)*raise producer\.transaction\.timeout\.ms"),
    ):
        restored(config.model_copy(update={"kafka": hasty}))
