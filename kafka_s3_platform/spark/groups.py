"""Deals tasks out into groups. Each group is one task of Spark, which costs more than a small piece of work."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

GROUPS_PER_SLOT = 4
"""Into how many groups the tasks of one place of work are dealt: a slow one then leaves the others work to do."""

GROUP_COST = 1_000_000
"""Below this cost, in records, there are fewer groups, but one for each place of work: a group itself costs a tenth."""


def deal_out(tasks: Sequence[T], count_cost: Callable[[T], int], at_once: int) -> list[tuple[T, ...]]:
    """Deal out the tasks into groups of about the same cost, in order. A large task stays alone."""
    total = sum(map(count_cost, tasks))
    share = total / max(1, at_once, min(total // GROUP_COST, at_once * GROUPS_PER_SLOT))
    groups: list[list[T]] = []
    filled = share
    for task in tasks:
        cost = count_cost(task)
        if filled + cost > share:
            groups.append([])
            filled = 0
        groups[-1].append(task)
        filled += cost
    return [tuple(group) for group in groups]
