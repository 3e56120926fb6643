"""What a filter of segments wants, checked against rows, and against the bounds of files that may hold some."""

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.store.row_filter import InRange, OneOf, SegmentFilter, Term, match_rows, match_values
from kafka_s3_platform_tests.support import NOON

HOUR = timedelta(hours=1)

ROWS = pa.table(
    {
        "name": ["a", "b", "c"],
        "chunk": ["hourly", "hourly", "daily"],
        "chunk_start": pa.array([NOON, NOON + HOUR, None], pa.timestamp("us", tz="UTC")),
        "kafka_partition": pa.array([0, 1, 1], pa.int32()),
        "start_offset": [0, 10, 20],
        "end_offset": [10, 20, 30],
        "min_timestamp": [100, 200, 300],
        "max_timestamp": [199, 299, 399],
        "committed_at": pa.array([NOON, NOON + HOUR, NOON + 2 * HOUR], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (SegmentFilter(), ["a", "b", "c"]),
        (SegmentFilter(chunk="daily"), ["c"]),
        (SegmentFilter(chunk_starts=(NOON, NOON + HOUR)), ["a"]),
        (SegmentFilter(chunk_starts=(NOON + HOUR, NOON + 2 * HOUR)), ["b"]),
        (SegmentFilter(chunk_starts=(NOON, NOON)), []),
        (SegmentFilter(timestamps=(199, 200)), ["a"]),
        (SegmentFilter(timestamps=(199, 201)), ["a", "b"]),
        (SegmentFilter(timestamps=(400, 500)), []),
        (SegmentFilter(kafka_partitions=frozenset([1, 7])), ["b", "c"]),
        (SegmentFilter(kafka_partitions=frozenset()), []),
        (SegmentFilter(offsets=(10, 20)), ["b"]),
        (SegmentFilter(offsets=(9, 21)), ["a", "b", "c"]),
        (SegmentFilter(committed_since=NOON + HOUR), ["b", "c"]),
        (SegmentFilter(chunk="hourly", kafka_partitions=frozenset([1])), ["b"]),
    ],
)
def test_a_filter_takes_the_segments_that_it_names(wanted: SegmentFilter, names: list[str]) -> None:
    assert match_rows(ROWS, tuple(wanted.list_terms())).column("name").to_pylist() == names


def test_a_value_of_each_column_is_matched() -> None:
    assert match_rows(ROWS, tuple(match_values(chunk="hourly", kafka_partition=1))).column("name").to_pylist() == ["b"]


NUMBERS = st.integers(-5, 5)
TERMS: st.SearchStrategy[Term] = st.one_of(
    st.builds(OneOf, st.just("n"), st.frozensets(NUMBERS)),
    st.builds(InRange, st.just("n"), st.none() | NUMBERS, st.none() | NUMBERS),
)
MEANINGS: dict[type, Callable[[Term, int], bool]] = {
    OneOf: lambda term, n: n in term.values,  # type: ignore[union-attr]
    InRange: lambda term, n: (term.begin is None or n >= term.begin) and (term.end is None or n < term.end),  # type: ignore[union-attr,operator]
}


@given(TERMS, st.lists(st.none() | NUMBERS, max_size=6))
def test_a_file_is_left_out_only_if_no_row_of_it_matches(term: Term, values: list[int | None]) -> None:
    rows = match_rows(pa.table({"n": pa.array(values, pa.int64())}), (term,)).column("n").to_pylist()
    assert rows == [n for n in values if n is not None and MEANINGS[type(term)](term, n)]
    known = [n for n in values if n is not None]
    if rows:
        assert term.may_hold(min(known), max(known))
