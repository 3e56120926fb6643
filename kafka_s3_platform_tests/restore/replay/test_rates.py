"""A limit holds for the whole restore, whatever its tasks are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.restore.execution import share_out_limit


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
