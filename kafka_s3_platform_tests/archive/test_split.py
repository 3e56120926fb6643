"""Tasks dealt out into groups: in order, of about the same cost, the large ones alone."""

from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.archive.run import TASK_COST, group_tasks
from kafka_s3_platform.archive.task import ScanTask
from kafka_s3_platform.spark.runner import GROUP_COST, GROUPS_PER_SLOT


@dataclass(frozen=True)
class Sized:
    """A task as far as its size decides."""

    size: int


def group(sizes: list[int], at_once: int) -> list[list[int]]:
    tasks = cast("list[ScanTask]", [Sized(size) for size in sizes])
    return [[task.size for task in found] for found in group_tasks(tasks, at_once)]


@pytest.mark.parametrize(
    ("sizes", "at_once", "groups"),
    [
        ([], 2, []),
        ([5], 2, [[5]]),
        ([5, 5], 2, [[5], [5]]),
        ([0] * 16, 1, [[0] * 16]),
        ([0] * 16, 2, [[0] * 8] * 2),
        ([500_000] * 8, 2, [[500_000] * 2] * 4),
        ([5_000_000] * 16, 2, [[5_000_000] * 2] * 8),
        ([10_000_000, 5, 5, 10_000_000], 1, [[10_000_000], [5, 5], [10_000_000]]),
    ],
)
def test_tasks_are_dealt_out_by_their_cost(sizes: list[int], at_once: int, groups: list[list[int]]) -> None:
    assert group(sizes, at_once) == groups


@given(st.lists(st.integers(0, 3_000_000), max_size=200), st.integers(1, 16))
def test_no_task_is_lost_and_no_group_has_more_than_its_share_but_for_one_task(sizes: list[int], at_once: int) -> None:
    found = group(sizes, at_once)
    assert [size for sizes_of_group in found for size in sizes_of_group] == sizes
    total = sum(size + TASK_COST for size in sizes)
    share = max(total / (at_once * GROUPS_PER_SLOT), min(total / at_once, 2 * GROUP_COST))
    assert all(len(one) == 1 or sum(size + TASK_COST for size in one) <= share for one in found)
