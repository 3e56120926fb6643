"""The algebra of half-open offset ranges, against plain sets of integers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span

BOUND = 60
ranges = st.tuples(st.integers(0, BOUND), st.integers(1, BOUND)).map(lambda t: OffsetRange(t[0], t[0] + t[1]))
range_sets = st.lists(ranges, max_size=6).map(RangeSet)


def offsets(ranges: RangeSet) -> set[int]:
    return {o for r in ranges for o in range(r.start_offset, r.end_offset)}


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 3)])
def test_a_range_is_never_empty_backward_or_negative(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(start, end)


def test_the_end_offset_is_outside() -> None:
    assert 9 in OffsetRange(5, 10)
    assert 10 not in OffsetRange(5, 10)
    assert not OffsetRange(0, 5).overlaps(OffsetRange(5, 10))


def test_span_of_nothing_is_empty() -> None:
    assert make_span(7, 7) == RangeSet()
    assert make_span(9, 7) == RangeSet()


@given(st.lists(ranges, max_size=6))
def test_ranges_are_kept_sorted_disjoint_and_not_adjacent(items: list[OffsetRange]) -> None:
    kept = RangeSet(items).ranges
    assert all(a.end_offset < b.start_offset for a, b in pairwise(kept))
    assert offsets(RangeSet(items)) == {o for r in items for o in range(r.start_offset, r.end_offset)}


@given(range_sets, range_sets)
def test_union_difference_and_intersection_are_those_of_sets(a: RangeSet, b: RangeSet) -> None:
    assert offsets(a | b) == offsets(a) | offsets(b)
    assert offsets(a - b) == offsets(a) - offsets(b)
    assert offsets(a & b) == offsets(a) & offsets(b)


@given(range_sets, st.integers(0, 2 * BOUND), st.integers(0, 2 * BOUND))
def test_covers_means_every_offset_is_held(held: RangeSet, start: int, end: int) -> None:
    assert held.covers(start, end) == (set(range(start, end)) <= offsets(held))


@given(ranges, st.lists(st.integers(0, 2 * BOUND)))
def test_cutting_loses_and_repeats_nothing(item: OffsetRange, at: list[int]) -> None:
    pieces = item.split(at)
    assert [p.start_offset for p in pieces[1:]] == [p.end_offset for p in pieces[:-1]]
    assert (pieces[0].start_offset, pieces[-1].end_offset) == (item.start_offset, item.end_offset)
    assert {p.start_offset for p in pieces[1:]} == {o for o in at if item.start_offset < o < item.end_offset}


@given(range_sets)
def test_the_end_offset_of_a_set_is_after_its_last_offset(held: RangeSet) -> None:
    assert held.end_offset == (max(offsets(held)) + 1 if held else None)
