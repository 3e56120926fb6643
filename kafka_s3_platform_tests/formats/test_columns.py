"""Record columns are taken apart exactly, whatever they were sliced from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.formats.columns import read_headers, read_strings
from kafka_s3_platform.model.batches import count_record_bytes
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
