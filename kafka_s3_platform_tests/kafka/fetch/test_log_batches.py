"""Kafka's record batches to Arrow, on batches written byte by byte."""

from dataclasses import replace
from itertools import pairwise

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.kafka.fetch import log_batches as record_batches
from kafka_s3_platform.core.kafka.fetch.log_batches import (
    LogBatch,
    build_record_batch,
    cut_at_fault,
    leaps_beyond,
    open_batch,
    parse_batches,
    select_committed,
)
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.offsets import TopicPartition
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
    return list(parse_batches(memoryview(data)))


@settings(deadline=None)  # the kernel is compiled with its first call
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_every_record_comes_out_as_it_went_in(groups: list[list[WireRecord]]) -> None:
    data, at = b"", 100
    for group in groups:
        data += wire.record_batch(group, at)
        at += len(group) + 5
    found, failures = build_record_batch(TP, [open_batch(b) for b in batches(data)])
    assert not failures
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
    found, _ = build_record_batch(
        TP,
        [open_batch(b) for b in batches(wire.record_batch([WireRecord(5), WireRecord(9)], attributes=LOG_APPEND_TIME))],
    )
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [9, 9]
    assert found.column("timestampType").to_pylist() == [1, 1]


def test_a_changed_byte_is_found_by_the_crc() -> None:
    data = bytearray(wire.record_batch([WireRecord(1)], 7))
    data[-1] ^= 1
    [found] = batches(bytes(data))
    assert (found.base_offset, found.fault) == (7, "its CRC is wrong")


@given(RECORDS, st.data())
def test_bytes_that_are_not_the_records_they_say_are_refused(records: list[WireRecord], data: st.DataObject) -> None:
    good = wire.record_batch(records)[61:]
    cut = data.draw(st.integers(0, len(good) - 1))
    for body in (good[:cut], good + b"\0"):
        [broken] = batches(wire.framed(body, records, 0, 0, NO_PRODUCER))
        with pytest.raises(ValueError, match="not the records that its header says"):
            open_batch(broken)


CODECS = (cramjam.gzip.compress, cramjam.snappy.compress_raw, cramjam.lz4.compress, cramjam.zstd.compress)


@given(RECORDS, st.integers(0, 4), st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1))
def test_garbage_is_refused_or_read_within_its_bounds(
    records: list[WireRecord], codec: int, flips: list[tuple[int, int]]
) -> None:
    plain = wire.record_batch(records, 5)[61:]
    body = bytearray(CODECS[codec - 1](plain) if codec else plain)
    for place, flip in flips:
        body[place % len(body)] ^= flip
    [damaged] = batches(wire.framed(bytes(body), records, 5, codec, NO_PRODUCER))
    try:
        found, _ = build_record_batch(TP, [open_batch(damaged)])
    except ValueError:
        return
    found.validate(full=True)
    assert found.num_rows == len(records)
    ascending = found.column("offset").to_pylist()
    assert ascending == sorted(set(ascending))
    assert 5 <= ascending[0] <= ascending[-1] < 5 + len(records)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255))))
def test_what_is_believed_of_a_damaged_log_is_in_order(
    groups: list[list[WireRecord]], flips: list[tuple[int, int]]
) -> None:
    log, starts = b"", []
    for group in groups:
        starts.append(3 * len(log))
        log += wire.record_batch(group, starts[-1])
    damaged = bytearray(log)
    for place, flip in flips:
        damaged[place % len(log)] ^= flip
    try:
        found = cut_at_fault(batches(bytes(damaged)))
    except ValueError:
        return
    assert all(b.base_offset <= b.last_offset for b in found)
    assert all(one.last_offset < other.base_offset for one, other in pairwise(found))
    assert not any(b.fault for b in found[:-1])
    assert flips or (len(found), found[-1].fault) == (len(groups), "")


@pytest.mark.parametrize("offsets", [[0, 0], [1, 0], [0, 2], [0, 500], [-1, 0], [0, 2**31], [0, -(2**31)]])
def test_offsets_that_do_not_ascend_within_those_of_the_batch_are_refused(offsets: list[int]) -> None:
    lying = wire.record_batch([WireRecord(1)] * 2, 70, offset_deltas=offsets)
    with pytest.raises(ValueError, match="do not ascend within those of the batch, 70 to 71"):
        open_batch(batches(lying)[0])


def test_a_batch_that_lost_records_to_compaction_is_read() -> None:
    kept = wire.record_batch([WireRecord(1)] * 2, 70, offset_deltas=[3, 8], last_offset_delta=9)
    found, _ = build_record_batch(TP, [open_batch(b) for b in batches(kept)])
    assert found.column("offset").to_pylist() == [73, 78]


def test_a_count_below_zero_is_refused() -> None:
    [bad] = batches(wire.record_batch([WireRecord(1)], 1))
    with pytest.raises(ValueError, match="not the records that its header says"):
        open_batch(replace(bad, count=-1, body=memoryview(b"")))


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    [emptied] = batches(wire.framed(b"", [], 5, 0, NO_PRODUCER, last_offset_delta=4))
    assert build_record_batch(TP, [open_batch(emptied)])[0].num_rows == 0
    assert cut_at_fault([emptied]) == [emptied]


