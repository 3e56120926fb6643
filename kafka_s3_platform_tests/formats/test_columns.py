"""Record columns are taken apart exactly, whatever they were sliced from.

The record digest depends on what records say and on their order, on nothing else.
"""

from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.formats.columns import RecordDigest, read_headers, read_strings
from kafka_s3_platform.core.model.batches import count_record_bytes
from kafka_s3_platform_tests.formats.records import Record, batch_of, cut, records, with_bytes_under_nulls


def size_of(record: Record) -> int:
    pairs = [(h["key"].encode(), h["value"] or b"") for h in record["headers"] or []]
    return len(record["key"] or b"") + len(record["value"] or b"") + sum(len(k) + len(v) for k, v in pairs)


@given(records, st.lists(st.integers(0, 30), max_size=4))
def test_sizes_are_those_of_the_records(found: list[Record], bounds: list[int]) -> None:
    for whole in (batch_of(found), with_bytes_under_nulls(batch_of(found))):
        sizes = [int(s) for part in cut(whole, bounds) for s in count_record_bytes(part)]
        assert sizes == [size_of(r) for r in found]


@given(records, st.integers(0, 30))
def test_lengths_tell_null_from_empty_and_bytes_are_those_of_the_slice(found: list[Record], start: int) -> None:
    for whole in (batch_of(found), with_bytes_under_nulls(batch_of(found))):
        part, kept = whole.slice(start), found[start:]
        keys = read_strings(part.column("key"))
        assert keys.lengths.tolist() == [-1 if r["key"] is None else len(r["key"]) for r in kept]
        assert bytes(keys.data) == b"".join(r["key"] or b"" for r in kept)
        taken = read_headers(part.column("headers"))
        pairs = [h for r in kept for h in r["headers"] or []]
        assert taken.counts.tolist() == [-1 if r["headers"] is None else len(r["headers"]) for r in kept]
        assert bytes(taken.keys.data) == b"".join(h["key"].encode() for h in pairs)
        assert taken.values.lengths.tolist() == [-1 if h["value"] is None else len(h["value"]) for h in pairs]


@pytest.mark.parametrize("column", ["key", "value"])
def test_a_column_of_nulls_has_no_bytes(column: str) -> None:
    batch = batch_of([{"key": None, "value": None, "headers": None, "timestamp": 0}] * 3)
    assert read_strings(batch.column(column)).lengths.tolist() == [-1, -1, -1]
    assert bytes(read_strings(batch.column(column)).data) == b""


BASE: Record = {
    "key": b"",
    "value": b"ab",
    "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    "timestamp": 5,
}


def digest(*batches: pa.RecordBatch) -> str:
    found = RecordDigest()
    for batch in batches:
        found.update(batch)
    return found.hexdigest()


def changed(**changes: Any) -> Record:
    return deepcopy(BASE) | changes


@given(records, st.lists(st.integers(0, 30), max_size=5))
def test_batch_bounds_make_no_difference(found: list[Record], bounds: list[int]) -> None:
    whole = batch_of(found)
    assert digest(*cut(whole, bounds)) == digest(whole)


@given(records)
def test_bytes_under_nulls_make_no_difference(found: list[Record]) -> None:
    assert digest(with_bytes_under_nulls(batch_of(found))) == digest(batch_of(found))


@given(records, st.integers(1, 2**40))
def test_offsets_make_no_difference(found: list[Record], first_offset: int) -> None:
    assert digest(batch_of(found, first_offset)) == digest(batch_of(found))


@given(records, records)
def test_other_records_have_another_digest(left: list[Record], right: list[Record]) -> None:
    assert (digest(batch_of(left)) == digest(batch_of(right))) == (left == right)


@pytest.mark.parametrize(
    "other",
    [
        changed(key=None),
        changed(key=b"a", value=b"b"),
        changed(value=None),
        changed(value=b""),
        changed(headers=None),
        changed(headers=[]),
        changed(headers=BASE["headers"][::-1]),
        changed(headers=[{"key": "h", "value": b"1"}, {"key": "h", "value": b""}]),
        changed(headers=[{"key": "h1", "value": b""}, {"key": "h", "value": None}]),
        changed(headers=[{"key": "h", "value": b"1"}]),
        changed(timestamp=-1),
    ],
)
def test_null_empty_absent_and_order_are_told_apart(other: Record) -> None:
    assert digest(batch_of([other])) != digest(batch_of([BASE]))


def test_headers_belong_to_their_record() -> None:
    header, plain = [{"key": "h", "value": b"1"}], changed(headers=[])
    assert digest(batch_of([changed(headers=header), plain])) != digest(batch_of([plain, changed(headers=header)]))


def test_the_order_of_records_counts() -> None:
    assert digest(batch_of([BASE, changed(key=b"2")])) != digest(batch_of([changed(key=b"2"), BASE]))


def test_the_digest_so_far_can_be_asked_for() -> None:
    found = RecordDigest()
    found.update(batch_of([BASE]))
    assert found.hexdigest() == digest(batch_of([BASE]))
    found.update(batch_of([BASE], 2))
    assert found.hexdigest() == digest(batch_of([BASE, BASE]))


def test_the_digest_of_known_records_never_changes() -> None:
    # It is kept in indexes: another value here means that no archive verifies any more.
    assert digest() == "de96879fec9b00fb53e06af471bb9e81"
    assert digest(batch_of([BASE, changed(headers=None, timestamp=-1)])) == "fe73c643959d46a1e9cb398b5799c39b"
