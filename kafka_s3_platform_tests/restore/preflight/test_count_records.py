"""Counting tells what is lost, what is there twice and what is another's, whatever the order."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.model.batches import RECORD_SCHEMA
from kafka_s3_platform.restore.verify.target_count import ExpectedRecords, TargetCount, count_records

Row = tuple[bytes, int]
"""A value and a timestamp."""

ROWS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([0, 5, 6])), max_size=8)
ANY = frozenset({0})


def batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    records = [
        {
            "key": None,
            "value": value,
            "headers": None,
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": timestamp,
            "timestampType": 0,
        }
        for offset, (value, timestamp) in enumerate(rows)
    ]
    yield pa.RecordBatch.from_pylist(records, RECORD_SCHEMA)


def counted(streams: Sequence[Sequence[Row]], target: Sequence[Row], free: frozenset[int] = frozenset()) -> TargetCount:
    return count_records([ExpectedRecords(batches(rows), free) for rows in streams], batches(target), "a test")


@settings(max_examples=30)
@given(ROWS, ROWS, ROWS)
def test_it_is_the_difference_of_the_two_multisets(one: list[Row], two: list[Row], found: list[Row]) -> None:
    wanted, there = Counter([*one, *two]), Counter(found)
    result = counted([one, two], found)
    assert (result.lost is None) == (wanted <= there)
    if result.lost is None:
        assert result.doubled_count == sum((there - wanted)[row] for row in wanted)
        assert result.foreign_count == sum(count for row, count in there.items() if row not in wanted)


@settings(max_examples=30)
@given(ROWS, st.lists(st.integers(0, 2), min_size=8, max_size=8), ROWS)
def test_records_whose_timestamp_was_replaced_are_found_at_any(
    rows: list[Row], again: list[int], others: list[Row]
) -> None:
    own = {value for value, _ in rows}
    foreign = [row for row in others if row[0] not in own]
    sent = [(value, 9 if timestamp in ANY else timestamp) for value, timestamp in rows]
    doubles = [row for row, times in zip(sent, again, strict=False) for _ in range(times)]
    result = counted([rows], [*foreign, *doubles, *sent], ANY)
    assert result == TargetCount(len(doubles), len(foreign))


def test_what_was_lost_is_named_by_its_stream_and_offset() -> None:
    result = counted([[(b"a", 5), (b"b", 5)], [(b"b", 5), (b"b", 5)]], [(b"a", 5), (b"b", 5)])
    assert result.lost is not None
    assert (result.lost.count, result.lost.stream, result.lost.source_offset) == (2, 0, 1)
    assert (result.doubled_count, result.foreign_count) == (0, 0)


def test_none_and_nothing() -> None:
    assert counted([], []) == TargetCount()
    assert counted([[]], [(b"a", 5)]) == TargetCount(foreign_count=1)
