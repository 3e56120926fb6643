"""No log has a negative offset, or ends before it starts."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.model.frontier import Frontier

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(("start", "stable", "end"), [(0, 0, 0), (3, 3, 3), (3, 4, 9), (0, 9, 9)])
def test_a_frontier_is_that_of_a_log(start: int, stable: int, end: int) -> None:
    assert Frontier(0, start, stable, end, None, NOW).high_watermark == end


@pytest.mark.parametrize(("start", "stable", "end"), [(-1, 0, 0), (-1001,) * 3, (0, -1, 5), (4, 3, 9), (4, 9, 3)])
def test_what_no_log_can_be_is_no_frontier(start: int, stable: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"no log starts at {start}, is stable up to {stable} and ends at {end}"):
        Frontier(7, start, stable, end, None, NOW)
