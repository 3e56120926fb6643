"""Kafka's record batches to Arrow, on batches written byte by byte."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka import record_batches
from kafka_s3_platform.kafka.record_batches import LogBatch, committed, log_batches, record_batch
from kafka_s3_platform.model.offsets import TopicPartition
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.wire import NO_PRODUCER, WireRecord

TP = TopicPartition("t", 3)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"

RECORDS = st.lists(
    st.builds(
        WireRecord,
        st.integers(-1, 2**41),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


def batches(data: bytes) -> list[LogBatch]:
    return list(log_batches(memoryview(data)))


@settings(deadline=None)  # the kernel is compiled with its first call
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_every_record_comes_out_as_it_went_in(groups: list[list[WireRecord]]) -> None:
    data, at = b"", 100
    for group in groups:
        data += wire.record_batch(group, at)
        at += len(group) + 5
    found = record_batch(TP, batches(data))
    assert found.schema == RECORD_SCHEMA
    sent = [record for group in groups for record in group]
    headers = [[{"key": k.decode(), "value": v} for k, v in r.headers] or None for r in sent]
    assert found.column("key").to_pylist() == [r.key for r in sent]
    assert found.column("value").to_pylist() == [r.value for r in sent]
    assert found.column("headers").to_pylist() == headers
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [r.timestamp_ms for r in sent]
    assert found.column("timestampType").to_pylist() == [-1 if r.timestamp_ms == -1 else 0 for r in sent]
    starts = [100 + sum(len(g) + 5 for g in groups[:n]) for n in range(len(groups))]
    assert found.column("offset").to_pylist() == [
        s + i for s, g in zip(starts, groups, strict=True) for i in range(len(g))
    ]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    data = wire.record_batch([WireRecord(1)]) + wire.record_batch([WireRecord(2)], 1)
    assert [b.base_offset for b in batches(data[:-1])] == [0]


def test_log_append_time_is_that_of_the_batch() -> None:
    found = record_batch(TP, batches(wire.record_batch([WireRecord(5), WireRecord(9)], attributes=LOG_APPEND_TIME)))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [9, 9]
    assert found.column("timestampType").to_pylist() == [1, 1]


def test_a_changed_byte_is_found_by_the_crc() -> None:
    data = bytearray(wire.record_batch([WireRecord(1)], 7))
    data[-1] ^= 1
    with pytest.raises(ValueError, match="CRC of the batch at offset 7"):
        batches(bytes(data))


@settings(deadline=None)  # the kernel is compiled with its first call
@given(RECORDS, st.data())
def test_bytes_that_are_not_the_records_they_say_are_refused(records: list[WireRecord], data: st.DataObject) -> None:
    good = wire.record_batch(records)[61:]
    cut = data.draw(st.integers(0, len(good) - 1))
    for body in (good[:cut], good + b"\0"):
        broken = wire.framed(body, records, 0, 0, NO_PRODUCER)
        with pytest.raises(ValueError, match="not what its header says"):
            record_batch(TP, batches(broken))


@settings(deadline=None)  # the kernel is compiled with its first call
@given(RECORDS, st.integers(0, 10_000), st.integers(1, 255))
def test_garbage_is_refused_or_read_within_its_bounds(records: list[WireRecord], place: int, flip: int) -> None:
    body = bytearray(wire.record_batch(records)[61:])
    body[place % len(body)] ^= flip
    try:
        found = record_batch(TP, batches(wire.framed(bytes(body), records, 0, 0, NO_PRODUCER)))
    except (ValueError, IntegrityError):
        return
    found.validate(full=True)
    assert found.num_rows == len(records)


def test_a_count_below_zero_is_refused_beside_other_batches_too() -> None:
    good, bad = batches(wire.record_batch([WireRecord(1)])), batches(wire.record_batch([WireRecord(1)], 1))
    with pytest.raises(ValueError, match="the batch at offset 1 is not what its header says"):
        record_batch(TP, [*good, *(replace(b, count=-1, body=memoryview(b"")) for b in bad)])


def test_records_that_one_arrow_column_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batches, "LARGEST_COLUMN", 2000)
    read = batches(wire.record_batch([WireRecord(1, value=b"x" * 1000) for _ in range(2)]))
    assert record_batch(TP, read).num_rows == 2
    with pytest.raises(ValueError, match="from offset 0 on are too large for one batch"):
        record_batch(TP, [*read, *batches(wire.record_batch([WireRecord(1, value=b"x")], 2))])


def test_a_header_name_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(IntegrityError, match="header name is not UTF-8"):
        record_batch(TP, batches(wire.record_batch([WireRecord(1, headers=[(b"\xff", b"")])])))


def sent(base_offset: int, producer: int) -> bytes:
    return wire.record_batch([WireRecord(1)], base_offset, TRANSACTIONAL, (producer, 0, 0))


def marker(base_offset: int, producer: int, kind: bytes) -> bytes:
    return wire.record_batch([WireRecord(1, kind, b"")], base_offset, TRANSACTIONAL | CONTROL, (producer, 0, -1))


def offsets(data: bytes, *aborted: tuple[int, int]) -> list[int]:
    return [b.base_offset for b in committed(batches(data), aborted)]


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    log = sent(0, 1) + sent(1, 2) + marker(2, 1, ABORT) + sent(3, 1) + marker(4, 2, COMMIT) + marker(5, 1, COMMIT)
    assert offsets(log, (1, 0)) == [1, 3]


def test_a_transaction_that_began_before_what_was_fetched_is_known_by_its_first_offset() -> None:
    assert offsets(sent(10, 1) + marker(11, 1, ABORT) + sent(12, 1), (1, 3)) == [12]


def test_markers_are_no_records() -> None:
    assert offsets(marker(0, 1, COMMIT) + marker(1, 2, ABORT)) == []