def test_a_batch_that_reaches_into_the_next_one_ends_there() -> None:
    log = wire.record_batch([WireRecord(1)], 3) + wire.record_batch([WireRecord(1)], 4, last_offset_delta=100)
    first, bad = cut_at_fault(batches(log + wire.record_batch([WireRecord(1)], 10)))
    assert (first.last_offset, bad.base_offset, bad.last_offset) == (3, 4, 9)
    assert bad.fault == "its header says that it ends at offset 104"


@pytest.mark.parametrize(
    ("bases", "log_end", "leaps"),
    [
        ([3, 4, 5], 6, False),
        ([3, 4, 5], 5, False),
        ([3, 9], 10, False),
        ([3, 9], 9, True),
        ([9], 6, True),
        ([20], 6, True),
        ([3, 4, 5, 6, 7, 8, 20], 9, False),
    ],
)
def test_a_batch_beyond_the_logs_end_passes_over_what_was_asked_for(
    bases: list[int], log_end: int, leaps: bool
) -> None:
    """Offsets 3 to 8 are asked for. Records that came after the end was told follow without a hole, or beyond them."""
    log = b"".join(wire.record_batch([WireRecord(1)], base) for base in bases)
    assert leaps_beyond(batches(log), 3, 9, log_end) is leaps


def test_a_damaged_batch_ends_where_the_next_begins_or_by_two_words_of_its_header() -> None:
    damaged = bytearray(wire.record_batch([WireRecord(1)], 3, last_offset_delta=5))
    damaged[-1] ^= 1
    one = bytearray(wire.record_batch([WireRecord(1)] * 4, 3))
    one[-1] ^= 1
    following = wire.record_batch([WireRecord(1)], 8)
    assert [b.last_offset for b in cut_at_fault(batches(bytes(damaged) + following))] == [7]
    assert [b.last_offset for b in cut_at_fault(batches(bytes(one)))] == [6]
    with pytest.raises(ValueError, match="where the batch at offset 3 ends cannot be told: its CRC is wrong"):
        cut_at_fault(batches(bytes(damaged)))
    before = wire.record_batch([WireRecord(1)], 2)
    assert [b.base_offset for b in cut_at_fault(batches(before + bytes(damaged)))] == [2]


def test_batches_in_no_order_are_believed_by_nobody() -> None:
    one, other = wire.record_batch([WireRecord(1)], 3), wire.record_batch([WireRecord(1)], 4)
    for log in (other + one, one + one):
        with pytest.raises(ValueError, match="out of order"):
            cut_at_fault(batches(log))


def test_a_length_that_holds_no_header_is_refused() -> None:
    data = bytearray(wire.record_batch([WireRecord(1)], 3))
    for length in (-12, 0, 48):
        data[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(ValueError, match=f"length of {length} bytes"):
            batches(bytes(data))


def test_records_that_nobody_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batches, "LARGEST_BATCH", 3000)
    [fits] = batches(wire.record_batch([WireRecord(1, value=b"x" * 1000) for _ in range(2)]))
    assert open_batch(fits).weight == 2128
    [too_large] = batches(wire.record_batch([WireRecord(1, value=b"x" * 1000) for _ in range(3)]))
    with pytest.raises(ValueError, match="its records take 3192 bytes, of which 3000 can be held"):
        open_batch(too_large)
    [headers] = batches(wire.record_batch([WireRecord(1, headers=[(b"", None)] * 200)]))
    with pytest.raises(ValueError, match="its records take 3265 bytes"):
        open_batch(headers)


def test_header_names_that_are_not_utf_8_are_escaped_and_their_offsets_told() -> None:
    names = [[], [b"ok", b"\xff"], [b"ok"], [], [b"a\xc3", "ü".encode(), b"\xff"], [b"\xff"]]
    sent = [WireRecord(1, headers=[(name, b"1") for name in each]) for each in names]
    found, failures = build_record_batch(TP, [open_batch(b) for b in batches(wire.record_batch(sent, 10))])
    told = [header and [h["key"] for h in header] for header in found.column("headers").to_pylist()]
    assert told == [None, ["ok", "\\xff"], ["ok"], None, ["a\\xc3", "ü", "\\xff"], ["\\xff"]]
    assert list(failures) == [11, 14, 15]
    assert failures[11] == "a header name is not UTF-8, its bytes are escaped: b'\\xff'"


def sent(base_offset: int, producer: int) -> bytes:
    return wire.record_batch([WireRecord(1)], base_offset, TRANSACTIONAL, (producer, 0, 0))


def marker(base_offset: int, producer: int, kind: bytes) -> bytes:
    return wire.record_batch([WireRecord(1, kind, b"")], base_offset, TRANSACTIONAL | CONTROL, (producer, 0, -1))


def offsets(data: bytes, *aborted: tuple[int, int]) -> list[int]:
    return [b.base_offset for b in select_committed(batches(data), aborted)]


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    log = sent(0, 1) + sent(1, 2) + marker(2, 1, ABORT) + sent(3, 1) + marker(4, 2, COMMIT) + marker(5, 1, COMMIT)
    assert offsets(log, (1, 0)) == [1, 3]


def test_a_transaction_that_began_before_the_fetch_is_known_by_its_offset() -> None:
    assert offsets(sent(10, 1) + marker(11, 1, ABORT) + sent(12, 1), (1, 3)) == [12]


def test_markers_are_no_records() -> None:
    assert offsets(marker(0, 1, COMMIT) + marker(1, 2, ABORT)) == []
